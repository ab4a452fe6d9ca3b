package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func nodeChecks() []Check {
	return []Check{
		{ID: "node", Title: "the node's own packets to peers, the overlay's among them", Needs: NeedDocument, Optional: true, run: checkNode},
		{ID: "overlay-firewall", Title: "the firewall on the overlay's way", Needs: NeedDocument | NeedRules, Optional: true, run: checkOverlayFirewall},
	}
}

const (
	howOwnRoute = "RTM_GETROUTE with this node's mesh address as source"
	howDelivery = "RTM_GETROUTE for a packet that comes in by " + desired.Interface
)

// ends returns the mesh addresses of this node and of each peer between which the overlay's outer packets go.
func (j *judgement) ends(do func(p config.Node, own, peer netip.Addr)) {
	for _, p := range j.doc.Peers {
		if peer, own := outer(j, p); peer.IsValid() && own.IsValid() && !j.local(peer) {
			do(p, own, peer)
		}
	}
}

// pairs is ends for every family that both have, not the overlay's alone.
func (j *judgement) pairs(do func(p config.Node, own, peer netip.Addr)) {
	for _, p := range j.doc.Peers {
		for _, peer := range p.Addresses {
			if own := j.own(desired.FamilyOf(peer)); own.IsValid() && !j.local(peer) {
				do(p, own, peer)
			}
		}
	}
}

// absent says whether a check has named why nothing reaches the address at all.
func (j *judgement) absent(a netip.Addr) bool {
	return j.blocked != "" || slices.ContainsFunc(j.to[a], func(fl *flow) bool {
		return strings.HasPrefix(fl.blocked, "peers.") || fl.blocked == "route.missing"
	})
}

// checkNode asks for the way of what the node itself sends to peers and gets from them: its tunnels' packets, its kubelet's.
// Those are not forwarded and carry no mark of the agent's: Tailscale's own rules must serve them.
func checkNode(j *judgement, r *Result) {
	asked := 0
	j.pairs(func(p config.Node, own, peer netip.Addr) {
		if j.absent(peer) {
			return
		}
		out := desired.Packet{Src: own, Dst: peer, Mark: j.output(own, peer).Packet.Mark}
		way, known := j.askKernel(out)
		in := desired.Packet{Src: peer, Dst: own, Iif: desired.Interface}
		_, in.Mark = j.prerouting(in, desired.Original)
		delivery, delivered := j.ask(in)
		if !known || !delivered {
			return
		}
		asked++
		if way.Dev != desired.Interface && !j.found["tailscaled.rules-lost"] && !j.samePlace(out) {
			captured(j, p.Name, out, way)
		}
		const local = 255
		if delivery.Table != local && delivery.Dev != "" {
			d := j.decide(in, anyRule)
			j.add(Finding{
				Code: "node.own-address", Level: Fail, Peers: []string{p.Name},
				Summary: "packets to this node's own mesh address do not arrive: they are sent on",
				Evidence: []Seeing{
					{What: fmt.Sprintf("a packet from %s to %s goes %s", peer, own, delivery), How: howDelivery}, {What: d.String(), How: howRules},
				},
				Cause: fmt.Sprintf("the rule for local addresses does not come first, and %s takes packets to %s", d, own),
				Fix:   desired.Rule{Family: desired.FamilyOf(own), Action: desired.Lookup, Table: local}.Command("add"),
			})
		}
	})
	r.Detail = fmt.Sprintf("asked for %d addresses", asked)
}

// samePlace says whether the node's own packet meets the same rule and route as those of pods, of which the route's check has
// named what is wrong.
func (j *judgement) samePlace(p desired.Packet) bool {
	own := j.decide(p, anyRule)
	return own.found && slices.ContainsFunc(j.flows, func(fl *flow) bool {
		pod := j.decide(fl.packet, anyRule)
		return fl.packet.Dst == p.Dst && strings.HasPrefix(fl.blocked, "route.") && pod.found && pod.route == own.route && own.route.Table == uint32(j.doc.Routing.Table)
	})
}

