package accessdiff

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// expander lists flows one by one.
type expander struct {
	users   []string
	crossed bool // a router forwards what is a device's own: an address alone then does not tell which is meant
	addrs   []netip.Addr
	own     map[netip.Addr]string
	devices []policy.AccessDevice
	numbers map[string]int // of devices
	whats   map[string]int
	matches map[string][]int // addresses that a text holds
}

const mostWhats = 72

func newExpander(devices []policy.AccessDevice, texts string) *expander {
	x := &expander{
		users: []string{"root", "anybody"}, addrs: sampleAddrs(devices), own: map[netip.Addr]string{}, devices: devices,
		numbers: map[string]int{}, whats: map[string]int{}, matches: map[string][]int{},
	}
	for _, u := range []string{"ubuntu", "deploy"} {
		if strings.Contains(texts, u) {
			x.users = append(x.users, u) // of accounts that nobody names, one stands for all
		}
	}
	for n, d := range devices {
		x.numbers[d.Name] = n
		for _, a := range d.Addrs {
			x.own[a] = d.Name
		}
	}
	for _, d := range devices {
		for a := range x.own {
			x.crossed = x.crossed || slices.ContainsFunc(d.Forwards, func(r netipx.IPRange) bool { return r.Contains(a) })
		}
	}
	return x
}

// table is an empty set of flows.
func (x *expander) table() bitset {
	n := len(x.addrs) + 1
	return newBitset(len(x.devices) * n * n * mostWhats)
}

// flow numbers one thing that may pass, from an address to an address of a device. -1 is no address: ssh is to a device,
// and attributes are not from anybody.
func (x *expander) flow(device, src, dst, what int) int {
	n := len(x.addrs) + 1
	return ((device*n+src+1)*n+dst+1)*mostWhats + what
}

// what numbers "tcp 22", "icmp", "ssh root check", "cap NAME VALUE" and "attr NAME".
func (x *expander) what(text string) int {
	n, ok := x.whats[text]
	if !ok {
		n = len(x.whats)
		if n == mostWhats {
			panic("too many kinds of flows")
		}
		x.whats[text] = n
	}
	return n
}

// first words one flow of a set.
func (x *expander) first(b bitset) string {
	out := "none"
	n := len(x.addrs) + 1
	addr := func(i int) string {
		if i == 0 {
			return "-"
		}
		return x.addrs[i-1].String()
	}
	b.all(func(f int) {
		if out != "none" {
			return
		}
		for text, w := range x.whats {
			if w == f%mostWhats {
				f /= mostWhats
				out = fmt.Sprintf("%s: %s -> %s: %s", x.devices[f/n/n].Name, addr(f/n%n), addr(f%n), text)
				return
			}
		}
	})
	return out
}

// held lists the addresses that a text of a filter holds.
func (x *expander) held(text string) []int {
	out, ok := x.matches[text]
	if !ok {
		for i, a := range x.addrs {
			if holds(text, a) {
				out = append(out, i)
			}
		}
		x.matches[text] = out
	}
	return out
}

func portsOfInterest() []int {
	return []int{1, 21, 22, 23, 79, 80, 85, 90, 91, 443, 444, 65535}
}

