package accessdiff

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// ssh takes the ssh section. An account is a lane; autogroup:nonroot is every account but root, those named included.
// localpart:*@domain counts as an account of its own, of the users of that domain.
func (g *gatherer) ssh(s *side) {
	rules := s.report.Policy.SSH
	for i := range rules {
		r := &rules[i]
		detail := sshDetail(r)
		var wares []ware
		byDomain := map[string][]ware{}
		var domains []string
		add := func(user string) {
			w := ware{g.lane(SSH, user, detail), noPorts()}
			if domain, ok := strings.CutPrefix(user, "localpart:*@"); ok && domain != "" {
				if byDomain[domain] == nil {
					domains = append(domains, domain)
				}
				byDomain[domain] = append(byDomain[domain], w)
				return
			}
			wares = append(wares, w)
		}
		users := trimmed(r.Users)
		nonroot := slices.Contains(users, laneNonroot)
		if slices.Contains(users, "root") {
			add("root")
		}
		if nonroot {
			add(laneNonroot)
		}
		for _, u := range g.logins {
			if nonroot || slices.Contains(users, u) {
				add(u)
			}
		}
		src := trimmed(r.Src)
		// Each set of sources has a piece for everybody and one for the users of each domain that is named.
		parts := func(sources *policy.Sources, dst string, self bool) []int {
			var out []int
			if len(wares) > 0 {
				out = append(out, g.add(s, &piece{cause: g.cause(s, r.Node), src: g.source(sources, nil), wares: slices.Clone(wares), dst: dst, self: self}))
			}
			for _, d := range domains {
				of := func(device int) bool { return domainOf(g.devices[device].Owner) == d && g.devices[device].Owner != "" }
				out = append(out, g.add(s, &piece{cause: g.cause(s, r.Node), src: g.source(sources, of), wares: byDomain[d], dst: dst, self: self}))
			}
			return out
		}
		for _, dst := range trimmed(r.Dst) {
			if dst == autogroupSelf {
				byOwner := map[string][]int{}
				for n, d := range g.devices {
					if d.Owner == "" {
						continue
					}
					if _, ok := byOwner[d.Owner]; !ok {
						byOwner[d.Owner] = parts(s.access.OwnersSources(src, r.SrcPosture, d.Owner), autogroupSelf, true)
					}
					s.land(n, byOwner[d.Owner])
				}
				continue
			}
			ids := parts(s.access.Sources(src, r.SrcPosture), dst, false)
			for _, n := range s.members(g, dst) {
				s.land(n, ids)
			}
		}
	}
}

const autogroupSelf = "autogroup:self"

func (s *side) land(device int, pieces []int) {
	for _, p := range pieces {
		s.landings[device] = append(s.landings[device], landing{piece: p, own: true})
	}
}

// members lists the tailnet's own devices that a selector stands for.
func (s *side) members(g *gatherer, selector string) []int {
	is := map[string]bool{}
	var prefixes []string
	for _, t := range s.access.Select(selector).IPs {
		if _, own := g.byText[t]; own {
			is[t] = true
		} else {
			prefixes = append(prefixes, t)
		}
	}
	var out []int
	for n, d := range g.devices {
		in := selector == "*"
		for _, a := range d.Addrs {
			in = in || is[a.String()]
			for _, t := range prefixes {
				for _, r := range g.parse(t) {
					in = in || r.Contains(a)
				}
			}
		}
		if in && !d.External {
			out = append(out, n)
		}
	}
	return out
}

// sshDetail is how a session is treated, "" for one that is simply accepted.
func sshDetail(r *policy.SSH) string {
	var out []string
	if strings.TrimSpace(r.Action.Value) == sshCheck {
		out = append(out, strings.TrimSpace(sshCheck+" "+r.CheckPeriod.Value))
	}
	list := func(name string, s policy.Strings) {
		if len(s.Items) > 0 {
			out = append(out, name+" "+strings.Join(slices.Sorted(slices.Values(trimmed(s))), ","))
		}
	}
	list("environment", r.AcceptEnv)
	list("recorded by", r.Recorder)
	if r.EnforceRecorder.Value {
		out = append(out, "recording enforced")
	}
	return strings.Join(out, ", ")
}

const sshCheck = "check"

