// Package reconcile brings a node to what its document asks for: it reads, compares, applies the difference, and then
// judges the effect by the kernel's own answer for a packet of a pod, never by the presence of a rule. It decides
// neither what a node must have (package desired does) nor how the kernel is told (package kernel).
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/pods"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/tailscale"
)

// Node is the node that is worked on. It is not safe for concurrent use.
type Node struct {
	Kernel kernel.Interface
	Files  fs.FS // the node's files from its root, in which the CNI's configuration is; nil: there are none
	// Tailnet asks tailscaled who is in the tailnet; nil: nobody is asked. Until it answers, the document's addresses
	// serve, and then those of its last answer.
	Tailnet func(ctx context.Context) (*desired.Tailnet, error)

	// Compare asks for the ways of packets before the changes too, for [Peer.Before].
	Compare bool

	// LastTailnet is tailscaled's last answer, of this life or an earlier one; nil: there was none.
	LastTailnet *desired.Tailnet

	lastPods []netip.Prefix      // that were found
	reached  map[netip.Addr]bool // the peers' addresses that packets went to by the mesh when last looked at
}

// Plan is what would be done to a node, and how things stand before it.
type Plan struct {
	Document config.Document // with the addresses of now, and with the networks of the pods if they were found
	State    desired.State
	Facts    desired.Facts
	Changes  desired.Changes
	Before   []desired.Answer // for each of State.Probes, zero where it cannot be asked; nil without Node.Compare
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
// [*desired.BackendError], an [*OvertakenError], a [*ShadowedError], which comes with the plan, or one of the kernel's.
func (n *Node) Prepare(ctx context.Context, doc config.Document) (Plan, error) {
	facts, err := n.Kernel.Facts(ctx)
	if err != nil {
		return Plan{}, err
	}
	tailnet, trouble := n.tailnet(ctx)
	if ctx.Err() != nil {
		return Plan{}, fmt.Errorf("stopped before anything was changed: %w", context.Cause(ctx))
	}
	doc, notes, err := desired.Resolve(doc, tailnet)
	if err != nil {
		return Plan{}, err
	}
	notes = append(notes, trouble...)
	if len(doc.PodCIDRs) == 0 {
		var found []desired.Note
		doc.PodCIDRs, found = n.findPods(facts)
		notes = append(notes, found...)
	}
	state, err := desired.Build(doc, facts)
	if err != nil {
		return Plan{}, err
	}
	state.Notes = append(notes, state.Notes...)
	p := Plan{Document: doc, State: state, Facts: facts, Changes: desired.Diff(facts, state)}
	if n.Compare {
		if p.Before, err = answers(ctx, n.Kernel, state, facts); err != nil {
			return Plan{}, err
		}
	}
	if priority, fixed := doc.Routing.Priority.Fixed(); fixed {
		if err := p.shadowed(ctx, n.Kernel, uint32(priority)); err != nil {
			return p, err
		}
	}
	if err := p.overtaken(ctx, n.Kernel); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// findPods returns the pods' networks that are found on the node. Of a family of which nothing is found any more, those
// serve that were found last: pods of it may run all the same.
func (n *Node) findPods(facts desired.Facts) (networks []netip.Prefix, notes []desired.Note) {
	for _, found := range pods.Find(n.Files, facts) {
		networks = append(networks, found.Networks...)
		notes = append(notes, desired.Note{
			Code: desired.NotePodsFound, Message: fmt.Sprintf("networks of pods: %s, from %s", found.Networks, found.Where),
		})
	}
	for _, f := range desired.Families() {
		of := func(p netip.Prefix) bool { return desired.FamilyOf(p.Addr()) == f }
		if slices.ContainsFunc(networks, of) {
			continue
		}
		if last := slices.DeleteFunc(slices.Clone(n.lastPods), func(p netip.Prefix) bool { return !of(p) }); len(last) > 0 {
			networks = append(networks, last...)
			notes = append(notes, desired.Note{
				Code: desired.NotePodsFound, Message: fmt.Sprintf("networks of pods: %s, as found before; now there is no sign of them", last),
			})
		}
	}
	n.lastPods = networks
	return networks, notes
}

// tailnet returns the last answer of tailscaled's. That it is not there, or not connected, shows in the interface; that it
// is and does not answer is worth a note.
func (n *Node) tailnet(ctx context.Context) (*desired.Tailnet, []desired.Note) {
	if n.Tailnet == nil {
		return nil, nil
	}
	now, err := n.Tailnet(ctx)
	if err == nil {
		n.LastTailnet = now
		return now, nil
	}
	for _, expected := range []error{tailscale.ErrNotRunning, os.ErrNotExist, syscall.ECONNREFUSED} {
		if errors.Is(err, expected) {
			return n.LastTailnet, nil
		}
	}
	known := "the addresses of the document serve"
	if n.LastTailnet != nil {
		known = "what it said before serves"
	}
	return n.LastTailnet, []desired.Note{{
		Code: desired.NoteTailscaleAnswer, Message: fmt.Sprintf("tailscaled does not say who is in the tailnet: %s (%v)", known, err),
	}}
}

// shadowed asks for the way of each packet without the mark, so that no rule of the agent's takes it: where the answer
// comes from a table that a rule in front of the fixed priority looks into, the agent's rule would never be reached.
func (p Plan) shadowed(ctx context.Context, k kernel.Interface, priority uint32) error {
	answers, err := unmarked(ctx, k, p.State.Probes)
	if err != nil {
		return err
	}
	for i, probe := range p.State.Probes {
		answer := answers[i]
		if probe.Packet.Iif == "" || answer.Dev == desired.Interface {
			continue
		}
		if by, ok := desired.Shadow(p.Facts.Rules, probe.Packet, priority, answer.Table); ok {
			return &ShadowedError{Priority: priority, By: by, Peer: probe.Peer, Packet: probe.Packet}
		}
	}
	return nil
}

// Apply carries out a plan and judges what came of it. That something which is not wanted any more cannot be taken away is
// no error, since what is wanted is in force without that: it is a note, and is pending.
func (n *Node) Apply(ctx context.Context, p Plan) (Report, error) {
	facts := p.Facts
	var done []string
	var kept []error // why something was not taken away
	if !p.Changes.Empty() {
		if ctx.Err() != nil {
			return Report{}, fmt.Errorf("stopped before anything was changed: %w", context.Cause(ctx))
		}
		needed, leftover := p.Changes.Apart()
		err := n.Kernel.Apply(ctx, needed)
		if err != nil {
			return Report{}, err
		}
		done = needed.Lines()
		if len(leftover) > 0 {
			gone, reasons := n.oneByOne(ctx, leftover)
			done, kept = append(done, gone...), reasons
		}
		if facts, err = n.Kernel.Facts(ctx); err != nil {
			return Report{}, fmt.Errorf("verify: %w", err)
		}
	}
	report, err := judge(ctx, n.Kernel, p, facts)
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	if kept != nil {
		report.Notes = append(slices.Clone(report.Notes), desired.Note{
			Code: desired.NoteLeftover, Message: "what is not wanted any more could not all be taken away: " + kept[0].Error(),
		})
	}
	// Connections that began before the changes, or while a peer was not reached, go on as they began.
	now := report.reached()
	if len(done) > 0 || more(now, n.reached) {
		if report.Dropped, err = n.Kernel.DropFlows(ctx, p.State.Flows()); err != nil {
			return Report{}, err
		}
	}
	n.reached = now
	report.Changes = done
	for i, before := range p.Before {
		report.Peers[i].Before = before
	}
	return report, nil
}

// oneByOne takes away each thing by itself, so that one that cannot be keeps nothing else. It returns what is gone, as
// commands, and why the rest is not.
func (n *Node) oneByOne(ctx context.Context, steps []desired.FirewallChange) (gone []string, reasons []error) {
	for _, c := range steps {
		if ctx.Err() != nil {
			break
		}
		if err := n.Kernel.Apply(ctx, desired.Changes{Firewall: []desired.FirewallChange{c}}); err != nil {
			reasons = append(reasons, err)
			continue
		}
		gone = append(gone, c.String())
	}
	return gone, reasons
}

// more says whether one of now is not among those of before.
func more(now, before map[netip.Addr]bool) bool {
	for a := range now {
		if !before[a] {
			return true
		}
	}
	return false
}

// Look judges a node as the plan found it.
func (n *Node) Look(ctx context.Context, p Plan) (Report, error) {
	report, err := judge(ctx, n.Kernel, p, p.Facts)
	if needed, leftover := p.Changes.Apart(); needed.Empty() && len(leftover) > 0 {
		report.Notes = append(slices.Clone(report.Notes), desired.Note{
			Code:    desired.NoteLeftover,
			Message: "something that is not wanted any more is left: `tailmesh-agent apply`, or a running agent, takes it away or says what keeps it",
		})
	}
	return report, err
}

// Cleanup takes everything of the agent's from the node and returns what that was, as commands. What cannot be taken away
// keeps nothing else from it: the error then is a [*LeftError].
func (n *Node) Cleanup(ctx context.Context) ([]string, error) {
	facts, err := n.Kernel.Facts(ctx)
	if err != nil {
		return nil, err
	}
	changes := desired.Diff(facts, desired.State{})
	gone, reasons := n.oneByOne(ctx, changes.Firewall)
	rules := desired.Changes{DelRules: changes.DelRules}
	if ctx.Err() != nil {
		return nil, &LeftError{Gone: gone, Reasons: append(reasons, context.Cause(ctx))}
	}
	if err := n.Kernel.Apply(ctx, rules); err != nil {
		reasons = append(reasons, err)
	} else {
		gone = append(gone, rules.Lines()...)
	}
	if reasons != nil {
		return nil, &LeftError{Gone: gone, Reasons: reasons}
	}
	return gone, nil
}

// LeftError says that not everything of the agent's could be taken away.
type LeftError struct {
	Gone    []string // what was, as commands
	Reasons []error  // at least one
}

func (e *LeftError) Error() string {
	words := make([]string, len(e.Reasons))
	for i, reason := range e.Reasons {
		words[i] = reason.Error()
	}
	return "not everything could be taken away: " + strings.Join(words, "; ")
}

// Unwrap returns the reasons.
func (e *LeftError) Unwrap() []error { return e.Reasons }

// answers asks for the way of each probe's packet with the mark that the firewall gives it now. A probe without an
// interface to come in by gets the zero answer.
func answers(ctx context.Context, k kernel.Interface, state desired.State, facts desired.Facts) ([]desired.Answer, error) {
	return ask(ctx, k, state.Probes, func(p desired.Probe) desired.Packet {
		packet := p.Packet
		packet.Mark = facts.MarkOf(packet, desired.Original)
		return packet
	})
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
