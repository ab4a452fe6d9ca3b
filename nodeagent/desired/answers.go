package desired

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// answers adds policy rules for what pods answer to connections that peers begin, which must go back by the CNI's tunnel.
// The CNI's own rule sees to that as long as it stands in front of Tailscale's. Where the CNI (kube-router) has started
// before tailscaled, its rule, which asks for no priority, has got the last one there was, and Tailscale's takes the answers:
// then what the CNI's rule says is said in front of Tailscale's, for mesh addresses and without the agent's mark.
//
// It is said for each half of the pods' network by itself: older versions of kube-router look for their network in the
// text of all rules, and would take the agent's rule for their own.
func (b *builder) answers(f Family, pods []netip.Prefix, bit uint32) {
	for _, network := range pods {
		b.answersOf(f, network, bit)
	}
}

func (b *builder) answersOf(f Family, pods netip.Prefix, bit uint32) {
	packet := Packet{Src: b.unused(pods), Dst: f.MeshRange().Addr().Next()}
	var tailscale Rule // zero until it is found
	for _, r := range b.facts.Rules {
		if r.Family != f || r.Own() || r.Action != Lookup {
			continue
		}
		switch {
		case r.Table == uint32(b.doc.Routing.Table):
			if tailscale.Priority == 0 && r.Matches(packet) {
				tailscale = r
			}
		case r.Src.IsValid() && r.Src.Contains(packet.Src) && !general(r.Table):
			if tailscale.Priority == 0 {
				return // it comes first
			}
			for _, half := range halves(r.Src) {
				rule := Rule{
					Family: f, Priority: tailscale.Priority - 1, Src: half, Dst: f.MeshRange(), Mask: bit,
					Action: Lookup, Table: r.Table, Protocol: RouteProtocol,
				}
				if !slices.Contains(b.state.Rules, rule) { // one rule of the CNI's may serve several networks
					b.state.Rules = append(b.state.Rules, rule)
				}
			}
			return
		}
	}
}

// general says whether a table is one of those that are always there.
func general(table uint32) bool { return table >= 253 && table <= 255 }

// halves divides a network in two; one address stays whole.
func halves(p netip.Prefix) []netip.Prefix {
	if p.IsSingleIP() {
		return []netip.Prefix{p}
	}
	lower := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	return []netip.Prefix{lower, netip.PrefixFrom(netipx.PrefixLastIP(lower).Next(), lower.Bits())}
}