func (l lane) checks() bool {
	return l.kind == SSH && (l.detail == sshCheck || strings.HasPrefix(l.detail, sshCheck+" ") || strings.HasPrefix(l.detail, sshCheck+","))
}

func trimmed(s policy.Strings) []string {
	out := s.Values()
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// deal lands wares that an entry of the policy gives to the devices that its targets stand for, each device once.
func (g *gatherer) deal(s *side, n policy.Node, targets []string, wares []ware) {
	id := -1
	seen := map[int]bool{}
	for _, t := range targets {
		for _, d := range s.members(g, t) {
			if seen[d] {
				continue
			}
			seen[d] = true
			if id < 0 {
				id = g.add(s, &piece{cause: g.cause(s, n), src: g.everyone(), wares: wares, dst: strings.Join(targets, "\x00")})
			}
			s.land(d, []int{id})
		}
		for _, u := range s.access.Select(t).Unknown {
			id := g.add(s, &piece{cause: g.cause(s, n), src: g.everyone(), wares: wares, dst: t})
			s.unplaced[t] = append(s.unplaced[t], landing{piece: id, own: true})
			s.needs[t] = u.Needs
		}
	}
}

// attrs takes nodeAttrs, and the settings that are the same as an attribute on every device.
func (g *gatherer) attrs(s *side) {
	p := s.report.Policy
	add := func(n policy.Node, targets []string, wares []ware) {
		if len(wares) == 0 {
			return
		}
		g.deal(s, n, targets, wares)
	}
	for i := range p.NodeAttrs {
		n := &p.NodeAttrs[i]
		var wares []ware
		for _, a := range n.Attr.Values() {
			wares = append(wares, ware{g.lane(Attribute, a, ""), noPorts()})
		}
		for _, a := range n.App {
			for _, v := range capValues(a.Values) {
				wares = append(wares, ware{g.lane(Attribute, a.Name.Value, v), noPorts()})
			}
		}
		for _, c := range n.IPPool.Values() {
			wares = append(wares, ware{g.lane(Attribute, "ipPool", c), noPorts()})
		}
		add(n.Node, n.Target.Values(), wares)
	}
	setting := func(b policy.Bool, path, attr string) {
		if b.Value {
			n := b.Node
			n.Path = path
			add(n, []string{"*"}, []ware{{g.lane(Attribute, attr, ""), noPorts()}})
		}
	}
	setting(p.RandomizeClientPort, randomizePath, "randomize-client-port")
	setting(p.DisableIPv4, noIPv4Path, "disable-ipv4")
}

// approvers takes autoApprovers: what a device may offer without review. A network stands for all inside it.
func (g *gatherer) approvers(s *side) {
	add := func(n policy.Node, who []string, names []string) {
		var wares []ware
		for _, name := range names {
			wares = append(wares, ware{g.lane(Route, name, ""), noPorts()})
		}
		g.deal(s, n, who, wares)
	}
	a := &s.report.Policy.AutoApprovers
	for _, r := range a.Routes {
		n := r.Name.Node
		n.Path = keyed(routesSection, r.Name.Value)
		add(n, r.Who.Values(), g.routesWithin(r.Name.Value))
	}
	for _, v := range a.Services {
		n := v.Name.Node
		n.Path = keyed(servicesSection, v.Name.Value)
		add(n, v.Who.Values(), []string{v.Name.Value})
	}
	if len(a.ExitNode.Items) > 0 {
		n := a.ExitNode.Node
		n.Path = exitSection
		add(n, a.ExitNode.Values(), []string{exitNode})
	}
}

const exitNode = "exit node"

// Paths of what is no rule in a list.
const (
	routesSection   = "autoApprovers.routes"
	servicesSection = "autoApprovers.services"
	exitSection     = "autoApprovers.exitNode"
	randomizePath   = "randomizeClientPort"
	noIPv4Path      = "disableIPv4"
)

// routesWithin lists the approved networks of either policy that lie in one of them.
func (g *gatherer) routesWithin(outer string) []string {
	p, err := netip.ParsePrefix(outer)
	if err != nil {
		return []string{outer}
	}
	var out []string
	for _, r := range g.routes {
		if within(r.prefix, p) {
			out = append(out, r.text)
		}
	}
	return out
}

func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}
