package lint

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// redundantRules finds rules that admit nothing which the others do not admit, and rules that admit nothing at all. It goes
// from the last to the first and counts each one that it finds as gone, so that of two equal rules one is found.
func redundantRules(l *linter) {
	c := newCover(l.everybody.Compiled.Access())
	l.redundant = map[string]bool{}
	for _, e := range slices.Backward(l.entries) {
		if e.app || e.via || c.open[e.Path] {
			continue // it may give capabilities, or a way, or what the inventory does not tell
		}
		if !c.lands[e.Path] {
			l.redundant[e.Path] = true
			d := l.say("empty-rule", e.Node, e.Path+" admits nothing", "no device and no address is on both of its sides")
			d.Notes = []string{"a device was made up for each name of the policy, and none of them is admitted to any other"}
			continue
		}
		by, ok := c.covered(e.Path, l.redundant)
		if !ok {
			continue
		}
		l.redundant[e.Path] = true
		d := l.say("redundant-rule", e.Node, e.Path+" admits nothing that other rules do not admit", "can be removed")
		for _, path := range by {
			if len(d.Related) == 3 {
				d.Notes = append(d.Notes, fmt.Sprintf("%d rules together admit it", len(by)))
				break
			}
			d.Related = append(d.Related, diag.Related{Message: path + " admits it, or part of it", Range: c.nodes[path].Range})
		}
	}
}

// cover knows what each rule admits to each device; devices that the same rules reach in the same way count once.
type cover struct {
	devices [][]admitted    // what reaches each
	lands   map[string]bool // paths of rules that admit anything
	open    map[string]bool // paths of rules of which the inventory leaves something open
	nodes   map[string]policy.Node
	sets    map[*policy.Sources][2]*netipx.IPSet
	less    map[[2]*netipx.IPSet]*netipx.IPSet // differences: the same sources meet on many devices
}

// admitted is an admission made ready for comparing.
type admitted struct {
	policy.Admission
	lanes       []nodefilter.Lane
	dst         *netipx.IPSet
	sure, maybe *netipx.IPSet // sources; maybe holds sure
}

func newCover(a *policy.Access) *cover {
	c := &cover{
		lands: map[string]bool{}, open: map[string]bool{}, nodes: map[string]policy.Node{},
		sets: map[*policy.Sources][2]*netipx.IPSet{}, less: map[[2]*netipx.IPSet]*netipx.IPSet{},
	}
	for _, adm := range a.Unplaced() {
		c.open[adm.Rule.Path] = true
	}
	seen := map[string]bool{}
	lanes := map[[2]int][]nodefilter.Lane{} // by what tells admissions apart: the same for every device
	for i, d := range a.Devices() {
		var key strings.Builder
		var list []admitted
		own := setOf(d.Addrs...)
		for _, adm := range a.Admissions(i) {
			if adm.Caps != nil {
				continue
			}
			fmt.Fprint(&key, " ", adm.ID, " ", adm.Part, " ", adm.All, adm.Own, adm.IPs)
			if adm.Self {
				fmt.Fprintf(&key, " %p", adm.Sources)
			}
			id := [2]int{adm.ID, adm.Part}
			if _, ok := lanes[id]; !ok {
				lanes[id] = nodefilter.Lanes(&adm)
			}
			x := admitted{Admission: adm, lanes: lanes[id], dst: own}
			x.sure, x.maybe = c.sources(adm.Sources)
			switch {
			case adm.All:
				x.dst = nodefilter.Set("*")
			case !adm.Own:
				x.dst = nodefilter.Set(adm.IPs...)
			}
			list = append(list, x)
			c.nodes[adm.Rule.Path] = adm.Rule
			if !x.maybe.Equal(&netipx.IPSet{}) && len(x.lanes) > 0 {
				c.lands[adm.Rule.Path] = true
			}
		}
		if !seen[key.String()] {
			seen[key.String()] = true
			c.devices = append(c.devices, list)
		}
	}
	return c
}

func (c *cover) sources(s *policy.Sources) (sure, maybe *netipx.IPSet) {
	got, ok := c.sets[s]
	if !ok {
		got[0] = nodefilter.Set(s.IPs...)
		texts := slices.Clone(s.IPs)
		for _, u := range s.Unknown {
			texts = append(texts, u.IPs...)
		}
		got[1] = nodefilter.Set(texts...)
		c.sets[s] = got
	}
	return got[0], got[1]
}

// covered reports whether everything that a rule admits is admitted by others, gone ones apart, and by which.
func (c *cover) covered(path string, gone map[string]bool) (by []string, ok bool) {
	used := map[string]bool{}
	for _, d := range c.devices {
		for _, mine := range d {
			if mine.Rule.Path != path {
				continue
			}
			reaches := func(other admitted) bool {
				return other.All || mine.Own && other.Own || holds(other.dst, mine.dst)
			}
			for _, lane := range mine.lanes { // pings last: others cover them most often
				for _, part := range split(lane, d) {
					left := mine.maybe
					for _, other := range d {
						if other.Rule.Path == path || gone[other.Rule.Path] || !other.lets(part) || !reaches(other) {
							continue
						}
						if rest := c.without(left, other.sure); rest != left {
							used[other.Rule.Path] = true
							left = rest
						}
					}
					if !left.Equal(&netipx.IPSet{}) {
						return nil, false
					}
				}
			}
		}
	}
	return sortedKeys(used), true
}

// without is a without b, and a itself where they have nothing in common.
func (c *cover) without(a, b *netipx.IPSet) *netipx.IPSet {
	key := [2]*netipx.IPSet{a, b}
	got, ok := c.less[key]
	if !ok {
		got = a
		if rest := difference(a, b); !rest.Equal(a) {
			got = rest
		}
		c.less[key] = got
	}
	return got
}

// lets reports whether an admission lets a lane through.
func (a admitted) lets(x nodefilter.Lane) bool {
	return slices.ContainsFunc(a.lanes, func(l nodefilter.Lane) bool { return l.Proto == x.Proto && spans.Hold(l.Ports, x.Ports) })
}

// split cuts a lane of one of the admissions where the ports of any admission begin or end, so that each piece is let through whole or not at all.
func split(x nodefilter.Lane, all []admitted) []nodefilter.Lane {
	if x.Ports == nil {
		return []nodefilter.Lane{x}
	}
	var cuts []int
	for _, a := range all {
		for _, l := range a.lanes {
			if l.Proto == x.Proto {
				for _, s := range l.Ports {
					cuts = append(cuts, s.First, s.Last+1)
				}
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []nodefilter.Lane
	for _, s := range x.Ports {
		first := s.First
		for _, at := range cuts { // its own bounds are among them
			if at > first && at <= s.Last+1 {
				out = append(out, nodefilter.Lane{Proto: x.Proto, Ports: []spans.Span{{First: first, Last: at - 1}}})
				first = at
			}
		}
	}
	return out
}

func build(f func(b *netipx.IPSetBuilder)) *netipx.IPSet {
	var b netipx.IPSetBuilder
	f(&b)
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return s
}

func setOf(addrs ...netip.Addr) *netipx.IPSet {
	return build(func(b *netipx.IPSetBuilder) {
		for _, a := range addrs {
			b.Add(a)
		}
	})
}

func difference(a, b *netipx.IPSet) *netipx.IPSet {
	return build(func(x *netipx.IPSetBuilder) { x.AddSet(a); x.RemoveSet(b) })
}

// holds reports whether all of b is in a.
func holds(a, b *netipx.IPSet) bool { return difference(b, a).Equal(&netipx.IPSet{}) }
