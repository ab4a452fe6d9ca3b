package accessdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// maxLines is how many lines one rule may have for one effect; where its difference falls into more pieces, it gets one
// line that spans them and says so.
const maxLines = 4

// folder turns facts into changes.
type folder struct {
	*comparer
	edits  *edits
	namers [2]*namer
	all    target // every destination
}

func newFolder(k *comparer) *folder {
	f := &folder{comparer: k, edits: compareItems(k.sides[0].report.Policy, k.sides[1].report.Policy)}
	for i, s := range k.sides {
		f.namers[i] = newNamer(k.world, s)
	}
	f.all.own = newBitset(k.size)
	var behind netipx.IPSetBuilder
	for _, c := range k.classes {
		for _, d := range c.devices {
			for _, p := range k.own[d] {
				f.all.own.add(p)
			}
		}
		for _, r := range c.behind {
			behind.AddRange(r)
		}
	}
	f.all.behind = built(&behind)
	return f
}

// bundle is what has one cause.
type bundle struct {
	lost  bool
	needs int
	cause int
	kind  Kind
}

// fragment is a product: each of its sources gains or loses each of its wares at each of its destinations.
type fragment struct {
	srcs  []int
	parts []part
	wares []factKey // one of each lane and ports
}

func (f *folder) result() *Result {
	r := &Result{Gained: []Change{}, Lost: []Change{}, Undecided: []Change{}, Edited: []Edit{}}
	bundles := map[bundle][]factKey{}
	var order []bundle
	for _, key := range f.keys {
		b := bundle{key.lost, key.needs, key.cause, f.lanes[key.lane].kind}
		if bundles[b] == nil {
			order = append(order, b)
		}
		bundles[b] = append(bundles[b], key)
	}
	for _, b := range order {
		for _, c := range f.changes(b, bundles[b]) {
			switch {
			case b.needs != 0:
				r.Undecided = append(r.Undecided, c)
			case b.lost:
				r.Lost = append(r.Lost, c)
			default:
				r.Gained = append(r.Gained, c)
			}
		}
	}
	for _, l := range [][]Change{r.Gained, r.Lost, r.Undecided} {
		f.sort(l)
	}
	r.Edited = append(r.Edited, f.unused(len(f.keys) > 0)...)
	r.Named = f.named()
	return r
}

// sort orders changes by kind, by the place of the rule and by names.
func (f *folder) sort(l []Change) {
	kinds := []Kind{Network, SSH, Capability, Attribute, Route}
	slices.SortStableFunc(l, func(a, b Change) int {
		if c := cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), strings.Compare(a.Effect, b.Effect),
			cmp.Compare(a.Cause.Range.Start.Offset, b.Cause.Range.Start.Offset), strings.Compare(a.Cause.Rule, b.Cause.Rule),
			cmp.Compare(b.Pairs, a.Pairs)); c != 0 {
			return c
		}
		return strings.Compare(a.String(), b.String())
	})
}

// changes folds the facts of one cause.
func (f *folder) changes(b bundle, keys []factKey) []Change {
	frags := f.fragments(keys)
	// A rule that lets anything through lets pings through, which often is nothing new: that alone makes no line.
	var pings, rest []fragment
	for _, fr := range frags {
		if len(fr.wares) == 1 && f.lanes[fr.wares[0].lane] == (lane{Network, laneICMP, ""}) {
			pings = append(pings, fr)
		} else {
			rest = append(rest, fr)
		}
	}
	if len(rest) == 0 {
		pings, rest = nil, pings
	}
	partial := false
	if len(rest) > maxLines {
		pings, rest, partial = nil, []fragment{hull(frags)}, true
	}
	bySpot := f.pings(pings)
	var out []Change
	for _, fr := range rest {
		c := f.change(b, fr)
		c.Partial = partial
		if detail, parts := f.share(bySpot, fr); parts != nil {
			c.Items = append(c.Items, Item{laneICMP, detail})
			c.parts = append(c.parts, parts...)
		}
		out = append(out, c)
	}
	// Under a condition, pings may differ where nothing else does.
	if fr := f.alone(pings, rest); len(fr.parts) > 0 {
		c := f.change(b, fr)
		c.Partial = true
		out = append(out, c)
	}
	return out
}

