package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func familyChecks() []Check {
	return []Check{{ID: "family", Title: "families of addresses that pods have", Needs: NeedDocument, Optional: true, run: checkFamilies}}
}

// checkFamilies looks for addresses of pods in a family that the document carries nothing of, while peers have addresses in
// it: a name that stands for both families is tried in IPv6 first, and nothing marks or translates such packets.
func checkFamilies(j *judgement, r *Result) {
	link, ok := j.e.Facts.Link(j.iif)
	if !ok {
		r.Status, r.Detail = StatusSkipped, "the pods' interface is not known"
		return
	}
	for _, f := range desired.Families() {
		if slices.ContainsFunc(j.doc.PodCIDRs, func(p netip.Prefix) bool { return desired.FamilyOf(p.Addr()) == f }) {
			continue
		}
		i := slices.IndexFunc(link.Addresses, func(p netip.Prefix) bool {
			return desired.FamilyOf(p.Addr()) == f && !p.Addr().IsLinkLocalUnicast() && !p.IsSingleIP()
		})
		var peers []string
		for _, p := range j.doc.Peers {
			if slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { return desired.FamilyOf(a) == f }) {
				peers = append(peers, p.Name)
			}
		}
		if i < 0 || len(peers) == 0 {
			continue
		}
		network := link.Addresses[i].Masked()
		j.add(Finding{
			Code: "family.uncarried", Level: Warn, Peers: peers,
			Summary: fmt.Sprintf("pods have addresses in %s, and none of their networks of that family is carried", network),
			Evidence: []Seeing{
				{What: fmt.Sprintf("%s has %s, and the document's pod_cidrs are %v", j.iif, link.Addresses[i], j.doc.PodCIDRs), How: "interfaces, by netlink; the document"},
				{What: fmt.Sprintf("%d of the peers have a mesh address of that family", len(peers)), How: "the document and tailscaled"},
			},
			Cause: "a client that resolves a peer to both families tries IPv6 first, and of the two only the other one is marked and translated",
			Fix:   fmt.Sprintf("add %s to the node's pod_cidrs, or take that family from the pods", network),
			Blind: "whether any pod asks for such an address",
		})
	}
}