// sampleAddrs are the addresses of all devices, each address of the small networks that policies name, and some of nobody.
func sampleAddrs(devices []policy.AccessDevice) []netip.Addr {
	var out []netip.Addr
	for _, d := range devices {
		out = append(out, d.Addrs...)
	}
	for _, p := range []string{"10.0.0.0/28", "192.168.1.0/30", "fd00:1::/126"} {
		prefix := netip.MustParsePrefix(p)
		for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
			out = append(out, a)
		}
	}
	for _, a := range []string{"100.64.0.0", "100.64.0.99", "100.115.92.1", "8.8.8.8", "2001:db8::1", "fd7a:115c:a1e0::99", "172.16.0.1"} {
		out = append(out, netip.MustParseAddr(a))
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// has reports whether an address is one of a device's own, or behind it.
func has(d policy.AccessDevice, a netip.Addr) bool {
	return slices.Contains(d.Addrs, a) || slices.ContainsFunc(d.Forwards, func(r netipx.IPRange) bool { return r.Contains(a) })
}

// pointOf finds the point of an address; -1 for one that no policy speaks of.
func pointOf(k *comparer, a netip.Addr) int {
	if p, ok := k.byText[a.String()]; ok {
		return p
	}
	for i, r := range k.rests {
		if r.Contains(a) {
			return len(k.addrs) + i
		}
	}
	return -1
}

// changes lists the flows of changes, from the parts that the comparison found.
func (x *expander) changes(k *comparer, list []Change) bitset {
	out := x.table()
	points := make([]int, len(x.addrs))
	for i, a := range x.addrs {
		points[i] = pointOf(k, a)
	}
	for _, c := range list {
		for _, p := range c.parts {
			cl := k.classes[p.fact.class]
			gr := cl.groups[p.fact.group]
			l := k.lanes[p.key.lane]
			var whats []int
			for _, w := range laneFlows(l, k.ports[p.key.ports]) {
				whats = append(whats, x.what(w))
			}
			set := k.sets.sets[p.fact.src]
			for _, n := range cl.devices {
				d := k.devices[n]
				if l.kind == Attribute {
					out.add(x.flow(n, -1, -1, whats[0]))
					continue
				}
				for j, dst := range x.addrs {
					in := slices.ContainsFunc(gr.own, func(i int) bool { return d.Addrs[i] == dst }) ||
						slices.ContainsFunc(gr.behind, func(i int) bool { return cl.behind[i].Contains(dst) })
					if !in {
						continue
					}
					to := j
					if l.kind == SSH {
						to = -1
					}
					for i, src := range x.addrs {
						if points[i] < 0 || !set.has(points[i]) || src.BitLen() != dst.BitLen() || x.own[src] == d.Name {
							continue
						}
						for _, what := range whats {
							out.add(x.flow(n, i, to, what))
						}
					}
				}
			}
		}
	}
	return out
}

func laneFlows(l lane, ports []span) []string {
	switch l.kind {
	case SSH:
		name := l.name
		if name == laneNonroot {
			name = "anybody"
		}
		if l.checks() {
			return []string{"ssh " + name + " check"}
		}
		return []string{"ssh " + name}
	case Capability:
		return []string{"cap " + l.name + " " + l.detail}
	case Attribute:
		return []string{"attr " + l.name}
	}
	if ports[0].Last == 0 {
		return []string{l.name}
	}
	var out []string
	for _, p := range portsOfInterest() {
		if slices.ContainsFunc(ports, func(s span) bool { return s.First <= p && p <= s.Last }) {
			out = append(out, fmt.Sprintf("%s %d", l.name, p))
		}
	}
	return out
}

// brute lists everything that a policy admits, from what the devices get.
func (x *expander) brute(c *policy.Compiled) bitset {
	out := x.table()
	for _, name := range c.Devices() {
		n := x.numbers[name]
		rules, err := c.Filter(name)
		if err != nil {
			panic(err)
		}
		for _, r := range rules {
			x.rule(out, n, r)
		}
		x.ssh(out, c, n)
		attrs, err := c.NodeAttrs(name)
		if err != nil {
			panic(err)
		}
		for _, a := range attrNames() {
			if _, ok := attrs[a]; ok {
				out.add(x.flow(n, -1, -1, x.what("attr "+a)))
			}
		}
	}
	return out
}

func holds(text string, a netip.Addr) bool {
	if text == "*" {
		return true
	}
	if b, err := netip.ParseAddr(text); err == nil {
		return a == b
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Contains(a)
	}
	r, err := netipx.ParseIPRange(text)
	return err == nil && r.Contains(a)
}

func protoName(proto int) string {
	switch proto {
	case 4:
		return "ip-in-ip"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 47:
		return "gre"
	case 132:
		return "sctp"
	}
	return ""
}

func (x *expander) rule(out bitset, n int, r policy.FilterRule) {
	d := x.devices[n]
	var srcs []int
	for _, s := range r.SrcIPs {
		for _, i := range x.held(s) {
			if x.own[x.addrs[i]] != d.Name && !slices.Contains(srcs, i) {
				srcs = append(srcs, i)
			}
		}
	}
	mark := func(ip string, whats []int) {
		for _, j := range x.held(ip) {
			if !has(d, x.addrs[j]) {
				continue
			}
			for _, i := range srcs {
				if x.addrs[i].BitLen() != x.addrs[j].BitLen() {
					continue
				}
				for _, w := range whats {
					out.add(x.flow(n, i, j, w))
				}
			}
		}
	}
	for _, g := range r.CapGrant {
		var whats []int
		for name, values := range g.CapMap {
			if strings.HasSuffix(name, "-sharer") {
				continue // comes with another capability, in the reverse direction
			}
			for _, v := range capValues(values) {
				whats = append(whats, x.what("cap "+name+" "+v))
			}
		}
		for _, dst := range g.Dsts {
			mark(dst, whats)
		}
	}
	protos := r.IPProto
	if protos == nil {
		protos = []int{6, 17}
	}
	for _, np := range r.DstPorts {
		whats := []int{x.what("icmp")}
		for _, proto := range protos {
			switch proto {
			case 1, 58:
			case 6, 17, 132:
				for _, port := range portsOfInterest() {
					if int(np.Ports.First) <= port && port <= int(np.Ports.Last) {
						whats = append(whats, x.what(protoName(proto)+" "+strconv.Itoa(port)))
					}
				}
			default:
				if np.Ports.First == 0 && np.Ports.Last == 65535 {
					whats = append(whats, x.what(protoName(proto)))
				}
			}
		}
		mark(np.IP, whats)
	}
}

// ssh takes the first rule that names the source and maps the account, as a device does.
func (x *expander) ssh(out bitset, c *policy.Compiled, n int) {
	d := x.devices[n]
	rules, err := c.SSH(d.Name)
	if err != nil {
		panic(err)
	}
	for i, src := range x.addrs {
		if x.own[src] == d.Name || !slices.ContainsFunc(d.Addrs, func(a netip.Addr) bool { return a.BitLen() == src.BitLen() }) {
			continue // nothing comes to a device from a family that it has no address of
		}
		for _, user := range x.users {
			for _, r := range rules {
				if !slices.ContainsFunc(r.Principals, func(p policy.SSHPrincipal) bool { return p.NodeIP == src.String() }) {
					continue
				}
				to, ok := r.SSHUsers[user]
				if !ok {
					to = r.SSHUsers["*"]
				}
				if to == "" {
					continue
				}
				what := "ssh " + user
				if r.Action.HoldAndDelegate != "" {
					what += " check"
				}
				out.add(x.flow(n, i, -1, x.what(what)))
				break
			}
		}
	}
}

// lines holds what is printed to what was found: the names of the two ends stand for exactly the addresses of the parts,
// and where a change is not partial each source has each item at each destination.
func (x *expander) lines(t *testing.T, seed int, k *comparer, got *Result) {
	all := newFolder(k).all
	for _, c := range slices.Concat(got.Gained, got.Lost, got.Undecided) {
		n := newNamer(k.world, k.sides[1])
		if c.Effect == lostText {
			n = newNamer(k.world, k.sides[0])
		}
		src := newBitset(k.size)
		dst := target{own: newBitset(k.size)}
		var behind netipx.IPSetBuilder
		type place struct{ class, group, lane int }
		at := map[place][]part{}
		ports := map[int][]span{}
		for _, p := range c.parts {
			if k.lanes[p.key.lane] == (lane{Network, laneICMP, ""}) && slices.Contains(c.Items, Item{laneICMP, inPart}) {
				continue
			}
			src.or(k.sets.sets[p.fact.src])
			cl := k.classes[p.fact.class]
			(&folder{comparer: k}).aim(dst.own, &behind, cl, cl.groups[p.fact.group])
			s := place{p.fact.class, p.fact.group, p.key.lane}
			at[s] = append(at[s], p)
			ports[p.key.lane] = append(ports[p.key.lane], k.ports[p.key.ports]...)
		}
		dst.behind = built(&behind)
		hasSrc := c.Kind != Attribute && c.Kind != Route && !slices.Contains(c.Src.Names, syncedGroup)
		if hasSrc && !slices.Equal(x.points(k, n, c.Src), src) {
			t.Errorf("seed %d: the sources of %q are not whom they should be", seed, c.String())
		}
		self := slices.Contains(c.Dst.Names, autogroupSelf)
		if !self && !x.crossed && c.Dst.Devices+c.Dst.Behind > 0 {
			have := x.points(k, n, c.Dst)
			have.and(all.own)
			if !slices.Equal(have, dst.own) {
				t.Errorf("seed %d: the destinations of %q are not whom they should be", seed, c.String())
			}
			if c.Kind == Network {
				there := x.behind(k, n, all, c.Dst)
				if !there.Equal(dst.behind) {
					t.Errorf("seed %d: %q: behind routers are %v, want %v", seed, c.String(), there.Ranges(), dst.behind.Ranges())
				}
			}
		}
		if c.Partial || self {
			continue
		}
		for s := range at {
			for l, want := range ports {
				s.lane = l
				for _, port := range []int{want[0].First, want[0].Last, want[len(want)-1].Last} {
					have := newBitset(k.size)
					for _, p := range at[s] {
						if slices.ContainsFunc(k.ports[p.key.ports], func(r span) bool { return r.First <= port && port <= r.Last }) {
							have.or(k.sets.sets[p.fact.src])
						}
					}
					if !slices.Equal(have, src) {
						t.Errorf("seed %d: %q is partial and does not say so (%s %d)", seed, c.String(), k.lanes[l].name, port)
						return
					}
				}
			}
		}
	}
}

// points are the points that a party's names stand for.
func (x *expander) points(k *comparer, n *namer, p Party) bitset {
	out, except := newBitset(k.size), newBitset(k.size)
	for _, name := range p.Names {
		x.name(k, n, out, name)
	}
	for _, name := range p.Except {
		x.name(k, n, except, name)
	}
	out.andNot(except)
	return out
}

func (x *expander) behind(k *comparer, n *namer, all target, p Party) *netipx.IPSet {
	set := func(names []string) *netipx.IPSet {
		var b netipx.IPSetBuilder
		for _, name := range names {
			if _, device := x.numbers[name]; device {
				continue
			}
			if name == "*" {
				b.AddSet(all.behind)
			}
			for _, r := range slices.Concat(n.literals(name), parsed(k, name)) {
				b.AddRange(r)
			}
		}
		return intersection(built(&b), all.behind)
	}
	return minus(set(p.Names), set(p.Except))
}

// parsed reads a name that is addresses.
func parsed(k *comparer, name string) []netipx.IPRange {
	if name == "*" {
		return nil
	}
	if _, own := k.byText[name]; own {
		return nil
	}
	return k.parse(name)
}

func (x *expander) name(k *comparer, n *namer, b bitset, name string) {
	if d, ok := x.numbers[name]; ok {
		for _, p := range k.own[d] {
			b.add(p)
		}
		return
	}
	if text, ok := strings.CutPrefix(name, "addresses of no device in "); ok {
		all := newBitset(k.size)
		k.points(all, []string{text})
		for p := len(k.addrs); p < k.size; p++ {
			if all.has(p) {
				b.add(p)
			}
		}
		return
	}
	if name != "*" && len(k.parse(name)) > 0 {
		k.points(b, []string{name})
		return
	}
	if name == "*" {
		for p := range k.addrs {
			b.add(p) // as a destination it is every device
		}
	}
	k.points(b, n.s.access.Select(name).IPs)
}
