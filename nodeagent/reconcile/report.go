package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// Verdict is the answer to whether packets of pods reach a peer through the mesh, as far as this node decides it.
type Verdict string

// The three verdicts.
const (
	OK      Verdict = "ok"
	Wrong   Verdict = "wrong"
	Unknown Verdict = "unknown"
)

// Peer is how packets of pods to one address of a peer go.
type Peer struct {
	Name    string         `json:"name"`
	Address netip.Addr     `json:"address"`
	Before  desired.Answer `json:"before,omitzero"`
	After   desired.Answer `json:"after,omitzero"`
	Back    desired.Answer `json:"back,omitzero"` // the way of its replies to the pod, once they have come in from the mesh
	Verdict Verdict        `json:"verdict"`
	Why     string         `json:"why,omitempty"` // unless the verdict is OK
}

// Report is how a node stands.
type Report struct {
	Firewall desired.Backend            `json:"firewall,omitempty"` // where the firewall rules belong
	Changes  []string                   `json:"changes"`            // what was done, as commands
	Pending  []string                   `json:"pending,omitempty"`  // what would have to be done, or did not hold
	Dropped  int                        `json:"dropped,omitempty"`  // stale connections that were made to begin anew
	Peers    []Peer                     `json:"peers"`
	Notes    []desired.Note             `json:"notes,omitempty"`
	Counters map[string]desired.Counter `json:"counters,omitempty"` // of the firewall rules, by their comment
}

// Verdict sums the report up: OK if everything is in place and works.
func (r Report) Verdict() Verdict {
	has := func(v Verdict) bool {
		return slices.ContainsFunc(r.Peers, func(p Peer) bool { return p.Verdict == v })
	}
	unsure := func(n desired.Note) bool { return n.Unsure() }
	switch {
	case len(r.Pending) > 0, has(Wrong):
		return Wrong
	case has(Unknown), slices.ContainsFunc(r.Notes, unsure):
		return Unknown
	}
	return OK
}

// judge asks the kernel for the way of each probe's packet, and of the reply to it where that goes right, and says what
// they mean.
func judge(ctx context.Context, k kernel.Interface, p Plan, facts desired.Facts) (Report, error) {
	after, err := answers(ctx, k, p.State, facts)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Firewall: p.State.Backend(),
		Pending:  desired.Diff(facts, p.State).Lines(),
		Peers:    make([]Peer, len(p.State.Probes)),
		Notes:    p.State.Notes,
		Counters: counters(p.State, facts.Counters),
	}
	var right []desired.Probe
	var places []int
	for i, probe := range p.State.Probes {
		peer := Peer{Name: probe.Peer, Address: probe.Packet.Dst, After: after[i]}
		peer.Verdict, peer.Why = explain(p.State, facts, probe, after[i], p.Document.Routing.Table)
		r.Peers[i] = peer
		if peer.Verdict == OK {
			right, places = append(right, probe), append(places, i)
		}
	}
	back, err := ask(ctx, k, right, func(probe desired.Probe) desired.Packet {
		reply := desired.Packet{Src: probe.Packet.Dst, Dst: probe.Packet.Src, Iif: desired.Interface}
		reply.Mark = facts.MarkOf(reply, desired.Reply)
		return reply
	})
	if err != nil {
		return Report{}, err
	}
	for i, place := range places {
		peer := &r.Peers[place]
		peer.Back = back[i]
		peer.Verdict, peer.Why = explainReply(right[i], back[i])
		if peer.Verdict == OK && p.State.KeepsSource(right[i].Packet) {
			peer.Verdict, peer.Why = Wrong, "packets of pods keep their own source, which it does not take: it is in local_cidrs, as the pods are; "+
				"name no mesh addresses there"
		}
	}
	for _, stranded := range p.State.Stranded {
		r.Peers = append(r.Peers, Peer{Name: stranded.Peer, Address: stranded.Address, Verdict: Wrong, Why: stranded.Why})
	}
	return r, nil
}

// counters returns those of the rules that are wanted. What others put into the agent's tables counts there, too.
func counters(state desired.State, all map[string]desired.Counter) map[string]desired.Counter {
	own := map[string]desired.Counter{}
	for _, t := range state.Tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if n, there := all[r.Comment]; there && !r.Foreign && utf8.ValidString(r.Comment) {
					own[r.Comment] = n
				}
			}
		}
	}
	return own
}

// explainReply gives the verdict on the way back, when the way there is right.
func explainReply(probe desired.Probe, back desired.Answer) (Verdict, string) {
	switch {
	case back.Filtered:
		return Wrong, "its replies are dropped by reverse path filtering: set net.ipv4.conf.all.src_valid_mark=1, or rp_filter=2 for " +
			desired.Interface
	case back.Reason != "":
		return Wrong, "its replies do not reach pods: " + back.Reason
	case back.Dev != probe.Packet.Iif:
		return Wrong, fmt.Sprintf("its replies to pods leave by %s", back)
	}
	return OK, ""
}

// explain gives the verdict on the way of a packet, and the cause if it is not the right one.
func explain(state desired.State, facts desired.Facts, probe desired.Probe, answer desired.Answer, table int) (Verdict, string) {
	link, exists := facts.Link(desired.Interface)
	packet := probe.Packet
	switch {
	case packet.Iif == "":
		return Unknown, "the interface of the pods is not known"
	case answer.Dev == desired.Interface:
		return OK, ""
	case !exists:
		return Unknown, desired.Interface + " does not exist"
	case !link.Up:
		return Wrong, desired.Interface + " is down"
	case !slices.ContainsFunc(link.Mesh(), func(a netip.Addr) bool { return a.Is4() == packet.Dst.Is4() }):
		return Unknown, fmt.Sprintf("%s has no IPv%d mesh address", desired.Interface, desired.FamilyOf(packet.Dst))
	case facts.MarkOf(packet, desired.Original) == 0:
		return Wrong, "packets to it get no mark"
	}
	for _, r := range state.Rules {
		if !r.Matches(packet) {
			continue
		}
		if !slices.Contains(facts.Rules, r) {
			return Wrong, fmt.Sprintf("the rule `%s` is missing", r)
		}
		if by, ok := desired.Shadow(facts.Rules, packet, r.Priority, answer.Table); ok {
			if r.Priority > 0 {
				return Wrong, fmt.Sprintf("the rule `%s` comes first: let routing.priority be \"auto\"", by)
			}
			return Wrong, fmt.Sprintf("the rule `%s` comes first; %s", by, move(facts.Rules, by, r))
		}
	}
	if answer.Reason != "" {
		return Wrong, answer.Reason
	}
	return Wrong, fmt.Sprintf("table %d has no route to it: tailscaled does not know this address", table)
}

// reached returns the addresses of peers that packets go to by the mesh.
func (r Report) reached() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, p := range r.Peers {
		if p.Verdict == OK {
			out[p.Address] = true
		}
	}
	return out
}

// move says how somebody's rule gets behind the agent's.
func move(rules []desired.Rule, by, own desired.Rule) string {
	there, ok := desired.Behind(rules, by, own.Priority, own.Table)
	switch {
	case !ok:
		return "Tailscale's rules leave no place for it between them and the agent's"
	case slices.Contains(rules, there):
		return "it stands in the right place as well: " + by.Command("del")
	}
	return fmt.Sprintf("move it: %s, then %s", there.Command("add"), by.Command("del"))
}
