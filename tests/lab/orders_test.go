//go:build linux

package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// part is one of the three that make a node's network, each a service of its own that a node may start at any time.
type part struct {
	name  string
	start func(t *testing.T)
}

// testOrders starts the agent, the router and tailscaled in each order on both nodes, and then each of them anew: all flows
// must be right after each. An agent that starts before tailscaled has a document with addresses that the node does not have
// yet; a router that starts before it cannot make all its routes, and makes them when its sessions come, as kube-router does.
func testOrders(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	agents := l.services()
	rows := l.rows()
	var routed, up bool
	routes := func(t *testing.T) {
		t.Helper()
		for _, n := range l.Mesh() {
			if err := l.RouteOverlay(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	agent := part{"agent", func(t *testing.T) {
		for _, n := range l.Mesh() {
			agents.start(t, n)
		}
		for _, n := range l.Mesh() { // its first pass is over, whatever is there by then
			if err := wait(t.Context(), soon, n.Name+"'s agent", func() error {
				_, err := Run(t.Context(), n.Name, "nft", "list", "table", "inet", "tailmesh")
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}}
	router := part{"router", func(t *testing.T) {
		for _, n := range l.Mesh() {
			priority, err := AddOverlayRule(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: the kernel put the router's rule at %d", n.Name, priority)
		}
		if routed = true; up {
			routes(t)
		}
	}}
	daemon := part{"tailscaled", func(t *testing.T) {
		for _, n := range l.Mesh() {
			if err := n.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range l.Mesh() {
			if err := n.WaitPeers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if up = true; routed {
			routes(t)
		}
	}}
	stopDaemons := func(t *testing.T) {
		for _, n := range l.Mesh() {
			n.StopDaemon()
			if err := n.CleanUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		up = false
	}
	deleteRules := func(t *testing.T) {
		for _, n := range l.Mesh() {
			if err := DeleteOverlayRule(n); err != nil {
				t.Error(err)
			}
		}
		routed = false
	}

	var lines []string
	right := func(t *testing.T, name string, begin time.Time, want outcomes) {
		t.Helper()
		for _, n := range l.Mesh() {
			n.waitAgent(t)
		}
		count, last := 0, begin
		for _, r := range l.judge(t, rows, want) {
			if r.got == r.want {
				count++
			}
			if r.seen.OK && r.at.After(last) {
				last = r.at
			}
		}
		lines = append(lines, fmt.Sprintf("%-32s | %d of %d | %v", name, count, len(rows), last.Sub(begin).Round(100*time.Millisecond)))
	}

	t.Cleanup(func() { // the other parts have the daemons, and no rule
		ctx := context.WithoutCancel(t.Context())
		agents.stop(ctx, t)
		if routed {
			deleteRules(t)
		}
		for _, n := range l.Mesh() {
			if n.daemon == nil {
				if err := n.StartDaemon(ctx); err != nil {
					t.Fatal(err)
				}
			}
			l.revive(t, ctx, n)
		}
	})
	for i, order := range [][]part{
		{agent, router, daemon},
		{agent, daemon, router},
		{router, agent, daemon},
		{router, daemon, agent},
		{daemon, router, agent},
		{daemon, agent, router},
	} {
		name := order[0].name + ", " + order[1].name + ", " + order[2].name
		t.Run(name, func(t *testing.T) {
			if i == 0 {
				stopDaemons(t)
			} else {
				agents.stop(t.Context(), t)
				deleteRules(t)
				stopDaemons(t)
			}
			var begin time.Time
			for _, p := range order {
				begin = time.Now()
				p.start(t)
			}
			right(t, name, begin, overlayAdmitted().and(repaired()))
		})
	}
	for _, restart := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"agent killed and started", func(t *testing.T) {
			for _, n := range l.Mesh() {
				agents.kill(t, n)
			}
			agent.start(t)
		}},
		{"tailscaled restarted", func(t *testing.T) {
			stopDaemons(t)
			daemon.start(t)
		}},
		{"router's rule deleted and added", func(t *testing.T) {
			deleteRules(t)
			router.start(t)
		}},
	} {
		t.Run(restart.name, func(t *testing.T) {
			begin := time.Now()
			restart.do(t)
			right(t, restart.name, begin, overlayAdmitted().and(repaired()))
		})
	}
	t.Logf("order of starts, or restart      | flows right | time until right, from the last start\n%s", strings.Join(lines, "\n"))
}
