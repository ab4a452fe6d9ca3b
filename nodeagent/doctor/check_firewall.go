package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func firewallChecks() []Check {
	return []Check{
		{ID: "firewall", Title: "the firewall on the way to a peer", Needs: NeedDocument | NeedRules, run: checkFirewall},
		{ID: "tailscale-chains", Title: "Tailscale's chains in the firewall", Needs: NeedRules | NeedTailscaled, Optional: true, run: checkChains},
	}
}

// tailscaleService is the address of Tailscale's own name service, which is in every tailnet.
func tailscaleService(f desired.Family) netip.Addr {
	if f == desired.IPv4 {
		return netip.AddrFrom4([4]byte{100, 100, 100, 100})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x7a, 0x11, 0x5c, 0xa1, 0xe0, 15: 0x53})
}

func checkFirewall(j *judgement, r *Result) {
	blocked := map[string]bool{}
	for _, fl := range j.flows {
		if fl.packet.Iif == "" {
			j.unknown("the interface of the pods is not known")
			continue
		}
		judgeForward(j, fl, fl.packet, desired.Original, desired.Interface, "firewall.drops", blocked)
	}
	legacy(j, "filter")
	j.untested(blocked)
	if r.Status == StatusOK && r.Detail == "" && len(r.Findings) == 0 && j.e.Probe == nil {
		r.Detail = "no rule of nftables drops a packet of an address that no pod has yet, followed on paper; NetworkPolicies of single pods are " +
			"not on its way: --pod; --probe sends one"
		if j.e.Pod.IsValid() {
			r.Detail = fmt.Sprintf("no rule of nftables drops a TCP connection of %s, followed on paper", j.e.Pod)
		}
	}
}

// judgeForward follows a packet through prerouting and forward, and reports what drops it.
func judgeForward(j *judgement, fl *flow, p desired.Packet, direction, oif, code string, blocked map[string]bool) {
	before, mark := j.prerouting(p, direction)
	p.Mark = mark
	packet := traced(p, direction, oif)
	packet.Unknown, packet.Untracked = before.Packet.Unknown, before.Packet.Untracked
	drop := j.e.Rules.Filter(Forward, packet)
	if before.Dropped {
		drop = before
	}
	seen := j.probed(fl)
	passed := seen != nil && (direction == desired.Original && seenOnMesh(seen.Out) || direction == desired.Reply && seen.Got > 0 && seenOnMesh(seen.Back))
	switch {
	case !drop.Dropped && drop.Certain():
		if fl.blocked != "" && fl.blocked != code {
			blocked[fl.blocked] = true
		}
	case passed && sameOutcome(drop, j.e.Rules.Filter(Forward, packet.echo())):
		// The rules do not tell the probe's packets from others, and those are known to pass.
		if drop.Dropped && drop.Certain() {
			j.add(Finding{
				Code: code, Level: Warn, Peers: []string{fl.peer}, Summary: "a rule seems to drop packets of pods, and does not",
				Evidence: []Seeing{{What: "`" + drop.Culprit() + "`", How: howNFT}, probeSeeing(seen)}, Cause: drop.Culprit(),
				Blind: "why the rule has no effect was not found: this program may misread it",
			})
		}
	case !drop.Certain():
		j.unknown("whether packets %s are dropped depends on a rule that cannot be followed: `%s`; --probe sends one", between(p), drop.Maybe[0])
	default:
		if direction == desired.Reply && drop.Culprit() == fl.culprit {
			blocked[fl.blocked] = true // the same cause as on the way there
			return
		}
		fl.culprit = drop.Culprit()
		f := explainDrop(j, fl, drop, p, direction)
		if f.Code == "" {
			f.Code = code
		}
		if direction == desired.Reply && f.Code == code {
			f.Summary = "the answers of peers are dropped by the firewall on their way to pods"
		}
		j.stop(fl, f)
	}
}

// sameOutcome says whether two packets meet the same end, or the same doubt.
func sameOutcome(a, b Outcome) bool {
	return a.Culprit() == b.Culprit() && slices.Equal(a.Maybe, b.Maybe)
}

