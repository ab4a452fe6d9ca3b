package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// The protocols that have a lane of their own. Every other protocol's lane is its number.
const (
	laneICMP = 1 // of either family
	laneIPIP = 4
	laneTCP  = 6
	laneUDP  = 17

	icmpv6 = 58
	sctp   = 132
)

// families are sets of address families: IPv4 is bit 0, IPv6 bit 1.
type families uint8

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// flows answers who is admitted to what. A point is a device as a source or, after the devices, a network that is one.
type flows struct {
	access   *policy.Access
	devices  []policy.AccessDevice
	at       map[netip.Addr]int // device by address
	networks []*netipx.IPSet    // points after those of the devices
	size     int
	has      [2]bitset // points that have an address of the family
	fams     []families

	admissions [][]policy.Admission // by device; those of packets
	parties    []*party
	views      []*view // by device, of its own addresses
	sources    map[*policy.Sources]*sourceSet
	interned   map[string]*sourceSet
	parsed     map[string]*netipx.IPSet
	classes    map[string]*class
}

// sourceSet is whom a rule names, as points by family.
type sourceSet struct {
	id    int
	sure  [2]bitset
	maybe [2]bitset // nil where the inventory tells all
	needs []string
}

// span is a range of ports, both included.
type span struct{ first, last int }

// offer is what one rule admits to a destination in one lane.
type offer struct {
	rule  policy.Node
	lane  int
	src   *sourceSet
	on    [2]bool // whether it lands on the destination's address of the family
	ports []span  // nil for a protocol without ports
	part  bool    // of the destination, which is a network, a part only
	self  bool    // by autogroup:self
}

// class is a number of destinations at which the same rules land.
type class struct {
	fams   families
	offers []*offer
	views  [4]*view // by families asked about
}

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

func newFlows(a *policy.Access, p *policy.Policy) *flows {
	f := &flows{
		access: a, devices: a.Devices(), at: map[netip.Addr]int{}, sources: map[*policy.Sources]*sourceSet{},
		interned: map[string]*sourceSet{}, parsed: map[string]*netipx.IPSet{}, classes: map[string]*class{},
	}
	for n, d := range f.devices {
		var fams families
		for _, addr := range d.Addrs {
			f.at[addr] = n
			fams |= 1 << familyOf(addr)
		}
		f.fams = append(f.fams, fams)
		f.admissions = append(f.admissions, slices.DeleteFunc(a.Admissions(n), func(adm policy.Admission) bool { return adm.Caps != nil }))
	}
	f.parties = f.newParties(p)
	return f
}

// setPoints makes networks points beside the devices. It is called once, before anything is asked.
func (f *flows) setPoints(networks []*netipx.IPSet) {
	f.networks = networks
	f.size = len(f.devices) + len(networks)
	for fam := range f.has {
		f.has[fam] = newBitset(f.size)
	}
	for n, fams := range f.fams {
		for fam := range f.has {
			if fams&(1<<fam) != 0 {
				f.has[fam].add(n)
			}
		}
	}
	for i, set := range networks {
		for _, r := range set.Ranges() {
			f.has[familyOf(r.From())].add(len(f.devices) + i)
		}
	}
}

// set reads an address, CIDR, range or "*" as filters spell them; what is none of these is the empty set.
func (f *flows) set(text string) *netipx.IPSet {
	if got := f.parsed[text]; got != nil {
		return got
	}
	var b netipx.IPSetBuilder
	if text == "*" {
		b.AddPrefix(netip.MustParsePrefix("0.0.0.0/0"))
		b.AddPrefix(netip.MustParsePrefix("::/0"))
	} else if a, err := netip.ParseAddr(text); err == nil {
		b.Add(a)
	} else if p, err := netip.ParsePrefix(text); err == nil {
		b.AddPrefix(p)
	} else if r, err := netipx.ParseIPRange(text); err == nil {
		b.AddRange(r)
	}
	out, err := b.IPSet()
	if err != nil {
		out = &netipx.IPSet{}
	}
	f.parsed[text] = out
	return out
}

func (f *flows) union(texts []string) *netipx.IPSet {
	if len(texts) == 1 {
		return f.set(texts[0])
	}
	var b netipx.IPSetBuilder
	for _, t := range texts {
		b.AddSet(f.set(t))
	}
	out, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return out
}

