package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func localChecks() []Check {
	return []Check{{ID: "local", Title: "networks of this location and of other pods", Needs: NeedDocument, Optional: true, run: checkLocal}}
}

// maxNetworks is how many networks are asked about at most.
const maxNetworks = 64

// checkCarrier looks for networks of this location that lie in the range of mesh addresses, as those of some carriers and clouds
// do, and from which Tailscale drops what the node gets: answers of a cloud's resolvers, for instance.
func checkCarrier(j *judgement) {
	if j.e.Rules == nil {
		return
	}
	for _, r := range j.e.Routes {
		const main = 254
		d, _ := j.device(r.Dev)
		if r.Family != desired.IPv4 || r.Table != main || r.Type != "unicast" || r.Dev == "" || r.Dev == desired.Interface || isTunnel(d) ||
			!desired.IPv4.MeshRange().Contains(r.Dst.Addr()) || r.Dst.Bits() < desired.IPv4.MeshRange().Bits() || j.isPod(r.Dst.Addr()) {
			continue
		}
		link, _ := j.e.Facts.Link(r.Dev)
		i := slices.IndexFunc(link.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
		if i < 0 {
			continue
		}
		o := j.e.Rules.Filter(Input, Traced{
			Src: j.inside(r.Dst), Dst: link.Addresses[i].Addr(), Iif: r.Dev, Protocol: unix.IPPROTO_TCP, ICMPType: -1, Reply: true, ToHere: true,
		})
		if !o.Dropped || !o.Certain() || o.Chain == nil || o.Chain.Name != "ts-input" {
			continue
		}
		j.add(Finding{
			Code: "local.mesh-range", Level: Fail, Summary: fmt.Sprintf("what this node gets from %s is dropped, because it lies in the range of mesh addresses", r.Dst),
			Evidence: []Seeing{
				{What: fmt.Sprintf("%s is reached by %s", r.Dst, r.Dev), How: howRules},
				{What: fmt.Sprintf("an answer from there ends at `%s`", o.Culprit()), How: howNFT},
			},
			Cause: fmt.Sprintf("Tailscale takes 100.64.0.0/10 for its own, and %s is a network of the carrier or the cloud (its resolvers, mirrors, metadata)", r.Dst),
			Fix:   fmt.Sprintf("iptables -I ts-input -i %s -s %s -j ACCEPT; again after each start of tailscaled, or give the tailnet another range (ipPool)", r.Dev, r.Dst),
		})
	}
}

// checkLocal looks for networks that Tailscale's table covers though they are reached without it: accepted subnet routes
// and exit nodes. A cause without effect is none: the kernel is asked for each.
func checkLocal(j *judgement, _ *Result) {
	table := uint32(j.doc.Routing.Table)
	var covering []Route
	for _, r := range j.e.Routes {
		if r.Table == table && r.Type == "unicast" && !r.Dst.IsSingleIP() {
			covering = append(covering, r)
		}
	}
	checkCarrier(j)
	if len(covering) == 0 {
		return
	}
	overlaps := func(p netip.Prefix) bool {
		for _, r := range covering {
			if r.Dst.Overlaps(p) {
				return true
			}
		}
		return false
	}
	type network struct {
		prefix netip.Prefix
		kind   string
	}
	var list []network
	for _, p := range j.doc.LocalCIDRs {
		list = append(list, network{p, "a network of this location"})
	}
	for _, p := range j.doc.PodCIDRs {
		list = append(list, network{p, "the pods' own network"})
	}
	for _, r := range j.e.Routes {
		const main = 254
		if r.Table == main && r.Type == "unicast" && r.Dst.Bits() > 0 && r.Dev != desired.Interface && r.Dev != "" &&
			!r.Dst.Addr().IsLinkLocalUnicast() && !r.Dst.Addr().IsMulticast() {
			list = append(list, network{r.Dst, "reached by " + r.Dev})
		}
	}
	asked := map[netip.Prefix]bool{}
	for _, n := range list {
		if asked[n.prefix] || !overlaps(n.prefix) || len(asked) == maxNetworks {
			continue
		}
		asked[n.prefix] = true
		to := j.inside(n.prefix)
		packet := desired.Packet{Src: j.podAddress(to), Dst: to, Iif: j.iif}
		_, packet.Mark = j.prerouting(packet, desired.Original)
		way, known := j.ask(packet)
		if !known || way.Dev != desired.Interface || j.found["local.swallowed"] && n.kind == "the pods' own network" {
			continue
		}
		d := j.decide(packet, anyRule)
		f := swallowed(n.prefix, n.kind, way, d, Seeing{What: fmt.Sprintf("a packet of a pod to %s goes %s", to, way), How: howRoute})
		f.Level = Fail
		j.add(f)
	}
}