// captured reports that the node's own packets to a peer do not leave by tailscale0.
func captured(j *judgement, peer string, p desired.Packet, way desired.Answer) {
	d := j.decide(p, anyRule)
	f := Finding{
		Code: "node.captured", Level: Fail, Peers: []string{peer}, Addresses: []netip.Addr{p.Dst},
		Summary:  "the node's own packets to it, the overlay's among them, do not leave through " + desired.Interface,
		Evidence: []Seeing{{What: fmt.Sprintf("a packet of this node (%s, mark %#x) to %s goes: %s", p.Src, p.Mark, p.Dst, way), How: howOwnRoute}},
		Blind:    "why could not be worked out from the rules and tables",
	}
	if d.found && (d.route.Dev == way.Dev || way.Dev == "") {
		f.Blind = ""
		f.Evidence = append(f.Evidence, Seeing{What: d.String(), How: howRules})
		f.Cause = fmt.Sprintf("%s takes them before Tailscale's rules are reached: another VPN's, or a script's", d)
		exempt := desired.Rule{ // for the node's own packets: what pods answer goes the CNI's way
			Family: desired.FamilyOf(p.Dst), Src: netip.PrefixFrom(p.Src, p.Src.BitLen()), Dst: desired.FamilyOf(p.Dst).MeshRange(),
			Action: desired.Lookup, Table: uint32(j.doc.Routing.Table),
		}
		if d.rule.Priority > 0 {
			exempt.Priority = d.rule.Priority - 1
			f.Fix = exempt.Command("add") + "; and keep mesh addresses out of that program's routes"
		} else {
			f.Fix = d.rule.Command("del") + "; and keep mesh addresses out of that program's routes"
		}
	}
	j.add(f)
}

// output follows a packet of the node's own, of the overlay's protocol, through the firewall.
func (j *judgement) output(own, peer netip.Addr) Outcome {
	if j.e.Rules == nil {
		return Outcome{}
	}
	return j.e.Rules.Filter(Output, Traced{
		Src: own, Dst: peer, Oif: desired.Interface, Protocol: uint8(protocolNumber(j.doc.Overlay.Protocol)), ICMPType: -1, FromHere: true,
	})
}

// checkOverlayFirewall follows the overlay's packets, outer ones to this node and from it, and those of pods that it
// carries, which are forwarded between the pods' interface and the tunnel.
func checkOverlayFirewall(j *judgement, r *Result) {
	number := protocolNumber(j.doc.Overlay.Protocol)
	if number != 0 {
		j.ends(func(p config.Node, own, peer netip.Addr) {
			if j.absent(peer) {
				return
			}
			in := Traced{Src: peer, Dst: own, Iif: desired.Interface, Protocol: uint8(number), ICMPType: -1, ToHere: true}
			before := j.e.Rules.Filter(Prerouting, in)
			in.Mark, in.Unknown = before.Packet.Mark, before.Packet.Unknown
			for _, at := range []struct {
				code, way string
				outcome   Outcome
			}{
				{"overlay.input-dropped", "comes in from", before},
				{"overlay.input-dropped", "comes in from", j.e.Rules.Filter(Input, in)},
				{"overlay.output-dropped", "goes out to", j.output(own, peer)},
			} {
				if !at.outcome.Dropped || !at.outcome.Certain() {
					continue
				}
				f := Finding{
					Code: at.code, Level: Fail, Peers: []string{p.Name},
					Summary:  fmt.Sprintf("this node's firewall drops the overlay's packets (%s): pods of the two nodes do not reach each other", j.doc.Overlay.Protocol),
					Evidence: []Seeing{{What: fmt.Sprintf("a packet of protocol %d that %s %s ends at `%s`", number, at.way, peer, at.outcome.Culprit()), How: howNFT}},
					Cause:    at.outcome.Culprit(),
					Blind:    "those that answer the other side's may pass, as long as connections are remembered",
					Fix:      acceptOverlay(at.code, desired.FamilyOf(own), number),
				}
				if at.outcome.Chain.Table == "firewalld" {
					f.Fix = fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s; firewall-cmd --reload "+
						"(a reload flushes Tailscale's chains: restart tailscaled after it)", desired.Interface)
				}
				j.add(f)
				return
			}
		})
	}
	blocked := map[string]bool{}
	checkCarried(j, blocked)
	j.untested(blocked)
	if r.Detail == "" {
		r.Detail = "no rule of nftables drops the overlay's packets, followed on paper"
	}
}

