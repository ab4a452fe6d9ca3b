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
			x := admitted{Admission: adm, dst: own}
			x.sure, x.maybe = c.sources(adm.Sources)
			switch {
			case adm.All:
				x.dst = everything()
			case !adm.Own:
				x.dst = textSet(adm.IPs)
			}
			list = append(list, x)
			c.nodes[adm.Rule.Path] = adm.Rule
			if !x.maybe.Equal(&netipx.IPSet{}) && len(lanes(adm)) > 0 {
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
		got[0] = textSet(s.IPs)
		texts := slices.Clone(s.IPs)
		for _, u := range s.Unknown {
			texts = append(texts, u.IPs...)
		}
		got[1] = textSet(texts)
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
			for _, lane := range lanes(mine.Admission) {
				for _, span := range lane.split(d) {
					left := mine.maybe
					for _, other := range d {
						if other.Rule.Path == path || gone[other.Rule.Path] || !span.in(other.Admission) || !reaches(other) {
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

// lane is a protocol, and for those that have them a range of ports.
type lane struct {
	proto int
	ports policy.PortRange
	whole bool // a protocol without ports, which passes only where all ports are named; pings pass wherever anything does
}

const (
	icmp   = 1
	tcp    = 6
	udp    = 17
	icmpv6 = 58
	sctp   = 132
)

// lanes lists what an admission lets through, as the nodes' own filter reads it.
func lanes(a policy.Admission) []lane {
	var out []lane
	if len(a.Ports) == 0 {
		return nil
	}
	protos := a.Proto
	if protos == nil {
		protos = []int{tcp, udp}
	}
	for _, p := range protos {
		switch p {
		case icmp, icmpv6:
		case tcp, udp, sctp:
			for _, r := range a.Ports {
				out = append(out, lane{proto: p, ports: r})
			}
		default:
			if slices.ContainsFunc(a.Ports, wholeRange) {
				out = append(out, lane{proto: p, whole: true})
			}
		}
	}
	return append(out, lane{proto: icmp, whole: true}, lane{proto: icmpv6, whole: true})
}

func wholeRange(r policy.PortRange) bool { return r.First == 0 && r.Last == 65535 }

// in reports whether an admission lets a lane through.
func (x lane) in(a policy.Admission) bool {
	return slices.ContainsFunc(lanes(a), func(y lane) bool {
		return x.proto == y.proto && (x.whole || y.ports.First <= x.ports.First && x.ports.Last <= y.ports.Last)
	})
}

// split cuts a lane where the ports of any admission begin or end, so that each piece is let through whole or not at all.
func (x lane) split(all []admitted) []lane {
	if x.whole {
		return []lane{x}
	}
	starts := []int{int(x.ports.First)}
	for _, a := range all {
		for _, r := range a.Ports {
			for _, at := range []int{int(r.First), int(r.Last) + 1} {
				if at > int(x.ports.First) && at <= int(x.ports.Last) {
					starts = append(starts, at)
				}
			}
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	out := make([]lane, len(starts))
	for i, s := range starts {
		last := int(x.ports.Last)
		if i+1 < len(starts) {
			last = starts[i+1] - 1
		}
		out[i] = lane{proto: x.proto, ports: policy.PortRange{First: uint16(s), Last: uint16(last)}}
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

func everything() *netipx.IPSet { return textSet([]string{"*"}) }

// textSet reads addresses, CIDRs, ranges and "*" as filters spell them.
func textSet(texts []string) *netipx.IPSet {
	return build(func(b *netipx.IPSetBuilder) {
		for _, t := range texts {
			if t == "*" {
				b.AddPrefix(netip.MustParsePrefix("0.0.0.0/0"))
				b.AddPrefix(netip.MustParsePrefix("::/0"))
			} else if a, err := netip.ParseAddr(t); err == nil {
				b.Add(a)
			} else if p, err := netip.ParsePrefix(t); err == nil {
				b.AddPrefix(p)
			} else if r, err := netipx.ParseIPRange(t); err == nil {
				b.AddRange(r)
			}
		}
	})
}

func difference(a, b *netipx.IPSet) *netipx.IPSet {
	return build(func(x *netipx.IPSetBuilder) { x.AddSet(a); x.RemoveSet(b) })
}

// holds reports whether all of b is in a.
func holds(a, b *netipx.IPSet) bool { return difference(b, a).Equal(&netipx.IPSet{}) }
