package desired

import (
	"net/netip"
	"slices"
)

// Facts is what the kernel says of the node.
type Facts struct {
	Links    []Link
	Rules    []Rule             // every policy rule, in the kernel's order, IPv4 first
	Tables   map[Backend]*Table // the agent's own, where there are any
	Counters map[string]Counter // of their rules, by comment

	NoNFTables string  // why the nftables backend cannot be had; "": it can
	IPTables   Backend // the variant of iptables that the node's other users use
	NoIPTables string  // why that one cannot be had, and what to do about it; "": it can
	NoSets     bool    // the kernel has no ipset, so that rules for iptables must name networks
}

// Link is a network interface.
type Link struct {
	Name      string
	Up        bool
	Addresses []netip.Prefix // with the length of the network that they are in
	Hosts     []netip.Addr   // each with a route of its own over the interface, as CNIs without a bridge give pods
}

// Counter is what a firewall rule has taken.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Link returns the interface of a name.
func (f Facts) Link(name string) (Link, bool) {
	i := slices.IndexFunc(f.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return f.Links[i], true
}

// Mesh returns the interface's mesh addresses.
func (l Link) Mesh() []netip.Addr {
	var out []netip.Addr
	for _, p := range l.Addresses {
		if FamilyOf(p.Addr()).MeshRange().Contains(p.Addr()) {
			out = append(out, p.Addr())
		}
	}
	return out
}

// local says whether the address is the node's own.
func (f Facts) local(a netip.Addr) bool {
	return slices.ContainsFunc(f.Links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// OwnRoute returns the first address for which is says yes that has a route of its own, and the interface that this leads to.
func (f Facts) OwnRoute(is func(netip.Addr) bool) (host netip.Addr, dev string) {
	for _, l := range f.Links {
		for _, a := range l.Hosts {
			if l.Name != Interface && is(a) && !f.local(a) {
				return a, l.Name
			}
		}
	}
	return netip.Addr{}, ""
}

// OwnRules returns the policy rules that the agent added.
func (f Facts) OwnRules() []Rule {
	var own []Rule
	for _, r := range f.Rules {
		if r.Own() {
			own = append(own, r)
		}
	}
	return own
}

// Answer is the kernel's answer to where a packet would go.
type Answer struct {
	Dev    string `json:"dev,omitempty"`
	Table  uint32 `json:"table,omitempty"`
	Reason string `json:"reason,omitempty"` // why it would go nowhere
	// Filtered says that reverse path filtering (or a blackhole route: the kernel's answer is the same) is the reason.
	Filtered bool `json:"filtered,omitempty"`
}

// String returns the answer in the words of `ip route get`; the zero answer is "unknown".
func (a Answer) String() string {
	switch {
	case a == Answer{}:
		return "unknown"
	case a.Reason != "":
		return a.Reason
	}
	return "dev " + a.Dev + " table " + tableName(a.Table)
}
