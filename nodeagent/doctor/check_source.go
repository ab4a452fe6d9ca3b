package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func sourceChecks() []Check {
	return []Check{
		{ID: "source", Title: "the source that a peer sees", Needs: NeedDocument | NeedRules, run: checkSource},
		{ID: "source-scope", Title: "translation of what should not be translated", Needs: NeedDocument | NeedRules, run: checkScope},
		{ID: "connections", Title: "connections from before", Needs: NeedDocument, Optional: true, run: checkConnections},
	}
}

const foreignSource = "a peer drops packets whose source is not this node's mesh address, and nothing on the sender shows it"

// leaving is the flow's packet where sources are translated.
func leaving(j *judgement, p desired.Packet, oif string) Traced {
	before, mark := j.prerouting(p, desired.Original)
	p.Mark = mark
	t := traced(p, desired.Original, oif)
	t.Unknown, t.Untracked = before.Packet.Unknown, before.Packet.Untracked
	return t
}

func checkSource(j *judgement, r *Result) {
	blocked := map[string]bool{}
	for _, fl := range j.flows {
		own := j.own(fl.family)
		if !own.IsValid() {
			j.unknown("this node has no mesh address of IPv%d", fl.family)
			continue
		}
		if fl.before.NoTrack != nil {
			blocked["route.untracked"] = true
			continue
		}
		t := j.e.Rules.Source(leaving(j, fl.packet, desired.Interface))
		to := t.To
		if t.Masquerade {
			to = own
		}
		seen, hasSeen := seenSource(j, fl)
		switch {
		case hasSeen && seen == own && t.By == nil && len(t.Maybe) == 0 && !ownTranslates(j, fl):
			j.add(Finding{
				Code: "source.elsewhere", Level: Warn, Peers: []string{fl.peer},
				Summary: "sources are translated rightly, but not by a rule of nftables",
				Evidence: []Seeing{
					{What: fmt.Sprintf("packets left with the source %s", seen), How: howProbe},
					{What: "no rule of nftables translates it; legacy iptables has " + j.legacyOf("nat"), How: howNFT + "; " + howLegacy},
				},
				Cause: "rules in legacy iptables, which nobody keeps in order with the others",
				Fix:   "iptables-legacy-save -t nat shows them; tailmesh-agent apply puts the agent's own in front",
			})
		case hasSeen && seen == own:
		case t.By == nil && len(t.Maybe) == 0 && !hasSeen && j.ownLegacy() && ownTarget(j, fl) == own && j.legacyOf("nat") == "":
			// The agent's own rule is the only one that could.
		case len(t.Maybe) > 0 && t.Maybe[0].Own() && ownTarget(j, fl) == own:
			// The rule is the agent's own, which is read in another way, too.
		case len(t.Maybe) > 0 && (!hasSeen || ownTranslates(j, fl)) && (t.By == nil || t.Unread || to != own || !t.By.Own()):
			j.unknown("which source a peer sees depends on a rule that cannot be followed: `%s`; --probe sends a packet", t.Maybe[0])
		case t.By != nil && t.Unread:
			j.unknown("to what `%s` translates cannot be read; --probe sends a packet", t.By)
		case t.By == nil && !hasSeen && j.legacyOf("nat") != "":
			j.unknown("no rule of nftables translates sources, and legacy iptables has %s, which is not followed; --probe sends a packet", j.legacyOf("nat"))
		case t.By != nil && to == own:
		default:
			explainSource(j, fl, t, to, own, seen, hasSeen)
			continue
		}
		if fl.blocked != "" {
			blocked[fl.blocked] = true
		}
	}
	j.untested(blocked)
	if r.Status == StatusOK && r.Detail == "" && len(j.flows) > 0 && len(r.Findings) == 0 {
		r.Detail = fmt.Sprintf("packets of pods get the source %s", j.own(j.flows[0].family))
	}
}

