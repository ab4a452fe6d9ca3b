package policy

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// resolved is what a selector stands for in a tailnet. The same text is resolved once, however many rules name it.
type resolved struct {
	id      int
	sel     selector
	devices []*device // by device.n; they count with all their addresses
	// literals are addresses that the policy itself spells: they never grow to a device's other family.
	literals []netipx.IPRange
	set      *netipx.IPSet // literals again, for looking up
	any      bool          // "*" and autogroup:danger-all
	internet bool
	self     bool
	missing  string // what an inventory would have to tell; empty where devices and literals are complete
}

func (r *resolved) hasDevice(d *device) bool {
	_, ok := slices.BinarySearchFunc(r.devices, d.n, func(e *device, n int) int { return e.n - n })
	return ok
}

func (r *resolved) empty() bool {
	return len(r.devices) == 0 && len(r.literals) == 0 && !r.any && !r.internet
}

// resolver turns selectors into devices and addresses.
type resolver struct {
	v     *validator
	x     *index
	cache map[string]*resolved
	list  []*resolved
	// wild is what "*" stands for as a source.
	wild     []string
	wildSet  *netipx.IPSet
	routes   []netipx.IPRange // the part of it that is no device's: each approved subnet route once
	tailnet  *netipx.IPSet    // whatever may be a device's address
	internet *netipx.IPSet
}

func newResolver(v *validator) *resolver {
	r := &resolver{v: v, x: v.x, cache: map[string]*resolved{}}
	r.wildcard()
	r.tailnet = setOf([]netipx.IPRange{
		netipx.RangeOfPrefix(netip.MustParsePrefix("100.64.0.0/10")), netipx.RangeOfPrefix(netip.MustParsePrefix("fd7a:115c:a1e0::/48")),
	})
	r.internet = internetSet()
	return r
}

// wildcard works out "*" as a source: the tailnet's own ranges, without the ones that ChromeOS uses inside 100.64/10,
// and each approved subnet route. Exit routes are not part of it.
func (r *resolver) wildcard() {
	seen := map[netip.Prefix]bool{}
	for _, d := range r.x.devices {
		for _, p := range d.routes {
			if !seen[p] {
				seen[p] = true
				r.routes = append(r.routes, netipx.RangeOfPrefix(p))
			}
		}
	}
	ranges := slices.Concat(tailnetRanges(), r.routes)
	for _, rg := range ranges {
		r.wild = append(r.wild, rangeText(rg))
	}
	slices.Sort(r.wild)
	r.wild = slices.Compact(r.wild)
	r.wildSet = setOf(ranges)
}

func tailnetRanges() []netipx.IPRange {
	return []netipx.IPRange{
		netipx.MustParseIPRange("100.64.0.0-100.115.91.255"),
		netipx.MustParseIPRange("100.115.94.0-100.127.255.255"),
		netipx.RangeOfPrefix(netip.MustParsePrefix("fd7a:115c:a1e0::/48")),
	}
}

func setOf(ranges []netipx.IPRange) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, rg := range ranges {
		b.AddRange(rg)
	}
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return s
}

// internetSet is autogroup:internet: the public unicast addresses.
func internetSet() *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range []string{"0.0.0.0/0", "2000::/3"} {
		b.AddPrefix(netip.MustParsePrefix(p))
	}
	for _, p := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
		"224.0.0.0/4", "240.0.0.0/4",
	} {
		b.RemovePrefix(netip.MustParsePrefix(p))
	}
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return s
}

// isEverything reports whether r is 0.0.0.0/0 or ::/0.
func isEverything(r netipx.IPRange) bool {
	p, ok := r.Prefix()
	return ok && p.Bits() == 0
}

