package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func forwardingChecks() []Check {
	return []Check{{ID: "forwarding", Title: "forwarding between interfaces", Needs: NeedDocument, run: checkForwarding}}
}

func routeChecks() []Check {
	return []Check{
		{ID: "route", Title: "the way of a pod's packet to a peer", Needs: NeedDocument, run: checkRoute},
		{ID: "marks", Title: "marks that others use", Needs: NeedDocument | NeedRules, Optional: true, run: checkMarks},
	}
}

func checkForwarding(j *judgement, _ *Result) {
	off := func(key string) bool { return j.e.Sysctls[key] == "0" }
	type entry struct {
		family desired.Family
		iif    string
	}
	seen := map[entry]bool{}
	for _, fl := range j.flows {
		if seen[entry{fl.family, fl.packet.Iif}] || fl.packet.Iif == "" {
			continue
		}
		seen[entry{fl.family, fl.packet.Iif}] = true
		answer := Seeing{What: fmt.Sprintf("a packet of a pod to %s: %s", fl.packet.Dst, fl.way), How: howRoute}
		switch {
		case fl.blocked != "": // by the first of the family
		case fl.family == desired.IPv4 && off("ipv4.ip_forward"):
			j.stopFamily(fl.family, "", Finding{
				Code: "forwarding.off", Summary: "IPv4 forwarding is off",
				Evidence: []Seeing{{What: "net.ipv4.ip_forward = 0", How: howSysctl}, answer},
				Cause:    "net.ipv4.ip_forward is 0", Fix: "sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d",
			})
		case fl.family == desired.IPv4 && off("ipv4.conf."+fl.packet.Iif+".forwarding"):
			j.stopFamily(fl.family, fl.packet.Iif, Finding{
				Code: "forwarding.interface", Summary: "forwarding is off on the interface that pods' packets come in by",
				Evidence: []Seeing{
					{What: fmt.Sprintf("net.ipv4.ip_forward = %s, but net.ipv4.conf.%s.forwarding = 0", j.e.Sysctls["ipv4.ip_forward"], fl.packet.Iif), How: howSysctl},
					answer,
				},
				Cause: fmt.Sprintf("net.ipv4.conf.%s.forwarding is 0", fl.packet.Iif),
				Fix:   fmt.Sprintf("sysctl -w net.ipv4.conf.%s.forwarding=1", fl.packet.Iif),
			})
		case fl.family == desired.IPv6 && off("ipv6.conf.all.forwarding"):
			j.stopFamily(fl.family, "", Finding{
				Code: "forwarding.off", Summary: "IPv6 forwarding is off",
				Evidence: []Seeing{{What: "net.ipv6.conf.all.forwarding = 0", How: howSysctl}},
				Cause:    "net.ipv6.conf.all.forwarding is 0",
				Blind:    "the kernel's answer for a route does not take this setting of IPv6 into account",
				Fix:      "sysctl -w net.ipv6.conf.all.forwarding=1, and in /etc/sysctl.d",
			})
		}
	}
}

// stopFamily is stop for every flow of a family whose pods' packets come in by the interface; "" is any.
func (j *judgement) stopFamily(family desired.Family, iif string, f Finding) {
	for _, fl := range j.flows {
		if fl.family == family && (iif == "" || fl.packet.Iif == iif) {
			j.stop(fl, f)
		}
	}
}

