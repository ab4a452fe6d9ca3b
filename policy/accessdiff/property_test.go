package accessdiff

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// worlds is how many small tailnets the comparison is held against brute force in.
const worlds = 10_200

// TestBruteForce compares random policies of small tailnets, and everything that each side admits one by one: the
// devices' filters, ssh rules and attributes, as the engine compiles them, are the measure.
func TestBruteForce(t *testing.T) {
	const workers = 4
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // nearly all of the work is short-lived
	worlds := worlds
	if testing.Short() {
		worlds /= 10
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var compared, differing, undecided, refused, flows int
	for w := range workers {
		wg.Go(func() {
			for seed := w; seed < worlds; seed += workers {
				g := newWorldGen(uint64(seed))
				old, new := g.pair()
				n, ok := checkWorld(t, seed, g.inventory, old, new)
				mu.Lock()
				if !ok {
					refused++
				} else {
					compared++
					flows += n.flows
					if n.differs {
						differing++
					}
					if n.undecided {
						undecided++
					}
				}
				mu.Unlock()
				if t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d worlds compared (%d with differences, %d with undecided ones, %d flows that differ), %d refused", compared, differing, undecided, flows, refused)
	if compared < worlds*9/10 || differing < compared/2 || undecided < compared/20 {
		t.Errorf("too few worlds tell anything")
	}
}

type outcome struct {
	flows              int
	differs, undecided bool
}

func checkWorld(t *testing.T, seed int, inv *policy.Inventory, old, new string) (outcome, bool) {
	reports := [2]*policy.Report{policy.Check("old", []byte(old), inv, nil), policy.Check("new", []byte(new), inv, nil)}
	for _, r := range reports {
		if r.Compiled == nil {
			if !strings.Contains(r.Message, "autogroup:self can only") {
				t.Errorf("seed %d: refused: %s\n%s\n%s", seed, r.Message, old, new)
			}
			return outcome{}, false
		}
	}
	k, err := comparison(reports[0], reports[1])
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return outcome{}, false
	}
	got := newFolder(k).result()
	x := newExpander(k.devices, old+new)
	have := [4]bitset{x.changes(k, got.Gained), x.changes(k, got.Lost), x.table(), x.table()}
	for _, c := range got.Undecided {
		into := have[2]
		if c.Effect == lostText {
			into = have[3]
		}
		into.or(x.changes(k, []Change{c}))
	}
	// Under each assignment of members to the synced group: what differs under all of them is sure.
	assignments := [][]string{nil}
	if strings.Contains(old+new, syncedGroup) {
		assignments = [][]string{nil, {"ada@example.com"}, {"bob@example.com"}, {"ada@example.com", "bob@example.com"}}
	}
	want := [4]bitset{x.table(), x.table(), x.table(), x.table()} // first whatever differs at all goes into the last two
	for n, members := range assignments {
		var admitted [2]bitset
		for i, text := range []string{old, new} {
			r := reports[i]
			if len(assignments) > 1 {
				r = policy.Check("", []byte(withMembers(text, members)), inv, nil)
			}
			if r.Compiled == nil {
				t.Errorf("seed %d: with members %v: refused: %s", seed, members, r.Message)
				return outcome{}, false
			}
			admitted[i] = x.brute(r.Compiled)
		}
		for i, by := range [2][2]bitset{{admitted[1], admitted[0]}, {admitted[0], admitted[1]}} {
			d := by[0].clone()
			d.andNot(by[1])
			want[2+i].or(d)
			if n == 0 {
				want[i].or(d)
			} else {
				want[i].and(d)
			}
		}
	}
	want[2].andNot(want[0])
	want[3].andNot(want[1])
	flows := 0
	for i, name := range []string{"gained", "lost", "may be gained", "may be lost"} {
		want[i].all(func(int) { flows++ })
		if slices.Equal(want[i], have[i]) {
			continue
		}
		missing, extra := want[i].clone(), have[i].clone()
		missing.andNot(have[i])
		extra.andNot(want[i])
		t.Errorf("seed %d: %s: not found %s; wrong %s\nold %s\nnew %s", seed, name, x.first(missing), x.first(extra), old, new)
		return outcome{}, false
	}
	x.lines(t, seed, k, got)
	return outcome{flows, got.Differs(), len(got.Undecided) > 0}, true
}

const syncedGroup = "group:synced@example.com"

func withMembers(text string, members []string) string {
	if len(members) == 0 {
		members = []string{"group:nobody"}
	}
	return strings.ReplaceAll(text, fmt.Sprintf("%q", syncedGroup), strings.Trim(quoteList(members), "[]"))
}

func quoteList(list []string) string {
	b, _ := json.Marshal(list)
	return string(b)
}

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
	if ports[0].last == 0 {
		return []string{l.name}
	}
	var out []string
	for _, p := range portsOfInterest() {
		if slices.ContainsFunc(ports, func(s span) bool { return s.first <= p && p <= s.last }) {
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
				for _, port := range []int{want[0].first, want[0].last, want[len(want)-1].last} {
					have := newBitset(k.size)
					for _, p := range at[s] {
						if slices.ContainsFunc(k.ports[p.key.ports], func(r span) bool { return r.first <= port && port <= r.last }) {
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
		k.world.points(all, []string{text})
		for p := len(k.addrs); p < k.size; p++ {
			if all.has(p) {
				b.add(p)
			}
		}
		return
	}
	if name != "*" && len(k.parse(name)) > 0 {
		k.world.points(b, []string{name})
		return
	}
	if name == "*" {
		for p := range k.addrs {
			b.add(p) // as a destination it is every device
		}
	}
	k.world.points(b, n.s.access.Select(name).IPs)
}

// worldGen draws small tailnets and policies.
type worldGen struct {
	*rand.Rand
	inventory *policy.Inventory
	synced    bool
}

func attrNames() []string { return []string{"funnel", "mullvad", "randomize-client-port"} }

func newWorldGen(seed uint64) *worldGen {
	g := &worldGen{Rand: rand.New(rand.NewPCG(seed, 99))}
	g.synced = g.IntN(4) == 0
	inv := &policy.Inventory{Users: []policy.User{
		{ID: "1", LoginName: "ada@example.com", Role: "owner", Status: "active", Type: "member"},
		{ID: "2", LoginName: "bob@example.com", Role: "member", Status: "active", Type: "member"},
	}}
	tags := []string{"tag:web", "tag:db", "tag:router"}
	for i := range 3 + g.IntN(4) {
		d := policy.Device{
			NodeID: fmt.Sprintf("n%d", i), Hostname: fmt.Sprintf("host%d", i), Name: fmt.Sprintf("host%d.example.ts.net", i),
			Addresses: []string{fmt.Sprintf("100.64.0.%d", i+1)}, Authorized: g.IntN(20) > 0, OS: pick(g, "linux", "macos"),
		}
		if g.IntN(4) > 0 {
			d.Addresses = append(d.Addresses, fmt.Sprintf("fd7a:115c:a1e0::%x", i+1))
		}
		switch g.IntN(10) {
		case 0, 1, 2, 3:
			d.User = pick(g, "ada@example.com", "bob@example.com")
		case 4:
			d.IsExternal = true
			d.User = "eve@elsewhere.com"
		default:
			for _, t := range tags {
				if g.IntN(3) == 0 {
					d.Tags = append(d.Tags, t)
				}
			}
			if d.Tags == nil {
				d.Tags = []string{pick(g, tags...)}
			}
		}
		if g.IntN(3) == 0 && !d.IsExternal {
			for _, r := range []string{"10.0.0.0/29", "10.0.0.4/30", "10.0.0.8/29", "192.168.1.0/30", "fd00:1::/126", "0.0.0.0/0", "::/0", "100.64.0.0/30"} {
				if g.IntN(5) == 0 {
					d.EnabledRoutes = append(d.EnabledRoutes, r)
				}
			}
			d.AdvertisedRoutes = d.EnabledRoutes
		}
		inv.Devices = append(inv.Devices, d)
	}
	g.inventory = inv
	return g
}

func pick[T any](g *worldGen, list ...T) T { return list[g.IntN(len(list))] }

func several(g *worldGen, most int, list ...string) []string {
	var out []string
	for range 1 + g.IntN(most) {
		out = append(out, pick(g, list...))
	}
	return out
}

// draft is a policy that can be edited.
type draft struct {
	acls, grants, ssh, attrs []string
	groups, hosts            map[string]string
	noRules                  bool
}

func (g *worldGen) pair() (old, new string) {
	a := g.draft()
	if g.IntN(4) == 0 {
		return a.text(), g.draft().text()
	}
	b := a
	b.acls, b.grants, b.ssh, b.attrs = slices.Clone(a.acls), slices.Clone(a.grants), slices.Clone(a.ssh), slices.Clone(a.attrs)
	for range 1 + g.IntN(3) {
		switch g.IntN(8) {
		case 0:
			b.acls = edited(g, b.acls, g.acl)
		case 1, 2:
			b.grants = edited(g, b.grants, g.grant)
		case 3:
			b.ssh = edited(g, b.ssh, g.sshRule)
		case 4:
			b.attrs = edited(g, b.attrs, g.attr)
		case 5:
			b.groups = g.groups()
		case 6:
			b.hosts = g.hosts()
		case 7:
			b.noRules = g.IntN(6) == 0
		}
	}
	return a.text(), b.text()
}

// edited adds, removes or replaces a rule.
func edited(g *worldGen, list []string, draw func() string) []string {
	if len(list) == 0 || g.IntN(3) == 0 {
		return append(list, draw())
	}
	i := g.IntN(len(list))
	if g.IntN(2) == 0 {
		return slices.Delete(list, i, i+1)
	}
	list[i] = draw()
	return list
}

func (g *worldGen) groups() map[string]string {
	out := map[string]string{"group:nobody": `[]`}
	for _, name := range []string{"group:dev", "group:ops"} {
		out[name] = pick(g, `["ada@example.com"]`, `["bob@example.com"]`, `["ada@example.com", "bob@example.com"]`, `[]`)
	}
	return out
}

func (g *worldGen) hosts() map[string]string {
	return map[string]string{"box": pick(g, `"100.64.0.1"`, `"100.64.0.2"`, `"fd7a:115c:a1e0::2"`), "lan": pick(g, `"10.0.0.0/29"`, `"10.0.0.0/28"`, `"10.0.0.4/30"`)}
}

func (g *worldGen) draft() draft {
	d := draft{groups: g.groups(), hosts: g.hosts(), noRules: g.IntN(30) == 0}
	for range g.IntN(4) {
		d.acls = append(d.acls, g.acl())
	}
	for range g.IntN(4) {
		d.grants = append(d.grants, g.grant())
	}
	for range g.IntN(3) {
		d.ssh = append(d.ssh, g.sshRule())
	}
	for range g.IntN(3) {
		d.attrs = append(d.attrs, g.attr())
	}
	return d
}

func (d draft) text() string {
	keyed := func(m map[string]string) string {
		var out []string
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range m {
				if !yield(k) {
					return
				}
			}
		}) {
			out = append(out, fmt.Sprintf("%q: %s", k, m[k]))
		}
		return strings.Join(out, ", ")
	}
	rules := fmt.Sprintf(`"acls": [%s], "grants": [%s],`, strings.Join(d.acls, ",\n\t"), strings.Join(d.grants, ",\n\t"))
	if d.noRules {
		rules = ""
	}
	return fmt.Sprintf(`{"groups": {%s}, "hosts": {%s},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": []},
	"postures": {"posture:linux": ["node:os == 'linux'"]},
	%s
	"ssh": [%s],
	"nodeAttrs": [%s]}`, keyed(d.groups), keyed(d.hosts), rules, strings.Join(d.ssh, ",\n\t"), strings.Join(d.attrs, ", "))
}

func (g *worldGen) sources() []string {
	list := []string{"*", "tag:web", "tag:db", "tag:router", "group:dev", "group:ops", "ada@example.com", "bob@example.com", "autogroup:member",
		"autogroup:tagged", "box", "lan", "10.0.0.2", "10.0.0.0/30", "100.64.0.3", "fd00:1::1", "autogroup:danger-all", "group:nobody"}
	if g.synced {
		list = append(list, syncedGroup, syncedGroup, syncedGroup, syncedGroup, syncedGroup, syncedGroup)
	}
	return several(g, 3, list...)
}

func (g *worldGen) destinations() []string {
	return several(g, 3, "*", "tag:web", "tag:db", "tag:router", "group:dev", "bob@example.com", "autogroup:member", "box", "lan", "10.0.0.0/30", "10.0.0.5",
		"192.168.1.0/30", "fd00:1::/126", "100.64.0.2", "100.64.0.0/29", "autogroup:internet", "autogroup:tagged")
}

func (g *worldGen) posture() string { return pick(g, "", "", "", `, "srcPosture": ["posture:linux"]`) }

func (g *worldGen) acl() string {
	if g.IntN(8) == 0 {
		return fmt.Sprintf(`{"action": "accept", "src": [%q], "dst": ["autogroup:self:%s"]}`, pick(g, "*", "autogroup:member", "group:dev", "ada@example.com"), pick(g, "*", "22", "80-90"))
	}
	proto := pick(g, "", "", "tcp", "udp", "icmp", "ip-in-ip", "sctp", "47")
	var dst []string
	for _, d := range g.destinations() {
		ports := "*"
		if slices.Contains([]string{"", "tcp", "udp", "sctp"}, proto) {
			ports = pick(g, "*", "22", "80-90", "22,443", "85-65535", "1-65535")
		}
		if strings.Contains(d, "::") && !strings.Contains(d, "/") {
			d = "[" + d + "]"
		}
		dst = append(dst, d+":"+ports)
	}
	return fmt.Sprintf(`{"action": "accept", "proto": %q, "src": %s, "dst": %s%s}`, proto, quoteList(g.sources()), quoteList(dst), g.posture())
}

func (g *worldGen) grant() string {
	if g.IntN(8) == 0 {
		return fmt.Sprintf(`{"src": [%q], "dst": ["autogroup:self"], "ip": [%q]}`, pick(g, "autogroup:member", "group:ops", "bob@example.com"), pick(g, "*", "22", "udp:80-90"))
	}
	dst := g.destinations()
	app := ""
	if g.IntN(4) == 0 && !slices.Contains(dst, "autogroup:internet") {
		app = fmt.Sprintf(`, "app": {%q: %s}`, pick(g, "example.com/cap/x", "tailscale.com/cap/drive", "tailscale.com/cap/webui"), pick(g, `[{"a": 1}]`, `[]`, `[{"a": 2}, {"a": 1}]`))
	}
	ip := several(g, 3, "*", "22", "tcp:80-90", "udp:443", "icmp:*", "ip-in-ip:*", "47:*", "sctp:22", "85-65535")
	via := pick(g, "", "", "", `, "via": ["tag:router"]`)
	return fmt.Sprintf(`{"src": %s, "dst": %s, "ip": %s%s%s%s}`, quoteList(g.sources()), quoteList(dst), quoteList(ip), app, via, g.posture())
}

func (g *worldGen) sshRule() string {
	dst := pick(g, "tag:web", "tag:db", "tag:router", "autogroup:self")
	src := several(g, 2, "group:dev", "group:ops", "ada@example.com", "bob@example.com", "autogroup:member")
	action := pick(g, "accept", "accept", "check")
	if dst != "autogroup:self" && action == "accept" && g.IntN(3) == 0 {
		src = []string{pick(g, "tag:web", "tag:db")}
	}
	return fmt.Sprintf(`{"action": %q, "src": %s, "dst": [%q], "users": %s}`, action, quoteList(src), dst, quoteList(several(g, 2, "root", "ubuntu", "deploy", "autogroup:nonroot")))
}

func (g *worldGen) attr() string {
	return fmt.Sprintf(`{"target": %s, "attr": %s}`, quoteList(several(g, 2, "*", "tag:web", "group:dev", "ada@example.com", "autogroup:member", "100.64.0.2", "box")),
		quoteList(several(g, 2, attrNames()...)))
}