func (r *resolver) resolve(text string) *resolved {
	if got := r.cache[text]; got != nil {
		return got
	}
	out := &resolved{id: len(r.list), sel: parseSelector(text)}
	r.cache[text] = out
	r.list = append(r.list, out)
	switch s := out.sel; s.kind {
	case selAny:
		out.any = true
	case selAddr, selCIDR, selRange:
		out.literals = []netipx.IPRange{s.addrs}
	case selHost:
		if h := r.v.hosts[s.name]; h != nil {
			if rg, _, ok := parseAddrs(h.Value.Value); ok {
				out.literals = []netipx.IPRange{rg}
			}
		}
	case selIPSet:
		var b netipx.IPSetBuilder
		r.ipset(&b, s.name, map[string]*netipx.IPSet{})
		if set, err := b.IPSet(); err == nil {
			out.literals = set.Ranges()
		}
	case selAutogroup:
		switch s.name {
		case agDangerAll:
			out.any = true
		case agInternet:
			out.internet = true
		case agSelf:
			out.self = true
		default:
			out.devices = r.devicesOf(s)
		}
	default:
		out.devices = r.devicesOf(s)
	}
	if out.sel.kind == selGroup && r.v.groups[out.sel.name] == nil {
		out.missing = MembersOf(out.sel.name)
	}
	if _, role := roleAutogroups(out.sel.name); role && r.x.known && len(r.x.users) == 0 {
		out.missing = "users and their roles"
	}
	if out.sel.kind == selService {
		out.missing = "hosts of " + out.sel.name
	}
	if !r.x.known && len(out.literals) == 0 && !out.any && !out.internet && !out.self {
		out.missing = "an inventory of devices"
	}
	if len(out.literals) > 0 {
		out.set = setOf(out.literals)
	}
	return out
}

// ipset adds to b what a set stands for. Its entries add and remove in order; cycles were refused before.
func (r *resolver) ipset(b *netipx.IPSetBuilder, name string, done map[string]*netipx.IPSet) {
	set := r.v.ipsets[name]
	if set == nil {
		return
	}
	for _, e := range set.Entries.Items {
		remove, target := ipsetEntry(e.Value)
		add := func(s *netipx.IPSet) {
			if remove {
				b.RemoveSet(s)
			} else {
				b.AddSet(s)
			}
		}
		switch sel := parseSelector(target); {
		case sel.kind == selIPSet:
			if done[target] == nil {
				done[target] = &netipx.IPSet{} // a cycle ends here
				var sub netipx.IPSetBuilder
				r.ipset(&sub, target, done)
				if s, err := sub.IPSet(); err == nil {
					done[target] = s
				}
			}
			add(done[target])
		case sel.name == agInternet:
			add(r.internet)
		case sel.addrs.IsValid():
			add(setOf([]netipx.IPRange{sel.addrs}))
		case sel.kind == selHost && r.v.hosts[sel.name] != nil:
			if rg, _, ok := parseAddrs(r.v.hosts[sel.name].Value.Value); ok {
				add(setOf([]netipx.IPRange{rg}))
			}
		}
	}
}

// devicesOf returns the devices that a selector names as somebody's or something's, by device.n, without duplicates.
func (r *resolver) devicesOf(s selector) []*device {
	switch s.kind {
	case selTag:
		return r.x.byTag[s.name]
	case selUser:
		return r.x.byUser[s.name]
	case selDomain:
		return r.x.filter(func(d *device) bool { return d.owner != "" && loginDomain(d.owner) == s.name })
	case selGroup:
		g := r.v.groups[s.name]
		if g == nil {
			return nil
		}
		var out []*device
		for _, m := range g.Members.Items {
			if sel := parseSelector(m.Value); sel.kind != selGroup {
				out = append(out, r.devicesOf(sel)...)
			}
		}
		slices.SortFunc(out, func(a, b *device) int { return a.n - b.n })
		return slices.Compact(out)
	case selAutogroup:
		switch s.name {
		case agMember:
			return r.x.filter(func(d *device) bool { return d.owner != "" })
		case agTagged:
			return r.x.filter(func(d *device) bool { return d.tagged() })
		case agShared:
			return r.x.filter(func(d *device) bool { return d.IsExternal })
		}
		if roles, ok := roleAutogroups(s.name); ok {
			return r.x.filter(func(d *device) bool {
				u := r.x.login[d.owner]
				return u != nil && slices.Contains(roles, strings.ToLower(u.Role))
			})
		}
	}
	return nil
}

func (x *index) filter(keep func(*device) bool) []*device {
	var out []*device
	for _, d := range x.devices {
		if keep(d) {
			out = append(out, d)
		}
	}
	return out
}
