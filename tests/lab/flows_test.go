//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
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

// agent is our own, with the documents of [Lab.Document]. It is to say that all is well.
func (l *Lab) agent() repair { return agent(l.Document, 0) }

// agent is our own, with given documents, and the exit code that it is to end with.
func agent(document func(*Node) config.Document, code int) repair {
	return repair{
		name: "the agent",
		apply: func(ctx context.Context, t *testing.T, n *Node) {
			out, err := n.ApplyDocument(ctx, document(n))
			got := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				got = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if got != code {
				t.Fatalf("%s: the agent's exit code is %d, expected %d\n%s", n.Name, got, code, out)
			}
			t.Logf("%s: the agent says:\n%s", n.Name, linesWith(out, "peer "))
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
	afterAll     = 32765 // behind Tailscale's: the router was there before it
	behindNobody = 5209  // ahead of Tailscale's first
	behind100    = 99
	behind10     = 9
)

// overlayRule brings the rule of both nodes to a priority, by the rule that has it end up there, and takes both away when
// the test ends. there says that something at 10 is on the nodes already.
func (l *Lab) overlayRule(t *testing.T, priority int, there bool) {
	t.Helper()
	for _, n := range l.Mesh() {
		switch priority {
		case absent:
			continue
		case afterAll: // where the kernel puts it while there are no other rules, see testOrders
			for _, f := range []Family{4, 6} {
				rule := []string{"add", "pref", fmt.Sprint(priority), "from", n.podCIDR(f).String(), "lookup", overlayTable}
				if err := n.rule(f, rule...); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := n.rule(f, append([]string{"del"}, rule[1:]...)...); err != nil {
						t.Error(err)
					}
				})
			}
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
	all := []int{afterAll, behindNobody, behind100, behind10, absent}
	present := []int{behindNobody, behind100, behind10}
	behind := []int{behindNobody, behind100, absent} // behind a rule at 10
	fix := l.agent()
	rule := naive("only a rule for each peer at 10", Naive{Rule: true})
	snat := naive("only source translation", Naive{SNAT: true})
	both := naive("a rule for each peer at 10, and source translation", Naive{Rule: true, SNAT: true})
	rows := l.rows()
	var seen summary

	for _, c := range []struct {
		policy     string
		repair     repair
		priorities []int
		want       outcomes
	}{
		{withoutOverlay, nothing(), present, overlayRefused().and(capturedRefused())},
		{withoutOverlay, nothing(), []int{absent}, overlayRefused().and(untranslated())},
		{withoutOverlay, nothing(), []int{afterAll}, overlayRefused().and(untranslated())},
		{withoutOverlay, fix, all, overlayRefused().and(repaired())},

		{withOverlay, nothing(), present, overlayAdmitted().and(captured())},
		{withOverlay, nothing(), []int{afterAll, absent}, overlayAdmitted().and(untranslated(), repliesAstray())},

		{withOverlay, snat, present, overlayAdmitted().and(captured())},
		{withOverlay, snat, []int{absent}, overlayAdmitted().and(repaired(), repliesAstray())},
		{withOverlay, rule, behind, overlayAdmitted().and(untranslated(), repliesAstray())},
		{withOverlay, rule, []int{behind10}, overlayAdmitted().and(captured())},
		{withOverlay, both, behind, overlayAdmitted().and(repaired(), repliesAstray())},
		{withOverlay, both, []int{behind10}, overlayAdmitted().and(captured())},

		{withOverlay, fix, append(present, afterAll), overlayAdmitted().and(repaired())},
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
				results := l.judge(t, rows, c.want)
				seen.add(map[string]string{withOverlay: "overlay admitted", withoutOverlay: "not admitted"}[c.policy],
					strings.TrimPrefix(where, "overlay's rule "), c.repair.name, results)
			})
		}
	}
	t.Logf("what was seen:\n%s", &seen)
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
		marks  bool // are looked at by the filter, which tailscaled sees to
		repair repair
		drops  bool // of the filter are expected
		want   outcomes
	}{
		{"off", 0, true, nothing(), false, captured()},
		{"strict", 1, true, nothing(), false, captured()},
		{"loose", 2, true, nothing(), false, captured()},
		{"off", 0, true, both, false, repaired().and(repliesAstray())},
		// Now the rule breaks the request already: its source is not behind the tunnel any more. The loose filter drops it
		// as well, because the tunnel has no address.
		{"strict", 1, true, both, true, repaired().and(outcomes{hostToPod: unheard})},
		{"loose", 2, true, both, true, repaired().and(outcomes{hostToPod: unheard})},
		{"off", 0, true, l.agent(), false, repaired()},
		{"strict", 1, true, l.agent(), false, repaired()},
		{"loose", 2, true, l.agent(), false, repaired()},
		// The reply looks as if it should have come by the tunnel. The agent cannot help it, but says so.
		{"strict without src_valid_mark", 1, false, agent(l.Document, 1), true, toHost(dropped)},
	} {
		t.Run(c.name+"/"+c.repair.name, func(t *testing.T) {
			for _, n := range l.Mesh() {
				set := func(mode int, mark bool) {
					if err := SetReversePathFilter(n, mode, mark); err != nil {
						t.Error(err)
					}
				}
				t.Cleanup(func() { set(0, true) })
				set(c.mode, c.marks)
			}
			l.overlayRule(t, behindNobody, false)
			l.install(t, c.repair)
			before := l.reversePathDrops(t)
			l.judge(t, rows, overlayAdmitted().and(c.want))
			if drops := l.reversePathDrops(t) - before; drops > 0 != c.drops {
				t.Errorf("the filter dropped %d packets", drops)
			} else {
				t.Logf("the filter dropped %d packets", drops)
			}
		})
	}
}

