package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Compiled is a policy resolved against an inventory; safe for concurrent use.
type Compiled struct {
	p *Policy
	v *validator
	x *index
	r *resolver

	rules []*rule    // in the order in which the control plane emits them: grants, then acls
	apps  []*appRule // capabilities; they share the rules' numbering
	reach *reach
	ssh   []*sshRule // those that check first

	mu   sync.Mutex
	keys map[string]int // contents of source lists
	// first is where the merge of rules with equal sources and protocols puts them. Merging comes before reduction to a
	// device, so a rule keeps the place of one that the device does not get.
	first map[mergeKey]int
	srcs  map[string]*srcSet
}

// mergeKey says which rules become one.
type mergeKey struct {
	src   int
	proto string
}

// rule is a network rule before it is reduced to a device.
type rule struct {
	pos   int
	node  Node
	src   *srcSet
	proto []int // nil: the default protocols
	dsts  []dstPart
	via   []string
	isVia bool
	// selfPorts are the ports of autogroup:self; a rule has either these or dsts.
	selfPorts []PortRange
}

func (r *rule) protoKey() string { return fmt.Sprint(r.proto) }

// dstPart is one destination selector of a rule and its ports.
type dstPart struct {
	to    *resolved
	ports []PortRange
}

// appRule grants capabilities before it is reduced to a device.
type appRule struct {
	pos  int
	src  *srcSet
	dsts *srcSet // the destinations, which are the sources of the reversed companion
	caps map[string][]json.RawMessage
	// reversed is the companion that some capabilities have: it lands on the sources, about the destinations.
	reversed bool
	self     bool
}

// companions are the capabilities that bring another one for the reverse direction, in the order of emission.
func companions() [][2]string {
	return [][2]string{
		{"tailscale.com/cap/drive", "tailscale.com/cap/drive-sharer"},
		{"tailscale.com/cap/relay", "tailscale.com/cap/relay-target"},
	}
}

// compile resolves a policy that was found valid.
func compile(p *Policy, v *validator) *Compiled {
	c := &Compiled{p: p, v: v, x: v.x, r: newResolver(v), keys: map[string]int{}, first: map[mergeKey]int{}, srcs: map[string]*srcSet{}}
	pos := 0
	next := func() int { pos++; return pos }
	for i := range p.Grants {
		c.addGrant(&p.Grants[i], next)
	}
	for i := range p.ACLs {
		c.addACL(&p.ACLs[i], next)
	}
	if p.Grants == nil && p.ACLs == nil {
		// A policy without rules at all is the allow-all of a new tailnet.
		c.addRule(&rule{pos: next(), node: p.Node, src: c.sources([]string{"*"}, nil), dsts: []dstPart{{c.r.resolve("*"), []PortRange{allPorts()}}}})
	}
	c.ssh = c.compileSSH()
	c.reach = newReach(c)
	return c
}

func (c *Compiled) addRule(r *rule) {
	// Sources that nobody bears yet count all the same: a test may name them.
	c.rules = append(c.rules, r)
	if r.isVia || r.selfPorts != nil || r.src.addrs.empty() {
		return
	}
	if slices.ContainsFunc(r.dsts, func(d dstPart) bool { return !d.to.empty() }) {
		key := mergeKey{r.src.key, r.protoKey()}
		if _, ok := c.first[key]; !ok {
			c.first[key] = r.pos
		}
	}
}

