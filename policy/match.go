package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Decision is the answer to "may this flow pass".
type Decision struct {
	Verdict Verdict
	Rule    string     // path of the rule that decided
	Range   diag.Range // its place in the text
	Missing []string
}

// endpoint is one end of a flow: a device with one of its addresses, an address that is no device's, or, where no
// device bears it, a name alone.
type endpoint struct {
	dev   *device
	addr  netip.Addr
	name  selector          // of an endpoint without device and address
	exact bool              // addr alone counts among literals
	attrs map[string]string // posture attributes that a test gives; nil: those of the device
}

func (e endpoint) named() bool { return e.dev == nil && !e.addr.IsValid() }

// match says whether a selector covers an endpoint. Undecided means that the inventory does not tell.
func (r *resolved) match(c *Compiled, e endpoint) Verdict {
	switch {
	case r.any:
		return Pass
	case e.dev != nil && r.hasDevice(e.dev):
		return Pass
	case r.set != nil && e.addr.IsValid():
		if r.set.Contains(e.addr) {
			return Pass
		}
	case r.set != nil && e.dev != nil && !e.exact:
		if slices.ContainsFunc(e.dev.addrs, r.set.Contains) {
			return Pass
		}
	case r.internet && e.addr.IsValid() && c.r.internet.Contains(e.addr):
		return Pass
	case e.named() && c.covers(r.sel, e.name):
		return Pass
	}
	if r.missing != "" || e.named() && !c.x.known && r.set != nil {
		return Undecided
	}
	return Fail
}

// covers reports whether a selector covers everybody who bears a name, by the policy's text alone.
func (c *Compiled) covers(s, name selector) bool {
	if s.name == name.name {
		return true
	}
	guest := name.kind == selUser && c.x.isGuest(name.name)
	user := name.kind == selUser && !guest
	switch s.kind {
	case selDomain:
		return user && loginDomain(name.name) == s.name
	case selGroup:
		g := c.v.groups[s.name]
		return g != nil && slices.ContainsFunc(g.Members.Items, func(m String) bool { return c.covers(parseSelector(m.Value), name) })
	case selAutogroup:
		switch s.name {
		case agMember:
			return user || name.kind == selGroup || name.kind == selDomain
		case agShared:
			return guest
		case agTagged:
			return name.kind == selTag
		}
		if roles, ok := roleAutogroups(s.name); ok && user {
			u := c.x.login[name.name]
			return u != nil && slices.Contains(roles, strings.ToLower(u.Role))
		}
	}
	return false
}

// has says whether an endpoint is among the sources.
func (s *srcSet) has(c *Compiled, e endpoint) Verdict {
	v, _ := s.judge(c, e)
	return v
}

// judge is has, with what was missing where it is Undecided.
func (s *srcSet) judge(c *Compiled, e endpoint) (Verdict, []string) {
	best := Fail
	var missing []string
	stranger := e.dev == nil && !e.named()
	for _, r := range s.parts {
		v := r.match(c, e)
		if s.posture != nil && stranger && r.sel.name == agDangerAll {
			v = Fail // a filter cannot say "everybody except devices that do not meet it"
		}
		if r.sel.kind == selAny && e.addr.IsValid() && !c.r.wildSet.Contains(e.addr) {
			v = Fail // as a source "*" is the tailnet and what its routers carry, not every address
		}
		if v == Pass {
			best = Pass
			break
		}
		if v == Undecided {
			best = Undecided
			missing = append(missing, orInventory(r.missing))
		}
	}
	if best == Fail || s.posture == nil {
		if best == Pass {
			missing = nil
		}
		return best, missing
	}
	switch {
	case stranger && !c.r.tailnet.Contains(e.addr), e.dev != nil && e.dev.IsExternal:
		return best, missing // nothing is asked of what is behind a router or shared in
	case stranger && e.attrs == nil:
		return Fail, nil
	}
	attrs, closed := e.attrs, e.attrs != nil
	if e.dev != nil && !closed {
		attrs = postureAttrs(e.dev)
	}
	v, lacks := s.posture.holds(attrs, closed)
	switch {
	case v == Fail:
		return Fail, nil
	case v == Undecided || best == Undecided:
		return Undecided, append(missing, lacks...)
	}
	return Pass, nil
}

func orInventory(missing string) string {
	if missing == "" {
		return "an inventory of devices"
	}
	return missing
}

// flow is what a rule is asked about besides the two ends. Proto 0 is "tcp or udp".
type flow struct {
	proto int
	ports PortRange
	// routed asks of a rule with via that one of its routers carries the destination, where any router does. The tests
	// of a policy do not ask: they are about what the rules say.
	routed bool
}

// admits reports whether a rule lets a protocol pass to one of its destinations, as the nodes' own filter does: a
// protocol without ports passes only where the rule lists it and covers all ports, and icmp wherever anything passes.
func (r *rule) admits(f flow, ports []PortRange) bool {
	if f.proto == protoICMP || f.proto == protoICMPv6 {
		return len(ports) > 0
	}
	if !r.lists(f.proto) {
		return false
	}
	if !hasPorts(f.proto) {
		return slices.ContainsFunc(ports, PortRange.isAll)
	}
	return coversPorts(ports, f.ports)
}

