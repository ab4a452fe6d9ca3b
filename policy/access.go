package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// Access shows where each rule of a policy lands, before rules with equal sources are merged: the same admissions as in
// the devices' filters, each with the rule that it comes from, and with what the inventory leaves open. It is what two
// policies are compared by. It is not safe for concurrent use.
type Access struct {
	c       *Compiled
	sources map[*srcSet]*Sources
	self    map[selfKey]*Sources
	grants  map[*appRule]Node
	sets    map[string]*srcSet // by selectors and postures
}

type selfKey struct {
	src   *srcSet
	owner string
}

// AccessDevice is a device as rules see it.
type AccessDevice struct {
	Name  string       // as in Compiled.Devices
	Addrs []netip.Addr // IPv4 first
	// Forwards are the addresses behind the device: its approved routes, and the public ones for an exit node.
	Forwards []netipx.IPRange
	Owner    string   // login name, empty for a tagged or shared-in device
	Tags     []string // empty for a shared-in device
	// External says that the device is shared in: it can be a source, and another tailnet's policy governs it.
	External bool
}

// Sources are whom a rule names as sources.
type Sources struct {
	IPs     []string // as in FilterRule.SrcIPs
	Unknown []UnknownSources
}

// UnknownSources are addresses that are among the sources only if a condition holds, of which the inventory does not tell.
type UnknownSources struct {
	Needs string // such as "members of group:eng@example.com"; equal text is one condition
	IPs   []string
}

// Admission is what one rule lets into one device.
type Admission struct {
	// ID and Part tell admissions of one policy apart: the same for every device that the same text reaches.
	ID, Part int
	Rule     Node // the acl or grant; without a path for the policy that has no rules and so allows all
	Sources  *Sources
	Dst      string // the destination's selector; "" for capabilities
	Self     bool   // by autogroup:self

	// Where it lands on the device: on all that it has and forwards, on its own addresses, or on what overlaps IPs, which
	// are as in NetPortRange.IP.
	All, Own bool
	IPs      []string

	// Proto and Ports are those of a filter rule, or Caps what a capability rule grants.
	Proto []int
	Ports []PortRange
	Caps  map[string][]json.RawMessage

	// Needs is what the inventory would have to tell of the destination; only in Unplaced.
	Needs string
}

// Access returns a view of the policy for comparing it with another one.
func (c *Compiled) Access() *Access {
	return &Access{c: c, sources: map[*srcSet]*Sources{}, self: map[selfKey]*Sources{}, grants: c.grantsOfApps(), sets: map[string]*srcSet{}}
}

// grantsOfApps tells which grant each capability rule comes from: the rules are in the order of the grants, as many for
// each as addApp makes.
func (c *Compiled) grantsOfApps() map[*appRule]Node {
	out := map[*appRule]Node{}
	rest := c.apps
	for i := range c.p.Grants {
		g := &c.p.Grants[i]
		if len(g.App) == 0 || len(g.Via.Items) > 0 || len(g.Src.Items) == 0 {
			continue
		}
		n := 0
		if slices.Contains(g.Dst.Values(), agSelf) {
			n++
		}
		if slices.ContainsFunc(g.Dst.Values(), func(d string) bool { return d != agSelf }) {
			n++
		}
		copies := 1
		for _, pair := range companions() {
			if slices.ContainsFunc(g.App, func(a Capability) bool { return a.Name.Value == pair[0] }) {
				copies++
			}
		}
		for range min(n*copies, len(rest)) {
			out[rest[0]] = g.Node
			rest = rest[1:]
		}
	}
	return out
}

// Known reports whether there is an inventory at all.
func (a *Access) Known() bool { return a.c.x.known }

