package accessdiff

import (
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// fact is a difference at one group of a class.
type fact struct {
	class, group int
	src          int // number of a set
}

// factKey is what facts have in common that are one difference.
type factKey struct {
	lost  bool
	needs int // 0: surely
	cause int
	src   int // number of a set, or ownDevices
	lane  int
	ports int // number of a list of spans
}

// ownDevices stands for the devices of the same user as the destination.
const ownDevices = -1

// comparer finds the differences.
type comparer struct {
	*gatherer
	sides   [2]*side
	classes []*class
	facts   map[factKey][]fact
	keys    []factKey // in the order of finding
	ports   [][]span
	portIDs map[string]int

	scratch [8]bitset
}

// entry is what a piece lets through in one lane at one group.
type entry struct {
	piece   *piece
	sure    bitset
	unknown []unknown
	ports   []span
	shared  bool // the other side has the same
}

func compare(g *gatherer, sides [2]*side) *comparer {
	k := &comparer{
		gatherer: g, sides: sides, classes: g.classify(sides), facts: map[factKey][]fact{}, portIDs: map[string]int{},
	}
	for i := range k.scratch {
		k.scratch[i] = newBitset(g.size)
	}
	for ci, c := range k.classes {
		for gi, gr := range c.groups {
			k.group(ci, gi, c, gr)
		}
	}
	return k
}

// group compares what lands at one group.
func (k *comparer) group(ci, gi int, c *class, gr *group) {
	type content struct{ goods, src int }
	has := [2]map[content]bool{{}, {}}
	differs := false
	for s := range gr.lands {
		for _, p := range gr.lands[s] {
			pc := k.sides[s].pieces[p]
			has[s][content{pc.goods, pc.src.id}] = true
		}
	}
	var byLane [2]map[int][]entry
	lanes := map[int]bool{}
	for s := range gr.lands {
		byLane[s] = map[int][]entry{}
		for _, p := range gr.lands[s] {
			pc := k.sides[s].pieces[p]
			shared := has[1-s][content{pc.goods, pc.src.id}]
			differs = differs || !shared
			for _, w := range pc.wares {
				// An account's rules bear on each other: one that checks comes before one that accepts.
				alone := shared && k.lanes[w.lane].kind != SSH
				byLane[s][w.lane] = append(byLane[s][w.lane], entry{pc, pc.src.sure, pc.src.unknown, w.ports, alone})
				lanes[w.lane] = lanes[w.lane] || !shared
			}
		}
	}
	if !differs {
		return
	}
	for s := range byLane {
		k.shadow(byLane[s])
	}
	for l := range len(k.lanes) {
		if lanes[l] || k.lanes[l].kind == SSH {
			k.lane(ci, gi, c, gr, l, byLane[1][l], byLane[0][l], true)
			k.lane(ci, gi, c, gr, l, byLane[0][l], byLane[1][l], false)
		}
	}
}

// shadow takes from each account's accepting ssh rules what one that checks holds back first.
func (k *comparer) shadow(byLane map[int][]entry) {
	checks := map[string][]entry{}
	for l, entries := range byLane {
		if k.lanes[l].checks() {
			checks[k.lanes[l].name] = append(checks[k.lanes[l].name], entries...)
		}
	}
	if len(checks) == 0 {
		return
	}
	for l, entries := range byLane {
		first := checks[k.lanes[l].name]
		if k.lanes[l].kind != SSH || k.lanes[l].checks() || len(first) == 0 {
			continue
		}
		sure, maybe := newBitset(k.size), newBitset(k.size)
		for _, e := range first {
			sure.or(e.sure)
			for _, u := range e.unknown {
				maybe.or(u.set)
			}
		}
		maybe.andNot(sure)
		var out []entry
		for _, e := range entries {
			var rest []unknown
			for _, u := range e.unknown {
				set := u.set.clone()
				set.andNot(sure)
				rest = append(rest, unknown{u.needs, set})
			}
			if held := e.sure.clone(); !maybe.empty() {
				held.and(maybe)
				if !held.empty() {
					rest = append(rest, unknown{k.need("who is checked first"), held})
				}
			}
			e.sure, e.unknown = e.sure.clone(), rest
			e.sure.andNot(sure)
			e.sure.andNot(maybe)
			out = append(out, e)
		}
		byLane[l] = out
	}
}

// lane finds what to admits in one lane and from does not.
func (k *comparer) lane(ci, gi int, c *class, gr *group, l int, from, to []entry, lost bool) {
	found := map[factKey][]span{}
	var order []factKey
	emit := func(e *entry, needs int, r bitset, s span) {
		if !r.meets(gr.mask) || k.onlyItself(c, gr, r) {
			return
		}
		if c.needs != 0 && needs == 0 {
			needs = c.needs
		}
		key := factKey{lost: lost, needs: needs, cause: e.piece.cause, src: k.sets.id(r), lane: l}
		if found[key] == nil {
			order = append(order, key)
		}
		found[key] = append(found[key], s)
	}
	open := hasUnknown(from) || hasUnknown(to)
	before, now := newSweep(from), newSweep(to)
	for _, s := range segments(from, to) {
		k.segment(before.at(s.First), now.at(s.First), open, s, emit)
	}
	for _, key := range order {
		f := fact{ci, gi, key.src}
		key.ports = k.portsID(spans.Join(found[key]))
		if k.whole(key, to) {
			key.src = ownDevices
		}
		if k.facts[key] == nil {
			k.keys = append(k.keys, key)
		}
		k.facts[key] = append(k.facts[key], f)
	}
}

// whole reports whether a difference is all that a rule about autogroup:self lets through.
func (k *comparer) whole(key factKey, to []entry) bool {
	return slices.ContainsFunc(to, func(e entry) bool {
		return e.piece.self && e.piece.cause == key.cause && slices.Equal(e.sure, k.sets.sets[key.src])
	})
}

func (k *comparer) portsID(ports []span) int {
	b := make([]byte, 0, 8*len(ports))
	for _, p := range ports {
		b = append(b, byte(p.First>>8), byte(p.First), byte(p.Last>>8), byte(p.Last))
	}
	id, ok := k.portIDs[string(b)]
	if !ok {
		id = len(k.ports)
		k.portIDs[string(b)] = id
		k.ports = append(k.ports, ports)
	}
	return id
}

// onlyItself reports whether the sources are nobody but the destination: what a device sends to itself stays on it.
func (k *comparer) onlyItself(c *class, gr *group, r bitset) bool {
	if len(c.devices) != 1 {
		return false
	}
	for i, w := range r {
		if w&gr.mask[i] == 0 {
			continue
		}
		for _, p := range k.own[c.devices[0]] {
			if p>>6 == i {
				w &^= 1 << (p & 63)
			}
		}
		if w&gr.mask[i] != 0 {
			return false
		}
	}
	return true
}

// segments cuts the ports that only to may admit at every bound.
func segments(from, to []entry) []span {
	var cuts []int
	var want []span
	for _, e := range to {
		for _, p := range e.ports {
			cuts = append(cuts, p.First, p.Last+1)
		}
		if !e.shared {
			want = append(want, e.ports...)
		}
	}
	for _, e := range from {
		for _, p := range e.ports {
			cuts = append(cuts, p.First, p.Last+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []span
	for _, w := range spans.Join(slices.Clone(want)) {
		i, _ := slices.BinarySearch(cuts, w.First)
		for ; i+1 < len(cuts) && cuts[i] <= w.Last; i++ {
			out = append(out, span{First: cuts[i], Last: cuts[i+1] - 1})
		}
	}
	return out
}

func hasUnknown(entries []entry) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return len(e.unknown) > 0 })
}

// sweep finds the entries that admit a port, for ports that only grow: many rules may each have their own.
type sweep struct {
	starts []start
	active []active
	buf    []*entry
}

type start struct {
	port  int
	index int
	entry *entry
	last  int
}

type active struct {
	index int
	entry *entry
	last  int
}

func newSweep(entries []entry) *sweep {
	s := &sweep{}
	for i := range entries {
		for _, p := range entries[i].ports {
			s.starts = append(s.starts, start{p.First, i, &entries[i], p.Last})
		}
	}
	slices.SortStableFunc(s.starts, func(a, b start) int { return a.port - b.port })
	return s
}

// at returns the entries that admit a port, in the order of the rules.
func (s *sweep) at(port int) []*entry {
	s.active = slices.DeleteFunc(s.active, func(a active) bool { return a.last < port })
	for len(s.starts) > 0 && s.starts[0].port <= port {
		if st := s.starts[0]; st.last >= port {
			i, _ := slices.BinarySearchFunc(s.active, st.index, func(a active, index int) int { return a.index - index })
			s.active = slices.Insert(s.active, i, active{st.index, st.entry, st.last})
		}
		s.starts = s.starts[1:]
	}
	s.buf = s.buf[:0]
	for _, a := range s.active {
		s.buf = append(s.buf, a.entry)
	}
	return s.buf
}

// segment finds what to admits and from does not, in one stretch of ports on which every rule is of one mind. From is
// called old here and to new; for what is lost it is the other way round. Conditions are taken one by one: what two
// policies make depend on the same condition is the same, whatever the answer would be.
func (k *comparer) segment(from, to []*entry, open bool, s span, emit func(*entry, int, bitset, span)) {
	oldSure, oldAny, newSure := k.scratch[0], k.scratch[1], k.scratch[2]
	oldSure.clear()
	newSure.clear()
	oldAny.clear()
	old := map[int]bitset{} // by condition
	for _, e := range from {
		oldSure.or(e.sure)
		for _, u := range e.unknown {
			if old[u.needs] == nil {
				old[u.needs] = newBitset(k.size)
			}
			old[u.needs].or(u.set)
			oldAny.or(u.set)
		}
	}
	done, r := k.scratch[3], k.scratch[4]
	copy(done, oldSure)
	done.or(oldAny)
	for _, e := range to {
		newSure.or(e.sure)
		if e.shared {
			continue
		}
		copy(r, e.sure)
		r.andNot(done)
		if !r.empty() {
			emit(e, 0, r, s)
			done.or(r)
		}
	}
	if !open {
		return
	}
	// Surely admitted now, and perhaps before.
	needs := make([]int, 0, len(old))
	for n := range old {
		needs = append(needs, n)
	}
	slices.Sort(needs)
	seen := k.scratch[5]
	copy(seen, oldSure)
	for _, e := range to {
		for _, n := range needs {
			copy(r, e.sure)
			r.and(old[n])
			r.andNot(seen)
			if !r.empty() {
				emit(e, n, r, s)
				seen.or(r)
			}
		}
	}
	// Perhaps admitted now, on a condition that did not count before.
	copy(seen, oldSure)
	seen.or(newSure)
	for _, e := range to {
		for _, u := range e.unknown {
			copy(r, u.set)
			r.andNot(seen)
			if b := old[u.needs]; b != nil {
				r.andNot(b)
			}
			if !r.empty() {
				emit(e, u.needs, r, s)
				seen.or(r)
			}
		}
	}
}
