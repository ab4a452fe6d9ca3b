package accessdiff

import (
	"cmp"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// namer finds names for sets of points in the terms of one policy.
type namer struct {
	*world
	s *side
	// known are the names of sets of whole devices, those of most devices first.
	known []named
	sets  map[string]bitset // of selectors
}

// named is a name for devices.
type named struct {
	name    string
	rank    int
	devices []int
}

func newNamer(w *world, s *side) *namer {
	n := &namer{world: w, s: s, sets: map[string]bitset{}}
	byName := map[string]*named{}
	add := func(name string, rank, device int) {
		e := byName[name]
		if e == nil {
			e = &named{name: name, rank: rank}
			byName[name] = e
		}
		if l := len(e.devices); l == 0 || e.devices[l-1] != device {
			e.devices = append(e.devices, device)
		}
	}
	groupsOf := map[string][]string{}
	for _, g := range s.report.Policy.Groups {
		for _, m := range g.Members.Values() {
			groupsOf[m] = append(groupsOf[m], g.Name.Value)
		}
	}
	for i, d := range w.devices {
		for _, t := range d.Tags {
			add(t, 0, i)
		}
		if len(d.Tags) > 0 {
			add("autogroup:tagged", 3, i)
		}
		if d.Owner != "" {
			add(d.Owner, 1, i)
			add("autogroup:member", 3, i)
			for _, g := range groupsOf[d.Owner] {
				add(g, 2, i)
			}
		}
	}
	for _, e := range byName {
		n.known = append(n.known, *e)
	}
	slices.SortFunc(n.known, func(a, b named) int {
		return cmp.Or(cmp.Compare(len(b.devices), len(a.devices)), cmp.Compare(a.rank, b.rank), strings.Compare(a.name, b.name))
	})
	return n
}

// selector returns the points that a selector stands for.
func (n *namer) selector(text string) bitset {
	b, ok := n.sets[text]
	if !ok {
		b = newBitset(n.size)
		if text != autogroupSelf {
			n.points(b, n.s.access.Select(text).IPs)
		}
		n.sets[text] = b
	}
	return b
}

// party names a set of points. What the rule itself names comes first.
func (n *namer) party(b bitset, preferred []string) Party {
	names, cost := n.cover(b, preferred)
	out := Party{Names: names, Devices: len(n.devicesIn(b))}
	for _, p := range preferred {
		whole := n.selector(p)
		if !b.within(whole) {
			continue
		}
		rest := whole.clone()
		rest.andNot(b)
		if except, c := n.cover(rest, nil); 1+c < cost && len(except) > 0 {
			out.Names, out.Except, cost = []string{p}, except, 1+c
		}
	}
	return out
}

// addressCost is how much worse to read a range of addresses is than a name.
const addressCost = 5

// cover finds names that together stand for exactly b, and how hard they are to read.
func (n *namer) cover(b bitset, preferred []string) (names []string, cost int) {
	left := b.clone()
	left[n.nobody>>6] &^= 1 << (n.nobody & 63)
	for _, p := range preferred {
		if set := n.selector(p); set.within(b) && set.meets(left) {
			names = append(names, p)
			left.andNot(set)
		}
	}
	if !left.empty() {
		for _, k := range n.known {
			if n.takes(k, b, left) {
				names = append(names, k.name)
				for _, d := range k.devices {
					for _, p := range n.own[d] {
						left[p>>6] &^= 1 << (p & 63)
					}
				}
			}
		}
	}
	cost = len(names)
	var hosts, addrs []string
	seen := map[int]bool{}
	var ranges []netipx.IPRange
	left.all(func(p int) {
		if p >= len(n.addrs) {
			ranges = append(ranges, n.rests[p-len(n.addrs)])
			return
		}
		d := n.deviceN[p]
		if seen[d] {
			return
		}
		for _, q := range n.own[d] {
			if !b.has(q) {
				addrs = append(addrs, n.addrs[p].String())
				return
			}
		}
		seen[d] = true
		hosts = append(hosts, n.devices[d].Name)
	})
	slices.Sort(hosts)
	names = append(names, hosts...)
	names = append(names, addrs...)
	rest := n.rangeNames(b, ranges)
	return append(names, rest...), cost + len(hosts) + len(addrs) + addressCost*len(rest)
}

// takes reports whether a name stands for devices that are all in b, one of them still left.
func (n *namer) takes(k named, b, left bitset) bool {
	meets := false
	for _, d := range k.devices {
		for _, p := range n.own[d] {
			if !b.has(p) {
				return false
			}
			meets = meets || left.has(p)
		}
	}
	return meets
}

// rangeNames names pieces of the address space. Where a device's address that is not meant lies inside, it says so.
func (n *namer) rangeNames(b bitset, ranges []netipx.IPRange) []string {
	var out []string
	for i := 0; i < len(ranges); {
		r := ranges[i]
		for i++; i < len(ranges) && adjacent(r, ranges[i]); i++ {
			r = netipx.IPRangeFrom(r.From(), ranges[i].To())
		}
		in := newBitset(n.size)
		n.rangePoints(in, r)
		for p := len(n.addrs); p < n.size; p++ {
			if in.has(p) {
				in[p>>6] &^= 1 << (p & 63)
			}
		}
		if in.within(b) {
			out = append(out, rangeText(r))
		} else {
			out = append(out, "addresses of no device in "+rangeText(r))
		}
	}
	return out
}

// adjacent reports whether b follows a without a gap.
func adjacent(a, b netipx.IPRange) bool {
	return a.To().Next() == b.From() && a.To().BitLen() == b.From().BitLen()
}

// target is a destination: points of devices, and what is behind routers.
type target struct {
	own    bitset
	behind []netipx.IPRange // with duplicates, where several routers forward it
}

// destination names a destination. all is every destination that there is.
func (n *namer) destination(t, all target, preferred []string) Party {
	behind := pieces(t.behind)
	out := Party{Devices: len(n.devicesIn(t.own))}
	if slices.Contains(preferred, "*") && all.own.within(t.own) && len(t.behind) == len(all.behind) {
		out.Names = []string{"*"}
		out.Behind = len(merged(behind))
		return out
	}
	out.Behind = len(merged(behind))
	if !t.own.empty() {
		p := n.party(t.own, without(preferred, "*"))
		out.Names, out.Except = p.Names, p.Except
	}
	left, have := behind, merged(behind)
	for _, p := range preferred {
		literal := n.literals(p)
		rest := slices.DeleteFunc(slices.Clone(left), func(r netipx.IPRange) bool { return inside(r, literal) })
		// The name holds where everything in it that is behind any router is meant.
		if len(rest) == len(left) || slices.ContainsFunc(all.behind, func(r netipx.IPRange) bool {
			return inside(r, literal) && !inside(r, have)
		}) {
			continue
		}
		left = rest
		if !slices.Contains(out.Names, p) {
			out.Names = append(out.Names, p)
		}
	}
	for _, r := range merged(left) {
		out.Names = append(out.Names, rangeText(r))
	}
	return out
}

// literals are the addresses that a selector spells.
func (n *namer) literals(selector string) []netipx.IPRange {
	switch selector {
	case "*":
		return nil
	case "autogroup:internet":
		return n.s.access.Internet()
	}
	var out []netipx.IPRange
	for _, text := range n.s.access.Select(selector).IPs {
		if _, own := n.byText[text]; !own {
			out = append(out, n.parse(text)...)
		}
	}
	return out
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(t string) bool { return t == s })
}

