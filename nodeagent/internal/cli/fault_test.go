//go:build linux

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Whatever happens to a node while the agent runs, it ends exactly as its document asks, the log says what was repaired,
// and nothing else is touched: everything foreign is afterwards as on a twin to which the same happened without an agent.
func TestFaults(t *testing.T) {
	onBoth := func(f func(*nstest.Node)) func(*nstest.Node, bool) { return func(n *nstest.Node, _ bool) { f(n) } }
	run := func(lines string) func(*nstest.Node, bool) { return onBoth(func(n *nstest.Node) { n.Run(lines) }) }
	ownOnly := func(lines string) func(*nstest.Node, bool) {
		return func(n *nstest.Node, agent bool) {
			if agent {
				n.Run(lines)
			}
		}
	}
	faults := []struct {
		name     string
		happens  func(n *nstest.Node, agent bool)
		repaired string // what the log says; "" if there is nothing to repair
	}{
		{
			"rules deleted by hand", ownOnly("ip rule del pref 0 fwmark 0x2000/0x2000\nip -6 rule del pref 0 fwmark 0x2000/0x2000"),
			`command="ip -6 rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116"`,
		},
		{"all rules flushed", onBoth(func(n *nstest.Node) {
			n.Run(`ip rule flush
				ip rule add pref 32766 lookup main
				ip rule add pref 40 fwmark 0x2000/0x2000 lookup 99
				ip rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
				ip rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
				ip rule add pref 5250 fwmark 0x80000/0xff0000 unreachable
				ip rule add pref 5270 lookup 52
				ip rule add from 10.244.1.0/24 lookup 77`)
		}), ""}, // the tool spares priority 0
		{"own table flushed", ownOnly("nft flush table inet tailmesh"), `command="nft add rule inet tailmesh prerouting`},
		{"own chain flushed", ownOnly("nft flush chain inet tailmesh postrouting"), `command="nft add rule inet tailmesh postrouting`},
		{"own table deleted", ownOnly("nft delete table inet tailmesh"), `command="nft add table inet tailmesh"`},
		{"nat flushed in both backends", onBoth(func(n *nstest.Node) { n.FlushTables("nat") }), ""},
		{"the firewall reloads", onBoth((*nstest.Node).ReloadFirewall), ""},
		{"the ruleset flushed", run("nft flush ruleset"), `command="nft add table inet tailmesh"`},
		{"the firewall reloads with a flush in front", onBoth(func(n *nstest.Node) {
			n.Run("nft flush ruleset")
			n.ReloadFirewall()
		}), `command="nft add table inet tailmesh"`},
		{"a set emptied", ownOnly("nft flush set inet tailmesh peers4"), `command="nft add element inet tailmesh peers4 '{ 100.64.0.12 }'"`},
		{"sets destroyed", ownOnly(`nft flush table inet tailmesh
			nft delete set inet tailmesh peers4
			nft delete set inet tailmesh pods6`), `command="nft add set inet tailmesh peers4`},
		{"ipsets destroyed", run("ipset destroy"), ""},
		{"tailscaled restarts, with another device", onBoth(func(n *nstest.Node) {
			n.StopTailscale()
			n.StartTailscale()
		}), ""},
		{"tailscale's table emptied and filled", run(`ip route flush table 52
			ip -6 route flush table 52
			ip route add 100.64.0.12 dev tailscale0 table 52
			ip -6 route add fd7a:115c:a1e0::/48 dev tailscale0 table 52`), ""},
		{"the router restarts", onBoth(func(n *nstest.Node) {
			n.StopRouter()
			n.StartRouter()
		}), ""},
	}
	twin := nstest.NewNode(t)
	twin.Crowd()
	_, before := parts(twin.Dump())
	node := nstest.NewNode(t)
	node.Crowd()
	closeTunnel(node)
	if _, foreign := parts(node.Dump()); foreign != before {
		t.Fatalf("the twin is none (-twin +node):\n%s", cmp.Diff(before, foreign))
	}
	s := startService(t, node, newAgent(t, nodeDocument))
	s.status("ok: 2 of 2")
	whole, foreign := parts(node.Dump())
	if foreign != before {
		t.Fatalf("the start touched what is not the agent's (-before +after):\n%s", cmp.Diff(before, foreign))
	}
	ping := node.StartPing(nstest.Peer)
	for _, fault := range faults {
		logged := len(s.log.String())
		fault.happens(node, true)
		twin.Visit(func() { fault.happens(twin, false) })
		s.settled(whole)
		// The log is written when the repair has been verified.
		s.expect(fault.name+": in the log, "+fault.repaired, func() bool { return strings.Contains(s.log.String()[logged:], fault.repaired) })
		s.status("ok: 2 of 2")
		news := s.log.String()[logged:]
		for line := range strings.Lines(news) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "msg=changed") {
				t.Errorf("%s: the log says %s", fault.name, line)
			}
		}
		if fault.repaired == "" && strings.Contains(news, "msg=repaired") {
			t.Errorf("%s: there was nothing to repair, but the log says:\n%s", fault.name, news)
		}
		if !ping.Answered() {
			t.Errorf("%s: the pod does not reach the peer any more\n%s", fault.name, news)
		}
		_, foreign := parts(node.Dump())
		var want string
		twin.Visit(func() { _, want = parts(twin.Dump()) })
		if foreign != want {
			t.Errorf("%s: what is not the agent's differs from the twin's (-twin +node):\n%s", fault.name, cmp.Diff(want, foreign))
		}
	}
}