func (c *Compiled) addGrant(g *Grant, next func() int) {
	src := c.sources(g.Src.Values(), c.v.posture(g.SrcPosture))
	// Entries of ip are taken together by protocol, in order of first appearance.
	var protos []int
	ports := map[int][]PortRange{}
	for _, s := range g.IP.Items {
		pp, err := parseProtoPorts(s.Value)
		if err != nil {
			continue
		}
		if ports[pp.proto] == nil {
			protos = append(protos, pp.proto)
		}
		ports[pp.proto] = append(ports[pp.proto], pp.ports)
	}
	var dsts []*resolved
	self := false
	for _, s := range g.Dst.Items {
		to := c.r.resolve(s.Value)
		self = self || to.self
		if !to.self && !slices.Contains(dsts, to) {
			dsts = append(dsts, to)
		}
	}
	for _, proto := range protos {
		r := &rule{node: g.Node, src: src, via: g.Via.Values(), isVia: len(g.Via.Items) > 0}
		if proto != 0 {
			r.proto = []int{proto}
		}
		if len(dsts) > 0 {
			one := *r
			one.pos = next()
			for _, to := range dsts {
				one.dsts = append(one.dsts, dstPart{to, ports[proto]})
			}
			c.addRule(&one)
		}
		if self {
			one := *r
			one.pos, one.selfPorts = next(), ports[proto]
			c.addRule(&one)
		}
	}
	if len(g.App) > 0 && len(g.Via.Items) == 0 && len(g.Src.Items) > 0 {
		c.addApp(g, src, self, next)
	}
}

func (c *Compiled) addApp(g *Grant, src *srcSet, self bool, next func() int) {
	caps := make(map[string][]json.RawMessage, len(g.App))
	for _, cp := range g.App {
		caps[cp.Name.Value] = cp.Values
	}
	var dstTexts []string
	for _, s := range g.Dst.Items {
		if s.Value != agSelf {
			dstTexts = append(dstTexts, s.Value)
		}
	}
	dsts := c.sources(dstTexts, nil)
	add := func(caps map[string][]json.RawMessage, reversed bool) {
		if len(dstTexts) > 0 {
			c.apps = append(c.apps, &appRule{pos: next(), src: src, dsts: dsts, caps: caps, reversed: reversed})
		}
		if self {
			c.apps = append(c.apps, &appRule{pos: next(), src: src, dsts: dsts, caps: caps, reversed: reversed, self: true})
		}
	}
	add(caps, false)
	for _, pair := range companions() {
		if _, ok := caps[pair[0]]; ok {
			add(map[string][]json.RawMessage{pair[1]: nil}, true)
		}
	}
}

func (c *Compiled) addACL(a *ACL, next func() int) {
	src := c.sources(a.Src.Values(), c.v.posture(a.SrcPosture))
	r := rule{node: a.Node, src: src}
	if n, err := parseProto(a.Proto.Value); err == nil && n != 0 {
		r.proto = []int{n}
	}
	var dsts []dstPart
	var selfPorts []PortRange
	at := map[*resolved]int{}
	for _, s := range a.Dst.Items {
		host, portText, err := splitHostPort(s.Value)
		if err != nil {
			continue
		}
		ports, err := parsePorts(portText)
		if err != nil {
			continue
		}
		to := c.r.resolve(host)
		if to.self {
			selfPorts = append(selfPorts, ports...)
			continue
		}
		if i, ok := at[to]; ok {
			dsts[i].ports = append(dsts[i].ports, ports...)
			continue
		}
		at[to] = len(dsts)
		dsts = append(dsts, dstPart{to, ports})
	}
	if len(dsts) > 0 {
		one := r
		one.pos, one.dsts = next(), dsts
		c.addRule(&one)
	}
	if selfPorts != nil {
		one := r
		one.pos, one.selfPorts = next(), selfPorts
		c.addRule(&one)
	}
}

// Devices returns the names of the devices that get filters, sorted: the host name, and where several devices have the
// same one the first label of the machine name. Devices that are not authorized or are shared in get none.
func (c *Compiled) Devices() []string {
	out := make([]string, 0, len(c.x.devices))
	for _, d := range c.x.devices {
		if !d.IsExternal {
			out = append(out, d.key)
		}
	}
	slices.Sort(out)
	return out
}