// seenSource returns the source that the probe's packets left tailscale0 with.
func seenSource(j *judgement, fl *flow) (netip.Addr, bool) {
	p := j.probed(fl)
	if p == nil {
		return netip.Addr{}, false
	}
	for _, s := range p.Out {
		if s.Dev == desired.Interface && !s.Tunneled {
			return s.Src, true
		}
	}
	return netip.Addr{}, false
}

// ownTranslates says whether the agent's table has a rule that would translate the flow's source.
func ownTranslates(j *judgement, fl *flow) bool { return ownTarget(j, fl).IsValid() }

// ownTarget returns the address to which the agent's table would translate the flow's source.
func ownTarget(j *judgement, fl *flow) netip.Addr {
	for _, t := range ownTables(j.e.Facts) {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if r.Verdict == desired.SNAT && r.Family == fl.family && (r.Src == "" || t.Set(r.Src).Contains(fl.packet.Src)) &&
					(r.Dst == "" || t.Set(r.Dst).Contains(fl.packet.Dst)) {
					return r.To
				}
			}
		}
	}
	return netip.Addr{}
}

// explainSource reports a source that the peer will not take.
func explainSource(j *judgement, fl *flow, t Translation, to, own, seen netip.Addr, hasSeen bool) {
	advertised := slices.ContainsFunc(j.e.Tailscaled.Self.Allowed, func(p netip.Prefix) bool { return p.Contains(fl.packet.Src) })
	f := Finding{Blind: foreignSource, Fix: "tailmesh-agent apply; a running agent does it by itself"}
	if hasSeen {
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("packets to %s left %s with the source %s", fl.packet.Dst, desired.Interface, seen), How: howProbe})
	}
	switch {
	case t.By == nil && advertised:
		return // the pods' network is an approved route of this node: its peers take such sources
	case t.By == nil && !j.doc.Firewall.SNAT:
		f.Code = "source.untranslated"
		f.Summary = "packets leave with the pod's own source, which the peer does not take"
		f.Cause = "firewall.snat is false, and the pods' network is no approved subnet route of this node"
		f.Fix = "advertise and approve the pods' network, or let firewall.snat be true"
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("allowed sources of this node: %s", j.e.Tailscaled.Self.Allowed), How: howStatus})
	case t.By == nil && j.state.KeepsSource(fl.packet):
		f.Code = "source.untranslated"
		f.Summary = "packets leave with the pod's own source, which the peer does not take"
		f.Cause = fmt.Sprintf("local_cidrs has %s as well as pods, so that packets between them keep their source", fl.packet.Dst)
		f.Fix = "name no mesh addresses in local_cidrs"
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("local networks %v", j.doc.LocalCIDRs), How: "the document itself"})
	case t.By == nil:
		f.Code = "source.untranslated"
		f.Summary = "packets leave with the pod's own source, which the peer does not take"
		f.Cause = "the agent's rule that translates sources is missing"
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("no rule translates the source %s out of %s to %s", fl.packet.Src, desired.Interface, fl.packet.Dst), How: howNFT})
	case !t.By.Own() && ownTranslates(j, fl):
		f.Code = "source.shadowed"
		f.Summary = fmt.Sprintf("another rule translates the source first, to %s, which is not this node's mesh address", to)
		f.Cause = fmt.Sprintf("`%s` comes before the agent's rule, and the first translation holds", t.By)
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("`%s`; the agent's rule is there and is not reached", t.By), How: howNFT})
		f.Fix = "let that rule leave packets to mesh addresses alone, or move its chain behind priority 95"
	case t.By.Own():
		f.Code = "source.wrong-address"
		f.Summary = fmt.Sprintf("packets get the source %s, which this node does not have (any more)", to)
		f.Cause = fmt.Sprintf("the node's mesh address is %s now, and the agent's rule still says %s", own, to)
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("`%s`", t.By), How: howNFT}, Seeing{What: fmt.Sprintf("%s has %s", desired.Interface, own), How: howLinks})
		if !j.local(to) {
			f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("no interface has %s", to), How: howLinks})
		}
	default:
		f.Code = "source.others"
		f.Summary = fmt.Sprintf("another rule translates the source to %s, which is not this node's mesh address, and the agent's own is missing", to)
		f.Cause = t.By.String()
		f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("`%s`", t.By), How: howNFT})
	}
	j.stop(fl, f)
}