// echo returns the packet as the probe would send it.
func (p Traced) echo() Traced {
	p.Protocol, p.ICMPType = unix.IPPROTO_ICMP, 8
	if p.family() == desired.IPv6 {
		p.Protocol, p.ICMPType = unix.IPPROTO_ICMPV6, 128
	}
	if p.Reply {
		p.ICMPType = 0
		if p.family() == desired.IPv6 {
			p.ICMPType = 129
		}
	}
	return p
}

func between(p desired.Packet) string { return fmt.Sprintf("from %s to %s", p.Src, p.Dst) }

// explainDrop says who drops a packet, as particularly as the rule allows.
func explainDrop(j *judgement, fl *flow, o Outcome, p desired.Packet, direction string) Finding {
	f := Finding{
		Summary: "packets of pods to it are dropped by the firewall",
		Cause:   o.Culprit(),
		Evidence: []Seeing{{
			What: fmt.Sprintf("a new connection %s ends at `%s`", between(p), o.Culprit()), How: howNFT,
		}},
		Blind: "worked out from the rules: no packet was sent",
		Fix:   "have packets " + between(p) + " accepted in front of it",
	}
	if direction == desired.Reply {
		f.Evidence[0].What = fmt.Sprintf("an answer %s ends at `%s`", between(p), o.Culprit())
	}
	if o.By != nil {
		if n, ok := o.By.Counter(); ok {
			f.Evidence = append(f.Evidence, Seeing{What: j.counted(o.By, n), How: "nftables' counters, by netlink"})
		}
	}
	if probe := j.probed(fl); probe != nil {
		f.Blind = ""
		f.Evidence = append(f.Evidence, probeSeeing(probe))
	}
	chain := o.Chain
	switch {
	case direction == desired.Reply && strings.Contains(o.Culprit(), "rpfilter") || o.By != nil && looksBack(o.By):
		f.Code = "return.rp-filter"
		if direction == desired.Original {
			f.Code = "route.source-filtered"
		}
		f.Summary = "packets are dropped by reverse path filtering in the firewall"
		f.Cause = fmt.Sprintf("`%s`: the way back to %s does not lead through the interface that they come in by", o.Culprit(), p.Src)
		f.Fix = "let it be loose: NixOS networking.firewall.checkReversePath = \"loose\"; firewalld IPv6_rpfilter=loose"
	case chain.Table == "firewalld":
		f.Code = "firewall.firewalld"
		f.Summary = "firewalld rejects packets between pods and " + desired.Interface
		f.Fix = fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s --add-interface=%s; firewall-cmd --reload "+
			"(a reload flushes Tailscale's chains: restart tailscaled after it)", desired.Interface, fl.packet.Iif)
	case direction == desired.Original && o.By != nil && chain.Name == "ts-forward" && strings.Contains(o.By.text(), "ct state"):
		f.Code = "firewall.stateful"
		f.Summary = "Tailscale's stateful filtering drops new connections of pods"
		f.Cause = "tailscaled runs with --stateful-filtering: `" + o.Culprit() + "`"
		f.Fix = "tailscale set --stateful-filtering=false"
	case o.By != nil && chain.Name == "ts-forward" && desired.IPv4.MeshRange().Contains(p.Src):
		f.Code = "firewall.pods-in-mesh-range"
		f.Summary = "the pods' network lies in the range of mesh addresses, and Tailscale drops such sources"
	case networkPolicy(chain.Name) != "":
		f.Code = "firewall.network-policy"
		f.Summary = "a NetworkPolicy keeps pods from it: policy, not network"
		f.Evidence = append(f.Evidence, Seeing{What: "the chain is " + networkPolicy(chain.Name) + "'s", How: "its name"})
		f.Blind = "other ports and protocols may be admitted: a new TCP connection to no port in particular was followed"
		f.Fix = "kubectl get networkpolicy -A; if it is not meant, admit egress to " + netip.PrefixFrom(p.Dst, p.Dst.BitLen()).String()
	case o.By == nil && j.e.Tailscaled.Prefs != nil && j.e.Tailscaled.Prefs.NetfilterMode == 0:
		f.Cause = "tailscaled runs with --netfilter-mode=off, so that nothing accepts packets to " + desired.Interface + ". Left is `" + o.Culprit() + "`"
		f.Evidence = append(f.Evidence, Seeing{What: "NetfilterMode is off", How: "LocalAPI prefs"})
		f.Fix = "tailscale set --netfilter-mode=on; or " + f.Fix
	case o.By == nil && chainsLost(j):
		f.Code = "firewall.chains-lost"
		f.Summary = "Tailscale's chains are gone, and nothing else accepts packets of pods to " + desired.Interface
		f.Evidence = append(f.Evidence, Seeing{What: "tailscaled is set to keep its chains (NetfilterMode on), and there is no chain ts-forward", How: "LocalAPI prefs; nftables, by netlink"})
		f.Cause = "somebody flushed the firewall (firewalld's reload, nft flush ruleset): tailscaled does not notice. Left is `" + o.Culprit() + "`"
		f.Fix = "systemctl restart tailscaled"
	}
	return f
}