// alone is what of pings is between none of the ends of other fragments.
func (f *folder) alone(pings, rest []fragment) fragment {
	taken := map[spot]bitset{}
	for _, fr := range rest {
		for _, p := range fr.parts {
			at := spot{p.fact.class, p.fact.group}
			if taken[at] == nil {
				taken[at] = newBitset(f.size)
			}
			taken[at].or(f.sets.sets[p.fact.src])
		}
	}
	var out fragment
	for _, fr := range pings {
		for _, p := range fr.parts {
			left := f.sets.sets[p.fact.src].clone()
			if t := taken[spot{p.fact.class, p.fact.group}]; t != nil {
				left.andNot(t)
			}
			cl := f.classes[p.fact.class]
			if gr := cl.groups[p.fact.group]; left.meets(gr.mask) && !f.onlyItself(cl, gr, left) {
				p.fact.src = f.sets.id(left)
				out.parts, out.wares = append(out.parts, p), []factKey{p.key}
			}
		}
	}
	return out
}

// spot is a group of a class.
type spot struct{ class, group int }

// pings collects who may ping what.
func (f *folder) pings(frags []fragment) map[spot][]part {
	out := map[spot][]part{}
	for _, fr := range frags {
		for _, p := range fr.parts {
			at := spot{p.fact.class, p.fact.group}
			out[at] = append(out[at], p)
		}
	}
	return out
}

// share finds the pings between the ends of a fragment. The detail is empty where they pass between all of them.
func (f *folder) share(pings map[spot][]part, fr fragment) (detail string, parts []part) {
	if len(pings) == 0 {
		return "", nil
	}
	srcs := map[spot]bitset{}
	var spots []spot
	for _, p := range fr.parts {
		at := spot{p.fact.class, p.fact.group}
		if srcs[at] == nil {
			srcs[at] = newBitset(f.size)
			spots = append(spots, at)
		}
		srcs[at].or(f.sets.sets[p.fact.src])
	}
	for _, at := range spots {
		missing := srcs[at].clone()
		for _, p := range pings[at] {
			both := srcs[at].clone()
			both.and(f.sets.sets[p.fact.src])
			if both.empty() {
				continue
			}
			missing.andNot(both)
			p.fact.src = f.sets.id(both)
			parts = append(parts, p)
		}
		if !missing.empty() {
			detail = inPart
		}
	}
	return detail, parts
}

// inPart is the detail of pings that pass between some of a change's ends alone.
const inPart = "in part"

// hull is the smallest product that holds several.
func hull(frags []fragment) fragment {
	var out fragment
	for _, fr := range frags {
		out.srcs = append(out.srcs, fr.srcs...)
		out.parts = append(out.parts, fr.parts...)
		out.wares = append(out.wares, fr.wares...)
	}
	return out
}

// fragments joins facts that differ in one respect alone: first in the destination, then in what passes, then in the
// source.
func (f *folder) fragments(keys []factKey) []fragment {
	type place struct {
		src int
		dst string
	}
	byPlace := map[place][]factKey{}
	var places []place
	for _, key := range keys {
		p := place{key.src, placesOf(f.facts[key])}
		if byPlace[p] == nil {
			places = append(places, p)
		}
		byPlace[p] = append(byPlace[p], key)
	}
	type load struct{ dst, wares string }
	byLoad := map[load]*fragment{}
	var loads []load
	for _, p := range places {
		list := byPlace[p]
		slices.SortFunc(list, func(a, b factKey) int { return cmp.Or(a.lane-b.lane, a.ports-b.ports) })
		var wares strings.Builder
		for _, key := range list {
			fmt.Fprint(&wares, key.lane, ":", key.ports, " ")
		}
		l := load{p.dst, wares.String()}
		if p.src == ownDevices {
			l.dst = "own " + l.dst
		}
		fr := byLoad[l]
		if fr == nil {
			fr = &fragment{wares: list}
			byLoad[l] = fr
			loads = append(loads, l)
		}
		fr.srcs = append(fr.srcs, p.src)
		for _, key := range list {
			for _, fact := range f.facts[key] {
				fr.parts = append(fr.parts, part{key, fact})
			}
		}
	}
	out := make([]fragment, len(loads))
	for i, l := range loads {
		out[i] = *byLoad[l]
	}
	return out
}

func placesOf(facts []fact) string {
	var b strings.Builder
	for _, t := range facts {
		fmt.Fprint(&b, t.class, ".", t.group, " ")
	}
	return b.String()
}

