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

func overlayChecks() []Check {
	return []Check{
		{ID: "policy", Title: "the tailnet policy and the overlay, inbound", Needs: NeedDocument | NeedTailscaled, run: checkPolicy},
		{ID: "overlay", Title: "the CNI's tunnels", Optional: true, run: checkOverlay},
		{ID: "mtu", Title: "sizes of packets", Needs: NeedDocument, Optional: true, run: checkMTU},
	}
}

// protocolNumber returns the number of the overlay's protocol, or 0 where nothing needs to be admitted.
func protocolNumber(name string) int {
	switch name {
	case config.DefaultProtocol:
		return unix.IPPROTO_IPIP
	case "gre":
		return unix.IPPROTO_GRE
	case "esp":
		return unix.IPPROTO_ESP
	case "udp":
		return unix.IPPROTO_UDP
	}
	return 0
}

// admissible says whether this node's packet filter has something to say of the overlay from a peer: of one that is not in
// the tailnet it has not, whatever the policy does.
func (j *judgement) admissible(p config.Node, from, to netip.Addr) bool {
	t := j.e.Tailscaled
	return protocolNumber(j.doc.Overlay.Protocol) != 0 && t.State == "Running" && t.Filters && from.IsValid() && to.IsValid() &&
		slices.ContainsFunc(t.Peers, func(n TailscaleNode) bool {
			return p.ID != "" && n.ID == p.ID || p.ID == "" && slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(p.Addresses, a) })
		})
}

// checkPolicy asks this node's own packet filter whether it admits the overlay from each peer. The other direction is
// decided by the peer's.
func checkPolicy(j *judgement, r *Result) {
	number := protocolNumber(j.doc.Overlay.Protocol)
	switch {
	case number == 0:
		r.Status, r.Detail = StatusSkipped, "the document names no protocol of an overlay"
		return
	case j.e.Tailscaled.State != "Running":
		j.untested(map[string]bool{j.blocked: true})
		return
	case !j.e.Tailscaled.Filters:
		j.unknown("this node's packet filter could not be read: %s", j.e.Tailscaled.FilterHow)
		return
	}
	if p := j.e.Tailscaled.Prefs; p != nil && p.ShieldsUp {
		j.add(Finding{
			Code: "policy.shields-up", Level: Fail, Summary: "this node lets nothing in that a peer begins, the overlay included, whatever the policy says",
			Evidence: []Seeing{{What: "ShieldsUp is true", How: "LocalAPI prefs"}},
			Cause:    "tailscaled runs with --shields-up", Fix: "tailscale set --shields-up=false",
		})
		return
	}
	admitted := 0
	for _, p := range j.doc.Peers {
		from, to := outer(j, p)
		if !j.admissible(p, from, to) {
			continue
		}
		verdict := admits(j.e.Tailscaled.Filter, number, from, to)
		if verdict == yes {
			admitted++
			continue
		}
		if verdict == perhaps {
			j.unknown("udp from %s is admitted on some ports, and which one the overlay uses is not known", p.Name)
			continue
		}
		f := Finding{
			Code: "policy.overlay-dropped", Level: Fail, Peers: []string{p.Name},
			Summary: fmt.Sprintf("the tailnet policy does not admit %s (protocol %d) from it to this node", j.doc.Overlay.Protocol, number),
			Evidence: []Seeing{{
				What: fmt.Sprintf("no entry of this node's packet filter admits protocol %d on all ports from %s to %s", number, from, to),
				How:  j.e.Tailscaled.FilterHow,
			}},
			Cause: "a rule of the policy that names no protocol admits TCP, UDP and ICMP, and not the overlay",
			Fix: fmt.Sprintf("add to a grant between the nodes: \"ip\": [\"%s:*\"]; in acls: \"proto\": \"%s\" with dst ports *; then: tailmesh-policy can",
				j.doc.Overlay.Protocol, j.doc.Overlay.Protocol),
			Blind: "this node sees what comes in; what it sends is judged by the peer's own filter",
			Remote: []Question{{
				On: p.Name, Command: "tailmesh-agent doctor", Why: "whether it admits the overlay from this node",
			}},
		}
		if before, ok := j.e.Admissions.of(p, j.doc.Overlay.Protocol); ok {
			f.Code = "policy.edited"
			f.Summary = fmt.Sprintf("the tailnet policy no longer admits %s (protocol %d) from it to this node", j.doc.Overlay.Protocol, number)
			f.Evidence = append(f.Evidence, before.seeing())
			f.Cause = "the tailnet policy was edited since, or one of the two nodes has lost the tag that a rule admits"
			f.Fix = "`tofu plan` shows what was changed beside the configuration, and `tofu apply` takes it back; where the configuration itself no longer admits it, " + f.Fix
		}
		f.Evidence = append(f.Evidence, dropsSeeing(j.e.Tailscaled))
		j.add(f)
	}
	if len(r.Findings) == 0 && r.Detail == "" {
		r.Detail = fmt.Sprintf("%s from %d peers is admitted", j.doc.Overlay.Protocol, admitted)
	}
}

