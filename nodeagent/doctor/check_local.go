package doctor

import (
	"fmt"
	"net/netip"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func localChecks() []Check {
	return []Check{{ID: "local", Title: "networks of this location and of other pods", Needs: NeedDocument, Optional: true, run: checkLocal}}
}

// maxNetworks is how many networks are asked about at most.
const maxNetworks = 64

// checkLocal looks for networks that Tailscale's table covers though they are reached without it: accepted subnet routes
// and exit nodes. A cause without effect is none: the kernel is asked for each.
func checkLocal(j *judgement, _ *Result) {
	table := uint32(j.doc.Routing.Table)
	var covering []Route
	for _, r := range j.e.Routes {
		if r.Table == table && r.Type == "unicast" && !r.Dst.IsSingleIP() && r.Dst != desired.IPv4.MeshRange() && r.Dst != desired.IPv6.MeshRange() {
			covering = append(covering, r)
		}
	}
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
		f := swallowed(n.prefix.String(), n.kind, way, d, Seeing{What: fmt.Sprintf("a packet of a pod to %s goes %s", to, way), How: howRoute})
		f.Level = Fail
		j.add(f)
	}
}
