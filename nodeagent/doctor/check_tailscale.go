package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func tailscaleChecks() []Check {
	return []Check{
		{ID: "tailscaled", Title: "tailscaled and its interface", run: checkTailscaled},
		{ID: "peers", Title: "the peers in the tailnet", Needs: NeedDocument | NeedTailscaled, Optional: true, run: checkPeers},
	}
}

func checkTailscaled(j *judgement, r *Result) {
	t := j.e.Tailscaled
	link, exists := j.e.Facts.Link(desired.Interface)
	status := Seeing{What: fmt.Sprintf("state %q", t.State), How: howStatus}
	for _, h := range t.Health {
		status.What += "; " + h
	}
	expired := t.Self.Expired || !t.Self.KeyExpiry.IsZero() && t.Self.KeyExpiry.Before(j.e.Now)
	switch {
	case t.Err != "" && !exists:
		j.stop(nil, Finding{
			Code: "tailscaled.down", Summary: "tailscaled does not run",
			Evidence: []Seeing{{What: t.Err, How: "LocalAPI"}, {What: desired.Interface + " does not exist", How: howLinks}},
			Cause:    "tailscaled is stopped or has crashed",
			Fix:      "systemctl start tailscaled; journalctl -u tailscaled",
		})
		return
	case t.Err != "":
		j.unknown("tailscaled does not answer (%s), though %s exists: its state, the peers and the packet filter are not known", t.Err, desired.Interface)
	case expired:
		j.stop(nil, Finding{
			Code: "tailscaled.key-expired", Summary: "this node's key has expired",
			Evidence: []Seeing{status, {What: fmt.Sprintf("key expiry %s", t.Self.KeyExpiry.UTC().Format("2006-01-02T15:04:05Z")), How: howStatus}},
			Cause:    "the node's key in the tailnet has expired, so that peers no longer talk to it",
			Fix:      "tailscale up --force-reauth; or turn key expiry off for this node in the control plane",
		})
		return
	case t.State == "NeedsLogin", t.State == "NoState", t.State == "NeedsMachineAuth":
		what := map[string]string{
			"NeedsLogin": "logged out", "NoState": "not started yet", "NeedsMachineAuth": "waiting for approval in the control plane",
		}[t.State]
		j.stop(nil, Finding{
			Code: "tailscaled.logged-out", Summary: "tailscaled is " + what,
			Evidence: []Seeing{status}, Cause: "this node is not in a tailnet now", Fix: "tailscale up",
		})
		return
	case t.State != "Running":
		j.stop(nil, Finding{
			Code: "tailscaled.stopped", Summary: "tailscaled is not connected to the tailnet",
			Evidence: []Seeing{status}, Cause: "somebody took it down (`tailscale down`), or it is starting", Fix: "tailscale up",
		})
		return
	}
	how := []Seeing{{What: interfaceText(link, exists), How: howLinks}}
	if t.Err == "" {
		how = append(how, status)
	}
	switch {
	case !exists:
		j.stop(nil, Finding{
			Code: "tailscaled.interface", Summary: desired.Interface + " does not exist, though tailscaled runs", Evidence: how,
			Cause: "its device was deleted, has another name (--tun), or tailscaled works in user space, which this agent cannot use",
			Fix:   "systemctl restart tailscaled, with the device " + desired.Interface,
		})
	case !link.Up:
		j.stop(nil, Finding{
			Code: "tailscaled.interface", Summary: desired.Interface + " is down", Evidence: how,
			Cause: "somebody set it down: its routes went with that, and tailscaled does not notice",
			Fix:   "ip link set " + desired.Interface + " up, then systemctl restart tailscaled for its routes",
		})
	case len(link.Mesh()) == 0:
		j.stop(nil, Finding{
			Code: "tailscaled.interface", Summary: desired.Interface + " has no mesh address", Evidence: how,
			Cause: "its addresses were removed, or tailscaled has not finished starting", Fix: "systemctl restart tailscaled",
		})
	default:
		checkTailscaleRules(j)
		if t.Err == "" {
			r.Detail = fmt.Sprintf("%s, %s", t.State, interfaceText(link, true))
		}
		if t.Err == "" && !t.Self.Online && t.Self.ID != "" {
			j.add(Finding{
				Code: "tailscaled.offline", Level: Warn, Summary: "the control plane does not see this node",
				Evidence: []Seeing{{What: "Self.Online is false", How: howStatus}},
				Cause:    "no connection to the control plane: what changes in the tailnet is not heard of",
				Blind:    "peers that know this node already may still be reached",
			})
		}
	}
}