func dropsSeeing(t Tailscaled) Seeing {
	s := Seeing{How: howMetrics + ": tailscaled_inbound_dropped_packets_total{reason=\"acl\"}, which does not tell protocols apart"}
	switch {
	case t.Drops == nil:
		s.What = "how many packets the filter has dropped is not known"
	case t.DropsAfter != nil && *t.DropsAfter > *t.Drops:
		s.What = fmt.Sprintf("the filter dropped %.0f packets while this ran, %.0f in all", *t.DropsAfter-*t.Drops, *t.DropsAfter)
	case *t.Drops > 0:
		s.What = fmt.Sprintf("the filter has dropped %.0f packets so far, none while this ran", *t.Drops)
	default:
		s.What = "the filter has dropped nothing so far: no such packet has come yet"
	}
	return s
}

// outer returns the addresses of the overlay's outer packets from a peer to this node: IPv4 where both have it.
func outer(j *judgement, p config.Node) (from, to netip.Addr) {
	for _, f := range desired.Families() {
		for _, a := range p.Addresses {
			if own := j.own(f); desired.FamilyOf(a) == f && own.IsValid() {
				return a, own
			}
		}
	}
	return netip.Addr{}, netip.Addr{}
}

// admits says whether the filter lets the protocol in. One without ports needs an entry that names it and covers every
// port, and what an entry says of its sources' capabilities is not looked at for it (wgengine/filter).
func admits(filter []FilterRule, number int, from, to netip.Addr) match {
	answer := no
	for _, rule := range filter {
		if !slices.Contains(rule.Protocols, number) ||
			!slices.ContainsFunc(rule.Sources, func(p netip.Prefix) bool { return p.Contains(from) }) {
			continue
		}
		for _, d := range rule.Destinations {
			switch {
			case !d.Net.Contains(to):
			case d.First == 0 && d.Last == 65535:
				return yes
			case number == unix.IPPROTO_UDP:
				answer = perhaps
			}
		}
	}
	return answer
}

// fallback are the devices that a tunnel's kernel module makes by itself, and that are down unless somebody uses them.
func fallback(d Device) bool {
	return slices.Contains([]string{"tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0"}, d.Name)
}

func isTunnel(d Device) bool {
	switch d.Kind {
	case "ipip", "ip6tnl", "gre", "gretap", "vxlan", "geneve", "wireguard", "sit", "fou":
		return true
	}
	return strings.HasPrefix(d.Name, "tun-") || strings.HasPrefix(d.Name, "flannel.") || d.Name == "vxlan.calico"
}

func checkOverlay(j *judgement, r *Result) {
	count := 0
	for _, d := range j.e.Devices {
		if !isTunnel(d) || d.Name == desired.Interface {
			continue
		}
		link, _ := j.e.Facts.Link(d.Name)
		if fallback(d) && len(link.Addresses) == 0 {
			continue
		}
		count++
		if !d.Up {
			j.add(Finding{
				Code: "overlay.down", Level: Fail, Summary: fmt.Sprintf("the CNI's tunnel %s is down: pods of other nodes are not reached by it", d.Name),
				Evidence: []Seeing{{What: fmt.Sprintf("%s (%s) is not up", d.Name, d.Kind), How: howLinks}},
				Cause:    d.Name + " is down", Fix: "ip link set " + d.Name + " up; or restart the CNI, whose routes went with it",
			})
		}
		checkRemote(j, d)
		checkLocalEnd(j, d)
		if ts, ok := j.device(desired.Interface); ok && tunnelRoom(d) > 0 && d.MTU > ts.MTU-tunnelRoom(d) {
			j.add(Finding{
				Code: "overlay.mtu", Level: Warn, Summary: fmt.Sprintf("%s takes packets of %d bytes, and %s carries %d less its own header", d.Name, d.MTU, desired.Interface, ts.MTU),
				Evidence: []Seeing{{What: fmt.Sprintf("mtu %d, and its packets may be fragmented; %s has %d", d.MTU, desired.Interface, ts.MTU), How: howLinks}},
				Cause:    fmt.Sprintf("the mtu of %s is more than %d", d.Name, ts.MTU-tunnelRoom(d)),
				Fix:      fmt.Sprintf("ip link set %s mtu %d, and in the CNI's settings", d.Name, ts.MTU-tunnelRoom(d)),
				Blind:    "outer packets are fragmented, which most paths carry",
			})
		}
	}
	if r.Detail == "" {
		r.Detail = fmt.Sprintf("%d tunnels", count)
	}
}