// looksBack says whether a rule asks for the way back to a packet's source.
func looksBack(r *Rule) bool {
	return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
		switch e := e.(type) {
		case *expr.Fib:
			return e.FlagSADDR && !e.ResultADDRTYPE
		case *expr.Match:
			return e.Name == "rpfilter"
		}
		return false
	})
}

// networkPolicy names the program that carries out NetworkPolicies in such a chain, or "".
func networkPolicy(chain string) string {
	for _, of := range []struct{ prefix, program string }{
		{"KUBE-POD-FW-", "kube-router"},
		{"KUBE-NWPLCY-", "kube-router"},
		{"cali-fw-", "Calico"},
		{"cali-tw-", "Calico"},
		{"cali-po-", "Calico"},
		{"cali-pi-", "Calico"},
		{"WEAVE-NPC", "Weave Net"},
		{"ANTREA-POL-", "Antrea"},
	} {
		if strings.HasPrefix(chain, of.prefix) {
			return of.program
		}
	}
	return ""
}

// counted says what a rule has counted, and what of it while the probe's packets were sent.
func (j *judgement) counted(r *Rule, n uint64) string {
	after, ok := j.e.CountersAfter[r.String()]
	if !ok || j.e.Probe == nil {
		return fmt.Sprintf("the rule has counted %d packets so far", n)
	}
	return fmt.Sprintf("the rule had counted %d packets before the probe and %d after it", n, after)
}

// chainsLost says whether tailscaled is set to keep chains in the firewall that are not there. Legacy tables are not
// read: they may be there.
func chainsLost(j *judgement) bool {
	p := j.e.Tailscaled.Prefs
	if p == nil || p.NetfilterMode != 2 || j.e.Rules == nil || len(j.e.Legacy) > 0 || j.e.LegacyErr != "" || j.e.Tailscaled.State != "Running" {
		return false
	}
	return !slices.ContainsFunc(j.e.Rules.Chains, func(c *Chain) bool { return c.Name == "ts-forward" })
}

func checkChains(j *judgement, _ *Result) {
	if !chainsLost(j) || j.found["firewall.chains-lost"] {
		return
	}
	j.add(Finding{
		Code: "firewall.chains-lost", Level: Warn, Summary: "Tailscale's chains are gone from the firewall",
		Evidence: []Seeing{{What: "tailscaled is set to keep its chains (NetfilterMode on), and there is no chain ts-forward", How: "LocalAPI prefs; nftables, by netlink"}},
		Cause:    "somebody flushed the firewall (firewalld's reload, nft flush ruleset), and tailscaled does not notice",
		Blind:    "packets of pods to peers are accepted without them now",
		Fix:      "systemctl restart tailscaled",
	})
}

// legacy notes that legacy iptables has a table that could decide, unless a packet was seen to pass.
func legacy(j *judgement, table string) {
	if j.allAnswered() {
		return
	}
	if words := j.legacyOf(table); words != "" {
		j.unknown("legacy iptables has %s, which is not followed; --probe sends a packet through it", words)
	}
}

// allAnswered says whether the probe got an answer from every peer that it could ask.
func (j *judgement) allAnswered() bool {
	if j.e.Probe == nil || len(j.flows) == 0 {
		return false
	}
	for _, fl := range j.flows {
		if p := j.probed(fl); !fl.further && (p == nil || p.Got == 0) {
			return false
		}
	}
	return true
}

// seenOnMesh says whether a packet passed tailscale0, not inside of another.
func seenOnMesh(list []Seen) bool {
	return slices.ContainsFunc(list, func(s Seen) bool { return s.Dev == desired.Interface && !s.Tunneled })
}
