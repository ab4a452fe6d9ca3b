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

// party names a set of points. What the rule itself names comes first, and of what is left out what it named before, or
// names now.
func (n *namer) party(b bitset, preferred, other []string) (out Party, cost int) {
	names, cost := n.cover(b, preferred)
	out = Party{Names: names, Devices: len(n.devicesIn(b))}
	for _, p := range preferred {
		whole := n.selector(p)
		if !b.within(whole) {
			continue
		}
		rest := whole.clone()
		rest.andNot(b)
		if except, c := n.cover(rest, other); nameCost+c < cost && len(except) > 0 {
			out.Names, out.Except, cost = []string{p}, except, nameCost+c
		}
	}
	return out, cost
}

// unknownGroup returns the name of the group whose unknown members are meant, where they alone are: nobody whom the rule
// names besides. They stand for no more than the devices of b.
func (n *namer) unknownGroup(needs string, b bitset, preferred []string) string {
	out := ""
	for _, p := range preferred {
		if needs == "members of "+p {
			out = p
		}
		if n.selector(p).meets(b) {
			return ""
		}
	}
	return out
}

// How hard to read names are: a range of addresses behind a router is worse than a name, and one in the tailnet that
// belongs to no device says next to nothing.
const (
	nameCost  = 2
	rangeCost = 3
	emptyCost = 10
)

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
	cost = nameCost * len(names)
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
	return append(names, rest...), cost + nameCost*(len(hosts)+len(addrs)) + emptyCost*len(rest)
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

// target is a destination: points of devices, and addresses behind routers, whichever router it is.
type target struct {
	own    bitset
	behind *netipx.IPSet
}

// destination names a destination; all is every destination that there is. Preferred are the names in the rule, and
// other those that the rule had before or has now.
func (n *namer) destination(t, all target, preferred, other []string) Party {
	out := Party{Devices: len(n.devicesIn(t.own)), Behind: len(t.behind.Ranges())}
	cost := 0
	take := func(names []string, c int) {
		for _, name := range names {
			if !slices.Contains(out.Names, name) {
				out.Names = append(out.Names, name)
			}
		}
		cost += c
	}
	if !t.own.empty() {
		p, c := n.party(t.own, without(preferred, "*"), other)
		take(p.Names, c)
		out.Except = p.Except
	}
	take(n.behindNames(t.behind, all.behind, preferred))
	for _, p := range preferred {
		whole := target{own: newBitset(n.size), behind: &netipx.IPSet{}}
		switch literal := n.literals(p); {
		case p == "*":
			whole = all
		case len(literal) > 0:
			n.points(whole.own, n.s.access.Select(p).IPs)
			whole.own.and(all.own)
			whole.behind = intersection(all.behind, setOf(literal))
		default:
			continue
		}
		if !t.own.within(whole.own) || len(minus(t.behind, whole.behind).Ranges()) > 0 {
			continue
		}
		rest := whole.own.clone()
		rest.andNot(t.own)
		except, c := n.cover(rest, other)
		behind, d := n.behindNames(minus(whole.behind, t.behind), all.behind, other)
		if nameCost+c+d < cost {
			out.Names, out.Except, cost = []string{p}, nil, nameCost+c+d
			for _, name := range slices.Concat(except, behind) {
				if !slices.Contains(out.Except, name) {
					out.Except = append(out.Except, name)
				}
			}
		}
	}
	return out
}

// behindNames names addresses behind routers. A name that a rule spells stands for what is there of it.
func (n *namer) behindNames(set, all *netipx.IPSet, preferred []string) (names []string, cost int) {
	left := set
	for _, p := range preferred {
		literal := n.literals(p)
		if len(literal) == 0 {
			continue
		}
		there := intersection(all, setOf(literal))
		if len(minus(there, set).Ranges()) == 0 && len(intersection(there, left).Ranges()) > 0 {
			names = append(names, p)
			left = minus(left, there)
		}
	}
	cost = nameCost * len(names)
	for _, r := range left.Ranges() {
		names = append(names, rangeText(r))
		cost += rangeCost
	}
	return names, cost
}

func setOf(ranges []netipx.IPRange) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	return built(&b)
}

func intersection(a, b *netipx.IPSet) *netipx.IPSet {
	var s netipx.IPSetBuilder
	s.AddSet(a)
	s.Intersect(b)
	return built(&s)
}

func minus(a, b *netipx.IPSet) *netipx.IPSet {
	var s netipx.IPSetBuilder
	s.AddSet(a)
	s.RemoveSet(b)
	return built(&s)
}

// built cannot fail: only ranges of one family that are in order ever come in.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{}
	}
	return s
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

// ruleNames are the selectors that a rule names as sources and as destinations, and the postures that it asks for.
type ruleNames struct {
	src, dst, postures []string
}

// indexRules finds the names of each rule by its path.
func indexRules(p *policy.Policy) map[string]ruleNames {
	everyone := ruleNames{src: []string{"*"}, dst: []string{"*"}}
	out := map[string]ruleNames{"": everyone, randomizePath: everyone, noIPv4Path: everyone}
	for i := range p.Grants {
		r := &p.Grants[i]
		out[r.Path] = ruleNames{r.Src.Values(), r.Dst.Values(), r.SrcPosture.Values()}
	}
	for i := range p.ACLs {
		r := &p.ACLs[i]
		out[r.Path] = ruleNames{r.Src.Values(), hosts(r.Dst), r.SrcPosture.Values()}
	}
	for i := range p.SSH {
		r := &p.SSH[i]
		out[r.Path] = ruleNames{trimmed(r.Src), trimmed(r.Dst), r.SrcPosture.Values()}
	}
	for i := range p.NodeAttrs {
		out[p.NodeAttrs[i].Path] = ruleNames{dst: p.NodeAttrs[i].Target.Values()}
	}
	for _, a := range p.AutoApprovers.Routes {
		out[keyed(routesSection, a.Name.Value)] = ruleNames{dst: a.Who.Values()}
	}
	for _, a := range p.AutoApprovers.Services {
		out[keyed(servicesSection, a.Name.Value)] = ruleNames{dst: a.Who.Values()}
	}
	out[exitSection] = ruleNames{dst: p.AutoApprovers.ExitNode.Values()}
	return out
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