func interfaceText(l desired.Link, exists bool) string {
	if !exists {
		return desired.Interface + " does not exist"
	}
	words := []string{desired.Interface, "up"}
	if !l.Up {
		words[1] = "down"
	}
	for _, a := range l.Mesh() {
		words = append(words, a.String())
	}
	if len(l.Mesh()) == 0 {
		words = append(words, "without a mesh address")
	}
	return strings.Join(words, " ")
}

// checkTailscaleRules looks for Tailscale's own rule, which the node's own packets need.
func checkTailscaleRules(j *judgement) {
	for _, family := range desired.Families() {
		if !j.own(family).IsValid() || tailscaleRule(j, family) {
			continue
		}
		f := Finding{
			Code: "tailscaled.rules-lost", Level: Warn, Summary: fmt.Sprintf("Tailscale's own policy rule is missing (IPv%d)", family),
			Evidence: []Seeing{{What: "no rule without selectors looks into the table", How: howRules}},
			Cause:    fmt.Sprintf("somebody deleted Tailscale's rules of IPv%d", family),
			Fix:      "systemctl restart tailscaled",
			Blind:    "packets of pods are judged apart: the agent's own rule may serve them",
		}
		for _, p := range j.doc.Peers {
			i := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return desired.FamilyOf(a) == family && !j.local(a) })
			if i < 0 {
				continue
			}
			if way, known := j.askKernel(desired.Packet{Src: j.own(family), Dst: p.Addresses[i]}); known && way.Dev != desired.Interface {
				f.Level = Fail
				f.Evidence = append(f.Evidence, Seeing{What: fmt.Sprintf("a packet of this node to %s goes %s", p.Addresses[i], way), How: howOwnRoute})
				f.Cause += ", so that the node's own packets to peers, the overlay's among them, do not go to the mesh"
			}
			break
		}
		j.add(f)
	}
}

func tailscaleRule(j *judgement, family desired.Family) bool {
	table := uint32(52)
	if j.doc.Routing.Table != 0 {
		table = uint32(j.doc.Routing.Table)
	}
	return slices.ContainsFunc(j.e.Facts.Rules, func(r desired.Rule) bool {
		return r.Family == family && !r.Own() && r.Action == desired.Lookup && r.Table == table && !r.Src.IsValid() && !r.Dst.IsValid() &&
			r.Iif == "" && (r.Mask == 0 || r.Invert)
	})
}

