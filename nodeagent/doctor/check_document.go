package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func documentChecks() []Check {
	return []Check{{ID: "document", Title: "the node's document", run: checkDocument}}
}

func checkDocument(j *judgement, r *Result) {
	if j.e.Document == nil {
		j.stop(nil, Finding{
			Code: "document.unusable", Summary: "there is no document that can be used",
			Evidence: []Seeing{{What: j.e.DocumentErr, How: "the file itself"}},
			Fix:      "write the node's document (the provider's node_configs), then: tailmesh-agent validate",
			Blind:    "without it only the node's general state is judged",
		})
		return
	}
	if foreign := j.foreign(); foreign != nil {
		j.stop(nil, Finding{
			Code: "document.foreign", Summary: "the document is for another node",
			Evidence: []Seeing{{What: foreign.Error(), How: "the document, against LocalAPI status and the addresses of " + desired.Interface}},
			Cause:    "the document of another node, or one from before this node registered anew without an ID in it",
			Fix:      "give the node its own document, with node.id so that its address is followed",
		})
		return
	}
	if j.err != nil {
		j.stop(nil, Finding{
			Code: "document.unusable", Summary: "the document cannot be carried out on this node",
			Evidence: []Seeing{{What: j.err.Error(), How: "the document, against what the kernel has"}},
		})
		return
	}
	for _, n := range j.notes {
		switch n.Code {
		case desired.NoteMoved:
			j.add(Finding{
				Code: "document.stale", Level: Warn, Summary: "the document names an address that its holder no longer has",
				Evidence: []Seeing{{What: n.Message, How: "the document's IDs, against " + howStatus}},
				Cause:    n.Message,
				Fix:      "apply the Terraform configuration again and distribute the documents; a running agent follows the address meanwhile",
			})
		case desired.NotePeerReplaced, desired.NotePeerUnknown:
			// The peers' own check has more to say.
		case desired.NotePeerLocal:
			if j.taken() {
				continue
			}
			j.add(Finding{
				Code: "document.peer-local", Level: Warn, Summary: "a peer has an address of this host",
				Evidence: []Seeing{{What: n.Message, How: "the document, against the interfaces' addresses"}}, Cause: n.Message,
				Fix: "take this host out of its own peers",
			})
		case desired.NotePodsUnknown:
			j.unknown("%s", n.Message)
		case desired.NotePodsInterface:
			if j.iif == "" {
				j.unknown("%s", n.Message)
			}
		}
	}
	checkVIPs(j)
	if r.Detail == "" {
		r.Detail = fmt.Sprintf("node %s of mesh %s, %d peers", j.doc.Node.Name, j.doc.Mesh, len(j.doc.Peers))
	}
}

// taken reports addresses of other nodes that this host has taken for its own, at another interface than Tailscale's, and
// says whether there are any: what is sent to such a peer ends here. kube-proxy in mode ipvs does it with a Service that
// names a node's address among its externalIPs.
func (j *judgement) taken() bool {
	is := false
	for _, p := range j.doc.Peers {
		for _, a := range p.Addresses {
			i := slices.IndexFunc(j.e.Facts.Links, func(l desired.Link) bool {
				return l.Name != desired.Interface && slices.ContainsFunc(l.Addresses, func(q netip.Prefix) bool { return q.Addr() == a })
			})
			if i < 0 || !j.peersOwn(a) {
				continue
			}
			is = true
			dev := j.e.Facts.Links[i].Name
			j.add(Finding{
				Code: "document.peer-captured", Level: Fail, Peers: []string{p.Name}, Addresses: []netip.Addr{a},
				Summary: fmt.Sprintf("%s has its mesh address, so that what is sent to it ends on this node", dev),
				Evidence: []Seeing{
					{What: fmt.Sprintf("%s has %s", dev, a), How: howLinks}, {What: fmt.Sprintf("%s is the address of the peer %s", a, p.Name), How: howStatus},
				},
				Cause: fmt.Sprintf("%s was added to %s: kube-proxy in mode ipvs does so for a Service that has a node's address among its externalIPs", a, dev),
				Fix:   fmt.Sprintf("ip addr del %s/%d dev %s; and take it out of the Service, which adds it again (kubectl get services -A)", a, a.BitLen(), dev),
			})
		}
	}
	return is
}

// peersOwn says whether tailscaled knows a peer by the address.
func (j *judgement) peersOwn(a netip.Addr) bool {
	return j.e.Tailscaled.Err == "" && slices.ContainsFunc(j.e.Tailscaled.Peers, func(n TailscaleNode) bool { return slices.Contains(n.Addresses, a) })
}

// checkVIPs looks for addresses that are sent to the mesh though they are no peer's: floating addresses of this location,
// in the firewall's set of peers or in a policy rule that leads to Tailscale's table.
func checkVIPs(j *judgement) {
	inLocation := func(a netip.Addr) bool {
		return slices.ContainsFunc(j.doc.LocalCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) ||
			slices.ContainsFunc(j.e.Facts.Links, func(l desired.Link) bool {
				return l.Name != desired.Interface && slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool {
					return p.Contains(a) && !p.Addr().IsLoopback()
				})
			})
	}
	type capture struct {
		network netip.Prefix
		where   string
	}
	var list []capture
	for _, t := range ownTables(j.e.Facts) {
		for _, s := range t.Sets {
			if !strings.Contains(s.Name, "peers") {
				continue
			}
			for _, p := range s.Elements {
				list = append(list, capture{p, fmt.Sprintf("an element of the agent's set %s", s.Name)})
			}
		}
	}
	for _, rule := range j.e.Facts.Rules {
		if rule.Action == desired.Lookup && rule.Table == uint32(j.doc.Routing.Table) && rule.Dst.IsValid() && rule.Dst.Bits() > 0 {
			list = append(list, capture{rule.Dst, fmt.Sprintf("the policy rule `%s`", rule)})
		}
	}
	for _, c := range list {
		a := c.network.Addr()
		if !inLocation(a) || j.peersOwn(a) {
			continue
		}
		f := Finding{
			Code:     "document.vip-in-peers",
			Summary:  fmt.Sprintf("%s is an address of this location, but packets to it are sent to the mesh", c.network),
			Evidence: []Seeing{{What: c.where, How: "the agent's firewall table and the policy rules, by netlink"}},
			Cause:    fmt.Sprintf("%s is treated as a peer: %s", c.network, c.where),
			Fix:      "take it out: only a peer's own mesh address belongs there, and a running agent keeps its set so",
		}
		packet := desired.Packet{Src: j.podAddress(a), Dst: a, Iif: j.iif}
		_, packet.Mark = j.prerouting(packet, desired.Original)
		way, known := j.ask(packet)
		switch {
		case known && way.Dev == desired.Interface:
			f.Level = Fail
			f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("a packet of a pod to %s goes %s", a, way), How: howRoute})
		case known:
			f.Level = Warn
			f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("without effect now: a packet of a pod to %s goes %s", a, way), How: howRoute})
		default:
			f.Level, f.Blind = Warn, "where packets to it go now could not be asked"
		}
		j.add(f)
	}
}

// podAddress returns the address of a pod in the family of the other address, or the zero address.
func (j *judgement) podAddress(other netip.Addr) netip.Addr {
	for _, f := range j.flows {
		if f.packet.Src.Is4() == other.Is4() {
			return f.packet.Src
		}
	}
	return netip.Addr{}
}
