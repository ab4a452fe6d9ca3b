//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// nodeAilments are those that others than the agent make on the node itself: the CNI, a firewall, scripts, a second agent.
//
// Not made here: tailscaled.rules-lost (this tailscaled puts its rules back at once), overlay.remote and overlay.mtu (the lab's tunnels are no kernel devices of that kind), return.rp-filter (an answer
// by another way than tailscale0 needs a second path between the nodes, which WireGuard does not give),
// peer-connections.rp-filter (the CNI's rule leads answers back through the tunnel), firewall.pods-in-mesh-range (a document
// with such pods is refused, and none are found on the node), probe.not-forwarded (the probe's packets come in where it says).
func nodeAilments(l *Lab) []ailment {
	fra4, own4, own6 := l.Fra.Addr(4).String(), l.Ams.Addr(4).String(), l.Ams.Addr(6).String()
	tunnel4, pod := tunnelName(l.Fra.Addr(4)), l.Ams.Pod.Addr(4).String()
	vip := l.Location[0].Addr(4).String()
	const (
		noRule = "ip rule del pref 0 fwmark 0x2000/0x2000"
		noSNAT = "nft flush chain inet tailmesh postrouting"
	)
	// Rules of iptables that are added, and deleted again.
	rules := func(lines ...string) (inject, undo string) {
		for i := range lines {
			inject += lines[i] + "\n"
			undo += strings.NewReplacer(" -A ", " -D ", " -I ", " -D ").Replace(lines[len(lines)-1-i]) + "\n"
		}
		return inject, undo
	}
	with := func(a ailment, lines ...string) ailment {
		inject, undo := rules(lines...)
		a.inject, a.undo = a.inject+"\n"+inject, undo+a.undo
		return a
	}
	policyOf := func(chain string) string { // what kube-router makes of a NetworkPolicy that admits nothing out of the pod
		return strings.NewReplacer("POD", pod, "CHAIN", chain).Replace(`
			iptables -N KUBE-NWPLCY-YYY
			iptables -N CHAIN
			iptables -A CHAIN -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			iptables -A CHAIN -s POD -j KUBE-NWPLCY-YYY
			iptables -A CHAIN -m mark ! --mark 0x10000/0x10000 -j REJECT
			iptables -A CHAIN -j MARK --set-xmark 0x0/0x10000
			iptables -I FORWARD -s POD -j CHAIN`)
	}
	noPolicyOf := func(chain string) string {
		return strings.NewReplacer("POD", pod, "CHAIN", chain).Replace(`
			iptables -D FORWARD -s POD -j CHAIN
			iptables -F CHAIN
			iptables -F KUBE-NWPLCY-YYY
			iptables -X CHAIN
			iptables -X KUBE-NWPLCY-YYY`)
	}
	reroute := func(t *testing.T, l *Lab) {
		t.Cleanup(func() {
			if err := ip("-n", l.Ams.Name, "link", "set", tunnel4, "up"); err != nil {
				t.Fatal(err)
			}
			if err := l.RouteOverlay(l.Ams); err != nil {
				t.Fatal(err)
			}
		})
	}
	restarted := func(t *testing.T, l *Lab) {
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			l.Ams.StopDaemon()
			if err := l.Ams.StartDaemon(ctx); err != nil {
				t.Fatal(err)
			}
			l.revive(t, ctx, l.Ams)
		})
	}
	firewalld := `
		nft add table inet firewalld
		nft add chain inet firewalld filter_FORWARD '{ type filter hook forward priority filter + 10; }'
		nft add rule inet firewalld filter_FORWARD ct state established,related accept
		nft add rule inet firewalld filter_FORWARD iifname eth0 accept
		nft add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited`
	noFrag := []string{
		"iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP",
		"ip6tables -A OUTPUT -p ipv6-icmp --icmpv6-type packet-too-big -j DROP",
	}
	return []ailment{
		with(ailment{name: "MTU black hole, with a probe", args: probed(), ams: []string{"mtu.black-hole"}}, noFrag...),
		with(ailment{name: "MTU black hole, without a probe, which alone shows it"}, noFrag...),
		with(ailment{name: "look-alike: only echo requests are dropped", args: probed(), ams: []string{"probe.echo-dropped(warn)"}},
			"iptables -I FORWARD -i "+PodBridge+" -o tailscale0 -p icmp -j DROP"),
		with(ailment{name: "only TCP is dropped", ams: []string{"firewall.drops"}}, "iptables -I FORWARD -i "+PodBridge+" -o tailscale0 -p tcp -j DROP"),
		with(ailment{name: "look-alike: other packets are dropped"}, "iptables -I FORWARD -i "+PodBridge+" -o eth0 -p tcp --dport 25 -j DROP"),
		{name: "the CNI's tunnel is down", inject: "ip link set " + tunnel4 + " down", do: reroute, ams: []string{"overlay.down"}},
		{
			name: "two at once: the CNI's tunnel is down, no translation", inject: "ip link set " + tunnel4 + " down\n" + noSNAT, do: reroute,
			ams: []string{"overlay.down", "source.untranslated"},
		},
		{name: "a connection began before it was translated", inject: fmt.Sprintf(`
			nft insert rule inet tailmesh postrouting accept
			ip netns exec %s ping -c 1 -W 1 %s || true
			nft delete rule inet tailmesh postrouting handle \
				$(nft -a list chain inet tailmesh postrouting | sed -n 's/.*[[:space:]]accept # handle //p')`, l.Ams.Pod.Name, fra4), ams: []string{"connections.stale"}},
		{name: "two agents", do: func(t *testing.T, l *Lab) {
			path, err := program(agentEnv)
			if err != nil {
				t.Fatal(err)
			}
			document := l.Ams.writeDocument(t)
			for i := range 2 {
				cmd := exec.Command("ip", "netns", "exec", l.Ams.Name, path, "run", "--config", document, "--socket", l.Ams.socket,
					"--lock", filepath.Join(l.Ams.dir, fmt.Sprintf("agent%d.lock", i)), "--state", t.TempDir(), "--listen", "")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = cmd.Process.Signal(os.Interrupt)
					_ = cmd.Wait()
				})
			}
			l.Ams.waitAgent(t)
		}, ams: []string{"agent.two(warn)"}},
		{name: "another deletes the rule again and again", args: []string{"--watch", "2s"}, do: func(t *testing.T, l *Lab) {
			cmd := exec.Command("ip", "netns", "exec", l.Ams.Name, "sh", "-c",
				"while sleep 0.1; do ip rule del pref 0 fwmark 0x2000/0x2000; ip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116; done")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
		}, ams: []string{"fights.rule"}},
		{name: "look-alike: a floating address is in the set, without effect", inject: "nft add element inet tailmesh peers4 '{ " + vip + " }'", ams: []string{"document.vip-in-peers(warn)"}},
		{
			name: "a floating address is in the set", inject: "nft add element inet tailmesh peers4 '{ " + vip + " }'\nip route add " + vip + " dev tailscale0 table 52",
			undo: "ip route del " + vip + " table 52", ams: []string{"document.vip-in-peers"},
		},
		{
			name: "a floating address is in a rule", inject: "ip rule add pref 50 to " + vip + " lookup 52\nip route add " + vip + " dev tailscale0 table 52",
			undo: "ip rule del pref 50 to " + vip + " lookup 52\nip route del " + vip + " table 52", ams: []string{"document.vip-in-peers"},
		},
		{name: "firewalld, and tailscale0 is in none of its zones", inject: firewalld, undo: "nft delete table inet firewalld", ams: []string{"firewall.firewalld"}},
		{name: "IPv6 of pods that the document does not carry", do: func(t *testing.T, l *Lab) {
			doc := l.Document(l.Ams)
			doc.PodCIDRs = doc.PodCIDRs[:1]
			if out, err := l.Ams.ApplyDocument(t.Context(), doc); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}, ams: []string{"family.uncarried(warn)"}},
		{
			name: "forwarding is off, IPv6", inject: "echo 0 >/proc/sys/net/ipv6/conf/all/forwarding", undo: "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
			ams: []string{"forwarding.off"},
		},
		{
			name: "two at once: forwarding is off, firewalld", inject: "echo 0 >/proc/sys/net/ipv4/ip_forward" + firewalld,
			undo: "echo 1 >/proc/sys/net/ipv4/ip_forward\nnft delete table inet firewalld", ams: []string{"firewall.firewalld", "firewall.firewalld+", "forwarding.off"},
		},
		{
			name: "forwarding is off where answers come in", inject: "echo 0 >/proc/sys/net/ipv4/conf/tailscale0/forwarding",
			undo: "echo 1 >/proc/sys/net/ipv4/conf/tailscale0/forwarding", ams: []string{"return.forwarding"},
		},
		{
			name: "answers to pods go elsewhere", inject: "ip rule add pref 1 to 10.42.1.0/24 lookup 99\nip route add 10.42.1.0/24 dev eth0 table 99",
			undo: "ip rule del pref 1 to 10.42.1.0/24 lookup 99\nip route flush table 99", ams: []string{"return.elsewhere"},
		},
		{
			name: "table 52 sends a peer's packets elsewhere", inject: "ip route replace " + fra4 + " dev eth0 table 52", undo: "ip route replace " + fra4 + " dev tailscale0 table 52",
			ams: []string{"route.elsewhere"},
		},
		{name: "a peer answers no echo requests, with a probe", args: probed(), do: func(t *testing.T, l *Lab) {
			const drop = "tables -%[1]s INPUT -i tailscale0 -p icmp%[2]s -j DROP\n"
			script := func(what string) string {
				return "ip" + fmt.Sprintf(drop, what, "") + "ip6" + fmt.Sprintf(drop, what, "v6 --icmpv6-type echo-request")
			}
			t.Cleanup(func() {
				if _, err := Sh(context.WithoutCancel(t.Context()), l.Fra.Name, script("D")); err != nil {
					t.Error(err)
				}
			})
			if _, err := Sh(t.Context(), l.Fra.Name, script("I")); err != nil {
				t.Fatal(err)
			}
		}, ams: []string{"probe.unanswered(unknown)"}},
		{name: "there is no document", do: func(t *testing.T, l *Lab) {
			if err := os.Remove(filepath.Join(l.Ams.dir, "node.json")); err != nil {
				t.Fatal(err)
			}
		}, ams: []string{"document.unusable"}},
		{
			name: "a peer has an address of this host", inject: "ip addr add 100.64.0.98/32 dev lo", undo: "ip addr del 100.64.0.98/32 dev lo",
			do: withDocument(func(_ *Lab, doc *config.Document) {
				doc.Peers = append(doc.Peers, config.Node{Name: "self", Addresses: []netip.Addr{netip.MustParseAddr("100.64.0.98")}})
			}), ams: []string{"document.peer-local(warn)", "peers.unknown"},
		},
		{
			name: "the agent never ran", inject: "nft delete table inet tailmesh\n" + noRule + "\nip -6 rule del pref 0 fwmark 0x2000/0x2000",
			ams: []string{"route.not-applied", "source.untranslated+"},
		},
		with(ailment{name: "look-alike: no translation, others masquerade", inject: noSNAT, ams: []string{"agent.pending(warn)"}},
			"iptables -t nat -A POSTROUTING -s 10.42.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
			"ip6tables -t nat -A POSTROUTING -s fd00:10:42::/48 -j MASQUERADE"),
		{
			name: "the source is an address of before", inject: fmt.Sprintf(`nft flush chain inet tailmesh postrouting
			nft add rule inet tailmesh postrouting oifname tailscale0 ip saddr @pods4 ip daddr @peers4 counter snat ip to 100.64.0.99
			nft add rule inet tailmesh postrouting oifname tailscale0 ip6 saddr @pods6 ip6 daddr @peers6 counter snat ip6 to %s`, own6),
			ams: []string{"source.wrong-address"},
		},
		with(ailment{name: "another's marks collide with Tailscale's", ams: []string{"marks.collision(warn)"}},
			"iptables -t mangle -A PREROUTING -s 10.42.1.0/24 -j MARK --set-xmark 0x80000/0xff0000"),
		{
			name: "a rule of an older agent", inject: "ip rule add pref 10 fwmark 0x10/0x10 lookup 52 protocol 116", undo: "ip rule del pref 10 fwmark 0x10/0x10 lookup 52 || true",
			ams: []string{"agent.leftover(warn)"},
		},
		{
			name: "a rule of a script", inject: "ip rule add pref 10 to " + fra4 + " lookup 52", undo: "ip rule del pref 10 to " + fra4 + " lookup 52",
			ams: []string{"peer-connections.captured"},
		},
		{
			name: "Tailscale's chains are lost", inject: "iptables -P FORWARD DROP\niptables -F\niptables -X\nip6tables -F\nip6tables -X", undo: "iptables -P FORWARD ACCEPT", do: restarted,
			ams: []string{"firewall.chains-lost"},
		},
		{name: "look-alike: they are lost, without effect", inject: "iptables -F\niptables -X\nip6tables -F\nip6tables -X", do: restarted, ams: []string{"firewall.chains-lost(warn)"}},
		{name: "tailscale0 is down", inject: "ip link set tailscale0 down", do: restarted, ams: []string{"tailscaled.interface"}},
		{name: "a NetworkPolicy denies", args: []string{"--pod", pod}, inject: policyOf("KUBE-POD-FW-XXX"), undo: noPolicyOf("KUBE-POD-FW-XXX"), ams: []string{"firewall.network-policy"}},
		{name: "look-alike: a chain that drops, and is no policy's", args: []string{"--pod", pod}, inject: policyOf("OUR-FW-XXX"), undo: noPolicyOf("OUR-FW-XXX"), ams: []string{"firewall.drops"}},
		{
			name: "two at once: no rule, firewalld", inject: noRule + "\nip -6 rule del pref 0 fwmark 0x2000/0x2000" + firewalld, undo: "nft delete table inet firewalld",
			ams: []string{"firewall.firewalld+", "route.rule-missing"},
		},
		{
			name: "others translate to another address, and the agent's translation is missing",
			inject: noSNAT + `
				nft add table ip other
				nft add chain ip other post '{ type nat hook postrouting priority 90; }'
				nft add rule ip other post ip saddr 10.42.1.0/24 oifname tailscale0 snat to 10.9.9.9`,
			undo: "nft delete table ip other", ams: []string{"source.others", "source.untranslated"}, // the latter of IPv6
		},
		{
			name:   "a blackhole takes the answers",
			inject: "ip route add blackhole 10.42.1.0/24 table 99\nip rule add pref 1 iif tailscale0 to 10.42.1.0/24 lookup 99",
			undo:   "ip rule del pref 1 iif tailscale0 to 10.42.1.0/24 lookup 99\nip route flush table 99", ams: []string{"return.refused"},
		},
		{
			name: "a blackhole takes a peer's packets", inject: "ip route del " + fra4 + " table 52\nip route add blackhole " + fra4 + " table 52",
			undo: "ip route del blackhole " + fra4 + " table 52\nip route add " + fra4 + " dev tailscale0 table 52", ams: []string{"route.refused"},
		},
		with(ailment{name: "legacy iptables translates, with a probe", inject: noSNAT, args: probed(), ams: []string{"source.elsewhere(warn)"}},
			"iptables-legacy -t nat -A POSTROUTING -s 10.42.1.0/24 -o tailscale0 -j SNAT --to-source "+own4,
			"ip6tables-legacy -t nat -A POSTROUTING -s fd00:10:42:1::/64 -o tailscale0 -j SNAT --to-source "+own6),
		{
			name: "legacy iptables drops, with a probe", inject: "iptables-legacy -P FORWARD DROP\nip6tables-legacy -P FORWARD DROP",
			undo: "iptables-legacy -P FORWARD ACCEPT\nip6tables-legacy -P FORWARD ACCEPT", args: probed(), ams: []string{"probe.lost-here"},
		},
		with(ailment{name: "legacy iptables rejects, with a probe", args: probed(), ams: []string{"probe.refused"}},
			"iptables-legacy -A FORWARD -o tailscale0 -j REJECT", "ip6tables-legacy -A FORWARD -o tailscale0 -j REJECT"),
		with(ailment{name: "legacy iptables drops the answers, with a probe", args: probed(), ams: []string{"probe.answer-lost-here"}},
			"iptables-legacy -A FORWARD -i tailscale0 -j DROP", "ip6tables-legacy -A FORWARD -i tailscale0 -j DROP"),
	}
}
