// Package reconcile brings a node to what its document asks for: it reads, compares, applies the difference, and then
// judges the effect by the kernel's own answer for a packet of a pod, never by the presence of a rule. It decides
// neither what a node must have (package desired does) nor how the kernel is told (package kernel).
package reconcile

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/pods"
)

// Node is the node that is worked on. It is not safe for concurrent use.
type Node struct {
	Kernel kernel.Interface
	Files  fs.FS // the node's files from its root, in which the CNI's configuration is; nil: there are none
	// Tailnet asks tailscaled who is in the tailnet; nil: nobody is asked. Until it answers, the document's addresses
	// serve, and then those of its last answer.
	Tailnet func(ctx context.Context) (*desired.Tailnet, error)

	lastTailnet *desired.Tailnet
}

// Plan is what would be done to a node, and how things stand before it.
type Plan struct {
	Document config.Document // with the addresses of now, and with the networks of the pods if they were found
	State    desired.State
	Facts    desired.Facts
	Changes  desired.Changes
	Before   []desired.Answer // for each of State.Probes; zero where it cannot be asked
}

// ShadowedError says that a rule at the document's fixed priority would be without effect.
type ShadowedError struct {
	Priority uint32
	By       desired.Rule
	Peer     string
	Packet   desired.Packet
}

func (e *ShadowedError) Error() string {
	return fmt.Sprintf("routing.priority %d is behind the rule `%s`, which takes packets of pods (%s) to peer %s (%s) first: "+
		"use \"auto\" or a priority below %d", e.Priority, e.By, e.Packet.Src, e.Peer, e.Packet.Dst, e.By.Priority)
}

