//go:build linux

package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Expectations of the flows that the states below change, by name.
type outcomes map[string]string

func (o outcomes) and(more ...outcomes) outcomes {
	all := maps.Clone(o)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// always is what no state changes.
func always() outcomes {
	return outcomes{hostToHost: direct, hostToStranger: direct, podToStranger: foreign, podToVIP: untouched, lanToVIP: forwarded}
}

// The overlay's own traffic, by whether the policy admits it.
func overlayAdmitted() outcomes {
	return always().and(outcomes{podToPod: tunneled, podToPodFull: tunneled, hostToPod: viaTunnel})
}

func overlayRefused() outcomes {
	return always().and(outcomes{podToPod: refused, podToPodFull: refused, hostToPod: hostRefused})
}

// Traffic from pods to a peer's host, in its four states.
func toHost(what string) outcomes {
	return outcomes{podToHost: what, podToService: what, podToHostFull: what}
}

func repaired() outcomes        { return toHost(direct) }
func untranslated() outcomes    { return toHost(foreign) }
func captured() outcomes        { return toHost(tunneled).and(outcomes{podToHostFull: tooLarge}) }
func capturedRefused() outcomes { return toHost(refused).and(outcomes{podToHostFull: tooLarge}) }

// repliesAstray is what becomes of a host's connections to remote pods where the replies leave by tailscale0.
func repliesAstray() outcomes { return outcomes{hostToPod: wrongReply} }

// repair is what is done to the nodes.
type repair struct {
	name  string
	apply func(context.Context, *testing.T, *Node)
	undo  func(context.Context, *testing.T, *Node)
}

func nothing() repair {
	none := func(context.Context, *testing.T, *Node) {}
	return repair{"no repair", none, none}
}

func naive(name string, parts Naive) repair {
	return repair{
		name: name,
		apply: func(ctx context.Context, t *testing.T, n *Node) {
			if err := parts.Apply(ctx, n); err != nil {
				t.Fatal(err)
			}
		},
		undo: func(ctx context.Context, t *testing.T, n *Node) {
			if err := parts.Undo(ctx, n); err != nil {
				t.Error(err)
			}
		},
	}
}

func (l *Lab) agent() repair {
	return repair{
		name: "the agent",
		apply: func(ctx context.Context, t *testing.T, n *Node) {
			if out, err := n.ApplyDocument(ctx, l.Document(n)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		},
		undo: func(ctx context.Context, t *testing.T, n *Node) {
			if out, err := n.Agent(ctx, "cleanup"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		},
	}
}

// Priorities of the overlay's rule. kube-router asks for none: the kernel makes it one ahead of whatever rule is second.
const (
	absent       = 0
	behindNobody = 5209 // ahead of Tailscale's first
	behind100    = 99
	behind10     = 9
)

// overlayRule brings the rule of both nodes to a priority, by the rule that has it end up there, and takes both away when
// the test ends. there says that something at 10 is on the nodes already.
func (l *Lab) overlayRule(t *testing.T, priority int, there bool) {
	t.Helper()
	for _, n := range l.Mesh() {
		if priority == absent {
			continue
		}
		for _, f := range []Family{4, 6} {
			if second := priority + 1; second < behindNobody && !there {
				if err := n.rule(f, "add", "pref", fmt.Sprint(second), "lookup", "250"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = n.rule(f, "del", "pref", fmt.Sprint(second), "lookup", "250") })
			}
		}
		got, err := AddOverlayRule(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := DeleteOverlayRule(n); err != nil {
				t.Error(err)
			}
		})
		if got != priority {
			t.Fatalf("%s: the kernel put the overlay's rule at %d, expected %d", n.Name, got, priority)
		}
	}
}

// install does a repair on both nodes, and undoes it when the test ends.
func (l *Lab) install(t *testing.T, r repair) {
	t.Helper()
	for _, n := range l.Mesh() {
		t.Cleanup(func() { r.undo(context.WithoutCancel(t.Context()), t, n) })
		r.apply(t.Context(), t, n)
	}
}

const (
	withOverlay    = "policy.hujson"
	withoutOverlay = "policy-without-overlay.hujson"
)

func testMatrix(t *testing.T, l *Lab) {
	all := []int{behindNobody, behind100, behind10, absent}
	present := []int{behindNobody, behind100, behind10}
	behind := []int{behindNobody, behind100, absent} // behind a rule at 10
	fix := l.agent()
	rule := naive("only a rule for each peer at 10", Naive{Rule: true})
	snat := naive("only source translation", Naive{SNAT: true})
	both := naive("a rule for each peer at 10, and source translation", Naive{Rule: true, SNAT: true})
	rows := l.rows()

	for _, c := range []struct {
		policy     string
		repair     repair
		priorities []int
		want       outcomes
	}{
		{withoutOverlay, nothing(), present, overlayRefused().and(capturedRefused())},
		{withoutOverlay, nothing(), []int{absent}, overlayRefused().and(untranslated())},
		{withoutOverlay, fix, all, overlayRefused().and(repaired())},

		{withOverlay, nothing(), present, overlayAdmitted().and(captured())},
		{withOverlay, nothing(), []int{absent}, overlayAdmitted().and(untranslated(), repliesAstray())},

		{withOverlay, snat, present, overlayAdmitted().and(captured())},
		{withOverlay, snat, []int{absent}, overlayAdmitted().and(repaired(), repliesAstray())},
		{withOverlay, rule, behind, overlayAdmitted().and(untranslated(), repliesAstray())},
		{withOverlay, rule, []int{behind10}, overlayAdmitted().and(captured())},
		{withOverlay, both, behind, overlayAdmitted().and(repaired(), repliesAstray())},
		{withOverlay, both, []int{behind10}, overlayAdmitted().and(captured())},

		{withOverlay, fix, present, overlayAdmitted().and(repaired())},
		// Without its rule the overlay loses these replies by itself: nothing that was there to break.
		{withOverlay, fix, []int{absent}, overlayAdmitted().and(repaired(), repliesAstray())},
	} {
		for _, priority := range c.priorities {
			where := fmt.Sprintf("overlay's rule at %d", priority)
			if priority == absent {
				where = "no overlay's rule"
			}
			t.Run(fmt.Sprintf("%s/%s/%s", c.policy, where, c.repair.name), func(t *testing.T) {
				l.policyFile(t, c.policy)
				// A rule at 10 that is there first is what puts the overlay's at 9.
				first := priority == behind10 && (c.repair.name == rule.name || c.repair.name == both.name)
				if first {
					l.install(t, c.repair)
				}
				l.overlayRule(t, priority, first)
				if !first {
					l.install(t, c.repair)
				}
				l.judge(t, rows, c.want)
			})
		}
	}
}

// service makes ams1 translate a service's address to fra1's mesh address, as kube-proxy does for the API's.
func (l *Lab) service(t *testing.T) {
	t.Helper()
	if _, err := Run(t.Context(), l.Ams.Name, "iptables", "-w", "-t", "nat", "-A", "PREROUTING", "-d", serviceAddr,
		"-j", "DNAT", "--to-destination", l.Fra.Addr(4).String()); err != nil {
		t.Fatal(err)
	}
}

// testReversePath repeats the matrix's most telling rows under each mode of reverse path filtering.
func testReversePath(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	rows := l.rows()
	rows = slices.DeleteFunc(rows, func(r row) bool { return familyOf(r.flow.Dst) == 6 }) // IPv6 has no such filter
	both := naive("a rule for each peer at 10, and source translation", Naive{Rule: true, SNAT: true})
	for _, c := range []struct {
		name   string
		mode   int
		ignore bool // marks, in the reverse lookup; tailscaled has them looked at
		repair repair
		want   outcomes
	}{
		{"off", 0, false, nothing(), captured()},
		{"strict", 1, false, nothing(), captured()},
		{"loose", 2, false, nothing(), captured()},
		{"off", 0, false, both, repaired().and(repliesAstray())},
		{"strict", 1, false, both, repaired().and(repliesAstray())},
		{"loose", 2, false, both, repaired().and(repliesAstray())},
		{"off", 0, false, l.agent(), repaired()},
		{"strict", 1, false, l.agent(), repaired()},
		{"loose", 2, false, l.agent(), repaired()},
		// What the agent reports as a finding: the reply looks as if it should have come by the tunnel.
		{"strict without src_valid_mark", 1, true, l.agent(), toHost(dropped)},
	} {
		t.Run(c.name+"/"+c.repair.name, func(t *testing.T) {
			for _, n := range l.Mesh() {
				set := func(mode int, mark bool) {
					if err := SetReversePathFilter(n, mode, mark); err != nil {
						t.Error(err)
					}
				}
				t.Cleanup(func() { set(0, true) })
				set(c.mode, !c.ignore)
			}
			l.overlayRule(t, behindNobody, false)
			l.install(t, c.repair)
			l.judge(t, rows, overlayAdmitted().and(c.want))
		})
	}
}

func TestLab(t *testing.T) {
	l := start(t)
	l.service(t)
	t.Run("matrix", func(t *testing.T) { testMatrix(t, l) })
	t.Run("reverse path filter", func(t *testing.T) { testReversePath(t, l) })
	t.Run("policy", func(t *testing.T) { testPolicy(t, l) })
	t.Run("router returns", func(t *testing.T) { testRouterReturns(t, l) })
	t.Run("daemon restarts", func(t *testing.T) { testRestart(t, l) })
	t.Run("old connections", func(t *testing.T) { testOldConnections(t, l) })
}