// reversePathDrops returns how many packets the filters of both nodes have dropped.
func (l *Lab) reversePathDrops(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, n := range l.Mesh() {
		// Two lines for each group of counters: their names, and their values.
		out, err := Sh(t.Context(), n.Name, `awk '$1 == "TcpExt:" && !n { n = split($0, names); next }
			$1 == "TcpExt:" { for (i = 1; i <= n; i++) if (names[i] == "IPReversePathFilter") print $i }' /proc/net/netstat`)
		if err != nil {
			t.Fatal(err)
		}
		count, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// testVariants repeats one of the matrix's hardest states with documents that say less, or other things.
func testVariants(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	rows := l.rows()
	// iptables has no place to mark packets that is behind destination NAT: the overlay's rule takes them, or, where that one
	// stands behind Tailscale's, the rule for answers that the agent has put in front of it, which cannot tell them apart.
	unmarked := outcomes{podToService: captured()[podToService]}
	for _, c := range []struct {
		name string
		edit func(*config.Document)
		want outcomes
	}{
		{"a rule for each peer", func(d *config.Document) { d.Routing.Mode = config.ModeRules }, nil},
		{"iptables", func(d *config.Document) { d.Firewall.Backend = config.BackendIPTables }, unmarked},
		{"iptables, and a rule for each peer", func(d *config.Document) {
			d.Firewall.Backend, d.Routing.Mode = config.BackendIPTables, config.ModeRules
		}, unmarked},
		{"another bit", func(d *config.Document) { d.Routing.Mark = 0x1000 }, nil},
		{"pods found on the node", func(d *config.Document) { d.PodCIDRs = nil }, nil},
		{"peers found by their tag", func(d *config.Document) { d.Peers, d.Discover.Tags = nil, []string{l.Fra.Tag} }, nil},
		{"a peer's address of yesterday", func(d *config.Document) {
			d.Peers[0].Addresses = []netip.Addr{netip.MustParseAddr("100.64.9.9"), netip.MustParseAddr("fd7a:115c:a1e0::9:9")}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range l.Mesh() {
				t.Cleanup(func() {
					if err := SetReversePathFilter(n, 0, true); err != nil {
						t.Error(err)
					}
				})
				if err := SetReversePathFilter(n, 1, true); err != nil {
					t.Fatal(err)
				}
			}
			for _, priority := range []int{behind10, afterAll} {
				t.Run(fmt.Sprintf("overlay's rule at %d", priority), func(t *testing.T) {
					l.overlayRule(t, priority, false)
					l.install(t, agent(func(n *Node) config.Document {
						doc := l.Document(n)
						c.edit(&doc)
						return doc
					}, 0))
					l.judge(t, rows, overlayAdmitted().and(repaired(), c.want))
				})
			}
		})
	}
}

func TestLab(t *testing.T) {
	logCost(t)
	l := start(t)
	l.service(t)
	t.Run("matrix", func(t *testing.T) { testMatrix(t, l) })
	t.Run("reverse path filter", func(t *testing.T) { testReversePath(t, l) })
	t.Run("variants", func(t *testing.T) { testVariants(t, l) })
	t.Run("policy", func(t *testing.T) { testPolicy(t, l) })
	t.Run("router returns", func(t *testing.T) { testRouterReturns(t, l) })
	t.Run("daemon restarts", func(t *testing.T) { testRestart(t, l) })
	t.Run("orders", func(t *testing.T) { testOrders(t, l) })
	t.Run("service", func(t *testing.T) { testService(t, l) })
	t.Run("daemon is down", func(t *testing.T) { testDown(t, l) })
	t.Run("old connections", func(t *testing.T) { testOldConnections(t, l) })
	t.Run("apply", func(t *testing.T) { testApply(t, l) })
	t.Run("transcript", func(t *testing.T) { testTranscript(t, l) })
	t.Run("readme", func(t *testing.T) { testReadme(t, l) })
	t.Run("doctor", func(t *testing.T) { testDoctor(t, l) })
}
