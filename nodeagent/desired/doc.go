// Package desired says what a node must have: a pure function of the node's document and of facts about the node gives a
// state, and two states give the changes between them. It reads and writes nothing; package kernel does that.
package desired

import (
	"net/netip"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// What the agent marks its own objects with, and where it expects Tailscale.
const (
	// Interface is tailscaled's tunnel device.
	Interface = "tailscale0"
	// TableName is the name of the agent's own nftables table, which it alone writes.
	TableName = "tailmesh"
	// RouteProtocol is the routing protocol number of the agent's policy rules (`ip rule` shows it as proto). It is in
	// nobody's list: iproute2's rt_protos, FRR (11, 186-199), kube-router (17), Calico (80), kube-vip (248).
	RouteProtocol = 116
)

// Family is a version of the internet protocol.
type Family int

// The families, in the order in which everything about them is listed.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families returns both, in order.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// MeshRange returns the range of mesh addresses of the family.
func (f Family) MeshRange() netip.Prefix {
	if f == IPv4 {
		return config.MeshRange4()
	}
	return config.MeshRange6()
}

// ip returns the name by which nftables selects the family's header.
func (f Family) ip() string {
	if f == IPv4 {
		return "ip"
	}
	return "ip6"
}
