package desired

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Stranded is a peer that pods of this node have no way to, because there is no family in which the peer, the node and
// its pods all have addresses.
type Stranded struct {
	Peer    string     `json:"peer"`
	Address netip.Addr `json:"address"` // one that it has
	Why     string     `json:"why"`
}

// String is the peer with the reason, in one line.
func (s Stranded) String() string {
	return fmt.Sprintf("peer %s (%s) cannot be reached by pods: %s", s.Peer, s.Address, s.Why)
}

// StrandedPeers returns the peers of a document that are stranded. Pods whose networks are not known have every family.
func StrandedPeers(doc config.Document) []Stranded {
	has := func(list []netip.Addr, f Family) bool {
		return slices.ContainsFunc(list, func(a netip.Addr) bool { return FamilyOf(a) == f })
	}
	pods := func(f Family) bool { return len(doc.PodCIDRs) == 0 || len(union(f, doc.PodCIDRs)) > 0 }
	var out []Stranded
	for _, p := range doc.Peers {
		reached, why := false, ""
		for _, f := range Families() {
			switch {
			case !has(p.Addresses, f):
			case !has(doc.Node.Addresses, f):
				why = fmt.Sprintf("it has an IPv%d address, and the node has none", f)
			case !pods(f):
				why = fmt.Sprintf("it has an IPv%d address, and pods have no network of IPv%[1]d", f)
			default:
				reached = true
			}
		}
		if !reached && why != "" {
			out = append(out, Stranded{Peer: p.Name, Address: p.Addresses[0], Why: why})
		}
	}
	return out
}