// change names a fragment.
func (f *folder) change(b bundle, fr fragment) Change {
	c := Change{Kind: b.kind, Effect: gainedText, Needs: f.needs[b.needs], Cause: f.cause(b), parts: fr.parts}
	n := f.namers[1]
	if b.lost {
		c.Effect, n = lostText, f.namers[0]
	}
	names := f.causes[b.cause].side.names[f.causes[b.cause].path]
	src := newBitset(f.size)
	other := f.counterpart(f.causes[b.cause])
	dst := target{own: newBitset(f.size)}
	var behind netipx.IPSetBuilder
	var unplaced []string
	byClass := map[int]bitset{} // sources of each class
	var classes []int
	seen := map[[2]int]bool{}
	for _, p := range fr.parts {
		set := f.sets.sets[p.fact.src]
		src.or(set)
		cl := f.classes[p.fact.class]
		gr := cl.groups[p.fact.group]
		if cl.selector != "" && !slices.Contains(unplaced, cl.selector) {
			unplaced = append(unplaced, cl.selector)
		}
		if byClass[p.fact.class] == nil {
			byClass[p.fact.class] = newBitset(f.size)
			classes = append(classes, p.fact.class)
		}
		seenSet := set.clone()
		seenSet.and(gr.mask)
		byClass[p.fact.class].or(seenSet)
		if at := [2]int{p.fact.class, p.fact.group}; !seen[at] {
			seen[at] = true
			f.aim(dst.own, &behind, cl, gr)
		}
	}
	if b.kind != Attribute && b.kind != Route {
		c.Src, _ = n.party(src, names.src, other.src)
		if sel := n.unknownGroup(c.Needs, src, names.src); sel != "" {
			c.Src.Names, c.Src.Except = []string{sel}, nil
		}
	}
	dst.behind = built(&behind)
	switch {
	case len(unplaced) > 0:
		c.Dst = Party{Names: unplaced}
	case slices.Contains(fr.srcs, ownDevices):
		c.Dst = Party{Names: []string{autogroupSelf}, Devices: len(f.devicesIn(dst.own))}
	default:
		all := f.all
		if b.kind != Network {
			all.behind = &netipx.IPSet{} // the rest is about devices themselves
		}
		c.Dst = n.destination(dst, all, names.dst, other.dst)
	}
	for _, ci := range classes {
		c.Pairs += f.pairs(f.classes[ci], byClass[ci])
	}
	c.Items = f.items(b.kind, fr.wares)
	return c
}

// counterpart are the selectors of the same rule in the other policy.
func (f *folder) counterpart(c cause) ruleNames {
	if d := f.edits.byOld[c.path]; c.side == f.sides[0] && d != nil && d.new != nil {
		return f.sides[1].names[d.new.path]
	}
	if d := f.edits.byNew[c.path]; c.side == f.sides[1] && d != nil && d.old != nil {
		return f.sides[0].names[d.old.path]
	}
	return ruleNames{}
}

// aim adds a group of a class to a destination.
func (f *folder) aim(own bitset, behind *netipx.IPSetBuilder, c *class, gr *group) {
	for _, d := range c.devices {
		for _, i := range gr.own {
			own.add(f.own[d][i])
		}
	}
	for _, i := range gr.behind {
		behind.AddRange(c.behind[i])
	}
}

// pairs counts the pairs of devices, a device with itself left out.
func (f *folder) pairs(c *class, src bitset) int {
	if src.has(f.nobody) {
		return len(c.devices)
	}
	from := f.devicesIn(src)
	n := len(from) * len(c.devices)
	for _, d := range from {
		if _, both := slices.BinarySearch(c.devices, d); both {
			n--
		}
	}
	return n
}

// items words what passes: of each lane all ports, and of accounts and routes not those that others include.
func (f *folder) items(kind Kind, wares []factKey) []Item {
	ports := map[lane][]span{}
	var lanes []lane
	for _, w := range wares {
		l := f.lanes[w.lane]
		if ports[l] == nil {
			lanes = append(lanes, l)
		}
		ports[l] = append(ports[l], f.ports[w.ports]...)
	}
	slices.SortFunc(lanes, func(a, b lane) int {
		if a.name != b.name && (a.name == laneICMP || b.name == laneICMP) && kind == Network {
			if a.name == laneICMP {
				return 1
			}
			return -1
		}
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.detail, b.detail))
	})
	var out []Item
	for _, l := range lanes {
		switch {
		case kind == Network:
			out = append(out, Item{l.name, portsText(spans.Join(ports[l]))})
		case kind == SSH && l.name != "root" && l.name != laneNonroot && ports[lane{SSH, laneNonroot, l.detail}] != nil:
		case kind == Route && slices.ContainsFunc(lanes, func(o lane) bool { return o != l && slices.Contains(f.routesWithin(o.name), l.name) }):
		default:
			out = append(out, Item{l.name, l.detail})
		}
	}
	return out
}

// portsText writes ports as a policy does, "" for what has none.
func portsText(ports []span) string {
	var out []string
	for _, p := range ports {
		switch {
		case p.Last == 0:
			return ""
		case p.First == 1 && p.Last == 65535:
			return "*"
		case p.First == p.Last:
			out = append(out, fmt.Sprint(p.First))
		default:
			out = append(out, fmt.Sprintf("%d-%d", p.First, p.Last))
		}
	}
	return strings.Join(out, ",")
}
