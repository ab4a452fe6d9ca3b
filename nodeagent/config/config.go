// Package config is the contract between the provider, which writes one document per node, and the node agent, which
// carries it out: types, strict parse, validation. It is neither the planner nor the agent, and depends on the
// standard library only.
package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
)

// Version is the version of the document that this package reads and writes.
const Version = 1

// Modes of [Routing].
const (
	ModeMark  = "mark"  // one rule for a mark bit, which the firewall sets on packets from pods to peers
	ModeRules = "rules" // the same, with one rule per peer, for those who want to read each peer in `ip rule`
)

// Backends of [Firewall].
const (
	BackendAuto     = "auto"     // nftables where the kernel has it, else iptables
	BackendNFTables = "nftables" // a table of the agent's own
	BackendIPTables = "iptables" // chains of the agent's own, for kernels without nf_tables
)

// Defaults of [Routing] and [Overlay].
const (
	DefaultMark     = Mark(0x2000)
	DefaultTable    = 52 // the table that tailscaled fills with one route per peer
	DefaultProtocol = "ip-in-ip"
)

// Document is what one node is told. Start from [New] to have the defaults of the optional parts.
type Document struct {
	Version    int            `json:"version"`
	Mesh       string         `json:"mesh"`
	Node       Node           `json:"node"`
	PodCIDRs   []netip.Prefix `json:"pod_cidrs,omitempty"` // empty: the agent finds them on the node
	Peers      []Node         `json:"peers"`               // whom this node reaches through the mesh
	Discover   Discover       `json:"discover,omitzero"`
	LocalCIDRs []netip.Prefix `json:"local_cidrs,omitempty"` // networks of this node's own location
	Routing    Routing        `json:"routing"`
	Firewall   Firewall       `json:"firewall"`
	Overlay    Overlay        `json:"overlay"`
}

// Node is a machine of the mesh: this one, or a peer.
type Node struct {
	Name      string       `json:"name"`
	ID        string       `json:"id,omitempty"` // the control plane's stable node ID, by which its address is followed
	Addresses []netip.Addr `json:"addresses"`    // mesh addresses, at most one per family
	Location  string       `json:"location,omitempty"`
}

// Discover adds peers that the document does not list.
type Discover struct {
	Tags []string `json:"tags,omitempty"` // nodes of the tailnet that carry one of these tags are peers
}

// Routing says how packets to peers are taken out of the CNI's hands.
type Routing struct {
	Mode       string   `json:"mode"` // ModeMark or ModeRules
	Mark       Mark     `json:"mark"`
	Priority   Priority `json:"priority"`
	Table      int      `json:"table"`
	FailClosed bool     `json:"fail_closed"` // refuse packets to peers while they cannot leave through the mesh
}

// Firewall says where and whether sources are translated.
type Firewall struct {
	Backend string `json:"backend"` // BackendAuto, BackendNFTables or BackendIPTables
	SNAT    bool   `json:"snat"`
}

// Overlay names what carries pod-to-pod packets.
type Overlay struct {
	Protocol string `json:"protocol"` // as the tailnet policy names it: "ip-in-ip", "gre", "esp", "udp"; or "none"
}

// New returns a document that has the current version and the default of each optional part. [Parse] starts from the
// same one.
func New() Document {
	return Document{
		Version: Version,
		Routing: Routing{
			Mode: ModeMark, Mark: DefaultMark, Priority: PriorityAuto(), Table: DefaultTable,
		},
		Firewall: Firewall{Backend: BackendAuto, SNAT: true},
		Overlay:  Overlay{Protocol: DefaultProtocol},
	}
}

// Marshal returns the document as indented JSON that ends in a newline. Equal documents give equal bytes, and [Parse] of
// a valid document's bytes gives the document again.
func (d Document) Marshal() ([]byte, error) {
	if d.Peers == nil {
		d.Peers = []Node{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("marshal document of node %q: %w", d.Node.Name, err)
	}
	return b.Bytes(), nil
}

// Tailscale's own ranges. Every mesh address lies in one of them.
func meshRanges() [2]netip.Prefix {
	return [...]netip.Prefix{MeshRange4(), MeshRange6()}
}

// MeshRange4 returns 100.64.0.0/10, from which a tailnet's IPv4 addresses are taken.
func MeshRange4() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10)
}

// MeshRange6 returns fd7a:115c:a1e0::/48, from which a tailnet's IPv6 addresses are taken.
func MeshRange6() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x7a, 0x11, 0x5c, 0xa1, 0xe0}), 48)
}

// IsMesh says whether a lies in one of the ranges of mesh addresses.
func IsMesh(a netip.Addr) bool {
	return MeshRange4().Contains(a) || MeshRange6().Contains(a)
}
