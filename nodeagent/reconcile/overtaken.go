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

// overtaken returns an [*OvertakenError] where the plan takes away a rule that is in front of a capturing one, for another
// that would be behind it. A rule captures if the kernel's answer for a packet that no rule of the agent's takes comes from
// its table.
func (p Plan) overtaken(ctx context.Context, k kernel.Interface) error {
	var captured []desired.Answer
	for _, fresh := range p.Changes.AddRules {
		end := slices.IndexFunc(p.Facts.Rules, func(r desired.Rule) bool { return r.Family == fresh.Family && r.Priority > fresh.Priority })
		if end < 0 {
			end = len(p.Facts.Rules)
		}
		old := slices.IndexFunc(p.Facts.Rules[:end], func(r desired.Rule) bool {
			return r.Family == fresh.Family && slices.Contains(p.Changes.DelRules, r)
		})
		if old < 0 {
			continue
		}
		for _, by := range p.Facts.Rules[old:end] {
			if by.Family != fresh.Family || by.Own() || by.Action != desired.Lookup {
				continue
			}
			if captured == nil {
				var err error
				if captured, err = unmarked(ctx, k, p.State.Probes); err != nil {
					return err
				}
			}
			for i, probe := range p.State.Probes {
				packet := probe.Packet
				if !fresh.Matches(packet) {
					continue
				}
				packet.Mark = 0
				if by.Matches(packet) && captured[i].Table == by.Table && captured[i].Dev != desired.Interface {
					return &OvertakenError{Old: p.Facts.Rules[old], New: fresh, By: by, Move: move(p.Facts.Rules, by, fresh)}
				}
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