// points are those that addresses stand for, by family.
func (f *flows) points(texts []string) [2]bitset {
	out := [2]bitset{newBitset(f.size), newBitset(f.size)}
	var wide []string
	for _, t := range texts {
		a, err := netip.ParseAddr(t)
		if err != nil {
			wide = append(wide, t)
			continue
		}
		if n, ok := f.at[a]; ok {
			out[familyOf(a)].add(n)
		}
	}
	if len(wide) == 0 && len(f.networks) == 0 {
		return out
	}
	set := f.union(wide)
	if len(wide) > 0 {
		for n, d := range f.devices {
			for _, a := range d.Addrs {
				if set.Contains(a) {
					out[familyOf(a)].add(n)
				}
			}
		}
	}
	if len(f.networks) > 0 {
		set = f.union(texts)
	}
	for i, network := range f.networks {
		inside := [2]bool{true, true}
		for _, r := range network.Ranges() {
			if !set.ContainsRange(r) {
				inside[familyOf(r.From())] = false
			}
		}
		for fam := range out {
			if inside[fam] && f.has[fam].has(len(f.devices)+i) {
				out[fam].add(len(f.devices) + i)
			}
		}
	}
	return out
}

func (f *flows) source(s *policy.Sources) *sourceSet {
	if got := f.sources[s]; got != nil {
		return got
	}
	var b strings.Builder
	b.WriteString(strings.Join(s.IPs, " "))
	for _, u := range s.Unknown {
		b.WriteString("\x00" + u.Needs + "\x00" + strings.Join(u.IPs, " "))
	}
	key := b.String()
	out := f.interned[key]
	if out == nil {
		out = &sourceSet{id: len(f.interned), sure: f.points(s.IPs)}
		for _, u := range s.Unknown {
			out.needs = append(out.needs, u.Needs)
			p := f.points(u.IPs)
			for fam := range p {
				if out.maybe[fam] == nil {
					out.maybe[fam] = newBitset(f.size)
				}
				out.maybe[fam].or(p[fam])
			}
		}
		f.interned[key] = out
	}
	f.sources[s] = out
	return out
}

// device returns the class of a device's own addresses, of those of some families.
func (f *flows) device(n int, fams families) *class {
	fams &= f.fams[n]
	d := f.devices[n]
	on := func(a *policy.Admission) (on [2]bool, part bool) {
		for _, addr := range d.Addrs {
			fam := familyOf(addr)
			if fams&(1<<fam) != 0 && (a.All || a.Own || f.union(a.IPs).Contains(addr)) {
				on[fam] = true
			}
		}
		return on, false
	}
	return f.class([]int{n}, fams, "", on)
}

// own returns how a device's own addresses are seen by sources of both families.
func (f *flows) own(n int) *view {
	if f.views == nil {
		f.views = make([]*view, len(f.devices))
	}
	if f.views[n] == nil {
		f.views[n] = f.view(f.device(n, 3), 3)
	}
	return f.views[n]
}

// forwards is the part of a network that a router carries.
func (f *flows) forwards(n int, network *netipx.IPSet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range f.devices[n].Forwards {
		b.AddRange(r)
	}
	b.Intersect(network)
	out, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return out
}

// behind returns the class of what several routers carry, each of them all of it: what one of them lets through gets there.
func (f *flows) behind(routers []int, forwards *netipx.IPSet) *class {
	var fams families
	for _, r := range forwards.Ranges() {
		fams |= 1 << familyOf(r.From())
	}
	on := func(a *policy.Admission) (on [2]bool, part bool) {
		if a.Own {
			return on, false
		}
		var ips *netipx.IPSet
		if !a.All {
			ips = f.union(a.IPs)
		}
		for _, r := range forwards.Ranges() {
			switch {
			case a.All || ips.ContainsRange(r):
				on[familyOf(r.From())] = true
			case ips.OverlapsRange(r):
				on[familyOf(r.From())], part = true, true
			default:
				part = true
			}
		}
		return on, part
	}
	return f.class(routers, fams, fmt.Sprint(forwards.Ranges()), on)
}