func (r *rule) lists(proto int) bool {
	switch {
	case proto == 0:
		return r.lists(protoTCP) || r.lists(protoUDP)
	case r.proto == nil:
		return isDefaultProto(proto)
	}
	return slices.Contains(r.proto, proto)
}

// coversPorts reports whether ports together hold all of want.
func coversPorts(ports []PortRange, want PortRange) bool {
	next := int(want.First)
	for next <= int(want.Last) {
		reached := next
		for _, p := range ports {
			if p.contains(next) {
				reached = max(reached, int(p.Last)+1)
			}
		}
		if reached == next {
			return false
		}
		next = reached
	}
	return true
}

// outcome is a decision with the rule itself.
type outcome struct {
	verdict Verdict
	rule    *rule
	missing []string
}

// offer is a rule that admits a flow to a destination, for whoever its sources are.
type offer struct {
	rule    *rule
	verdict Verdict // never Fail
	missing []string
}

// offers finds which of the rules that name a destination admit a flow to it. It asks nothing about sources, of which
// there may be many for one destination.
func (c *Compiled) offers(dst endpoint, f flow, candidates []posting) []offer {
	icmp := f.proto == protoICMP || f.proto == protoICMPv6
	var out []offer
	for i := 0; i < len(candidates); {
		r := candidates[i].rule
		// All destinations of one rule that hold dst count together: their ports add up.
		sure, maybe := r.selfPorts, []PortRange(nil)
		var lacks []string
		for ; i < len(candidates) && candidates[i].rule == r; i++ {
			if r.selfPorts != nil || !icmp && !r.lists(f.proto) {
				continue
			}
			d := r.dsts[candidates[i].part]
			if r.isVia && dst.dev != nil && !opensRouter(r, d.to, dst) {
				continue
			}
			if r.isVia && dst.dev == nil && f.routed && c.passesBy(r.via, dst.addr) {
				continue
			}
			switch d.to.match(c, dst) {
			case Pass:
				sure = append(sure, d.ports...)
			case Undecided:
				maybe, lacks = append(maybe, d.ports...), append(lacks, orInventory(d.to.missing))
			}
		}
		if r.admits(f, sure) {
			out = append(out, offer{rule: r, verdict: Pass})
		} else if len(maybe) > 0 && r.admits(f, append(maybe, sure...)) {
			out = append(out, offer{rule: r, verdict: Undecided, missing: lacks})
		}
	}
	return out
}

// judge decides a flow between two endpoints of the same address family by what is offered at dst. The first rule that
// surely admits it decides; without one, rules that might are what makes it Undecided.
func (c *Compiled) judge(src, dst endpoint, offers []offer) outcome {
	out := outcome{verdict: Fail}
	for _, o := range offers {
		if o.rule.selfPorts != nil && !sameOwner(src, dst) {
			continue
		}
		v, lacks := o.rule.src.judge(c, src)
		switch {
		case v == Fail:
		case v == Pass && o.verdict == Pass:
			return outcome{verdict: Pass, rule: o.rule}
		default:
			out.missing = append(append(out.missing, o.missing...), lacks...)
			if out.rule == nil {
				out.verdict, out.rule = Undecided, o.rule
			}
		}
	}
	slices.Sort(out.missing)
	out.missing = slices.Compact(out.missing)
	return out
}

// opensRouter reports whether a rule with via admits to the router's own address. Via is about what lies behind a
// router; but a destination that reaches it for the sake of a route is in its filter as written, and may hold more.
func opensRouter(r *rule, to *resolved, dst endpoint) bool {
	d := dst.dev
	if !slices.ContainsFunc(r.via, func(t string) bool { return slices.Contains(d.tags(), t) }) {
		return false
	}
	if to.any {
		return len(d.routes) > 0
	}
	return slices.ContainsFunc(to.literals, func(rg netipx.IPRange) bool {
		return rg.Contains(dst.addr) && slices.ContainsFunc(d.routes, func(p netip.Prefix) bool { return rg.Overlaps(netipx.RangeOfPrefix(p)) })
	})
}

// passesBy reports whether routers carry an address and none of them has one of the tags: what a rule opens by these tags
// alone does not open it.
func (c *Compiled) passesBy(tags []string, a netip.Addr) bool {
	public := a.IsValid() && c.r.internet.Contains(a)
	routers := 0
	for _, d := range c.x.devices {
		exit := public && (a.Is4() && d.exit4 || a.Is6() && d.exit6)
		if !exit && !slices.ContainsFunc(d.routes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			continue
		}
		routers++
		if slices.ContainsFunc(tags, func(t string) bool { return slices.Contains(d.tags(), t) }) {
			return false
		}
	}
	return routers > 0
}

func sameOwner(src, dst endpoint) bool {
	owner := src.owner()
	return owner != "" && owner == dst.owner()
}

// owner is the login of the user whose the endpoint is, empty for a tagged device and for whatever is nobody's.
func (e endpoint) owner() string {
	switch {
	case e.dev != nil:
		return e.dev.owner
	case e.named() && e.name.kind == selUser:
		return e.name.name
	}
	return ""
}

