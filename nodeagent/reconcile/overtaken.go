package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// OvertakenError says that a rule of the agent's cannot be exchanged for another now: the kernel puts a rule behind those of
// its priority, and there another one stands that captures packets of pods.
type OvertakenError struct {
	Old, New, By desired.Rule
	Move         string // what gets By out of the way
}

func (e *OvertakenError) Error() string {
	return fmt.Sprintf("the rule `%s` cannot take the place of `%s`: it would come to stand behind the rule `%s`, which captures packets of pods; "+
		"nothing is changed until then; %s", e.New, e.Old, e.By, e.Move)
}

// overtaken returns an [*OvertakenError] where the plan takes away the rule that a peer's packets are taken by, in front of a
// capturing one, for another that would be behind it. A rule captures if the kernel's answer for a packet that no rule of the
// agent's takes comes from its table.
func (p Plan) overtaken(ctx context.Context, k kernel.Interface) error {
	if len(p.Changes.AddRules) == 0 || len(p.Changes.DelRules) == 0 {
		return nil
	}
	answers, err := unmarked(ctx, k, p.State.Probes)
	if err != nil {
		return err
	}
	for i, probe := range p.State.Probes {
		takes := func(r desired.Rule) bool { // what the agent's rule does with packets to this peer
			packet := probe.Packet
			packet.Mark |= r.Mask
			return r.Matches(packet)
		}
		fresh := slices.IndexFunc(p.Changes.AddRules, takes)
		if fresh < 0 || answers[i].Dev == desired.Interface {
			continue
		}
		place := p.Changes.AddRules[fresh]
		var old *desired.Rule
		for _, r := range p.Facts.Rules {
			packet := probe.Packet
			packet.Mark = 0
			switch {
			case r.Family != place.Family || r.Priority > place.Priority:
			case slices.Contains(p.Changes.DelRules, r) && takes(r):
				old = &r
			case old != nil && !r.Own() && r.Action == desired.Lookup && r.Table == answers[i].Table && r.Matches(packet):
				return &OvertakenError{Old: *old, New: place, By: r, Move: move(p.Facts.Rules, r, place)}
			}
		}
	}
	return nil
}

// unmarked asks for the way of each probe's packet without the mark, so that no rule of the agent's takes it.
func unmarked(ctx context.Context, k kernel.Interface, probes []desired.Probe) ([]desired.Answer, error) {
	return ask(ctx, k, probes, func(probe desired.Probe) desired.Packet {
		packet := probe.Packet
		packet.Mark = 0
		return packet
	})
}