func checkRoute(j *judgement, r *Result) {
	if len(j.flows) == 0 {
		j.unknown("there is no packet to ask about: no peers, or the pods' networks are not known")
		return
	}
	blocked := map[string]bool{}
	fine := 0
	for _, fl := range j.flows {
		switch {
		case fl.packet.Iif == "":
			j.unknown("the interface of the pods is not known")
		case fl.before.Redirect != nil && fl.blocked == "":
			stopRedirect(j, fl)
		case fl.blocked != "" && (fl.blocked == "forwarding.off" || fl.blocked == "forwarding.interface"):
			// The kernel says nothing of the rules then, but the rules can be read.
			if !explainRoute(j, fl) {
				blocked[fl.blocked] = true
			}
		case fl.blocked != "":
			blocked[fl.blocked] = true
		case fl.right() && fl.marked != perhaps:
			fine++
		case fl.before.Dropped && fl.before.Certain(): // in front of the agent's chain: it is not routed at all
			blocked["firewall.drops"] = true
		case !fl.known:
			j.unknown("the kernel did not answer for %s", fl.packet.Dst)
		case fl.marked == perhaps:
			routeUnsure(j, fl)
		default:
			if !explainRoute(j, fl) {
				f := Finding{
					Code: "route.elsewhere", Summary: "packets of pods do not leave through " + desired.Interface,
					Evidence: []Seeing{{What: fl.way.String(), How: howRoute}},
					Blind:    "why could not be worked out from the rules and tables",
				}
				if d := j.decide(fl.packet, anyRule); d.found && d.route.Dev != "" && d.route.Dev == fl.way.Dev {
					f.Evidence = append(f.Evidence, Seeing{What: d.String(), How: howRules})
					f.Cause, f.Blind = d.String()+" takes them, which is not Tailscale's", ""
					f.Fix = fmt.Sprintf("%s route del %s; then systemctl restart tailscaled, for its own", tool(fl.family), d.route)
				}
				j.stop(fl, f)
			}
		}
	}
	if fine > 0 {
		r.Detail = strings.Join(append([]string{fmt.Sprintf("%d of %d addresses leave through %s", fine, len(j.flows), desired.Interface)}, nonEmpty(r.Detail)...), "; ")
	}
	j.untested(blocked)
}

// routeUnsure is for a packet of which the mark is not known: only where both answers agree is there anything to say.
func routeUnsure(j *judgement, fl *flow) {
	with := bare(fl.packet)
	with.Mark = uint32(j.doc.Routing.Mark)
	a, known := j.ask(with)
	bareWay, knownBare := j.ask(bare(fl.packet))
	if p := j.probed(fl); p != nil && seenOnMesh(p.Out) {
		return
	}
	if known && knownBare && a.Dev == desired.Interface && bareWay.Dev == desired.Interface {
		return
	}
	if known && knownBare && a.Dev != desired.Interface && bareWay.Dev != desired.Interface && explainRoute(j, fl) {
		return // it goes wrong with the mark as without it
	}
	why := "nftables cannot be read: " + j.e.RulesErr
	if j.e.Rules != nil {
		why = "rules that cannot be followed decide on it"
		if len(fl.before.Maybe) > 0 {
			why += ": `" + fl.before.Maybe[0].String() + "`"
		}
	}
	j.unknown("whether packets to %s carry the mark is not known (%s): with it they go %s, without it %s", fl.packet.Dst, why, a, bareWay)
}