// Prepare reads the node and works out the changes. It changes nothing. An error is a [*desired.ForeignDocumentError], a
// [*desired.BackendError], a [*ShadowedError], which comes with the plan, or one of the kernel's.
func (n *Node) Prepare(ctx context.Context, doc config.Document) (Plan, error) {
	facts, err := n.Kernel.Facts(ctx)
	if err != nil {
		return Plan{}, err
	}
	doc, notes, err := desired.Resolve(doc, n.tailnet(ctx))
	if err != nil {
		return Plan{}, err
	}
	if len(doc.PodCIDRs) == 0 {
		for _, found := range pods.Find(n.Files, facts) {
			doc.PodCIDRs = append(doc.PodCIDRs, found.Networks...)
			notes = append(notes, desired.Note{
				Code: desired.NotePodsFound, Message: fmt.Sprintf("networks of pods: %s, from %s", found.Networks, found.Where),
			})
		}
	}
	state, err := desired.Build(doc, facts)
	if err != nil {
		return Plan{}, err
	}
	state.Notes = append(notes, state.Notes...)
	p := Plan{Document: doc, State: state, Facts: facts, Changes: desired.Diff(facts, state)}
	if p.Before, err = answers(ctx, n.Kernel, state, facts, nil); err != nil {
		return Plan{}, err
	}
	if priority, fixed := doc.Routing.Priority.Fixed(); fixed {
		if err := p.shadowed(ctx, n.Kernel, uint32(priority)); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (n *Node) tailnet(ctx context.Context) *desired.Tailnet {
	if n.Tailnet == nil {
		return nil
	}
	if now, err := n.Tailnet(ctx); err == nil {
		n.lastTailnet = now
	}
	return n.lastTailnet
}

// shadowed asks for the way of each packet without the mark, so that no rule of the agent's takes it: where the answer
// comes from a table that a rule in front of the fixed priority looks into, the agent's rule would never be reached.
func (p Plan) shadowed(ctx context.Context, k kernel.Interface, priority uint32) error {
	unmarked, err := ask(ctx, k, p.State.Probes, func(probe desired.Probe) desired.Packet {
		packet := probe.Packet
		packet.Mark = 0
		return packet
	})
	if err != nil {
		return err
	}
	for i, probe := range p.State.Probes {
		answer := unmarked[i]
		if probe.Packet.Iif == "" || answer.Dev == desired.Interface {
			continue
		}
		if by, ok := desired.Shadow(p.Facts.Rules, probe.Packet, priority, answer.Table); ok {
			return &ShadowedError{Priority: priority, By: by, Peer: probe.Peer, Packet: probe.Packet}
		}
	}
	return nil
}

// Apply carries out a plan and judges what came of it.
func (n *Node) Apply(ctx context.Context, p Plan) (Report, error) {
	facts, after, dropped := p.Facts, p.Before, 0
	if !p.Changes.Empty() {
		err := n.Kernel.Apply(ctx, p.Changes)
		if err != nil {
			return Report{}, err
		}
		if dropped, err = n.Kernel.DropFlows(ctx, p.State.Flows()); err != nil {
			return Report{}, err
		}
		if facts, err = n.Kernel.Facts(ctx); err != nil {
			return Report{}, fmt.Errorf("verify: %w", err)
		}
		if after, err = answers(ctx, n.Kernel, p.State, facts, p.known()); err != nil {
			return Report{}, fmt.Errorf("verify: %w", err)
		}
	}
	report, err := judge(ctx, n.Kernel, p, facts, after)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	report.Changes = p.Changes.Lines()
	report.Dropped = dropped
	for i := range report.Peers {
		report.Peers[i].Before = p.Before[i]
	}
	return report, nil
}

// Look judges a node as the plan found it.
func (n *Node) Look(ctx context.Context, p Plan) (Report, error) {
	return judge(ctx, n.Kernel, p, p.Facts, p.Before)
}

// Cleanup takes everything of the agent's from the node and returns what that was, as commands.
func (n *Node) Cleanup(ctx context.Context) ([]string, error) {
	facts, err := n.Kernel.Facts(ctx)
	if err != nil {
		return nil, err
	}
	changes := desired.Diff(facts, desired.State{})
	if changes.Empty() {
		return nil, nil
	}
	return changes.Lines(), n.Kernel.Apply(ctx, changes)
}

// known returns the ways that stay as they were found before the changes. A change of the firewall alone gives some packets
// another mark, but leads no packet with a certain mark another way.
func (p Plan) known() map[desired.Packet]desired.Answer {
	if len(p.Changes.AddRules) > 0 || len(p.Changes.DelRules) > 0 {
		return nil
	}
	known := make(map[desired.Packet]desired.Answer, len(p.State.Probes))
	for i, probe := range p.State.Probes {
		known[marked(probe, p.Facts)] = p.Before[i]
	}
	return known
}

// marked returns a probe's packet with the mark that the firewall gives it now.
func marked(probe desired.Probe, facts desired.Facts) desired.Packet {
	packet := probe.Packet
	packet.Mark = facts.MarkOf(packet, desired.Original)
	return packet
}

// answers asks for the way of each probe's packet with the mark that the firewall gives it now, unless it is known. A
// probe without an interface to come in by gets the zero answer.
func answers(ctx context.Context, k kernel.Interface, state desired.State, facts desired.Facts,
	known map[desired.Packet]desired.Answer,
) ([]desired.Answer, error) {
	out := make([]desired.Answer, len(state.Probes))
	var open []desired.Probe
	var places []int
	for i, probe := range state.Probes {
		answer, ok := known[marked(probe, facts)]
		if ok {
			out[i] = answer
			continue
		}
		open, places = append(open, probe), append(places, i)
	}
	got, err := ask(ctx, k, open, func(p desired.Probe) desired.Packet { return marked(p, facts) })
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		out[place] = got[i]
	}
	return out, nil
}

// ask asks for the way of one packet per probe. Where the packet comes in by no interface, it is not asked.
func ask(ctx context.Context, k kernel.Interface, probes []desired.Probe, packet func(desired.Probe) desired.Packet,
) ([]desired.Answer, error) {
	out := make([]desired.Answer, len(probes))
	var packets []desired.Packet
	var places []int
	for i, probe := range probes {
		if p := packet(probe); p.Iif != "" {
			packets, places = append(packets, p), append(places, i)
		}
	}
	got, err := k.Ways(ctx, packets)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		out[place] = got[i]
	}
	return out, nil
}
