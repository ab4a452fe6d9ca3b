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
	return j.e.Facts.OwnRoute(network.Contains)
}