// explainRoute finds why a packet does not leave through tailscale0, as far as rules and tables say, and reports it.
func explainRoute(j *judgement, fl *flow) bool {
	bit := uint32(j.doc.Routing.Mark)
	want, wanted := wantedRule(j, fl)
	have := !wanted || slices.Contains(j.e.Facts.Rules, want)
	marked := fl.packet
	marked.Mark |= bit
	plain := j.decide(fl.packet, anyRule)
	way := Seeing{What: fmt.Sprintf("a packet of a pod (%s by %s, mark %#x) to %s goes: %s",
		fl.packet.Src, fl.packet.Iif, fl.packet.Mark, fl.packet.Dst, fl.way), How: howRoute}
	captured := "Tailscale's table is not reached"
	evidence := []Seeing{way}
	if plain.found && plain.route.Dev != desired.Interface && fl.agrees(plain) {
		captured = fmt.Sprintf("taken by the rule `%s`", plain.rule)
		evidence = append(evidence, Seeing{What: "taken by " + plain.String(), How: howRules})
	}
	if change, ok := collision(fl); ok && fl.known && fl.way.Dev != desired.Interface {
		without := fl.packet
		without.Mark &^= tailscaleMarks
		if w := j.decide(without, anyRule); w.found && w.route.Dev == desired.Interface {
			stopCollision(j, fl, change, way, captured)
			return true
		}
	}
	switch {
	case fl.known && fl.way.Dev == desired.Interface:
		return false
	case fl.known && fl.way.Filtered && !plain.refuses():
		j.stop(fl, Finding{
			Code: "route.source-filtered", Summary: "packets of pods are dropped where they come in", Evidence: evidence,
			Cause: fmt.Sprintf("reverse path filtering on %s (rp_filter=%s), or a blackhole route: the kernel's answer is the same",
				fl.packet.Iif, j.rpFilter(fl.packet.Iif)),
			Blind: "a blackhole route and reverse path filtering look alike",
			Fix:   fmt.Sprintf("ip route get %s from %s iif %s; sysctl -w net.ipv4.conf.%s.rp_filter=2", fl.packet.Dst, fl.packet.Src, fl.packet.Iif, fl.packet.Iif),
		})
		return true
	case fl.marked == no && len(ownTables(j.e.Facts)) == 0 && wanted && !have && len(j.e.Facts.OwnRules()) == 0:
		j.stop(fl, Finding{
			Code: "route.not-applied", Summary: "nothing of the agent's is in place: " + captured,
			Evidence: append(evidence, Seeing{What: "no policy rule and no firewall table of the agent's", How: howRules + "; nftables, by netlink"}),
			Cause:    "the agent has not run on this node, or cleanup was run: " + captured,
			Fix:      "systemctl enable --now tailmesh-agent, or tailmesh-agent apply",
		})
		return true
	}
	reported := false
	if fl.marked == no {
		reported = true
		stopUnmarked(j, fl, evidence, captured)
	}
	if !have {
		reported = true
		j.stop(fl, Finding{
			Code: "route.rule-missing", Summary: "the agent's policy rule is missing: " + captured,
			Evidence: append(evidence, Seeing{What: fmt.Sprintf("`%s` is not among the policy rules", want), How: howRules}),
			Cause:    fmt.Sprintf("the rule `%s` is missing, so that packets are %s", want, captured),
			Fix:      want.Command("add") + "; a running agent does it by itself. Who deleted it: systemd-networkd does at a restart (ManageForeignRoutingPolicyRules=no)",
		})
	}
	if reported || !wanted {
		return reported
	}
	// The rule is there and the packet has its mark: something stands in front, or the table has no route.
	if d := j.decide(marked, anyRule); d.found && d.rule != want && d.route.Dev != desired.Interface && fl.agrees(d) &&
		before(j.e.Facts.Rules, d.rule, want) {
		fix := `let routing.priority be "auto"`
		if place, ok := desired.Behind(j.e.Facts.Rules, d.rule, want.Priority, want.Table); ok {
			commands := []string{place.Command("add"), d.rule.Command("del")}
			if slices.Contains(j.e.Facts.Rules, place) {
				commands = commands[1:]
			}
			fix = strings.Join(commands, ", then ") + "; or " + fix
		}
		j.stop(fl, Finding{
			Code: "route.shadowed", Summary: fmt.Sprintf("the agent's rule is there but comes too late: the rule `%s` takes the packet", d.rule),
			Evidence: []Seeing{way, {What: fmt.Sprintf("`%s` stands in front of `%s`, and takes the packet: %s", d.rule, want, d), How: howRules}},
			Cause:    fmt.Sprintf("the rule `%s` is in front of the agent's `%s`", d.rule, want),
			Fix:      fix,
		})
		return true
	}
	if d := j.decide(marked, anyRule); d.refuses() {
		f := Finding{
			Code: "route.refused", Summary: "packets of pods to it are refused by a route or a rule",
			Evidence: []Seeing{way, {What: d.String(), How: howRules}}, Cause: d.String() + " refuses them", Fix: d.rule.Command("del"),
		}
		if d.rule.Action == desired.Lookup {
			f.Fix = fmt.Sprintf("%s route del %s", tool(fl.family), d.route)
		}
		j.stop(fl, f)
		return true
	}
	if _, ok := j.route(fl.family, want.Table, fl.packet.Dst); !ok {
		evidence = append(evidence, Seeing{What: fmt.Sprintf("table %d has no route to %s; the rule `%s` was met and passed on", want.Table, fl.packet.Dst, want), How: howRules})
		cause, blind := "tailscaled does not know this address", "tailscaled does not answer, so that it is not known whether the peer is in the tailnet"
		if j.e.Tailscaled.Err == "" {
			blind = ""
			cause = "tailscaled knows the peer, but its route is gone: somebody deleted it, and tailscaled does not notice"
			evidence = append(evidence, Seeing{What: "the peer is in tailscaled's list", How: howStatus})
		}
		j.stop(fl, Finding{
			Code: "route.missing", Summary: fmt.Sprintf("table %d has no route to it: %s", want.Table, captured), Evidence: evidence,
			Cause: cause, Blind: blind, Fix: "systemctl restart tailscaled",
		})
		return true
	}
	return false
}