// tunnelRoom returns how much smaller than Tailscale's a tunnel's packets must be, where it goes through the mesh and its
// packets are fragmented else; 0 where that does not apply.
func tunnelRoom(d Device) int {
	mesh := config.IsMesh(d.Local) || d.Lower == desired.Interface
	switch {
	case d.Kind == "ipip" && d.FragmentInner:
		return 20
	case d.Kind == "vxlan" && mesh && d.Local.Is6():
		return 70
	case d.Kind == "vxlan" && mesh:
		return 50
	}
	return 0
}

// checkLocalEnd looks for a tunnel whose near end is an address that this node does not have any more.
func checkLocalEnd(j *judgement, d Device) {
	if !config.IsMesh(d.Local) || j.local(d.Local) {
		return
	}
	own := j.own(desired.FamilyOf(d.Local))
	if !own.IsValid() {
		return
	}
	j.add(Finding{
		Code: "overlay.local", Level: Fail, Summary: fmt.Sprintf("the CNI's tunnel %s begins at %s, which this node does not have (any more)", d.Name, d.Local),
		Evidence: []Seeing{{What: fmt.Sprintf("%s has the local address %s; %s has %s", d.Name, d.Local, desired.Interface, own), How: howLinks}},
		Cause:    fmt.Sprintf("the node registered anew, and the CNI still has its old address: peers drop packets from %s", d.Local),
		Fix:      fmt.Sprintf("make the kubelet's --node-ip %s, and restart the kubelet and the CNI", own),
	})
}

// checkRemote looks for a tunnel whose other end is no node of the tailnet.
func checkRemote(j *judgement, d Device) {
	t := j.e.Tailscaled
	if t.Err != "" || t.State != "Running" || !config.IsMesh(d.Remote) {
		return
	}
	if slices.ContainsFunc(t.Peers, func(n TailscaleNode) bool { return slices.Contains(n.Addresses, d.Remote) }) {
		return
	}
	j.add(Finding{
		Code: "overlay.remote", Level: Warn, Summary: fmt.Sprintf("the CNI's tunnel %s ends at %s, which no node of the tailnet has", d.Name, d.Remote),
		Evidence: []Seeing{{What: fmt.Sprintf("remote %s", d.Remote), How: howLinks}, {What: "no peer has the address", How: howStatus}},
		Cause:    "the node behind it registered anew, or is gone; the CNI still has its old address",
		Fix:      "make the kubelet's --node-ip of that node its new mesh address; a tunnel of a node that is gone: restart the CNI",
	})
}

// checkMTU judges by the probe's large packet; sizes alone prove nothing, because path discovery copes with them.
func checkMTU(j *judgement, r *Result) {
	bridge, ok1 := j.device(j.iif)
	ts, ok2 := j.device(desired.Interface)
	if !ok1 || !ok2 {
		r.Status, r.Detail = StatusSkipped, "the pods' interface or "+desired.Interface+" is not known"
		return
	}
	r.Detail = fmt.Sprintf("%s %d, %s %d", bridge.Name, bridge.MTU, ts.Name, ts.MTU)
	if j.e.Probe == nil {
		if bridge.MTU > ts.MTU {
			r.Status = StatusSkipped
			r.Detail += ": pods must be told of the smaller size; --probe tries it"
		}
		return
	}
	for _, fl := range j.flows {
		p := j.probed(fl)
		if p == nil || p.Large == "" {
			continue
		}
		if p.Got == 0 || fl.blocked != "" {
			j.untested(map[string]bool{cmpOr(fl.blocked, "probe.unanswered"): true})
			continue
		}
		if p.Large == "lost" && bridge.MTU > ts.MTU {
			j.stop(fl, Finding{
				Code: "mtu.black-hole", Summary: "large packets vanish, and nobody tells their sender",
				Evidence: []Seeing{
					{What: fmt.Sprintf("a packet of %d bytes that must not be fragmented was neither answered nor refused; small ones are answered", bridge.MTU), How: howProbe},
					{What: r.Detail, How: howLinks},
				},
				Cause: fmt.Sprintf("%s carries %d bytes, pods send up to %d, and the message that says so (ICMP \"fragmentation needed\") does not reach them", ts.Name, ts.MTU, bridge.MTU),
				Fix:   fmt.Sprintf("let ICMP to pods pass; or give pods an mtu of %d; or clamp the MSS of TCP out of %s", ts.MTU, ts.Name),
			})
		}
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