func checkPeers(j *judgement, r *Result) {
	if j.blocked != "" {
		j.untested(map[string]bool{j.blocked: true})
		return
	}
	byID := map[string]TailscaleNode{}
	byAddress := map[string]TailscaleNode{}
	for _, n := range j.e.Tailscaled.Peers {
		if n.ID != "" {
			byID[n.ID] = n
		}
		for _, a := range n.Addresses {
			byAddress[a.String()] = n
		}
	}
	how := func(format string, args ...any) []Seeing {
		return []Seeing{{What: fmt.Sprintf(format, args...), How: howStatus}}
	}
	online := 0
	peers := slices.Clone(j.e.Document.Peers)
	for _, p := range j.doc.Peers { // and those that were found by tag
		if !slices.ContainsFunc(peers, func(q config.Node) bool { return q.Name == p.Name && q.ID == p.ID }) {
			peers = append(peers, p)
		}
	}
	for _, p := range peers {
		node, known := byID[p.ID]
		var holder TailscaleNode
		for _, a := range p.Addresses {
			if n, ok := byAddress[a.String()]; ok {
				holder = n
			}
		}
		if p.ID == "" {
			node, known = holder, holder.ID != "" || len(holder.Addresses) > 0
		}
		stop := func(f Finding) {
			stopped := false
			for _, fl := range j.flows {
				if fl.peer == p.Name {
					j.stop(fl, f)
					stopped = true
				}
			}
			if !stopped {
				f.Level, f.Peers = Fail, []string{p.Name}
				j.add(f)
			}
		}
		switch {
		case !known && holder.ID != "":
			stop(Finding{
				Code: "peers.replaced", Summary: "its address belongs to another node now",
				Evidence: how("no peer has the ID %s, and %s (%s) has its address", p.ID, holder.Name, holder.ID),
				Cause:    fmt.Sprintf("%s registered anew under another ID, or was removed, and %s got its address", p.Name, holder.Name),
				Fix:      "apply the Terraform configuration again, so that the document names the new ID",
			})
		case !known:
			stop(Finding{
				Code: "peers.unknown", Summary: "not in the tailnet as this node sees it",
				Evidence: how("no peer has the ID %q or the address %s", p.ID, p.Addresses),
				Cause:    "the peer was removed or registered anew, its key has expired long ago, or the policy gives the two nodes nothing to say to each other",
				Blind:    "tailscaled does not tell these apart: a peer that the policy hides is not in its list",
				Fix:      "look for it in the control plane; if it is there, in the policy: tailmesh-policy can",
				Remote:   []Question{{On: p.Name, Command: "tailscale status", Why: "whether it is connected at all, and to this tailnet"}},
			})
		case node.Expired:
			stop(Finding{
				Code: "peers.expired", Summary: "its key has expired", Evidence: how("Expired is true for %s", node.Name),
				Cause: "the peer's key in the tailnet has expired", Fix: "on the peer: tailscale up --force-reauth",
			})
		case !node.Online:
			stop(Finding{
				Code: "peers.offline", Summary: "offline", Evidence: how("Online is false for %s", node.Name),
				Cause:  "the peer has no connection to the control plane: it is down, stopped or cut off",
				Blind:  "a peer that only lost the control plane may still answer",
				Remote: []Question{{On: p.Name, Command: "systemctl status tailscaled", Why: "whether it runs"}},
			})
		default:
			online++
		}
	}
	r.Detail = fmt.Sprintf("%d of %d online", online, len(peers))
	for _, fl := range j.flows {
		if fl.blocked != "" {
			continue
		}
		if outdated(j, fl) {
			break
		}
	}
}

// outdated reports a set of peers that holds an address of before. It says whether it did.
func outdated(j *judgement, fl *flow) bool {
	tables := ownTables(j.e.Facts)
	if len(tables) == 0 || j.e.Facts.MarkOf(bare(fl.packet), desired.Original) != 0 {
		return false
	}
	moved := slices.ContainsFunc(j.notes, func(n desired.Note) bool {
		return n.Code == desired.NoteMoved && strings.Contains(n.Message, fl.packet.Dst.String())
	})
	inSet := slices.ContainsFunc(tables, func(t *desired.Table) bool {
		return slices.ContainsFunc(t.Sets, func(s desired.Set) bool { return strings.Contains(s.Name, "peers") && s.Contains(fl.packet.Dst) })
	})
	if !moved || inSet {
		return false
	}
	j.stop(fl, Finding{
		Code: "peers.moved", Summary: fmt.Sprintf("registered anew as %s, which the firewall's set of peers lacks", fl.packet.Dst),
		Evidence: []Seeing{
			{What: fmt.Sprintf("the peer's ID has the address %s now", fl.packet.Dst), How: howStatus},
			{What: "it is not in the agent's set of peers", How: "the agent's firewall table, by netlink"},
		},
		Cause: "the peer's address changed, and no agent runs that would follow it",
		Fix:   "systemctl start tailmesh-agent, or tailmesh-agent apply; and renew the documents",
	})
	return true
}

func bare(p desired.Packet) desired.Packet {
	p.Mark = 0
	return p
}