// checkScope looks for packets that stay within this location, or on the CNI's side, and get the mesh address as source.
func checkScope(j *judgement, _ *Result) {
	for _, l := range j.doc.LocalCIDRs {
		a := j.inside(l)
		packet := desired.Packet{Src: j.podAddress(a), Dst: a, Iif: j.iif}
		_, packet.Mark = j.prerouting(packet, desired.Original)
		way, known := j.ask(packet)
		if !known || way.Dev == "" || way.Dev == desired.Interface {
			continue // the table that swallows it is another check's
		}
		t := j.e.Rules.Source(leaving(j, packet, way.Dev))
		if t.By == nil || t.Masquerade || t.Unread || t.To != j.own(desired.FamilyOf(a)) {
			continue
		}
		j.add(Finding{
			Code: "source.too-wide", Level: Fail,
			Summary: fmt.Sprintf("packets of pods to %s, in this location, get the mesh address as source", l),
			Evidence: []Seeing{
				{What: fmt.Sprintf("a packet to %s goes %s", a, way), How: howRoute},
				{What: fmt.Sprintf("`%s` translates its source to %s", t.By, t.To), How: howNFT},
			},
			Cause: fmt.Sprintf("`%s` is not limited to packets that leave by %s to peers", t.By, desired.Interface),
			Fix:   "limit it to -o " + desired.Interface + " and to the peers; the agent's own rule is so limited",
		})
	}
}

// inside returns an address of the network that is not this node's own.
func (j *judgement) inside(p netip.Prefix) netip.Addr {
	a := p.Addr()
	if !p.IsSingleIP() {
		a = a.Next()
	}
	for p.Contains(a) && j.local(a) {
		a = a.Next()
	}
	return a
}

// checkConnections looks for connections that go on as they began, before the source was translated.
func checkConnections(j *judgement, r *Result) {
	if j.e.FlowsErr != "" {
		j.unknown("tracked connections are not readable: %s", j.e.FlowsErr)
		return
	}
	stale := j.state.Flows()
	count, example := 0, Flow{}
	peers := map[string]bool{}
	for _, f := range j.e.Flows {
		if !stale.Stale(f.Src, f.Answers, f.To) {
			continue
		}
		count++
		example = f
		for _, fl := range j.flows {
			if fl.packet.Dst == f.Answers {
				peers[fl.peer] = true
			}
		}
	}
	if count == 0 {
		return
	}
	// While new connections fare no better, the old ones are no cause of their own.
	for _, fl := range j.flows {
		if peers[fl.peer] && fl.blocked != "" {
			r.Detail = fmt.Sprintf("connections that keep their own source: %d; not testable until %s is fixed", count, fl.blocked)
			r.Status = StatusUntested
			return
		}
	}
	f := Finding{
		Code: "connections.stale", Level: Fail,
		Summary: fmt.Sprintf("connections of pods that began before their source was translated go on without: %d", count),
		Evidence: []Seeing{{
			What: fmt.Sprintf("%s calls %s, which would answer to %s", example.Src, example.Dst, example.To), How: howFlows,
		}},
		Cause: "the kernel translates a connection as it did its first packet; retries keep it alive",
		Fix:   fmt.Sprintf("conntrack -D -s %s -d %s; new connections are right", example.Src, example.Dst),
	}
	for _, fl := range j.flows {
		if peers[fl.peer] && !slices.Contains(f.Peers, fl.peer) {
			f.Peers = append(f.Peers, fl.peer)
		}
	}
	j.add(f)
}
