package report

import (
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// view is a class as sources of some families see it. The sets hold points; one is in a set where what the set says holds
// in every family that the point and the destination share.
type view struct {
	share bitset // points that have a family in common with the destination
	lanes map[int]*laneSet
	total laneSet // all lanes together
	rules []*viewRule
	open  bitset            // points that would be admitted to something more, if more were known
	needs map[string]bitset // of these, whom each condition would admit to more
}

// viewRule is what one rule of the text admits in one lane.
type viewRule struct {
	rule       policy.Node
	lane       int
	ports      []span
	admits     bitset
	some       bitset // whom it admits in one family at least
	part, self bool
}

type laneSet struct {
	some bitset // admitted to something
	any  bitset // admitted to all of the destination, on some port
	all  bitset // the same on every port
	open bitset // would be admitted to something more, if more were known
	hope bitset // would then be admitted to all on every port; nil where everything is known
}

// view returns the class as sources of some families see it.
func (f *flows) view(c *class, asked families) *view {
	asked &= c.fams
	if c.views[asked] != nil {
		return c.views[asked]
	}
	v := &view{share: newBitset(f.size), lanes: map[int]*laneSet{}}
	for fam := range f.has {
		if asked&(1<<fam) != 0 {
			v.share.or(f.has[fam])
		}
	}
	byLane := map[int][]*offer{}
	for _, o := range c.offers {
		byLane[o.lane] = append(byLane[o.lane], o)
	}
	v.rules = f.rules(v, c.offers, asked)
	v.open, v.needs = newBitset(f.size), map[string]bitset{}
	var sum laneSets
	for fam := range sum {
		sum[fam] = f.newLaneSet()
	}
	for lane, offers := range byLane {
		var by laneSets
		for fam := range by {
			by[fam] = f.lane(offers, fam)
			sum[fam].some.or(by[fam].some)
			sum[fam].any.or(by[fam].any)
			sum[fam].all.or(by[fam].all)
		}
		l := f.joinFamilies(v, asked, by)
		f.unknown(v, l, offers, asked)
		v.lanes[lane] = l
	}
	v.total = *f.joinFamilies(v, asked, sum)
	c.views[asked] = v
	return v
}

type laneSets [2]laneSet

func (f *flows) newLaneSet() laneSet {
	return laneSet{some: newBitset(f.size), any: newBitset(f.size), all: newBitset(f.size)}
}

// unknown adds to a lane and to the view what depends on conditions of which the inventory does not tell.
func (f *flows) unknown(v *view, l *laneSet, offers []*offer, asked families) {
	l.open = newBitset(f.size)
	if !slices.ContainsFunc(offers, func(o *offer) bool { return len(o.src.unknown) > 0 }) {
		return
	}
	sure := func(s *sourceSet, fam int) bitset { return s.sure[fam] }
	for _, o := range offers {
		for fam := range f.has {
			if asked&(1<<fam) == 0 || !o.on[fam] || len(o.src.unknown) == 0 {
				continue
			}
			has := f.admittedTo(offers, fam, o.ports, sure)
			for _, u := range o.src.unknown {
				more := u.points[fam].without(has)
				if more.count() == 0 {
					continue
				}
				l.open.or(more)
				v.open.or(more)
				if v.needs[u.needs] == nil {
					v.needs[u.needs] = newBitset(f.size)
				}
				v.needs[u.needs].or(more)
			}
		}
	}
	l.hope = f.every(v, asked, func(fam int) bitset {
		return f.admittedTo(offers, fam, nil, func(s *sourceSet, fam int) bitset {
			out := s.sure[fam].clone()
			for _, u := range s.unknown {
				out.or(u.points[fam])
			}
			return out
		})
	})
}

// rules joins the offers of each rule and lane; they come sorted so.
func (f *flows) rules(v *view, offers []*offer, asked families) []*viewRule {
	var out []*viewRule
	for i := 0; i < len(offers); {
		r := &viewRule{rule: offers[i].rule, lane: offers[i].lane, some: newBitset(f.size)}
		var sure [2]bitset
		for fam := range sure {
			sure[fam] = newBitset(f.size)
		}
		for ; i < len(offers) && offers[i].rule.Path == r.rule.Path && offers[i].lane == r.lane; i++ {
			o := offers[i]
			r.ports = spans.Join(slices.Concat(r.ports, o.ports))
			r.part, r.self = r.part || o.part, r.self || o.self
			for fam := range sure {
				if asked&(1<<fam) == 0 || !o.on[fam] {
					continue
				}
				sure[fam].or(o.src.sure[fam])
				r.some.or(o.src.sure[fam])
			}
		}
		r.admits = f.every(v, asked, func(fam int) bitset { return sure[fam] })
		out = append(out, r)
	}
	return out
}

// every holds the points that are, in each family they share with the destination, in the family's set.
func (f *flows) every(v *view, asked families, in func(fam int) bitset) bitset {
	out := v.share.clone()
	for fam := range f.has {
		if asked&(1<<fam) == 0 {
			continue
		}
		ok := in(fam)
		for i := range out {
			out[i] &= ok[i] | ^f.has[fam][i]
		}
	}
	return out
}

func (f *flows) joinFamilies(v *view, asked families, by laneSets) *laneSet {
	some := newBitset(f.size)
	for fam := range by {
		if asked&(1<<fam) != 0 {
			some.or(by[fam].some)
		}
	}
	return &laneSet{
		some: some,
		any:  f.every(v, asked, func(fam int) bitset { return by[fam].any }),
		all:  f.every(v, asked, func(fam int) bitset { return by[fam].all }),
	}
}

// lane adds up what the offers of one lane admit in one family.
func (f *flows) lane(offers []*offer, fam int) laneSet {
	out := f.newLaneSet()
	for _, o := range offers {
		if !o.on[fam] {
			continue
		}
		out.some.or(o.src.sure[fam])
		if !o.part {
			out.any.or(o.src.sure[fam])
		}
	}
	out.all = f.admittedTo(offers, fam, nil, func(s *sourceSet, fam int) bitset { return s.sure[fam] })
	return out
}

// admittedTo holds the points that the offers of one lane admit in one family to all of the destination on all of some
// ports; nil is every port. who says whom a rule's sources stand for.
func (f *flows) admittedTo(offers []*offer, fam int, ports []span, who func(*sourceSet, int) bitset) bitset {
	if everyPort(ports) {
		ports = []span{{First: 1, Last: 65535}}
	}
	out := newBitset(f.size)
	var rest []*offer // with some of the ports
	var bounds []int
	for _, o := range offers {
		switch {
		case !o.on[fam] || o.part:
		case everyPort(o.ports) || spans.Hold(o.ports, ports):
			out.or(who(o.src, fam))
		default:
			rest = append(rest, o)
			for _, s := range o.ports {
				bounds = append(bounds, s.First, s.Last+1)
			}
		}
	}
	var together []span
	for _, o := range rest {
		together = append(together, o.ports...)
	}
	if !spans.Hold(spans.Join(together), ports) {
		return out
	}
	// Only together can these be all of the ports: a point is admitted to all where it is between any two bounds.
	for _, s := range ports {
		bounds = append(bounds, s.First)
	}
	slices.Sort(bounds)
	var all bitset
	for _, at := range slices.Compact(bounds) {
		if !holdsPort(ports, at) {
			continue
		}
		here := out.clone()
		for _, o := range rest {
			if holdsPort(o.ports, at) {
				here.or(who(o.src, fam))
			}
		}
		if all == nil {
			all = here
		}
		all.and(here)
	}
	return all
}

// admitted says whether all of a lane is admitted from one device to another: in every family that they share, on every
// port.
func (f *flows) admitted(from, to, lane int) policy.Verdict {
	switch l := f.own(to).lanes[lane]; {
	case l == nil:
		return policy.Fail
	case l.all.has(from):
		return policy.Pass
	case l.hope != nil && l.hope.has(from):
		return policy.Undecided
	}
	return policy.Fail
}