// endpoints expands a selector or the name of a device to what a flow can start or end at. missing says what else the
// name may stand for.
func (c *Compiled) endpoints(text string) (list []endpoint, missing string, err error) {
	sel := parseSelector(text)
	if sel.kind == selHost && c.v.hosts[sel.name] == nil {
		if d := c.x.find(text); d != nil {
			return deviceEndpoints([]*device{d}), "", nil
		}
		if slices.ContainsFunc(c.x.pending, func(d *device) bool { return d.called(text) }) {
			return nil, "", fmt.Errorf("device %q is not authorized", text)
		}
		return nil, "", fmt.Errorf("unknown user or host: %q", text)
	}
	if !c.v.known(text) {
		if d := c.x.find(text); d != nil {
			return deviceEndpoints([]*device{d}), "", nil
		}
		return nil, "", fmt.Errorf("%s not found: %q", sel.kindName(), text)
	}
	r := c.resolveLocked(text)
	switch {
	case r.any:
		return deviceEndpoints(c.x.devices), "", nil
	case r.self, r.internet:
		return nil, "", fmt.Errorf("%q cannot be one end of a flow", text)
	case len(r.literals) > 0:
		for _, rg := range r.literals {
			if rg.From() != rg.To() {
				return nil, "", fmt.Errorf("%q is more than one address", text)
			}
			list = append(list, endpoint{dev: c.x.byAddr[rg.From()], addr: rg.From(), exact: true})
		}
		return list, "", nil
	case r.sel.kind == selGroup && r.missing != "":
		return []endpoint{{name: sel}}, r.missing, nil
	}
	if sel.kind == selUser && c.x.known && len(c.x.users) > 0 && !c.x.knowsUser(sel.name) {
		return nil, "", fmt.Errorf("user not found: %q", text)
	}
	if len(r.devices) == 0 {
		return []endpoint{{name: sel}}, "", nil
	}
	return deviceEndpoints(r.devices), "", nil
}

// resolveLocked resolves a selector that no rule need name.
func (c *Compiled) resolveLocked(text string) *resolved {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.resolve(text)
}

func deviceEndpoints(devices []*device) []endpoint {
	out := make([]endpoint, 0, 2*len(devices))
	for _, d := range devices {
		for _, a := range d.addrs {
			out = append(out, endpoint{dev: d, addr: a})
		}
	}
	return out
}

func (s selector) kindName() string {
	switch s.kind {
	case selTag:
		return "tag"
	case selGroup:
		return "group"
	case selAutogroup:
		return "autogroup"
	case selIPSet:
		return "ipset"
	case selUser:
		return "user"
	}
	return "host"
}

// Can judges one flow. src and dst are selectors or host names, proto as in an acl (empty: tcp), port 0 for protocols
// without. Where src or dst stand for several devices, every pair must be admitted.
func (c *Compiled) Can(src, dst, proto string, port int) (Decision, error) {
	q, err := c.ask(src, dst, proto, port)
	if err != nil {
		return Decision{}, err
	}
	return c.decide(q), nil
}

// question is a flow that is asked about, from everybody in from to everybody in to.
type question struct {
	from, to []endpoint
	flow     flow
	missing  []string // who else the names stand for is not known
}

func (c *Compiled) ask(src, dst, proto string, port int) (question, error) {
	if proto == "" {
		proto = "tcp"
	}
	n, err := parseProto(proto)
	if err != nil {
		return question{}, err
	}
	q := question{flow: flow{proto: n, ports: allPorts(), routed: true}}
	switch {
	case hasPorts(n) && (port < 1 || port > 65535):
		return question{}, fmt.Errorf("port %d: %s needs a port from 1 to 65535", port, proto)
	case !hasPorts(n) && port != 0:
		return question{}, fmt.Errorf("port %d: %s has no ports, use 0", port, proto)
	case hasPorts(n):
		q.flow.ports = PortRange{First: uint16(port), Last: uint16(port)}
	}
	var missing string
	if q.from, missing, err = c.endpoints(src); err != nil {
		return question{}, fmt.Errorf("src: %w", err)
	}
	if missing != "" {
		q.missing = append(q.missing, missing)
	}
	if q.to, missing, err = c.endpoints(dst); err != nil {
		return question{}, fmt.Errorf("dst: %w", err)
	}
	if missing != "" {
		q.missing = append(q.missing, missing)
	}
	return q, nil
}

func (c *Compiled) decide(q question) Decision {
	res := c.between(q.from, q.to, q.flow)
	d := Decision{Verdict: res.verdict()}
	if d.Verdict == Undecided {
		d.Missing = res.missing
	}
	if d.Verdict == Fail && len(q.missing) > 0 {
		// Whoever else the name stands for might be admitted, but somebody is not: that is an answer only where the
		// name is known.
		d.Verdict, d.Missing = Undecided, q.missing
	}
	if res.rule != nil {
		d.Rule, d.Range = res.rule.node.Path, res.rule.node.Range
	}
	return d
}
