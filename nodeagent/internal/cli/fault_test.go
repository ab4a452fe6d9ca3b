//go:build linux

package cli

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// fault is something that happens to a node: to the agent's own things, and then only where there is an agent, or to
// what others see as well.
type fault struct {
	name     string
	happens  func(n *nstest.Node, agent bool)
	repaired string // what the log says; "" if there is nothing to repair
}

// toAll is a fault that hits everybody's things, toOwn one that hits the agent's own.
func toAll(name string, happens func(*nstest.Node), repaired string) fault {
	return fault{name, func(n *nstest.Node, _ bool) { happens(n) }, repaired}
}

func toOwn(name, commands, repaired string) fault {
	return fault{name, func(n *nstest.Node, agent bool) {
		if agent {
			n.Run(commands)
		}
	}, repaired}
}

// faults are those that no firewall is spared, and those of this one.
func (b backend) faults() []fault {
	flushed := func(n *nstest.Node) { n.FlushTables("nat") }
	reload := (*nstest.Node).ReloadFirewall
	ruleset := func(n *nstest.Node) { n.Run("nft flush ruleset") }
	anew := func(n *nstest.Node) { ruleset(n); reload(n) }
	sets := func(n *nstest.Node) { n.Run("ipset destroy") }
	list := []fault{
		toOwn("rules deleted by hand", "ip rule del pref 0 fwmark 0x2000/0x2000\nip -6 rule del pref 0 fwmark 0x2000/0x2000",
			`command="ip -6 rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116"`),
		toAll("all rules flushed", func(n *nstest.Node) {
			n.Run(`ip rule flush
				ip rule add pref 32766 lookup main
				ip rule add pref 40 fwmark 0x2000/0x2000 lookup 99
				ip rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
				ip rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
				ip rule add pref 5250 fwmark 0x80000/0xff0000 unreachable
				ip rule add pref 5270 lookup 52
				ip rule add from 10.244.1.0/24 lookup 77`)
		}, ""), // the tool spares priority 0
		toAll("tailscaled restarts, with another device", func(n *nstest.Node) { n.StopTailscale(); n.StartTailscale() }, ""),
		toAll("tailscale's table emptied and filled", func(n *nstest.Node) {
			n.Run(`ip route flush table 52
				ip -6 route flush table 52
				ip route add 100.64.0.12 dev tailscale0 table 52
				ip -6 route add fd7a:115c:a1e0::/48 dev tailscale0 table 52`)
		}, ""),
		toAll("the router restarts", func(n *nstest.Node) { n.StopRouter(); n.StartRouter() }, ""),
	}
	if b.name == desired.NFTables {
		return append(list,
			toOwn("own table flushed", "nft flush table inet tailmesh", `command="nft add rule inet tailmesh prerouting`),
			toOwn("own chain flushed", "nft flush chain inet tailmesh postrouting", `command="nft add rule inet tailmesh postrouting`),
			toOwn("own table deleted", "nft delete table inet tailmesh", `command="nft add table inet tailmesh"`),
			toAll("nat flushed in both backends", flushed, ""),
			toAll("the firewall reloads", reload, ""),
			toAll("the ruleset flushed", ruleset, `command="nft add table inet tailmesh"`),
			toAll("the firewall reloads with a flush in front", anew, `command="nft add table inet tailmesh"`),
			toOwn("a set emptied", "nft flush set inet tailmesh peers4", `command="nft add element inet tailmesh peers4 '{ 100.64.0.12 }'"`),
			toOwn("sets destroyed", `nft flush table inet tailmesh
				nft delete set inet tailmesh peers4
				nft delete set inet tailmesh pods6`, `command="nft add set inet tailmesh peers4`),
			toAll("ipsets destroyed", sets, ""),
		)
	}
	rule := b.tools(`command="IPT -t nat -I TAILMESH-POSTROUTING 1 `)
	list = append(list,
		toOwn("own chain flushed", b.tools("IPT -w -t nat -F TAILMESH-POSTROUTING"), rule),
		toOwn("own IPv6 chain flushed", b.tools("IP6T -w -t mangle -F TAILMESH-PREROUTING"), b.tools(`command="IP6T -t mangle -I TAILMESH-PREROUTING 1 `)),
		toOwn("jump deleted", b.tools("IPT -w -t mangle -D PREROUTING 1"), b.tools(`command="IPT -t mangle -I PREROUTING 1 -m comment --comment tailmesh`)),
		toOwn("jump overtaken", b.tools("IPT -w -t nat -D POSTROUTING 1\nIPT -w -t nat -A POSTROUTING -m comment --comment tailmesh -j TAILMESH-POSTROUTING"),
			"| "+string(b.name)+`-restore --noflush" cause=`),
		toAll("nat flushed in both backends", flushed, b.tools(`command="IPT -t nat -N TAILMESH-POSTROUTING"`)),
		toAll("mangle flushed in both backends", func(n *nstest.Node) { n.FlushTables("mangle") }, b.tools(`command="IPT -t mangle -N TAILMESH-PREROUTING"`)),
		toAll("the firewall reloads", func(n *nstest.Node) { reload(n); b.hint(n) }, b.tools(`command="IPT -t nat -N TAILMESH-POSTROUTING"`)),
	)
	if b.name == desired.IPTablesNFT {
		list = append(list,
			toAll("the ruleset flushed", func(n *nstest.Node) { ruleset(n); b.hint(n) }, b.tools(`command="IPT -t nat -N TAILMESH-POSTROUTING"`)),
			toAll("the firewall reloads with a flush in front", func(n *nstest.Node) { anew(n); b.hint(n) },
				b.tools(`command="IPT -t nat -N TAILMESH-POSTROUTING"`)),
		)
	} else {
		list = append(list, toAll("the ruleset flushed", ruleset, ""))
	}
	if b.noSets {
		return append(list, toAll("ipsets destroyed", sets, ""))
	}
	return append(list,
		toAll("ipsets emptied", func(n *nstest.Node) { n.Run("ipset flush") }, b.tools(`SET-peers4 %s\\n' 100.64.0.12 | ipset restore"`)),
		toOwn("a set widened", b.tools("ipset add SET-pods4 10.0.0.0/9"), b.tools(`echo swap SET-pods4-new SET-pods4`)),
		toOwn("sets destroyed", b.tools(`IPT -w -t mangle -F TAILMESH-PREROUTING
			IPT -w -t nat -F TAILMESH-POSTROUTING
			ipset destroy SET-peers4
			ipset destroy SET-pods4`), b.tools(`command="ipset create SET-peers4 `)),
	)
}