// inside reports whether r lies in one of in.
func inside(r netipx.IPRange, in []netipx.IPRange) bool {
	return slices.ContainsFunc(in, func(o netipx.IPRange) bool { return o.Contains(r.From()) && o.Contains(r.To()) })
}

// merged joins neighbours.
func merged(in []netipx.IPRange) []netipx.IPRange {
	var b netipx.IPSetBuilder
	for _, r := range in {
		b.AddRange(r)
	}
	set, err := b.IPSet()
	if err != nil {
		return in
	}
	return set.Ranges()
}

// ruleNames are the selectors that a rule names as sources and as destinations.
func ruleNames(s *side, path string) (src, dst []string) {
	p := s.report.Policy
	if path == "" || path == "randomizeClientPort" {
		return []string{"*"}, []string{"*"}
	}
	for i := range p.Grants {
		if p.Grants[i].Path == path {
			return p.Grants[i].Src.Values(), p.Grants[i].Dst.Values()
		}
	}
	for i := range p.ACLs {
		if p.ACLs[i].Path == path {
			return p.ACLs[i].Src.Values(), hosts(p.ACLs[i].Dst)
		}
	}
	for i := range p.SSH {
		if p.SSH[i].Path == path {
			return trimmed(p.SSH[i].Src), trimmed(p.SSH[i].Dst)
		}
	}
	for i := range p.NodeAttrs {
		if p.NodeAttrs[i].Path == path {
			return nil, p.NodeAttrs[i].Target.Values()
		}
	}
	for _, a := range p.AutoApprovers.Routes {
		if keyed(routesSection, a.Name.Value) == path {
			return nil, a.Who.Values()
		}
	}
	for _, a := range p.AutoApprovers.Services {
		if keyed(servicesSection, a.Name.Value) == path {
			return nil, a.Who.Values()
		}
	}
	if path == exitSection {
		return nil, p.AutoApprovers.ExitNode.Values()
	}
	return nil, nil
}

// hosts takes the ports off an acl's destinations.
func hosts(dst policy.Strings) []string {
	var out []string
	for _, d := range dst.Values() {
		if i := strings.LastIndexByte(d, ':'); i > 0 {
			d = strings.Replace(strings.TrimPrefix(d[:i], "["), "]", "", 1)
		}
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
