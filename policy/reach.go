package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/gaissmai/bart"
	"go4.org/netipx"
)

// reach answers which rules reach a device or an address, without walking all rules for each: rules are listed by the
// destination selectors that they name, devices by the selectors that hold them, and literal addresses in a prefix table.
type reach struct {
	c        *Compiled
	postings [][]posting // by resolved.id
	held     [][]int     // by device.n: ids of the destination selectors that hold the device
	any      []int
	internet []int
	self     []*rule
	literals *bart.Table[[]literal]
	// sources are the literals that rules name as sources: two devices that differ in them are not alike.
	sources *bart.Table[[]literal]
	addrs   []netip.Addr // of all devices, sorted

	appsOf  [][]*appRule // by device.n, for those that may get one
	appsAny []*appRule
	via     bool // some rule has via

	list    []*resolved // by resolved.id, as far as postings go
	unknown []int       // ids of destinations of which the inventory does not tell all
	classes []int       // by device.n: equal for devices that no rule tells apart

	mu    sync.Mutex
	cache map[int][]posting // destination, by class
}

type posting struct {
	rule *rule
	part int
}

// literal is one range of a selector's addresses.
type literal struct {
	id    int // resolved.id
	index int // in resolved.literals
}

// hit is a destination of a rule that reaches a device, with the addresses that the device's filter shows for it.
type hit struct {
	rule *rule
	part int
	ips  []string
}

func newReach(c *Compiled) *reach {
	x := &reach{
		c: c, postings: make([][]posting, len(c.r.list)), held: make([][]int, len(c.x.devices)),
		literals: new(bart.Table[[]literal]), sources: new(bart.Table[[]literal]),
		addrs: c.x.addrs, list: slices.Clone(c.r.list), cache: map[int][]posting{},
	}
	sources := map[*srcSet]bool{}
	for _, r := range c.rules {
		if !sources[r.src] {
			sources[r.src] = true
			for _, p := range r.src.parts {
				addLiterals(x.sources, p)
			}
		}
		x.via = x.via || r.isVia
		if r.selfPorts != nil {
			x.self = append(x.self, r)
		}
		for i, d := range r.dsts {
			x.postings[d.to.id] = append(x.postings[d.to.id], posting{r, i})
		}
	}
	for id, list := range x.postings {
		if len(list) == 0 {
			continue
		}
		to := x.list[id]
		if to.missing != "" {
			x.unknown = append(x.unknown, id)
		}
		if to.any {
			x.any = append(x.any, id)
		}
		if to.internet {
			x.internet = append(x.internet, id)
		}
		for _, d := range to.devices {
			x.held[d.n] = append(x.held[d.n], id)
		}
		addLiterals(x.literals, to)
	}
	x.indexApps()
	byProfile := map[string]int{}
	for _, d := range c.x.devices {
		p := x.profile(d)
		if _, ok := byProfile[p]; !ok {
			byProfile[p] = len(byProfile)
		}
		x.classes = append(x.classes, byProfile[p])
	}
	return x
}

func (x *reach) indexApps() {
	x.appsOf = make([][]*appRule, len(x.c.x.devices))
	for _, a := range x.c.apps {
		on := map[*device]bool{}
		all := false
		for _, r := range a.onto().parts {
			all = all || r.any
			for _, d := range r.devices {
				on[d] = true
			}
			for _, rg := range r.literals {
				for _, p := range rg.Prefixes() {
					x.within(p, func(_ netip.Addr, d *device) { on[d] = true })
				}
			}
		}
		if all {
			x.appsAny = append(x.appsAny, a)
			continue
		}
		for d := range on {
			x.appsOf[d.n] = append(x.appsOf[d.n], a)
		}
	}
}

// apps returns the capability rules that a device may get.
func (x *reach) apps(d *device) []*appRule {
	return slices.Concat(x.appsOf[d.n], x.appsAny)
}

// within calls f with each device's address in p.
func (x *reach) within(p netip.Prefix, f func(netip.Addr, *device)) {
	i, _ := slices.BinarySearchFunc(x.addrs, p.Masked().Addr(), netip.Addr.Compare)
	last := netipx.PrefixLastIP(p)
	for ; i < len(x.addrs) && x.addrs[i].Compare(last) <= 0; i++ {
		f(x.addrs[i], x.c.x.byAddr[x.addrs[i]])
	}
}

func addLiterals(t *bart.Table[[]literal], r *resolved) {
	for i, rg := range r.literals {
		for _, p := range rg.Prefixes() {
			t.Modify(p, func(old []literal, _ bool) ([]literal, bool) {
				return append(old, literal{r.id, i}), false
			})
		}
	}
}

// overlapping calls f with each literal that overlaps p.
func overlapping(t *bart.Table[[]literal], p netip.Prefix, f func(literal)) {
	for _, list := range t.Supernets(p) {
		for _, l := range list {
			f(l)
		}
	}
	for q, list := range t.Subnets(p) {
		if q == p {
			continue // was among the supernets
		}
		for _, l := range list {
			f(l)
		}
	}
}