// Devices returns the authorized devices, in an order that depends on nothing but what they are.
func (a *Access) Devices() []AccessDevice {
	out := make([]AccessDevice, len(a.c.x.devices))
	for i, d := range a.c.x.devices {
		out[i] = AccessDevice{Name: d.key, Addrs: d.addrs, Owner: d.owner, Tags: d.tags(), External: d.IsExternal}
		for _, r := range d.routes {
			out[i].Forwards = append(out[i].Forwards, netipx.RangeOfPrefix(r))
		}
		if d.exit4 || d.exit6 {
			for _, r := range a.c.r.internet.Ranges() {
				if r.From().Is4() && d.exit4 || r.From().Is6() && d.exit6 {
					out[i].Forwards = append(out[i].Forwards, r)
				}
			}
		}
	}
	return out
}

// Admissions returns what the rules let into the device at an index of Devices, in the order of the rules. The
// capability rules that come with others in the reverse direction are left out.
func (a *Access) Admissions(device int) []Admission {
	d := a.c.x.devices[device]
	if d.IsExternal {
		return nil
	}
	var out []Admission
	for _, h := range a.c.reach.device(d) {
		r := h.rule
		adm := Admission{ID: r.pos, Part: h.part, Rule: r.node, Proto: r.proto}
		if r.selfPorts != nil {
			adm.Self, adm.Own, adm.Dst, adm.Ports = true, true, agSelf, r.selfPorts
			adm.Sources = a.ofOwner(r.src, d.owner)
		} else {
			adm.Dst, adm.Ports = r.dsts[h.part].to.sel.text, r.dsts[h.part].ports
			adm.Sources = a.of(r.src)
			switch {
			case len(h.ips) == 1 && h.ips[0] == "*":
				adm.All = true
			case len(h.ips) > 0 && len(d.ips) > 0 && &h.ips[0] == &d.ips[0]:
				adm.Own = true
			default:
				adm.IPs = h.ips
			}
		}
		out = append(out, adm)
	}
	for _, r := range a.c.reach.apps(d) {
		if r.reversed {
			continue
		}
		adm := Admission{ID: r.pos, Rule: a.grants[r], Caps: r.caps, Self: r.self, Sources: a.of(r.src)}
		if r.self {
			if d.owner == "" {
				continue
			}
			adm.Own, adm.Sources = true, a.ofOwner(r.src, d.owner)
		} else {
			for i, addr := range d.addrs {
				if r.dsts.has(a.c, endpoint{dev: d, addr: addr, exact: true}) == Pass {
					adm.IPs = append(adm.IPs, d.ips[i])
				}
			}
			if len(adm.IPs) == 0 {
				continue
			}
		}
		out = append(out, adm)
	}
	return out
}

// Internet returns the public addresses that autogroup:internet stands for, sorted.
func (a *Access) Internet() []netipx.IPRange { return a.c.r.internet.Ranges() }

// Unplaced returns the admissions to destinations of which the inventory does not tell all.
func (a *Access) Unplaced() []Admission {
	var out []Admission
	for _, r := range a.c.rules {
		for i, d := range r.dsts {
			if d.to.missing != "" {
				out = append(out, Admission{
					ID: r.pos, Part: i, Rule: r.node, Sources: a.of(r.src), Dst: d.to.sel.text, Proto: r.proto, Ports: d.ports,
					Needs: d.to.missing,
				})
			}
		}
	}
	for _, r := range a.c.apps {
		for i, to := range r.dsts.parts {
			if to.missing != "" && !r.reversed && !r.self {
				out = append(out, Admission{
					ID: r.pos, Part: i, Rule: a.grants[r], Sources: a.of(r.src), Dst: to.sel.text, Caps: r.caps, Needs: to.missing,
				})
			}
		}
	}
	return out
}

// Sources resolves selectors as a rule's sources, under a list of postures or else the policy's default.
func (a *Access) Sources(selectors []string, srcPosture Strings) *Sources {
	return a.of(a.set(selectors, a.c.v.posture(srcPosture)))
}

// Select resolves one selector alone.
func (a *Access) Select(selector string) *Sources { return a.of(a.set([]string{selector}, nil)) }