// A router that adds its rule anew, in whatever way, costs no packet of a pod.
func TestRouterRestartsUnderTraffic(t *testing.T) {
	node := nstest.NewNode(t)
	closeTunnel(node)
	s := startService(t, node, newAgent(t, nodeDocument))
	s.status("ok: 2 of 2")
	ping := node.StartPing(nstest.Peer)
	if !ping.Answered() {
		t.Fatal("the pod does not reach the peer")
	}
	lost := ping.Lost()
	for range 5 {
		node.StopRouter()
		node.StartRouter()
		node.Run("ip rule add pref 0 from 10.244.1.0/24 lookup 77 protocol 17\nip rule del pref 0 from 10.244.1.0/24 lookup 77 protocol 17")
	}
	if !ping.Answered() || ping.Lost() > lost {
		t.Errorf("%d packets lost", ping.Lost()-lost)
	}
}

// A router that starts after the agent has its rule at priority 0, too. When the agent's own is deleted then, no rule can
// be put in front of the router's: the agent says how its owner moves it, and goes on when that is done.
func TestRuleDeletedBesideOneAtZero(t *testing.T) {
	node := nstest.NewIdleNode(t)
	node.StartTailscale()
	s := startService(t, node, newAgent(t, nodeDocument))
	s.status("ok: 2 of 2")
	node.StartRouter()
	s.status("ok: 2 of 2")
	whole, _ := parts(node.Dump())
	node.Run("ip rule del pref 0 fwmark 0x2000/0x2000")
	s.status("wrong: 1 of 2")
	s.settled(whole)
	move := "ip rule add pref 5209 from 10.244.1.0/24 lookup 77, then ip rule del pref 0 from 10.244.1.0/24 lookup 77"
	if log := s.log.String(); !strings.Contains(log, "comes first; move it: "+move) {
		t.Errorf("the log does not say how to move the rule:\n%s", log)
	}
	node.Run(strings.Replace(move, ", then ", "\n", 1))
	s.status("ok: 2 of 2")
}

// A hundred changes within a second are few passes.
func TestManyChangesAreFewPasses(t *testing.T) {
	node := nstest.NewNode(t)
	s := startService(t, node, newAgent(t, nodeDocument))
	s.status("ok: 2 of 2")
	own, _ := parts(node.Dump())
	before := s.passes()
	var batch strings.Builder
	for i := range 100 {
		fmt.Fprintf(&batch, `rule add pref %d from 10.9.0.0/16 lookup 99\n`, 1000+i)
	}
	node.Run(`printf '` + batch.String() + `' | ip -batch -`)
	node.Run("ip rule del pref 0 fwmark 0x2000/0x2000")
	s.settled(own)
	if n := s.passes() - before; n < 1 || n > 4 {
		t.Errorf("%d passes for a hundred changes, want one to four", n)
	}
}

// The agent, the router and tailscaled start in any order, and each may restart alone.
func TestStartOrders(t *testing.T) {
	orders := [][3]string{
		{"agent", "router", "tailscaled"},
		{"agent", "tailscaled", "router"},
		{"router", "agent", "tailscaled"},
		{"router", "tailscaled", "agent"},
		{"tailscaled", "agent", "router"},
		{"tailscaled", "router", "agent"},
	}
	for _, order := range orders {
		t.Run(strings.Join(order[:], ","), func(t *testing.T) {
			node := nstest.NewIdleNode(t)
			closeTunnel(node)
			a := newAgent(t, nodeDocument)
			var s *service
			start := map[string]func(){
				"agent": func() {
					s = startService(t, node, a)
					s.expect("the first pass", func() bool { return s.passes() > 0 })
				},
				"router":     node.StartRouter,
				"tailscaled": node.StartTailscale,
			}
			stop := map[string]func(){
				"agent": func() { s.stop() }, "router": node.StopRouter, "tailscaled": node.StopTailscale,
			}
			for _, who := range order {
				start[who]()
			}
			s.status("ok: 2 of 2")
			whole, _ := parts(node.Dump())
			for _, who := range append([]string{""}, order[:]...) {
				if who != "" {
					stop[who]()
					start[who]()
				}
				s.settled(whole)
				s.status("ok: 2 of 2")
				for _, address := range []string{nstest.Peer, nstest.Peer6} {
					if !node.PodReaches(address) {
						t.Errorf("restarted %q: the pod does not reach %s\n%s", who, address, s.log)
					}
				}
			}
		})
	}
}