// stopRedirect reports a translation of destinations that takes what pods send to the peer's address, to every port.
func stopRedirect(j *judgement, fl *flow) {
	by := fl.before.Redirect
	j.stop(fl, Finding{
		Code: "route.redirected", Summary: "packets of pods to it are given another destination on this node",
		Evidence: []Seeing{{What: fmt.Sprintf("a new connection %s is translated by `%s`", between(fl.packet), by), How: howNFT}},
		Cause:    fmt.Sprintf("the rule `%s` takes the peer's mesh address for one of its own", by),
		Fix: "let that rule leave the peer's address alone: a Service with it among its externalIPs, a hostPort or a port that is published " +
			"without an address of the host, or a proxy's REDIRECT",
	})
}

func tool(f desired.Family) string {
	if f == desired.IPv6 {
		return "ip -6"
	}
	return "ip"
}

// agrees says whether the kernel's answer, if there is one, is what was worked out on paper.
func (f *flow) agrees(d decision) bool {
	return !f.known || f.way.Dev == "" || f.way.Dev == d.route.Dev
}

// wantedRule returns the agent's rule for the flow's packet.
func wantedRule(j *judgement, fl *flow) (desired.Rule, bool) {
	marked := bare(fl.packet)
	marked.Mark = uint32(j.doc.Routing.Mark)
	i := slices.IndexFunc(j.state.Rules, func(r desired.Rule) bool { return r.Matches(marked) })
	if i < 0 {
		return desired.Rule{}, false
	}
	return j.state.Rules[i], true
}

func before(rules []desired.Rule, a, b desired.Rule) bool {
	i, k := slices.Index(rules, a), slices.Index(rules, b)
	return i >= 0 && k >= 0 && i < k
}

// stopUnmarked reports why a packet does not carry the agent's bit.
func stopUnmarked(j *judgement, fl *flow, evidence []Seeing, captured string) {
	bit := uint32(j.doc.Routing.Mark)
	f := Finding{
		Code: "route.unmarked", Evidence: append(evidence, Seeing{
			What: fmt.Sprintf("the packet has the mark %#x behind prerouting, without the bit %#x", fl.before.Packet.Mark, bit), How: howNFT,
		}),
		Summary: fmt.Sprintf("packets to it do not carry the agent's mark, so its rule does not take them: %s", captured),
		Fix:     "tailmesh-agent apply; a running agent does it by itself",
	}
	f.Cause = "the agent's rules that set the mark are missing or were changed"
	if len(ownTables(j.e.Facts)) == 0 {
		f.Cause = "the agent's firewall table is missing (nft flush ruleset?)"
	}
	set := slices.ContainsFunc(fl.before.Marks, func(m MarkChange) bool { return m.To&bit != 0 }) ||
		!j.ownLegacy() && j.e.Facts.MarkOf(bare(fl.packet), desired.Original)&bit != 0
	for _, m := range fl.before.Marks {
		if set && (m.From|m.Unknown)&bit != 0 && m.To&bit == 0 {
			f.Code = "route.mark-cleared"
			f.Summary = fmt.Sprintf("another rule takes the agent's mark away: %s", captured)
			f.Cause = fmt.Sprintf("the rule `%s` clears the bit %#x", m.Rule, bit)
			f.Fix = "give the agent another bit (routing.mark), or have that rule leave it alone"
		}
	}
	if fl.before.NoTrack != nil {
		f.Code = "route.untracked"
		f.Summary = "packets of pods are not tracked, so that they get no mark and no translation"
		f.Cause = fmt.Sprintf("the rule `%s` keeps them from being tracked", fl.before.NoTrack)
		f.Fix = "exempt packets to peers from it (Cilium: installNoConntrackIptablesRules=false)"
	}
	if f.Code == "route.unmarked" && notInSet(j, fl, "peers") {
		f.Code = "route.peer-unlisted"
		f.Summary = fmt.Sprintf("the agent's set of peers lacks it, so that its packets get no mark: %s", captured)
		f.Cause = "the set of peers is not what the document asks for: nobody has applied it since it changed"
	}
	j.stop(fl, f)
}

