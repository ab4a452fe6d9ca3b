package doctor

import (
	"fmt"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func probeChecks() []Check {
	return []Check{{ID: "probe", Title: "packets that were sent", Needs: NeedDocument, run: checkProbe}}
}

// checkProbe says what became of the packets that were sent. Where another check has named the cause, it adds nothing;
// where none has, a packet that is lost stands as evidence without a cause.
func checkProbe(j *judgement, r *Result) {
	switch {
	case j.e.Probe == nil && j.e.ProbeErr != "":
		r.Status, r.Detail = StatusUnknown, "no packet could be sent: "+j.e.ProbeErr
		return
	case j.e.Probe == nil:
		r.Status, r.Detail = StatusSkipped, "not asked for: --probe sends packets as pods do"
		return
	}
	blocked := map[string]bool{}
	answered, sent := 0, 0
	for _, fl := range j.flows {
		p := j.probed(fl)
		if p == nil {
			continue
		}
		sent++
		if p.Got > 0 && fl.blocked == "" {
			answered++
			continue
		}
		if fl.blocked != "" {
			blocked[fl.blocked] = true
			continue
		}
		if p.Got > 0 {
			continue
		}
		f := Finding{Evidence: []Seeing{probeSeeing(p)}, Peers: []string{fl.peer}}
		echo := j.echoDropped(fl)
		switch {
		case echo.Dropped && echo.Certain() && p.In > 0:
			f.Code, f.Level = "probe.echo-dropped", Warn
			f.Summary = "echo requests or their answers are dropped on this node, which other packets are not"
			f.Cause = echo.Culprit()
			f.Evidence = append(f.Evidence, Seeing{What: "`" + echo.Culprit() + "`", How: howNFT})
			f.Blind = "so that the probe proves nothing for other packets"
		case p.In == 0:
			f.Code, f.Level = "probe.not-forwarded", Unknown
			f.Summary = "the packets did not come in by the pods' interface: nothing is proved by them"
		case p.Refused != "" && len(p.Back) == 0 && !seenOnMesh(p.Out):
			f.Code, f.Level = "probe.refused", Fail
			f.Summary = "packets of pods are refused on this node: " + p.Refused
			f.Blind = legacyBlind(j) + "what refuses them was not found in nftables' rules"
		case len(p.Out) == 0:
			f.Code, f.Level = "probe.lost-here", Fail
			f.Summary = "packets of pods come in and do not leave: they are lost on this node"
			f.Blind = legacyBlind(j) + "what drops them was not found in nftables' rules"
		case len(p.Back) > 0 && j.e.Probe.Filtered > 0:
			f.Code, f.Level = "return.rp-filter", Fail
			f.Summary = fmt.Sprintf("answers come in by %s and are dropped by reverse path filtering", p.Back[0].Dev)
			f.Cause = fmt.Sprintf("rp_filter is strict on %s (%s)", p.Back[0].Dev, j.rpFilter(p.Back[0].Dev))
			f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("%d packets were dropped meanwhile", j.e.Probe.Filtered), How: "TcpExt IPReversePathFilter, of the whole node"})
			f.Fix = fmt.Sprintf("find out why the peer answers by %s; sysctl -w net.ipv4.conf.%s.rp_filter=2", p.Back[0].Dev, p.Back[0].Dev)
		case len(p.Back) > 0:
			f.Code, f.Level = "probe.answer-lost-here", Fail
			f.Summary = fmt.Sprintf("answers come in by %s and do not reach the pod: they are lost on this node", p.Back[0].Dev)
			f.Blind = legacyBlind(j) + "what drops them was not found"
		default:
			f.Code, f.Level = "probe.unanswered", Unknown
			f.Summary = "packets leave this node rightly and are not answered: what becomes of them beyond cannot be seen from here"
			f.Blind = "the peer's packet filter (it must admit ICMP from this node), its own firewall, and the path look the same from here"
			f.Remote = []Question{{On: fl.peer, Command: "tailmesh-agent doctor", Why: "whether its packet filter drops them (tailscaled_inbound_dropped_packets_total)"}}
		}
		j.add(f)
	}
	if answered > 0 {
		r.Detail = fmt.Sprintf("%d of %d addresses answered packets forwarded from %s", answered, sent, j.e.Probe.Device)
		if answered == sent {
			r.Detail += "; where a name or a service's address fails nevertheless, it is not this layer: DNS, kube-proxy, endpoints"
		}
	}
	j.untested(blocked)
}

// echoDropped follows the probe's own kind of packet there and back.
func (j *judgement) echoDropped(fl *flow) Outcome {
	if j.e.Rules == nil {
		return Outcome{}
	}
	there := traced(fl.packet, desired.Original, desired.Interface).echo()
	back := traced(fl.reply, desired.Reply, fl.packet.Iif).echo()
	for _, o := range []Outcome{j.e.Rules.Filter(Prerouting, there), j.e.Rules.Filter(Forward, there), j.e.Rules.Filter(Forward, back)} {
		if o.Dropped {
			return o
		}
	}
	return Outcome{}
}

func legacyBlind(j *judgement) string {
	if words := j.legacyOf(""); words != "" {
		return fmt.Sprintf("legacy iptables has %s, which is not followed; ", words)
	}
	return ""
}

// probeSeeing puts what was seen of a connection into words.
func probeSeeing(p *ProbeFlow) Seeing {
	words := []string{fmt.Sprintf("%d requests to %s", p.Sent, p.To), fmt.Sprintf("%d came in by the pods' interface", p.In)}
	for _, s := range p.Out {
		in := ""
		if s.Tunneled {
			in = ", inside another packet"
		}
		words = append(words, fmt.Sprintf("%d left by %s from %s%s", s.Count, s.Dev, s.Src, in))
	}
	if len(p.Out) == 0 {
		words = append(words, "none left")
	}
	for _, s := range p.Back {
		words = append(words, fmt.Sprintf("%d answers came in by %s", s.Count, s.Dev))
	}
	words = append(words, fmt.Sprintf("%d answers reached the sender", p.Got))
	if p.Refused != "" {
		words = append(words, "the sender was told: "+p.Refused)
	}
	return Seeing{What: strings.Join(words, ", "), How: howProbe}
}