// device returns what reaches a device, in the order of rules and of the destinations in them: what names the device
// itself, and what overlaps a subnet that it is approved to route. A rule with via reaches only the routers that it names.
func (x *reach) device(d *device) []hit {
	var out []hit
	add := func(id int, own, routed bool, ips, routedIPs []string) {
		for _, p := range x.postings[id] {
			if p.rule.isVia {
				if routed && slices.ContainsFunc(p.rule.via, func(t string) bool { return slices.Contains(d.tags(), t) }) {
					out = append(out, hit{p.rule, p.part, routedIPs})
				}
			} else if own || routed {
				out = append(out, hit{p.rule, p.part, ips})
			}
		}
	}
	for _, id := range x.held[d.n] {
		add(id, true, false, d.ips, nil)
	}
	for _, id := range x.any {
		add(id, true, len(d.routes) > 0, []string{"*"}, []string{"*"})
	}
	x.literal(d, add)
	for _, r := range d.routes {
		x.routedDevices(d, r, add)
	}
	if d.exit4 || d.exit6 {
		var ips []string
		for _, rg := range x.c.r.internet.Ranges() {
			if rg.From().Is4() && d.exit4 || rg.From().Is6() && d.exit6 {
				ips = append(ips, rangeText(rg))
			}
		}
		for _, id := range x.internet {
			add(id, false, true, ips, ips)
		}
	}
	if d.owner != "" {
		for _, r := range x.self {
			out = append(out, hit{rule: r})
		}
	}
	slices.SortStableFunc(out, func(a, b hit) int {
		if a.rule.pos != b.rule.pos {
			return a.rule.pos - b.rule.pos
		}
		return a.part - b.part
	})
	return out
}

// literal finds the addresses spelled in the policy that overlap the device's own or its routes. They are shown as
// written, never narrowed.
func (x *reach) literal(d *device, add func(id int, own, routed bool, ips, routedIPs []string)) {
	type flags struct{ own, routed bool }
	found := map[literal]flags{}
	for _, a := range d.addrs {
		overlapping(x.literals, netip.PrefixFrom(a, a.BitLen()), func(l literal) { found[l] = flags{own: true, routed: found[l].routed} })
	}
	for _, r := range d.routes {
		overlapping(x.literals, r, func(l literal) { found[l] = flags{own: found[l].own, routed: true} })
	}
	if d.exit4 || d.exit6 {
		// An exit node forwards what is public; its own networks are not part of that.
		for p, list := range x.literals.All() {
			if (p.Addr().Is4() && d.exit4 || p.Addr().Is6() && d.exit6) && x.c.r.internet.OverlapsPrefix(p) {
				for _, l := range list {
					found[l] = flags{own: found[l].own, routed: true}
				}
			}
		}
	}
	byID := map[int][]literal{}
	var ids []int
	for l := range found {
		if byID[l.id] == nil {
			ids = append(ids, l.id)
		}
		byID[l.id] = append(byID[l.id], l)
	}
	slices.Sort(ids)
	for _, id := range ids {
		list := byID[id]
		slices.SortFunc(list, func(a, b literal) int { return a.index - b.index })
		var own, routed bool
		var ips, routedIPs []string
		for _, l := range list {
			text := rangeText(x.list[id].literals[l.index])
			ips = append(ips, text)
			if found[l].routed {
				routedIPs = append(routedIPs, text)
			}
			own, routed = own || found[l].own, routed || found[l].routed
		}
		add(id, own, routed, ips, routedIPs)
	}
}

// routedDevices adds what names a device whose address lies in a subnet that d routes.
func (x *reach) routedDevices(d *device, route netip.Prefix, add func(id int, own, routed bool, ips, routedIPs []string)) {
	x.within(route, func(a netip.Addr, e *device) {
		if e == d {
			return
		}
		for _, id := range x.held[e.n] {
			add(id, false, true, []string{a.String()}, []string{a.String()})
		}
	})
}

// destination returns the rules that name an address, or a device's address, as destination, in their order; those of
// autogroup:self and those with via are among them.
func (x *reach) destination(e endpoint) []posting {
	var ids []int
	if e.dev != nil {
		ids = append(ids, x.held[e.dev.n]...)
	}
	ids = append(ids, x.any...)
	if e.addr.IsValid() {
		for _, list := range x.literals.Supernets(netip.PrefixFrom(e.addr, e.addr.BitLen())) {
			for _, l := range list {
				ids = append(ids, l.id)
			}
		}
		if x.c.r.internet.Contains(e.addr) {
			ids = append(ids, x.internet...)
		}
	}
	if e.named() {
		// Nobody bears the name yet: whatever selector covers it counts.
		for id, list := range x.postings {
			if len(list) > 0 && x.list[id].match(x.c, e) != Fail {
				ids = append(ids, id)
			}
		}
	}
	// What the inventory does not tell may be meant as well.
	ids = append(ids, x.unknown...)
	slices.Sort(ids)
	var out []posting
	for _, id := range slices.Compact(ids) {
		out = append(out, x.postings[id]...)
	}
	for _, r := range x.self {
		out = append(out, posting{r, -1})
	}
	slices.SortStableFunc(out, func(a, b posting) int { return a.rule.pos - b.rule.pos })
	return out
}

// profile is equal for devices that no rule tells apart, so that a flow need be judged once for all of them.
func (x *reach) profile(d *device) string {
	var b strings.Builder
	b.WriteString(d.owner)
	for _, t := range slices.Sorted(slices.Values(d.tags())) {
		b.WriteString("\x00" + t)
	}
	if d.IsExternal {
		b.WriteString("\x00shared")
	}
	if x.via {
		fmt.Fprint(&b, "\x00", d.routes)
	}
	b.WriteString("\x01" + d.OS + "\x01" + d.ClientVersion)
	for _, a := range d.addrs {
		b.WriteString("\x02")
		if a.Is4() {
			b.WriteString("4")
		}
		p := netip.PrefixFrom(a, a.BitLen())
		for _, t := range []*bart.Table[[]literal]{x.sources, x.literals} {
			b.WriteString("\x03")
			for q, list := range t.Supernets(p) {
				if len(list) > 0 {
					b.WriteString(q.String())
				}
			}
		}
		if !x.c.r.wildSet.Contains(a) {
			b.WriteString(a.String())
		}
	}
	return b.String()
}