func (f *flows) class(devices []int, fams families, where string, on func(*policy.Admission) ([2]bool, bool)) *class {
	type landing struct {
		adm  *policy.Admission
		on   [2]bool
		part bool
	}
	var landings []landing
	var key strings.Builder
	fmt.Fprintf(&key, "%d %s", fams, where)
	for _, n := range devices {
		for i := range f.admissions[n] {
			a := &f.admissions[n][i]
			if o, part := on(a); o[0] || o[1] {
				landings = append(landings, landing{a, o, part})
				fmt.Fprintf(&key, "|%d %d %d %v %v", a.ID, a.Part, f.source(a.Sources).id, o, part)
			}
		}
	}
	if got := f.classes[key.String()]; got != nil {
		return got
	}
	c := &class{fams: fams}
	for _, l := range landings {
		for _, w := range wares(l.adm) {
			c.add(&offer{
				rule: l.adm.Rule, lane: w.lane, src: f.source(l.adm.Sources), on: l.on, ports: w.ports, part: l.part, self: l.adm.Self,
			})
		}
	}
	slices.SortStableFunc(c.offers, func(a, b *offer) int {
		return cmp.Or(cmp.Compare(a.rule.Range.Start.Offset, b.rule.Range.Start.Offset), cmp.Compare(laneOrder(a.lane), laneOrder(b.lane)))
	})
	f.classes[key.String()] = c
	return c
}

// add joins what one rule offers in one lane: its destinations add up.
func (c *class) add(o *offer) {
	for _, old := range c.offers {
		if old.rule.Path == o.rule.Path && old.lane == o.lane && old.src == o.src && old.on == o.on && old.part == o.part {
			old.ports = joined(slices.Concat(old.ports, o.ports))
			return
		}
	}
	c.offers = append(c.offers, o)
}

type ware struct {
	lane  int
	ports []span
}

// wares is what an admission lets through, in the terms of a node's own filter: a protocol without ports passes only by a
// rule that lists it and every port, and pings wherever anything passes.
func wares(a *policy.Admission) []ware {
	if len(a.Ports) == 0 {
		return nil
	}
	protos := a.Proto
	if protos == nil {
		protos = []int{laneTCP, laneUDP}
	}
	out := []ware{{laneICMP, nil}}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(protos))) {
		switch p {
		case laneICMP, icmpv6:
		case laneTCP, laneUDP, sctp:
			if s := spans(a.Ports); len(s) > 0 {
				out = append(out, ware{p, s})
			}
		default:
			if slices.Contains(a.Ports, policy.PortRange{First: 0, Last: 65535}) {
				out = append(out, ware{p, nil})
			}
		}
	}
	return out
}

// spans sorts and joins ranges of ports. Port 0 is no port of its own.
func spans(ranges []policy.PortRange) []span {
	var in []span
	for _, r := range ranges {
		if r.Last > 0 {
			in = append(in, span{max(1, int(r.First)), int(r.Last)})
		}
	}
	return joined(in)
}

func joined(in []span) []span {
	slices.SortFunc(in, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var out []span
	for _, s := range in {
		if n := len(out); n > 0 && s.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, s.last)
		} else {
			out = append(out, s)
		}
	}
	return out
}

func everyPort(s []span) bool { return len(s) == 0 || len(s) == 1 && s[0] == span{1, 65535} }

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
			r.ports = joined(slices.Concat(r.ports, o.ports))
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
	ports = joined(ports)
	if len(rest) == 0 || !everyPort(ports) {
		return out
	}
	// Only together can these be every port: a point is admitted to all where it is between any two bounds.
	var bounds []int
	for _, o := range rest {
		for _, s := range o.ports {
			bounds = append(bounds, s.first, s.last+1)
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
			if slices.ContainsFunc(o.ports, func(s span) bool { return s.first <= at && at <= s.last }) {
				here.or(o.src.sure[fam])
			}
		}
		together.and(here)
	}
	out.all = together
	return out
}

// laneOrder sorts lanes as they are shown.
func laneOrder(lane int) int {
	if i := slices.Index([]int{laneTCP, laneUDP, laneICMP, laneIPIP}, lane); i >= 0 {
		return i
	}
	return 10 + lane
}

func laneName(lane int) string { return policy.ProtocolName(lane) }

// portsText prints ports as a policy would, the first few of them where they are many; every port is "".
func portsText(s []span, most int) string {
	if everyPort(s) {
		return ""
	}
	texts := make([]string, len(s))
	for i, p := range s {
		texts[i] = fmt.Sprint(p.first)
		if p.first < p.last {
			texts[i] = fmt.Sprintf("%d-%d", p.first, p.last)
		}
	}
	if len(texts) > most {
		return strings.Join(texts[:most], ", ") + fmt.Sprintf(" +%d", len(texts)-most)
	}
	return strings.Join(texts, ", ")
}

// shortPorts prints as many ports as a cell has room for on one line.
func shortPorts(s []span) string {
	const room = 11
	for most := 3; most > 1; most-- {
		if text := portsText(s, most); len(text) <= room {
			return text
		}
	}
	return portsText(s, 1)
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