// Whatever happens to a node while the agent runs, it ends exactly as its document asks, the log says what was repaired,
// and nothing else is touched: everything foreign is afterwards as on a twin to which the same happened without an agent.
func TestFaults(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		twin := b.node(t)
		twin.Crowd()
		_, before := parts(twin.Dump())
		node := b.node(t)
		node.Crowd()
		closeTunnel(node)
		if _, foreign := parts(node.Dump()); foreign != before {
			t.Fatalf("the twin is none (-twin +node):\n%s", cmp.Diff(before, foreign))
		}
		s := startService(t, node, b.agent(t, b.document("")))
		s.status("ok: 2 of 2")
		whole, foreign := parts(node.Dump())
		if foreign != before {
			t.Fatalf("the start touched what is not the agent's (-before +after):\n%s", cmp.Diff(before, foreign))
		}
		ping := node.StartPing(nstest.Peer)
		for _, fault := range b.faults() {
			logged := len(s.log.String())
			fault.happens(node, true)
			twin.Visit(func() { fault.happens(twin, false) })
			if b.name != desired.NFTables {
				s.nudge()
			}
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
	})
}

// A router that adds its rule anew, in whatever way, costs no packet of a pod.
func TestRouterRestartsUnderTraffic(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		s := startService(t, node, b.agent(t, b.document("")))
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
	})
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
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		s := startService(t, node, b.agent(t, b.document("")))
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
	})
}

// The agent, the router and tailscaled start in any order, and each may restart alone, with every firewall and every
// setting of reverse path filtering. Then packets go their way in both directions, in both families: a pod's own
// connection to a peer by tailscale0, and a peer's to a pod, with its replies, by the overlay.
func TestStartOrders(t *testing.T) {
	orders := [][3]string{
		{"agent", "router", "tailscaled"},
		{"agent", "tailscaled", "router"},
		{"router", "agent", "tailscaled"},
		{"router", "tailscaled", "agent"},
		{"tailscaled", "agent", "router"},
		{"tailscaled", "router", "agent"},
	}
	overFirewalls(t, func(t *testing.T, b backend) {
		for i, order := range orders {
			for j := range 3 {
				filter := fmt.Sprint(j)
				if testing.Short() && (i+j)%3 != 0 {
					continue
				}
				t.Run(strings.Join(order[:], ",")+",rp_filter="+filter, func(t *testing.T) { b.startOrder(t, order, filter) })
			}
		}
	})
}

