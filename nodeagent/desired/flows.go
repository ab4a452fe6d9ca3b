package desired

import "net/netip"

// Flows are the connections that began before their source was translated, and that the kernel would leave so for as
// long as they last: those of pods to peers whose answers do not come to the node's own mesh address.
type Flows struct {
	pods, peers map[Family]Set
	own         map[Family]netip.Addr
}

// Flows returns the stale connections of a state. A state that translates nothing has none.
func (s State) Flows() Flows {
	f := Flows{pods: map[Family]Set{}, peers: map[Family]Set{}, own: map[Family]netip.Addr{}}
	if s.Table == nil {
		return f
	}
	for _, c := range s.Table.Chains {
		for _, r := range c.Rules {
			if r.Verdict == SNAT {
				f.pods[r.Family], f.peers[r.Family], f.own[r.Family] = s.Table.Set(r.Src), s.Table.Set(r.Dst), r.To
			}
		}
	}
	return f
}

// Has says whether there can be stale connections of the family.
func (f Flows) Has(family Family) bool {
	return f.own[family].IsValid() && len(f.peers[family].Elements) > 0
}

// Stale says whether a connection is one: by who began it, who answers (a peer, even where a service's address was
// called), and whom the answers go to.
func (f Flows) Stale(source, answers, to netip.Addr) bool {
	family := FamilyOf(source)
	return f.Has(family) && to != f.own[family] && f.pods[family].Contains(source) && f.peers[family].Contains(answers)
}
