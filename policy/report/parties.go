package report

import (
	"cmp"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// party is a row or a column of the matrix: a name of the policy and what it stands for.
type party struct {
	name string
	kind string // "tag", "group", "autogroup", "user" or "network"
	line int    // where the policy defines it, 0 where it does not
	used int    // how often rules name it
	src  bool   // whether it can be a source
	dst  bool   // whether it can be a destination

	points bitset
	fams   families
	spots  []spot
}

// spot is a number of destinations of a party at which the same rules land.
type spot struct {
	class   *class
	devices bitset // the devices themselves, or the routers in front of a network
	n       int    // how many destinations these are: the devices, or one network
}

const (
	kindTag       = "tag"
	kindGroup     = "group"
	kindAutogroup = "autogroup"
	kindUser      = "user"
	kindNetwork   = "network"

	agMember   = "autogroup:member"
	agSelf     = "autogroup:self"
	agInternet = "autogroup:internet"
)

func kinds() []string { return []string{kindTag, kindGroup, kindAutogroup, kindUser, kindNetwork} }

// newParties lists those names that stand for somebody in this inventory: tags and groups, whether or not rules name them,
// and what else rules name.
func (f *flows) newParties(p *policy.Policy) []*party {
	names := candidates(p, f.devices)
	var networks []*netipx.IPSet
	networkOf := map[*party]int{}
	sets := map[*party]*netipx.IPSet{}
	for _, q := range names {
		if q.kind != kindNetwork {
			continue
		}
		set := f.union(f.access.Select(q.name).IPs)
		if q.name == agInternet {
			var b netipx.IPSetBuilder
			for _, r := range f.access.Internet() {
				b.AddRange(r)
			}
			if internet, err := b.IPSet(); err == nil {
				set = internet
			}
		}
		sets[q] = set
		if q.src && len(set.Ranges()) > 0 && !f.anyDevice(set) {
			networkOf[q] = len(networks)
			networks = append(networks, set)
		}
	}
	f.setPoints(networks)
	for _, q := range names {
		q.points = newBitset(f.size)
		if i, ok := networkOf[q]; ok {
			q.points.add(len(f.devices) + i)
			q.fams = 3
			f.networkSpots(q, sets[q])
			continue
		}
		own := f.points(f.access.Select(q.name).IPs)
		if q.name == agInternet {
			own = [2]bitset{newBitset(f.size), newBitset(f.size)}
		}
		for fam := range own {
			q.points.or(own[fam])
			if own[fam].count() > 0 {
				q.fams |= 1 << fam
			}
		}
		f.deviceSpots(q, own)
		if set := sets[q]; set != nil {
			f.networkSpots(q, set)
		}
	}
	slices.SortStableFunc(names, func(a, b *party) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds(), a.kind), slices.Index(kinds(), b.kind)), strings.Compare(a.name, b.name))
	})
	return names
}

func (f *flows) anyDevice(set *netipx.IPSet) bool {
	for a := range f.at {
		if set.Contains(a) {
			return true
		}
	}
	return false
}

// deviceSpots makes devices destinations, at those of their addresses that the party has.
func (f *flows) deviceSpots(q *party, own [2]bitset) {
	at := map[*class]int{}
	for n, d := range f.devices {
		var fams families
		for fam := range own {
			if own[fam].has(n) {
				fams |= 1 << fam
			}
		}
		if fams == 0 || d.External { // another tailnet's policy says what reaches it
			continue
		}
		f.addSpot(q, at, f.device(n, fams), n)
	}
}

// networkSpots makes a network a destination, in as many parts as its routers carry different parts of it.
func (f *flows) networkSpots(q *party, set *netipx.IPSet) {
	var parts []*netipx.IPSet
	var routers [][]int
	for n, d := range f.devices {
		if len(d.Forwards) == 0 || d.External {
			continue
		}
		part := f.forwards(n, set)
		if len(part.Ranges()) == 0 {
			continue
		}
		i := slices.IndexFunc(parts, part.Equal)
		if i < 0 {
			i = len(parts)
			parts, routers = append(parts, part), append(routers, nil)
		}
		routers[i] = append(routers[i], n)
	}
	for i, part := range parts {
		s := spot{class: f.behind(routers[i], part), devices: newBitset(f.size), n: 1}
		for _, n := range routers[i] {
			s.devices.add(n)
		}
		q.spots = append(q.spots, s)
	}
}

func (f *flows) addSpot(q *party, at map[*class]int, c *class, device int) {
	i, ok := at[c]
	if !ok {
		i = len(q.spots)
		at[c] = i
		q.spots = append(q.spots, spot{class: c, devices: newBitset(f.size)})
	}
	q.spots[i].devices.add(device)
	q.spots[i].n++
}

// candidates lists names once each.
func candidates(p *policy.Policy, devices []policy.AccessDevice) []*party {
	var out []*party
	at := map[string]*party{}
	add := func(name, kind string, line int) *party {
		q := at[name]
		if q == nil {
			q = &party{name: name, kind: kind, src: true, dst: true}
			at[name] = q
			out = append(out, q)
		}
		q.line = max(q.line, line)
		return q
	}
	for _, t := range p.TagOwners {
		add(t.Name.Value, kindTag, t.Name.Range.Start.Line)
	}
	for _, g := range p.Groups {
		add(g.Name.Value, kindGroup, g.Name.Range.Start.Line)
	}
	for _, d := range devices {
		for _, t := range d.Tags {
			add(t, kindTag, 0)
		}
		if d.Owner != "" {
			add(agMember, kindAutogroup, 0)
		}
	}
	name := func(selector string, src bool) {
		kind := kindOf(selector)
		if kind == "" {
			return
		}
		known := at[selector] != nil
		q := add(selector, kind, 0)
		q.used++
		if kind == kindNetwork { // a network is shown where rules have it
			if !known {
				q.src, q.dst = false, false
			}
			q.src = q.src || src && selector != agInternet
			q.dst = q.dst || !src
		}
	}
	for i := range p.Grants {
		for _, s := range p.Grants[i].Src.Values() {
			name(s, true)
		}
		for _, d := range p.Grants[i].Dst.Values() {
			name(d, false)
		}
	}
	for i := range p.ACLs {
		for _, s := range p.ACLs[i].Src.Values() {
			name(s, true)
		}
		for _, d := range p.ACLs[i].Dst.Values() {
			name(withoutPorts(d), false)
		}
	}
	for _, h := range p.Hosts {
		if q := at[h.Name.Value]; q != nil {
			q.line = h.Name.Range.Start.Line
		}
	}
	for _, s := range p.IPSets {
		if q := at[s.Name.Value]; q != nil {
			q.line = s.Name.Range.Start.Line
		}
	}
	return out
}

// kindOf tells what a selector names; "" for what is no party of its own: everybody, and one's own devices.
func kindOf(selector string) string {
	prefix, _, _ := strings.Cut(selector, ":")
	switch {
	case selector == "*" || selector == agSelf || prefix == "svc":
		return ""
	case prefix == "tag":
		return kindTag
	case prefix == "group":
		return kindGroup
	case selector == agInternet:
		return kindNetwork
	case prefix == "autogroup":
		return kindAutogroup
	case strings.Contains(selector, "@"):
		return kindUser
	}
	return kindNetwork
}

// withoutPorts takes the ports off the destination of an acl.
func withoutPorts(dst string) string {
	i := strings.LastIndexByte(dst, ':')
	if i < 0 {
		return dst
	}
	return strings.TrimSuffix(strings.TrimPrefix(dst[:i], "["), "]")
}
