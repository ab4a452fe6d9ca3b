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
	open  bitset // points that would be admitted to something more, if more were known
	needs []string
}

// viewRule is what one rule of the text admits in one lane.
type viewRule struct {
	rule       policy.Node
	lane       int
	ports      []span
	admits     bitset
	some       bitset // whom it admits in one family at least
	maybe      bitset // whom it would admit as well, if more were known
	part, self bool
}

type laneSet struct {
	some bitset // admitted to something
	any  bitset // admitted to all of the destination, on some port
	all  bitset // the same on every port
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
	var every []laneSets
	for lane, offers := range byLane {
		var by laneSets
		for fam := range by {
			by[fam] = f.lane(offers, fam)
		}
		v.lanes[lane] = f.joinFamilies(v, asked, by)
		every = append(every, by)
	}
	var sum laneSets
	for fam := range sum {
		sum[fam] = laneSet{newBitset(f.size), newBitset(f.size), newBitset(f.size)}
		for _, by := range every {
			sum[fam].some.or(by[fam].some)
			sum[fam].any.or(by[fam].any)
			sum[fam].all.or(by[fam].all)
		}
	}
	v.total = *f.joinFamilies(v, asked, sum)
	v.open = newBitset(f.size)
	for _, r := range v.rules {
		v.open.or(r.maybe)
	}
	for i := range v.open {
		v.open[i] &^= v.total.any[i]
	}
	for _, o := range c.offers {
		v.needs = append(v.needs, o.src.needs...)
	}
	slices.Sort(v.needs)
	v.needs = slices.Compact(v.needs)
	c.views[asked] = v
	return v
}

type laneSets [2]laneSet

// rules joins the offers of each rule and lane; they come sorted so.
func (f *flows) rules(v *view, offers []*offer, asked families) []*viewRule {
	var out []*viewRule
	for i := 0; i < len(offers); {
		r := &viewRule{rule: offers[i].rule, lane: offers[i].lane, some: newBitset(f.size), maybe: newBitset(f.size)}
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
				r.maybe.or(o.src.maybe[fam])
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
	out := laneSet{newBitset(f.size), newBitset(f.size), newBitset(f.size)}
	var rest []*offer // with some ports
	var ports []span
	for _, o := range offers {
		if !o.on[fam] {
			continue
		}
		out.some.or(o.src.sure[fam])
		if o.part {
			continue
		}
		out.any.or(o.src.sure[fam])
		if everyPort(o.ports) {
			out.all.or(o.src.sure[fam])
		} else {
			rest = append(rest, o)
			ports = append(ports, o.ports...)
		}
	}
	ports = spans.Join(ports)
	if len(rest) == 0 || !everyPort(ports) {
		return out
	}
	// Only together can these be every port: a point is admitted to all where it is between any two bounds.
	var bounds []int
	for _, o := range rest {
		for _, s := range o.ports {
			bounds = append(bounds, s.First, s.Last+1)
		}
	}
	slices.Sort(bounds)
	together := out.any.clone()
	for _, at := range slices.Compact(bounds) {
		if at > 65535 {
			break
		}
		here := out.all.clone()
		for _, o := range rest {
			if slices.ContainsFunc(o.ports, func(s span) bool { return s.First <= at && at <= s.Last }) {
				here.or(o.src.sure[fam])
			}
		}
		together.and(here)
	}
	out.all = together
	return out
}

// admitted says whether all of a lane is admitted from one device to another: in every family that they share, on every
// port.
func (f *flows) admitted(from, to, lane int) policy.Verdict {
	v := f.own(to)
	if l := v.lanes[lane]; l != nil && l.all.has(from) {
		return policy.Pass
	}
	for _, r := range v.rules {
		if r.lane == lane && r.maybe.has(from) && everyPort(r.ports) {
			return policy.Undecided
		}
	}
	return policy.Fail
}
