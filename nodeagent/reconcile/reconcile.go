// Package reconcile brings a node to what its document asks for: it reads, compares, applies the difference, and then
// judges the effect by the kernel's own answer for a packet of a pod, never by the presence of a rule. It decides
// neither what a node must have (package desired does) nor how the kernel is told (package kernel).
package reconcile

import (
	"context"
	"fmt"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// Plan is what would be done to a node, and how things stand before it.
type Plan struct {
	State   desired.State
	Facts   desired.Facts
	Changes desired.Changes
	Before  []desired.Answer // for each of State.Probes; zero where it cannot be asked
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
// [*ShadowedError] or one of the kernel's.
func Prepare(ctx context.Context, k kernel.Interface, doc config.Document) (Plan, error) {
	facts, err := k.Facts(ctx)
	if err != nil {
		return Plan{}, err
	}
	state, err := desired.Build(doc, facts)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{State: state, Facts: facts, Changes: desired.Diff(facts, state)}
	if p.Before, err = answers(ctx, k, state, facts); err != nil {
		return Plan{}, err
	}
	if priority, fixed := doc.Routing.Priority.Fixed(); fixed {
		if err := p.shadowed(ctx, k, uint32(priority)); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// shadowed asks for the way of each packet as if it carried the mark already: where the answer comes from a table that a
// rule in front of the fixed priority looks into, the agent's rule would never be reached.
func (p Plan) shadowed(ctx context.Context, k kernel.Interface, priority uint32) error {
	for _, probe := range p.State.Probes {
		if probe.Packet.Iif == "" {
			continue
		}
		answer, err := k.Route(ctx, probe.Packet)
		if err != nil {
			return err
		}
		if by, ok := desired.Shadow(p.Facts.Rules, probe.Packet, priority, answer.Table); ok && answer.Dev != desired.Interface {
			return &ShadowedError{Priority: priority, By: by, Peer: probe.Peer, Packet: probe.Packet}
		}
	}
	return nil
}

// Apply carries out a plan and judges what came of it.
func Apply(ctx context.Context, k kernel.Interface, doc config.Document, p Plan) (Report, error) {
	if !p.Changes.Empty() {
		if err := k.Apply(ctx, p.Changes); err != nil {
			return Report{}, err
		}
	}
	facts, err := k.Facts(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	left := desired.Diff(facts, p.State)
	report, err := judge(ctx, k, p.State, facts, uint32(doc.Routing.Table))
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	report.Changes = p.Changes.Lines()
	report.Pending = left.Lines()
	for i := range report.Peers {
		report.Peers[i].Before = p.Before[i]
	}
	return report, nil
}

// Look judges a node as the plan found it.
func Look(ctx context.Context, k kernel.Interface, doc config.Document, p Plan) (Report, error) {
	report, err := judge(ctx, k, p.State, p.Facts, uint32(doc.Routing.Table))
	if err != nil {
		return Report{}, err
	}
	report.Pending = p.Changes.Lines()
	return report, nil
}

// Cleanup takes everything of the agent's from the node and returns what that was, as commands.
func Cleanup(ctx context.Context, k kernel.Interface) ([]string, error) {
	facts, err := k.Facts(ctx)
	if err != nil {
		return nil, err
	}
	changes := desired.Diff(facts, desired.State{})
	if changes.Empty() {
		return nil, nil
	}
	return changes.Lines(), k.Apply(ctx, changes)
}

// answers asks for the way of each probe's packet with the mark that the firewall gives it now.
func answers(ctx context.Context, k kernel.Interface, state desired.State, facts desired.Facts) ([]desired.Answer, error) {
	out := make([]desired.Answer, len(state.Probes))
	for i, probe := range state.Probes {
		packet := probe.Packet
		if packet.Iif == "" {
			continue
		}
		packet.Mark = facts.Table.MarkOf(packet)
		answer, err := k.Route(ctx, packet)
		if err != nil {
			return nil, err
		}
		out[i] = answer
	}
	return out, nil
}
