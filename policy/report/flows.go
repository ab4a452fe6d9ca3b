package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
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
	id      int
	sure    [2]bitset
	unknown []unknownPoints // none where the inventory tells all
}

// unknownPoints are whom a rule names as well if a condition holds, of which the inventory does not tell.
type unknownPoints struct {
	needs  string
	points [2]bitset
}

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

// set reads an address, CIDR, range or "*" as filters spell them.
func (f *flows) set(text string) *netipx.IPSet {
	got := f.parsed[text]
	if got == nil {
		got = nodefilter.Set(text)
		f.parsed[text] = got
	}
	return got
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
			out.unknown = append(out.unknown, unknownPoints{u.Needs, f.points(u.IPs)})
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
		for _, w := range nodefilter.Lanes(l.adm) {
			c.add(&offer{
				rule: l.adm.Rule, lane: w.Proto, src: f.source(l.adm.Sources), on: l.on, ports: w.Ports, part: l.part, self: l.adm.Self,
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
			old.ports = spans.Join(slices.Concat(old.ports, o.ports))
			return
		}
	}
	c.offers = append(c.offers, o)
}