// notInSet says whether the agent's table marks packets, but its set lacks the flow's peer.
func notInSet(j *judgement, fl *flow, name string) bool {
	for _, t := range ownTables(j.e.Facts) {
		for _, s := range t.Sets {
			if strings.Contains(s.Name, name) && s.Family == fl.family {
				return !s.Contains(fl.packet.Dst)
			}
		}
	}
	return false
}

// tailscaleMarks are the bits that Tailscale uses (tsconst/linuxfw.go): 0x40000 and 0x80000.
const tailscaleMarks = 0xff0000

// collision returns the rule that gives the flow's packets bits of Tailscale's, if they still have them.
func collision(fl *flow) (MarkChange, bool) {
	if fl.before.Packet.Mark&tailscaleMarks == 0 {
		return MarkChange{}, false
	}
	for _, m := range slices.Backward(fl.before.Marks) {
		if m.To&tailscaleMarks != m.From&tailscaleMarks {
			return m, true
		}
	}
	return MarkChange{}, false
}

func stopCollision(j *judgement, fl *flow, m MarkChange, way Seeing, captured string) {
	j.stop(fl, Finding{
		Code:    "marks.collision",
		Summary: fmt.Sprintf("packets of pods carry the mark %#x, which means something else to Tailscale: %s", m.To&tailscaleMarks, captured),
		Evidence: []Seeing{way, {
			What: fmt.Sprintf("`%s` sets it; without these bits the packet would leave through %s", m.Rule, desired.Interface), How: howNFT,
		}},
		Cause: fmt.Sprintf("the rule `%s` uses bits of %#x", m.Rule, tailscaleMarks),
		Fix:   "give that program other bits (Calico: FELIX_IPTABLESMARKMASK)",
	})
}

// checkMarks looks for marks that collide with Tailscale's but harm no peer of the document: other destinations in the
// tailnet are still not reached.
func checkMarks(j *judgement, _ *Result) {
	done := map[desired.Family]bool{}
	for _, fl := range j.flows {
		m, ok := collision(fl)
		if !ok || done[fl.family] || j.found["marks.collision"] {
			continue
		}
		done[fl.family] = true
		other := bare(fl.packet)
		other.Dst = tailscaleService(fl.family)
		_, other.Mark = j.prerouting(other, desired.Original)
		if other.Mark&tailscaleMarks == 0 {
			continue
		}
		way, known := j.ask(other)
		if !known || way.Dev == desired.Interface {
			continue
		}
		j.add(Finding{
			Code: "marks.collision", Level: Warn,
			Summary: fmt.Sprintf("packets of pods carry the mark %#x, which means something else to Tailscale", m.To&tailscaleMarks),
			Evidence: []Seeing{
				{What: fmt.Sprintf("`%s` sets it", m.Rule), How: howNFT},
				{What: fmt.Sprintf("a packet of a pod to %s, elsewhere in the tailnet: %s; to %s: %s", other.Dst, way, fl.packet.Dst, fl.way), How: howRoute},
			},
			Cause: fmt.Sprintf("the rule `%s` uses bits of %#x", m.Rule, tailscaleMarks),
			Fix:   "give that program other bits (Calico: FELIX_IPTABLESMARKMASK)",
		})
	}
}