// OwnersSources is Sources as autogroup:self narrows it for the devices of one user.
func (a *Access) OwnersSources(selectors []string, srcPosture Strings, owner string) *Sources {
	return a.ofOwner(a.set(selectors, a.c.v.posture(srcPosture)), owner)
}

func (a *Access) set(selectors []string, p *posture) *srcSet {
	key := strings.Join(selectors, "\x00")
	if p != nil {
		key += "\x00\x00" + strings.Join(p.names, "\x00")
	}
	if got := a.sets[key]; got != nil {
		return got
	}
	s := &srcSet{posture: p}
	a.sets[key] = s
	for _, t := range selectors {
		s.parts = append(s.parts, a.c.resolveLocked(t))
	}
	a.c.address(s)
	return s
}

func (a *Access) of(s *srcSet) *Sources {
	got := a.sources[s]
	if got == nil {
		got = &Sources{IPs: a.c.sourceText(s), Unknown: a.c.unknown(s, a.c.x.devices)}
		a.sources[s] = got
	}
	return got
}

func (a *Access) ofOwner(s *srcSet, owner string) *Sources {
	key := selfKey{s, owner}
	got := a.self[key]
	if got == nil {
		got = &Sources{IPs: a.c.selfSources(s, owner).list(a.c.x), Unknown: a.c.unknown(s, a.c.x.byUser[owner])}
		a.self[key] = got
	}
	return got
}

// unknown lists which addresses of devices are sources under which conditions.
func (c *Compiled) unknown(s *srcSet, devices []*device) []UnknownSources {
	if s.posture == nil && !slices.ContainsFunc(s.parts, func(r *resolved) bool { return r.missing != "" }) {
		return nil
	}
	var out []UnknownSources
	at := map[string]int{}
	for _, d := range devices {
		for n := range d.addrs {
			for _, needs := range c.needs(s, d, d.addrs[n]) {
				i, ok := at[needs]
				if !ok {
					i = len(out)
					at[needs] = i
					out = append(out, UnknownSources{Needs: needs})
				}
				out[i].IPs = append(out[i].IPs, d.ips[n])
			}
		}
	}
	slices.SortFunc(out, func(x, y UnknownSources) int { return strings.Compare(x.Needs, y.Needs) })
	return out
}

// needs returns the conditions each of which makes a device's address a source, none where the inventory decides.
func (c *Compiled) needs(s *srcSet, d *device, addr netip.Addr) []string {
	var who []string
	for _, r := range s.parts {
		switch v := r.match(c, endpoint{dev: d, addr: addr}); {
		case v == Pass:
			who = append(who, "")
		case v == Undecided && (r.sel.kind != selGroup || d.owner != ""): // tagged devices are in no group
			who = append(who, orInventory(r.missing))
		}
	}
	if slices.Contains(who, "") {
		who = []string{""}
	}
	how := []string{""}
	if s.posture != nil && !d.IsExternal {
		how = s.posture.open(postureAttrs(d))
	}
	var out []string
	for _, w := range who {
		for _, h := range how {
			switch {
			case w == "" && h == "":
				return nil
			case w == "" || h == "":
				out = append(out, w+h)
			default:
				out = append(out, w+" and "+h)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// open returns what attrs leave to be shown, one text for each posture that may hold; "" alone where one does hold.
func (p *posture) open(attrs map[string]string) []string {
	var out []string
	for _, all := range p.any {
		var left []string
		failed := false
		for _, a := range all {
			switch a.holds(attrs, false) {
			case Fail:
				failed = true
			case Undecided:
				left = append(left, strings.TrimSpace("posture "+a.attr+" "+a.op+" "+strings.Join(a.values, ", ")))
			}
		}
		switch {
		case failed:
		case len(left) == 0:
			return []string{""}
		default:
			slices.Sort(left)
			out = append(out, strings.Join(slices.Compact(left), " and "))
		}
	}
	return out
}

// ProtocolName names an IP protocol as a policy would, such as "tcp" or "ip-in-ip", "protocol 200" where it has no name.
func ProtocolName(proto int) string { return protoName(proto) }