// Missing names what the rules speak of and the inventory does not tell, such as the members of a group that is synced
// from an identity provider; filters leave it out. Postures are not among it: a device whose attributes are not known is
// left out too.
func (c *Compiled) Missing() []string {
	var out []string
	for _, r := range c.reach.list {
		if r.missing != "" {
			out = append(out, r.missing)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// MembersOf is how Missing, in any place, calls the members of a group that is not in the policy's groups.
func MembersOf(group string) string { return "members of " + group }

// SyncedGroups are the groups of Missing: they are not in the policy's groups, so that an identity provider has to bring
// them, and whether it does the inventory does not tell.
func (c *Compiled) SyncedGroups() []string {
	var out []string
	for _, r := range c.reach.list {
		if r.sel.kind == selGroup && r.missing != "" {
			out = append(out, r.sel.name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Filter returns the packet filter that a device (named as in Devices) gets, nil where it gets no rules.
func (c *Compiled) Filter(device string) ([]FilterRule, error) {
	d := c.x.byKey[device]
	if d == nil {
		return nil, fmt.Errorf("no device %q in the inventory", device)
	}
	return c.filter(d), nil
}

// filter reduces the policy to one device.
func (c *Compiled) filter(d *device) []FilterRule {
	if d.IsExternal {
		return nil
	}
	type placed struct {
		pos  int
		rule *FilterRule
	}
	var out []placed
	merged := map[mergeKey]*FilterRule{}
	emit := func(r *rule, srcText []string, srcKey int, ips []string, ports []PortRange) {
		key := mergeKey{srcKey, r.protoKey()}
		fr := merged[key]
		if fr == nil {
			pos := r.pos
			if first, ok := c.first[key]; ok {
				pos = min(pos, first)
			}
			fr = &FilterRule{SrcIPs: srcText, IPProto: r.proto}
			merged[key] = fr
			out = append(out, placed{pos, fr})
		}
		for _, ip := range ips {
			for _, p := range ports {
				fr.DstPorts = append(fr.DstPorts, NetPortRange{IP: ip, Ports: p})
			}
		}
	}
	hits := c.reach.device(d)
	for _, h := range hits {
		switch {
		case h.rule.selfPorts != nil:
			if own := c.selfSources(h.rule.src, d.owner); !own.empty() {
				emit(h.rule, own.list(c.x), c.intern(own), d.ips, h.rule.selfPorts)
			}
		case !h.rule.src.addrs.empty():
			emit(h.rule, c.sourceText(h.rule.src), h.rule.src.key, h.ips, h.rule.dsts[h.part].ports)
		}
	}
	for _, a := range c.reach.apps(d) {
		if fr := c.appFilter(a, d); fr != nil {
			out = append(out, placed{a.pos, fr})
		}
	}
	slices.SortStableFunc(out, func(a, b placed) int { return a.pos - b.pos })
	var rules []FilterRule
	for _, p := range out {
		rules = append(rules, *p.rule)
	}
	return rules
}

// onto is the set of devices that may get a capability rule.
func (a *appRule) onto() *srcSet {
	if a.reversed || a.self {
		return a.src
	}
	return a.dsts
}

// appFilter is a capability rule as one device gets it, nil where it gets none.
func (c *Compiled) appFilter(a *appRule, d *device) *FilterRule {
	source, onto := a.src, a.dsts
	if a.reversed {
		source, onto = onto, source
	}
	srcText := c.sourceText(source)
	if a.self {
		if d.owner == "" {
			return nil
		}
		own := c.selfSources(a.src, d.owner)
		if own.empty() {
			return nil
		}
		srcText = own.list(c.x)
		onto = nil
		if a.reversed {
			onto = a.src
			srcText = nil
			for _, o := range c.x.byUser[d.owner] {
				srcText = append(srcText, o.ips...)
			}
			slices.Sort(srcText)
		}
	}
	var dsts []string
	for _, addr := range d.addrs {
		if onto == nil || onto.has(c, endpoint{dev: d, addr: addr, exact: true}) == Pass {
			dsts = append(dsts, fmt.Sprintf("%s/%d", addr, addr.BitLen()))
		}
	}
	if len(dsts) == 0 {
		return nil
	}
	return &FilterRule{SrcIPs: srcText, CapGrant: []CapGrant{{Dsts: dsts, CapMap: a.caps}}}
}
