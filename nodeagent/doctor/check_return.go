package doctor

import (
	"fmt"
	"net/netip"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func returnChecks() []Check {
	return []Check{
		{ID: "return", Title: "the way of a peer's answers to pods", Needs: NeedDocument, run: checkReturn},
		{ID: "return-firewall", Title: "the firewall on the way back", Needs: NeedDocument | NeedRules, run: checkReturnFirewall},
		{ID: "peer-connections", Title: "connections that peers begin to pods", Needs: NeedDocument | NeedRules, Optional: true, run: checkPeerConnections},
	}
}

// rpFilter returns the value of rp_filter that is in force on an interface: the greater of its own and everybody's.
func (j *judgement) rpFilter(dev string) string {
	return max(j.e.Sysctls["ipv4.conf.all.rp_filter"], j.e.Sysctls["ipv4.conf."+dev+".rp_filter"])
}

func (j *judgement) srcValidMark(dev string) bool {
	return j.e.Sysctls["ipv4.conf.all.src_valid_mark"] == "1" || j.e.Sysctls["ipv4.conf."+dev+".src_valid_mark"] == "1"
}

func checkReturn(j *judgement, _ *Result) {
	blocked := map[string]bool{}
	for _, fl := range j.flows {
		if fl.blocked != "" && fl.blocked != "source.untranslated" && fl.blocked != "firewall.drops" {
			blocked[fl.blocked] = true
			// A strict filter can still be told from the settings and the kernel's answer, which ask no more of the way there.
			if fl.blocked != "route.unmarked" && fl.blocked != "route.rule-missing" && fl.blocked != "forwarding.interface" {
				continue
			}
		}
		if !fl.backOK {
			if fl.blocked == "" && fl.packet.Iif != "" {
				j.unknown("the kernel did not answer for the answers of %s", fl.packet.Dst)
			}
			continue
		}
		answer := Seeing{What: fmt.Sprintf("an answer from %s to %s (mark %#x): %s", fl.reply.Src, fl.reply.Dst, fl.reply.Mark, fl.back), How: howReply}
		settings := Seeing{What: fmt.Sprintf("rp_filter = %s on %s; src_valid_mark = %v", j.rpFilter(desired.Interface), desired.Interface, j.srcValidMark(desired.Interface)), How: howSysctl}
		strict := j.rpFilter(desired.Interface) == "1"
		switch {
		case fl.back.Filtered && !strict:
			if fl.blocked == "" {
				j.stop(fl, Finding{
					Code: "return.refused", Summary: "answers of peers do not reach pods", Evidence: []Seeing{answer, settings},
					Blind: "the kernel refuses them for another reason than strict reverse path filtering: a blackhole route?",
				})
			}
		case fl.back.Filtered && !j.srcValidMark(desired.Interface) && fl.reply.Mark != 0:
			j.stop(fl, Finding{
				Code: "return.src-valid-mark", Summary: "answers of peers are dropped by strict reverse path filtering, which does not look at their mark",
				Evidence: []Seeing{answer, settings},
				Cause:    fmt.Sprintf("rp_filter=1 on %s with src_valid_mark=0: without the mark, the way back leads into the CNI's tunnel", desired.Interface),
				Fix:      "sysctl -w net.ipv4.conf.all.src_valid_mark=1 (tailscaled 1.98 sets it), or net.ipv4.conf.all.rp_filter=2",
			})
		case fl.back.Filtered:
			j.stop(fl, Finding{
				Code: "return.rp-filter", Summary: "answers of peers are dropped by strict reverse path filtering",
				Evidence: []Seeing{answer, settings},
				Cause:    fmt.Sprintf("rp_filter=1 on %s, and the way back to the peer does not lead through it", desired.Interface),
				Fix:      "sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf." + desired.Interface + ".rp_filter=2",
			})
		case fl.blocked != "":
		case fl.family == desired.IPv4 && j.e.Sysctls["ipv4.conf."+desired.Interface+".forwarding"] == "0":
			j.stop(fl, Finding{
				Code: "return.forwarding", Summary: "forwarding is off on " + desired.Interface + ": answers do not reach pods",
				Evidence: []Seeing{{What: "net.ipv4.conf." + desired.Interface + ".forwarding = 0", How: howSysctl}, answer},
				Cause:    "net.ipv4.conf." + desired.Interface + ".forwarding is 0", Fix: "sysctl -w net.ipv4.conf." + desired.Interface + ".forwarding=1",
			})
		case fl.back.Reason != "":
			j.stop(fl, Finding{
				Code: "return.refused", Summary: "answers of peers do not reach pods", Evidence: []Seeing{answer},
			})
		case fl.back.Dev != fl.packet.Iif:
			d := j.decide(fl.reply, anyRule)
			if fl.back.Dev == desired.Interface {
				j.stop(fl, swallowed(j.podNetwork(fl.packet.Src), "the pods' own network", fl.back, d, answer))
				continue
			}
			f := Finding{
				Code: "return.elsewhere", Summary: "answers to pods leave by another interface than the pods'",
				Evidence: []Seeing{answer, {What: d.String(), How: howRules}},
			}
			if d.found && d.route.Dev == fl.back.Dev {
				f.Cause = d.String() + " takes what is for the pods' network"
				f.Fix = keepLocal(j.podNetwork(fl.packet.Src), d.rule)
			}
			j.stop(fl, f)
		}
	}
	// A strict filter behind another fault is only reported where the kernel was asked with the right mark.
	j.untested(blocked)
}

func checkReturnFirewall(j *judgement, _ *Result) {
	blocked := map[string]bool{}
	for _, fl := range j.flows {
		if fl.packet.Iif != "" {
			judgeForward(j, fl, bare(fl.reply), desired.Reply, fl.packet.Iif, "return.firewall", blocked)
		}
	}
	j.untested(blocked)
}

// checkPeerConnections looks at the way of a pod's answers in connections that a peer begins: they came in by the CNI's
// tunnel and must go back there, because a peer drops an answer with a pod's source that comes by the mesh.
func checkPeerConnections(j *judgement, _ *Result) {
	for _, fl := range j.flows {
		tunnel := j.decide(bare(fl.peers), func(r desired.Rule) bool {
			return r.Src.IsValid() && r.Action == desired.Lookup
		})
		if !tunnel.found || tunnel.route.Dev == "" || tunnel.route.Dev == desired.Interface {
			continue // the CNI has no way of its own to the peer's mesh address
		}
		if !fl.otherK || fl.blocked == "forwarding.off" || fl.blocked == "forwarding.interface" {
			continue
		}
		if fl.other.Dev == desired.Interface {
			d := j.decide(fl.peers, anyRule)
			by := "a rule that could not be told from its selectors"
			if d.found {
				by = fmt.Sprintf("the rule `%s`", d.rule)
			}
			j.add(Finding{
				Code: "peer-connections.captured", Level: Fail, Peers: []string{fl.peer}, Addresses: []netip.Addr{fl.packet.Dst},
				Summary: "answers of pods to connections that the peer's host began are sent to the mesh, where the peer drops them",
				Evidence: []Seeing{
					{What: fmt.Sprintf("an answer of a pod to %s (mark %#x) goes %s", fl.peers.Dst, fl.peers.Mark, fl.other), How: howRoute},
					{What: fmt.Sprintf("%s takes it; `%s` would send it back through %s", by, tunnel.rule, tunnel.route.Dev), How: howRules},
				},
				Cause: by + " takes every packet to the peer, answers included",
				Blind: "the connection itself was not seen: it must be begun by the peer",
				Fix:   releaseAnswers(d.rule),
			})
			continue
		}
		// The packets of such a connection come in by the tunnel.
		in := desired.Packet{Src: fl.packet.Dst, Dst: fl.packet.Src, Iif: tunnel.route.Dev}
		_, in.Mark = j.prerouting(in, desired.Original)
		answer, known := j.ask(in)
		if known && answer.Filtered && j.rpFilter(in.Iif) == "1" {
			j.add(Finding{
				Code: "peer-connections.rp-filter", Level: Fail, Peers: []string{fl.peer}, Addresses: []netip.Addr{fl.packet.Dst},
				Summary:  "packets of the peer's host to pods are dropped by strict reverse path filtering on the CNI's tunnel",
				Evidence: []Seeing{{What: fmt.Sprintf("a packet from %s to %s by %s: %s", in.Src, in.Dst, in.Iif, answer), How: "RTM_GETROUTE for a packet that comes in by the tunnel"}},
				Cause:    fmt.Sprintf("rp_filter=1 on %s, and the way back does not lead through it", in.Iif),
				Fix:      "sysctl -w net.ipv4.conf." + in.Iif + ".rp_filter=2",
			})
		}
	}
}

// releaseAnswers says how answers get past the rule that takes them. Tailscale's own rule, which has no selectors, must stay:
// the CNI's has come to stand behind it, and the agent says in front of it what that one says.
func releaseAnswers(by desired.Rule) string {
	if !by.Src.IsValid() && !by.Dst.IsValid() && by.Mask == 0 {
		return "tailmesh-agent run (or apply): in front of this rule, it says what the CNI's says, for answers alone"
	}
	return by.Command("del") + "; the agent's own rule takes only connections that pods begin"
}

// podNetwork returns the network of the pods that the address is in.
func (j *judgement) podNetwork(a netip.Addr) netip.Prefix {
	for _, p := range j.doc.PodCIDRs {
		if p.Contains(a) {
			return p
		}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// keepLocal returns the command that has packets to a network look into the main table before the rule is reached.
func keepLocal(network netip.Prefix, by desired.Rule) string {
	rule := desired.Rule{Family: desired.FamilyOf(network.Addr()), Dst: network, Action: desired.Lookup, Table: 254}
	if by.Priority > 0 {
		rule.Priority = by.Priority - 1
	}
	return rule.Command("add")
}

func swallowed(what netip.Prefix, kind string, way desired.Answer, d decision, answer Seeing) Finding {
	f := Finding{
		Code: "local.swallowed", Summary: fmt.Sprintf("packets to %s (%s) are sent to the mesh", what, kind),
		Evidence: []Seeing{answer, {What: d.String(), How: howRules}},
		Cause:    "a route that tailscaled accepted (a subnet route, or an exit node's) covers it",
		Fix:      "tailscale set --accept-routes=false on this node (or no exit node)",
		Blind:    fmt.Sprintf("the kernel said %s", way),
	}
	if d.found {
		f.Cause = fmt.Sprintf("the route %s, which tailscaled accepted (a subnet route, or an exit node's), covers it", d.route)
		if d.route.Dst == desired.FamilyOf(what.Addr()).MeshRange() {
			f.Cause = fmt.Sprintf("the route %s, which tailscaled has instead of one for each peer, covers it", d.route)
			f.Fix = keepLocal(what, d.rule)
			return f
		}
		f.Fix = keepLocal(what, d.rule) + "; or " + f.Fix
	}
	return f
}