func acceptOverlay(code string, f desired.Family, number int) string {
	tool := "iptables"
	if f == desired.IPv6 {
		tool = "ip6tables"
	}
	if code == "overlay.output-dropped" {
		return fmt.Sprintf("%s -I OUTPUT -o %s -p %d -j ACCEPT; a drop in a table of nftables' own must be changed there", tool, desired.Interface, number)
	}
	return fmt.Sprintf("%s -I INPUT -i %s -p %d -j ACCEPT; with ufw: ufw allow in on %s; a drop in a table of nftables' own must be changed there",
		tool, desired.Interface, number, desired.Interface)
}

// maxCarried is how many networks behind tunnels are looked at.
const maxCarried = 64

// checkCarried looks at the pods' packets that the overlay carries, where it has tunnels with routes. What ends at the same
// rule as packets to peers has been named.
func checkCarried(j *judgement, blocked map[string]bool) {
	asked := map[netip.Prefix]bool{}
	for _, route := range j.e.Routes {
		const main = 254
		d, ok := j.device(route.Dev)
		if !ok || !isTunnel(d) || !d.Up || route.Table != main || route.Type != "unicast" || route.Dst.Bits() == 0 ||
			config.IsMesh(route.Dst.Addr()) || route.Dst.Addr().IsLinkLocalUnicast() || route.Dst.Addr().IsMulticast() || j.isPod(route.Dst.Addr()) || asked[route.Dst] || len(asked) == maxCarried {
			continue
		}
		asked[route.Dst] = true
		there := j.inside(route.Dst)
		here, iif := j.podAddress(there), j.iif
		if !here.IsValid() || iif == "" {
			continue
		}
		for _, p := range []Traced{
			{Src: here, Dst: there, Iif: iif, Oif: d.Name},
			{Src: there, Dst: here, Iif: d.Name, Oif: iif},
		} {
			p.Protocol, p.ICMPType = unix.IPPROTO_TCP, -1
			o := j.e.Rules.Filter(Forward, p)
			if !o.Dropped || !o.Certain() || o.Chain != nil && networkPolicy(o.Chain.Name) != "" {
				continue
			}
			if i := slices.IndexFunc(j.flows, func(fl *flow) bool { return fl.culprit == o.Culprit() }); i >= 0 {
				blocked[j.flows[i].blocked] = true
				continue
			}
			f := Finding{
				Code: "overlay.forward-dropped", Level: Fail,
				Summary:  fmt.Sprintf("this node's firewall drops what its pods and those behind %s say to each other", d.Name),
				Evidence: []Seeing{{What: fmt.Sprintf("a new connection from %s to %s, from %s to %s, ends at `%s`", p.Src, p.Dst, p.Iif, p.Oif, o.Culprit()), How: howNFT}},
				Cause:    o.Culprit(),
				Blind:    "worked out from the rules: no packet was sent",
				Fix: fmt.Sprintf("iptables -I FORWARD -i %s -j ACCEPT, then iptables -I FORWARD -o %s -j ACCEPT; or restart the CNI, whose rules that accept "+
					"pods' packets may have been flushed", iif, iif),
			}
			if o.Chain != nil && o.Chain.Table == "firewalld" {
				f.Fix = fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s --add-interface=%s; firewall-cmd --reload "+
					"(a reload flushes Tailscale's chains: restart tailscaled after it)", d.Name, iif)
			}
			j.add(f)
		}
	}
}