func (b backend) startOrder(t *testing.T, order [3]string, filter string) {
	node := nstest.NewIdleNode(t)
	b.kubelet(node)
	// A pod's request must not get to the peer by the tunnel, and a pod's reply must: with the pod's source it would be
	// dropped at the other end of tailscale0.
	node.InPeer(func() {
		node.Run(`nft add rule inet wireguard input iifname tun-ams1 icmp type echo-request counter drop
			nft add rule inet wireguard input iifname tun-ams1 icmpv6 type echo-request counter drop`)
	})
	node.Sysctl("ipv4.conf.all.src_valid_mark", "1") // as tailscaled does
	for _, key := range []string{"all", "default", nstest.Bridge, nstest.Tunnel} {
		node.Sysctl("ipv4.conf."+key+".rp_filter", filter)
	}
	a := b.agent(t, b.document(""))
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
		if who == "router" { // its rule has another place now, and what the agent does about that changes
			s.expect("nothing left to do", func() bool { plan, _, _ := a.run("plan"); return plan == "nothing to do\n" })
			whole, _ = parts(node.Dump())
		}
		s.settled(whole)
		s.status("ok: 2 of 2")
		for peer, pod := range map[string]string{nstest.Peer: nstest.Pod, nstest.Peer6: nstest.Pod6} {
			if !node.PodReaches(peer) {
				t.Errorf("restarted %q: the pod does not reach %s\n%s", who, peer, s.log)
			}
			if !node.PeerReaches(peer, pod) {
				t.Errorf("restarted %q: %s does not reach the pod\n%s", who, peer, s.log)
			}
		}
	}
}

// A change of a table that somebody has taken away meanwhile fails whole, and in few words.
func TestTableGoneBeforeAChange(t *testing.T) {
	nstest.New(t)
	set := desired.Set{Name: "peers4", Family: desired.IPv4}
	change := desired.FirewallChange{Backend: desired.NFTables, Op: desired.AddElement, Set: set}
	for range 3 {
		change.Elements = append(change.Elements, netip.MustParsePrefix("100.64.0.12/32"))
	}
	err := kernel.NewLinux().Apply(t.Context(), desired.Changes{Firewall: []desired.FirewallChange{change, change, change}})
	if err == nil || err.Error() != `change nftables table "tailmesh": no such file or directory` {
		t.Errorf("got %v", err)
	}
}

// A connection that begins while tailscaled is away takes the CNI's way and keeps the pod's own source. When the peer is
// reached again it must begin anew, though nothing of the agent's has changed.
func TestConnectionBegunMeanwhile(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(""))
		s := startService(t, node, a)
		s.status("ok: 2 of 2")
		node.StopTailscale()
		s.status("unknown: 0 of 2")
		ping := node.StartPing(nstest.Peer)
		node.Wait(func() bool { return ping.Lost() > 1 })
		node.StartTailscale()
		if !ping.Answered() {
			t.Errorf("the connection that began meanwhile is never answered; log:\n%s", s.log)
		}
		if !strings.Contains(s.log.String(), "made stale connections begin anew") {
			t.Errorf("the log does not say so:\n%s", s.log)
		}
	})
}

// A jump that others keep coming in front of is moved without a moment in which there is none: a connection that begins then
// would leave with the pod's own source.
func TestJumpMovesWithoutGap(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		node.InPeer(func() {
			node.Run("nft insert rule inet wireguard input udp dport 9999 counter\nnft insert rule inet wireguard input ip saddr 10.244.1.0/24 udp dport 9999 counter")
		})
		done := make(chan struct{})
		begun := 0
		wait := node.PodSide.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				time.Sleep(500 * time.Microsecond) // ports of its own, another one each time, must last
				if c, err := net.Dial("udp4", nstest.Peer+":9999"); err == nil {
					_, _ = c.Write([]byte("x"))
					c.Close()
					begun++
				}
			}
		})
		for range 12 {
			node.Run(b.tools("IPT -w -t nat -D POSTROUTING -p sctp -j ACCEPT 2>/dev/null || true\nIPT -w -t nat -I POSTROUTING 1 -p sctp -j ACCEPT"))
			a.want(exitYes, "apply")
		}
		close(done)
		wait()
		node.Run(b.tools("IPT -w -t nat -D POSTROUTING -p sctp -j ACCEPT"))
		var arrived string
		node.InPeer(func() { arrived = node.Run("nft list chain inet wireguard input") })
		counts := regexp.MustCompile(`counter packets (\d+)`).FindAllStringSubmatch(arrived, -1)
		if len(counts) < 2 || counts[0][1] != "0" || counts[1][1] == "0" {
			t.Errorf("of %d connections, packets with the pod's own source and all: %q", begun, counts)
		}
	})
}
