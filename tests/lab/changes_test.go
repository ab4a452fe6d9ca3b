//go:build linux

package lab

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// soon is how long a change may take to have its effect.
const soon = 10 * time.Second

// one returns the first of the rows with a name.
func one(t *testing.T, rows []row, name string) row {
	t.Helper()
	for _, r := range rows {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no row %q", name)
	return row{}
}

// state returns what routes and translates on a node.
func (n *Node) state(t *testing.T) string {
	t.Helper()
	out, err := Sh(t.Context(), n.Name, `ip rule; ip -6 rule; ip route show table all; ip -6 route show table all
		nft -s list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*//'`)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// testPolicy takes the overlay's rule out of the policy and puts it back, with the agent in place.
func testPolicy(t *testing.T, l *Lab) {
	rows := l.rows()
	podPod := one(t, rows, podToPod)
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	l.install(t, l.agent())
	l.judge(t, rows, overlayAdmitted().and(repaired()))

	before := map[*Node]string{}
	logged := map[*Node]string{}
	for _, n := range l.Mesh() {
		before[n], logged[n] = n.state(t), daemonLog(t, n)
	}
	drops := func(n *Node) int {
		t.Helper()
		count, err := n.DroppedByPolicy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	sender, receiver := drops(l.Ams), drops(l.Fra)

	l.policyFile(t, withoutOverlay)
	l.judge(t, rows, overlayRefused().and(repaired()))

	// The sending node knows of nothing: no count moved, no line was written about it. What there is lies on the other one.
	if got := drops(l.Ams); got != sender {
		t.Errorf("the sender counts %d packets as dropped by the policy, %d before", got, sender)
	}
	if text := strings.TrimPrefix(daemonLog(t, l.Ams), logged[l.Ams]); strings.Contains(text, "Drop") {
		t.Errorf("the sender logged the drops:\n%s", text)
	}
	if got := drops(l.Fra); got == receiver {
		t.Errorf("the receiver counts no packet as dropped by the policy")
	} else {
		t.Logf("dropped by the policy: %d packets by the receiver's count, none by the sender's; receiver's log:\n%s",
			got-receiver, linesWith(strings.TrimPrefix(daemonLog(t, l.Fra), logged[l.Fra]), "IPProto-4"))
	}

	begin := time.Now()
	l.policyFile(t, withOverlay)
	for !l.Send(t.Context(), podPod.flow, attempt).OK {
		if time.Since(begin) > soon {
			t.Fatal("pods do not reach each other though the policy admits it again")
		}
	}
	t.Logf("pods reach each other %v after the policy was changed back", time.Since(begin).Round(time.Millisecond))
	l.judge(t, rows, overlayAdmitted().and(repaired()))
	for _, n := range l.Mesh() {
		if diff := cmp.Diff(before[n], n.state(t)); diff != "" {
			t.Errorf("%s was touched (-before +after):\n%s", n.Name, diff)
		}
	}
}

func daemonLog(t *testing.T, n *Node) string {
	t.Helper()
	log, err := n.DaemonLog()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func linesWith(text, with string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, with) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// testRouterReturns has the overlay's rule come back after the repair, as at a boot or a restart of the router.
func testRouterReturns(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	for _, c := range []struct {
		repair   repair
		priority int
		want     outcomes
	}{
		{naive("a rule for each peer at 10, and source translation", Naive{Rule: true, SNAT: true}), behind10, captured()},
		{l.agent(), 0, repaired()},
	} {
		t.Run(c.repair.name, func(t *testing.T) {
			l.overlayRule(t, behindNobody, false)
			l.install(t, c.repair)
			for _, n := range l.Mesh() {
				if err := DeleteOverlayRule(n); err != nil {
					t.Fatal(err)
				}
				got, err := AddOverlayRule(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				if got != c.priority {
					t.Errorf("%s: the kernel put the overlay's rule at %d, expected %d", n.Name, got, c.priority)
				}
			}
			l.judge(t, l.rows(), overlayAdmitted().and(c.want))
		})
	}
}

// testRestart restarts both nodes' tailscaled under the agent's work, which is not done again.
func testRestart(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	l.install(t, l.agent())
	for _, n := range l.Mesh() {
		n.StopDaemon()
		if err := n.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.Mesh() {
		if err := n.WaitPeers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.RouteOverlay(n); err != nil {
			t.Fatal(err)
		}
	}
	l.judge(t, l.rows(), overlayAdmitted().and(repaired()))
}

// testDown looks where pods' packets to a peer go while tailscaled is down: in clear by the default route, or nowhere if
// the agent is to see to that. With the overlay's rule they go into the tunnel, which has lost its own address: the kernel
// does not let IPv4 packets leave with a source that it does not have, but does not mind with IPv6.
func testDown(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	for _, c := range []struct {
		priority int
		closed   bool
		want     string
		carrier6 string // of the tunnel's packets over IPv6
		after    outcomes
	}{
		{absent, false, "lost eth as pod", "", repliesAstray()},
		{absent, true, "lost", "", repliesAstray()},
		{behindNobody, false, "lost tunnel as pod", "eth0", nil},
		{behindNobody, true, "lost", "", nil},
	} {
		t.Run(fmt.Sprintf("overlay's rule at %d/fail_closed=%v", c.priority, c.closed), func(t *testing.T) {
			l.overlayRule(t, c.priority, false)
			l.install(t, agent(func(n *Node) config.Document {
				doc := l.Document(n)
				doc.Routing.FailClosed = c.closed
				return doc
			}, 0))
			l.Ams.StopDaemon()
			var group sync.WaitGroup
			for _, r := range l.rows() {
				if r.name == podToHost || r.name == podToService {
					group.Go(func() {
						seen := l.Send(t.Context(), r.flow, attempt)
						carrier := ""
						if familyOf(r.flow.Dst) == 6 {
							carrier = c.carrier6
						}
						t.Logf("%s, %s: %s, carried by %q", r.name, r.kind(), r.describe(seen), seen.Carrier)
						if got := r.describe(seen); got != c.want || seen.Carrier != carrier {
							t.Errorf("%s, %s: expected %q, carried by %q", r.name, r.kind(), c.want, carrier)
						}
					})
				}
			}
			group.Wait()
			if err := l.Ams.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Ams.WaitPeers(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.RouteOverlay(l.Ams); err != nil {
				t.Fatal(err)
			}
			l.judge(t, l.rows(), overlayAdmitted().and(repaired(), c.after))
		})
	}
}

// testOldConnections begins connections that are not translated and go on all the time: they must live once the agent has
// done its work, though connection tracking remembers how they began.
func testOldConnections(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	for _, f := range []Family{4, 6} {
		for _, proto := range []string{UDP, Ping} {
			t.Run(fmt.Sprintf("%s/IPv%d", proto, f), func(t *testing.T) {
				done := make(chan Seen, 1)
				go func() {
					done <- l.Send(t.Context(), Flow{From: l.Ams.Pod, To: &l.Fra.Machine, Dst: l.Fra.Addr(f), Proto: proto}, patience)
				}()
				time.Sleep(time.Second)
				select {
				case s := <-done:
					t.Fatalf("answered before there was a repair: %+v", s)
				default:
				}
				begin := time.Now()
				l.install(t, l.agent())
				s := <-done
				if !s.OK {
					t.Fatal("never answered: ", s.Err)
				}
				t.Logf("answered %v after the agent began", time.Since(begin).Round(time.Millisecond))
			})
		}
	}
}
