//go:build linux

package iptables_test

import (
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Steps in one table are made all at once or not at all, and the error names the one that could not be made.
func TestApplyAllOrNothing(t *testing.T) {
	n := nstest.New(t)
	for _, b := range []desired.Backend{desired.IPTablesNFT, desired.IPTablesLegacy} {
		chain := desired.Chain{Name: "TAILMESH-POSTROUTING", Type: "nat", Hook: "POSTROUTING", Family: desired.IPv4}
		step := func(op string, position int, comment string) desired.FirewallChange {
			return desired.FirewallChange{
				Backend: b, Op: op, Chain: chain, Position: position,
				Rule: desired.FirewallRule{Family: desired.IPv4, Src: "10.0.0.0/8", Verdict: desired.Return, Comment: comment},
			}
		}
		good := []desired.FirewallChange{
			step(desired.AddChain, 0, ""), step(desired.InsertRule, 1, "a, b"), step(desired.InsertRule, 2, "c"), step(desired.InsertJump, 0, ""),
		}
		absent := step(desired.AddChain, 0, "")
		absent.Chain.Type, absent.Chain.Name = "mangle", "TAILMESH-PREROUTING"
		tests := []struct {
			name  string
			steps []desired.FirewallChange
			fails int // the place of the step that does, or -1
		}{
			{"good", good, -1},
			{"one more, behind what moves the jump", []desired.FirewallChange{
				step(desired.MoveJump, 0, ""), step(desired.InsertRule, 1, "d"), step(desired.DeleteRule, 9, ""), step(desired.InsertRule, 1, "e"),
			}, 2},
			{"what is there", []desired.FirewallChange{step(desired.InsertRule, 1, "d"), step(desired.AddChain, 0, "")}, 1},
			{"two lines of one step", []desired.FirewallChange{step(desired.DeleteJump, 0, ""), step(desired.DeleteJump, 0, "")}, 1},
			{"what somebody uses", []desired.FirewallChange{step(desired.InsertRule, 1, "d"), step(desired.DeleteChain, 0, "")}, 1},
			{"another table is another matter", []desired.FirewallChange{absent, step(desired.DeleteRule, 9, "")}, 1},
		}
		tool := string(b)
		for _, tt := range tests {
			before := n.Run(tool + " -t nat -S")
			err := iptables.New().Apply(tt.steps)
			if (err != nil) != (tt.fails >= 0) {
				t.Errorf("%s, %s: %v", b, tt.name, err)
				continue
			}
			if err == nil {
				continue
			}
			if want := tt.steps[tt.fails].String(); !strings.HasPrefix(err.Error(), want+": ") {
				t.Errorf("%s, %s: got %q, want what went wrong with %q", b, tt.name, err, want)
			}
			if now := n.Run(tool + " -t nat -S"); now != before {
				t.Errorf("%s, %s: something was done: before\n%snow\n%s", b, tt.name, before, now)
			}
		}
		if out := n.Run(tool + " -t mangle -S"); !strings.Contains(out, "-N TAILMESH-PREROUTING") {
			t.Errorf("%s: what was whole was not done:\n%s", b, out)
		}
	}
}

// A program that is not there, or may not, is named; what to do is said.
func TestApplyWithout(t *testing.T) {
	nstest.New(t)
	steps := []desired.FirewallChange{{
		Backend: desired.IPTablesNFT, Op: desired.AddChain, Chain: desired.Chain{Name: "TAILMESH-FORWARD", Type: "filter", Family: desired.IPv6},
	}}
	t.Setenv("PATH", t.TempDir())
	err := iptables.New().Apply(steps)
	if err == nil || !strings.Contains(err.Error(), "there is no ip6tables-nft on the PATH: install") {
		t.Errorf("got %v", err)
	}
}
