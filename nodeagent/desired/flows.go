package desired

import (
	"net/netip"
	"slices"
)

// Flows are the connections that began before their source was translated, and that the kernel would leave so for as
// long as they last: those of pods to peers whose answers do not come to the node's own mesh address.
type Flows struct {
	pods, peers map[Family]Set
	own         map[Family]netip.Addr
}

// Flows returns the stale connections of a state. A state that translates nothing has none.
func (s State) Flows() Flows {
	f := Flows{pods: map[Family]Set{}, peers: map[Family]Set{}, own: map[Family]netip.Addr{}}
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if r.Verdict == SNAT {
					f.pods[r.Family] = f.pods[r.Family].with(t.Set(r.Src))
					f.peers[r.Family] = f.peers[r.Family].with(t.Set(r.Dst))
					f.own[r.Family] = r.To
				}
			}
		}
	}
	for _, sets := range []map[Family]Set{f.pods, f.peers} {
		for family, s := range sets {
			slices.SortFunc(s.Elements, netip.Prefix.Compare)
			s.Elements = slices.Compact(s.Elements)
			sets[family] = s
		}
	}
	return f
}

// with adds the elements of another set, of which there is one per rule where rules name networks.
func (s Set) with(other Set) Set {
	s.Elements = slices.Concat(s.Elements, other.Elements)
	return s
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
