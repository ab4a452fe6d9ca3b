package doctor

import (
	"net/netip"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// maxFurther is how many addresses of peers are asked about for each further network of pods.
const maxFurther = 64

// furtherNetworks adds flows for the pods' networks beside the first of each family: the peers are the same, but rules and
// interfaces may be the network's own.
func (j *judgement) furtherNetworks() {
	if j.e.Pod.IsValid() {
		return
	}
	first := j.flows
	for _, network := range j.doc.PodCIDRs {
		pod, iif := j.podOf(network)
		if iif == "" {
			continue
		}
		asked := 0
		for _, fl := range first {
			if fl.packet.Src.Is4() != pod.Is4() || network.Contains(fl.packet.Src) || asked == maxFurther {
				continue
			}
			asked++
			more := j.flow(desired.Probe{Peer: fl.peer, Packet: desired.Packet{Src: pod, Dst: fl.packet.Dst, Iif: iif}})
			more.further = true
			j.flows = append(j.flows, more)
		}
	}
}

// podOf returns an address of a pod in the network and the interface that it is behind, "" where that is not known.
func (j *judgement) podOf(network netip.Prefix) (pod netip.Addr, iif string) {
	for _, l := range j.e.Facts.Links {
		for _, p := range l.Addresses {
			if l.Name == desired.Interface || p.IsSingleIP() || !network.Contains(p.Addr()) {
				continue
			}
			near := p
			if near.Bits() < network.Bits() {
				near = network
			}
			return j.inside(near.Masked()), l.Name
		}
	}
	return j.ownRoute(netip.Addr{}, func(a netip.Addr) bool { return network.Contains(a) })
}

// podRoute finds a pod by its own route and the interface that this leads to, where pods have no bridge (Calico, Cilium, the
// clouds' CNIs): of the pod that was asked for, else of any. Else it returns the address that it was given.
func (j *judgement) podRoute(src netip.Addr) (pod netip.Addr, iif string) {
	return j.ownRoute(src, func(a netip.Addr) bool {
		return a.Is4() == src.Is4() && j.isPod(a) && (!j.e.Pod.IsValid() || j.e.Pod == a)
	})
}

// ownRoute returns the first address for which is says yes that has a route of its own, and the interface that it leads to; or the
// other address and "".
func (j *judgement) ownRoute(other netip.Addr, is func(netip.Addr) bool) (pod netip.Addr, iif string) {
	const main = 254
	for _, r := range j.e.Routes {
		a := r.Dst.Addr()
		if r.Table != main || r.Type != "unicast" || !r.Dst.IsSingleIP() || !is(a) || j.local(a) || r.Dev == "" || r.Dev == desired.Interface {
			continue
		}
		if d, ok := j.device(r.Dev); ok && !isTunnel(d) {
			return a, r.Dev
		}
	}
	return other, ""
}
