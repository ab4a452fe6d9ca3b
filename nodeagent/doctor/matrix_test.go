//go:build linux

package doctor_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// named lists what a report names: code, level where it is not fail, and + where it stands behind another.
func named(r doctor.Report) []string {
	var out []string
	for _, f := range r.Findings() {
		text := f.Code
		if f.Level != doctor.Fail {
			text += "(" + string(f.Level) + ")"
		}
		if f.Behind != "" {
			text += "+"
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

const (
	strict   = "for i in all tailscale0 tun-fra1 kube-bridge; do echo 1 > /proc/sys/net/ipv4/conf/$i/rp_filter; done"
	noRule   = "ip rule del pref 0 fwmark 0x2000/0x2000"
	noSNAT   = "nft flush chain inet tailmesh postrouting"
	dropAll  = "iptables -P FORWARD DROP\niptables -F ts-forward"
	noBridge = "echo 0 > /proc/sys/net/ipv4/conf/kube-bridge/forwarding"
	// What kube-router makes of a NetworkPolicy that admits nothing out of the pod.
	denyPod = `
		iptables -N KUBE-NWPLCY-YYY
		iptables -N KUBE-POD-FW-XXX
		iptables -N KUBE-ROUTER-FORWARD
		iptables -A KUBE-POD-FW-XXX -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		iptables -A KUBE-POD-FW-XXX -d 10.244.1.5 -m addrtype --src-type LOCAL -j ACCEPT
		iptables -A KUBE-POD-FW-XXX -s 10.244.1.5 -j KUBE-NWPLCY-YYY
		iptables -A KUBE-POD-FW-XXX -m mark ! --mark 0x10000/0x10000 -j REJECT
		iptables -A KUBE-POD-FW-XXX -j MARK --set-xmark 0x0/0x10000
		iptables -A KUBE-POD-FW-XXX -j MARK --set-xmark 0x20000/0x20000
		iptables -A KUBE-ROUTER-FORWARD -d 10.244.1.5 -j KUBE-POD-FW-XXX
		iptables -A KUBE-ROUTER-FORWARD -s 10.244.1.5 -j KUBE-POD-FW-XXX
		iptables -A KUBE-ROUTER-FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT
		iptables -I FORWARD -j KUBE-ROUTER-FORWARD`
	noSrcOK = strict + "\necho 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark"
)

// fault is something done to a healthy node and what must be named, with a probe and without.
type fault struct {
	name   string
	inject string // commands on the node
	do     func(*ill)
	pod    string   // whose packets are looked at; "": those of an address that no pod has, and a probe's as well
	want   []string // what is named without a probe; none: nothing at all
	probed []string // and with one, where that is not the same
	first  string   // what is to be fixed first, where there are several
	quiet  bool     // the verdict is not wrong
	unsure bool     // and without a probe it is not right, either
	still  bool     // no probe can be sent
	fixed  bool     // the commands that are said mend it
}

// legacyBackend has the agent use iptables-legacy, because kubelet does.
func legacyBackend(n *ill) {
	n.Run("iptables-legacy -t mangle -N KUBE-IPTABLES-HINT\nip6tables-legacy -t mangle -N KUBE-IPTABLES-HINT")
	n.doc.Firewall.Backend = config.BackendIPTables
	n.apply()
}

func faults() []fault {
	peer := func(n *ill, key, field string, value any) { n.tailnet.peers[key][field] = value }
	failClosed := func(n *ill) { n.doc.Routing.FailClosed = true }
	return []fault{
		{name: "healthy", quiet: true},
		{name: "healthy, noise", quiet: true, do: func(n *ill) {
			var batch strings.Builder
			for i := range 200 {
				fmt.Fprintf(&batch, "rule add pref %d from 172.16.%d.0/24 lookup %d\n", 1000+i, i, 1000+i)
			}
			n.Run("printf '" + strings.ReplaceAll(batch.String(), "\n", `\n`) + "' | ip -batch -")
			n.Run(`
				nft add table ip kube-proxy
				nft add chain ip kube-proxy services
				nft add chain ip kube-proxy nat-prerouting '{ type nat hook prerouting priority dstnat; }'
				nft add rule ip kube-proxy nat-prerouting ip daddr vmap '{ 10.96.0.1 : goto services }'
				nft add rule ip kube-proxy services dnat to 10.244.1.2
				iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP
				iptables -A FORWARD -s 10.244.1.7/32 -j REJECT
				iptables -P FORWARD DROP
				iptables -A FORWARD -i kube-bridge -j ACCEPT
				iptables -A FORWARD -o kube-bridge -j ACCEPT
				ip rule add pref 7 fwmark 0x200/0xf00 lookup 2004
				ip route add 10.244.9.0/24 dev tun-fra1
				ip route add throw 10.244.0.0/16 table 52
				ip route add blackhole 203.0.113.0/24
			`)
		}},
		{name: "healthy, Flannel's masquerade", quiet: true, inject: `
			iptables -t nat -A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN
			iptables -t nat -A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE`},
		{name: "healthy, strict rp_filter", quiet: true, inject: strict},
		{name: "healthy, legacy loaded", quiet: true, inject: "for t in nat filter mangle; do iptables-legacy -t $t -L; ip6tables-legacy -t $t -L; done"},
		{name: "healthy, legacy used", quiet: true, unsure: true, inject: "iptables-legacy -t nat -A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE"},
		{name: "healthy, router's rule added later", quiet: true, inject: "ip rule del from 10.244.1.0/24 lookup 77\nip rule add from 10.244.1.0/24 lookup 77"},
		{name: "healthy, marks in others' bits", quiet: true, inject: "iptables -t mangle -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x4000/0x4000"},

		{name: "healthy, iptables backend", quiet: true, do: func(n *ill) {
			n.doc.Firewall.Backend = config.BackendIPTables
			n.apply()
		}},
		{name: "healthy, iptables-legacy backend", quiet: true, do: legacyBackend},
		{name: "6 SNAT missing, iptables-legacy backend", do: func(n *ill) {
			legacyBackend(n)
			n.Run("iptables-legacy -t nat -F TAILMESH-POSTROUTING\nip6tables-legacy -t nat -F TAILMESH-POSTROUTING")
		}, want: []string{"source.untranslated"}},
		{name: "1 rule missing, iptables-legacy backend", do: func(n *ill) {
			legacyBackend(n)
			n.Run(noRule)
		}, want: []string{"route.rule-missing"}},
		{name: "6 SNAT missing, iptables backend", do: func(n *ill) {
			n.doc.Firewall.Backend = config.BackendIPTables
			n.apply()
			n.Run("iptables -t nat -F TAILMESH-POSTROUTING\nip6tables -t nat -F TAILMESH-POSTROUTING")
		}, want: []string{"source.untranslated"}},
		{name: "1 rule missing, iptables backend", do: func(n *ill) {
			n.doc.Firewall.Backend = config.BackendIPTables
			n.apply()
			n.Run(noRule)
		}, want: []string{"route.rule-missing"}},
		{name: "agent never applied", do: func(n *ill) {
			n.Run("nft delete table inet tailmesh\n" + noRule + "\nip -6 rule del pref 0 fwmark 0x2000/0x2000")
		}, want: []string{"route.not-applied", "source.untranslated+"}, first: "route.not-applied"},
		{name: "1 rule missing", inject: noRule, want: []string{"route.rule-missing"}},
		{name: "1 rule missing, IPv6", inject: "ip -6 rule del pref 0 fwmark 0x2000/0x2000", want: []string{"route.rule-missing"}},
		{name: "2 rule shadowed", inject: "ip rule add pref 0 from 10.244.1.0/24 lookup 77\nip rule del pref 0 fwmark 0x2000/0x2000\nip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116", want: []string{"route.shadowed"}},
		{name: "2 rule shadowed by one that was moved, not copied", inject: "ip rule del from 10.244.1.0/24 lookup 77\nip rule add pref 0 from 10.244.1.0/24 lookup 77\nip rule del pref 0 fwmark 0x2000/0x2000\nip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116", want: []string{"route.shadowed"}},
		{name: "table flushed: no mark, no translation", inject: "nft delete table inet tailmesh", want: []string{"route.unmarked", "source.untranslated+"}, first: "route.unmarked"},
		{name: "table dormant: no mark, no translation", inject: "nft add table inet tailmesh '{ flags dormant; }'", want: []string{"route.unmarked", "source.untranslated+"}, first: "route.unmarked"},
		{name: "mark cleared by another", inject: `
			nft add table ip other
			nft add chain ip other pre '{ type filter hook prerouting priority -80; }'
			nft add rule ip other pre ip saddr 10.244.1.0/24 meta mark set 0x0`, want: []string{"route.mark-cleared"}},
		{name: "not tracked", inject: `
			nft add table ip other
			nft add chain ip other raw '{ type filter hook prerouting priority raw; }'
			nft add rule ip other raw ip saddr 10.244.1.0/24 notrack`, want: []string{"route.untracked"}},
		{name: "peer not in the set", inject: "nft delete element inet tailmesh peers4 '{ 100.64.0.13 }'", want: []string{"route.peer-unlisted", "source.untranslated+"}},
		{name: "3 no route in table 52", inject: "ip route del 100.64.0.13 table 52", want: []string{"route.missing"}},
		{name: "3 look-alike of a shadowed rule: no route, and a rule in front that passes over default routes", do: func(n *ill) {
			n.Run("ip rule add pref 105 lookup main suppress_prefixlength 0")
			n.doc.Routing.Priority = config.PriorityOf(200)
			n.apply()
			n.Run("ip route del 100.64.0.13 table 52")
		}, want: []string{"route.missing"}},
		{name: "3 no route, peer not in the tailnet", inject: "ip route del 100.64.0.13 table 52", do: func(n *ill) { delete(n.tailnet.peers, "k2") }, want: []string{"peers.unknown"}},
		{name: "peer offline", do: func(n *ill) {
			peer(n, "k2", "Online", false)
			n.InPeer(func() { n.Run("ip addr del 100.64.0.13/32 dev lo") })
		}, want: []string{"peers.offline"}},
		{name: "peer's key expired", do: func(n *ill) { peer(n, "k2", "Expired", true) }, want: []string{"peers.expired"}},
		{name: "peer re-registered, no agent follows", do: func(n *ill) {
			peer(n, "k2", "TailscaleIPs", []string{"100.64.0.77"})
			n.Run("ip route del 100.64.0.13 table 52\nip route add 100.64.0.77 dev tailscale0 table 52\nip route add 100.64.0.77 dev tun-fra1 table 77")
			n.InPeer(func() { n.Run("ip addr add 100.64.0.77/32 dev lo") })
		}, want: []string{"document.stale(warn)", "peers.moved", "source.untranslated+"}},
		{name: "peer re-registered, agent follows", quiet: true, do: func(n *ill) {
			peer(n, "k2", "TailscaleIPs", []string{"100.64.0.77"})
			n.Run("ip route del 100.64.0.13 table 52\nip route add 100.64.0.77 dev tailscale0 table 52")
			n.Run("nft delete element inet tailmesh peers4 '{ 100.64.0.13 }'\nnft add element inet tailmesh peers4 '{ 100.64.0.77 }'")
			n.InPeer(func() { n.Run("ip addr add 100.64.0.77/32 dev lo") })
		}, want: []string{"document.stale(warn)"}},
		{name: "peer replaced by another node", do: func(n *ill) { peer(n, "k2", "ID", "nOther") }, want: []string{"agent.pending(warn)", "peers.replaced"}},
		{name: "document of another node", do: func(n *ill) { n.tailnet.self["ID"] = "nElse" }, want: []string{"document.foreign"}},
		{name: "4 tailscaled down", do: func(n *ill) { n.tailnet.silent = true; n.StopTailscale() }, want: []string{"tailscaled.down"}},
		{name: "4 tailscaled runs, device gone", do: func(n *ill) { n.Run("ip link del tailscale0") }, want: []string{"tailscaled.interface"}},
		{name: "5 tailscale0 down", inject: "ip link set tailscale0 down", want: []string{"tailscaled.interface"}},
		{name: "logged out", do: func(n *ill) {
			n.tailnet.state = "NeedsLogin"
			n.Run("ip addr flush dev tailscale0\nip route flush table 52")
		}, want: []string{"tailscaled.logged-out"}},
		{name: "tailscale down", do: func(n *ill) {
			n.tailnet.state = "Stopped"
			n.Run("ip addr flush dev tailscale0\nip route flush table 52")
		}, want: []string{"tailscaled.stopped"}},
		{name: "own key expired", do: func(n *ill) { n.tailnet.state = "NeedsLogin"; n.tailnet.self["KeyExpiry"] = "2020-01-01T00:00:00Z" }, want: []string{"tailscaled.key-expired"}},
		{name: "IPv6 of pods that nobody carries", quiet: true, do: func(n *ill) {
			n.doc.PodCIDRs = n.doc.PodCIDRs[:1]
			n.apply()
		}, want: []string{"family.uncarried(warn)"}},
		{name: "look-alike: the same, and no peer has IPv6", quiet: true, do: func(n *ill) {
			n.doc.PodCIDRs = n.doc.PodCIDRs[:1]
			for i, p := range n.doc.Peers {
				n.doc.Peers[i].Addresses = p.Addresses[:1]
			}
			for _, key := range []string{"k1", "k2"} {
				peer(n, key, "TailscaleIPs", n.tailnet.peers[key]["TailscaleIPs"].([]string)[:1])
			}
			n.apply()
		}},
		{name: "6 SNAT missing", inject: noSNAT, want: []string{"source.untranslated"}},
		{
			name: "6 look-alike: SNAT missing, others masquerade", quiet: true, inject: noSNAT + "\niptables -t nat -A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE\nip6tables -t nat -A POSTROUTING -s fd00:10:244::/48 -j MASQUERADE",
			want: []string{"agent.pending(warn)"},
		},
		{name: "7 SNAT behind an earlier one", inject: `
			nft add table ip other
			nft add chain ip other post '{ type nat hook postrouting priority 90; }'
			nft add rule ip other post ip saddr 10.244.1.0/24 oifname tailscale0 snat to 10.9.9.9`, want: []string{"source.shadowed"}},
		{name: "7 the same behind a jump and a set", inject: `
			nft add table ip other
			nft add set ip other pods '{ type ipv4_addr; flags interval; elements = { 10.244.0.0/16 } }'
			nft add chain ip other nat
			nft add rule ip other nat snat to 10.9.9.9
			nft add chain ip other post '{ type nat hook postrouting priority 90; }'
			nft add rule ip other post ip saddr @pods jump nat`, want: []string{"source.shadowed"}},
		{name: "7 look-alike: earlier one for other packets", quiet: true, inject: `
			nft add table ip other
			nft add chain ip other post '{ type nat hook postrouting priority 90; }'
			nft add rule ip other post ip saddr 10.244.2.0/24 snat to 10.9.9.9
			nft add rule ip other post ip saddr 10.244.1.0/24 oifname eth0 snat to 10.9.9.9`},
		{name: "8 SNAT only in legacy", quiet: true, do: func(n *ill) {
			n.Run(noSNAT + `
				iptables-legacy -t nat -A POSTROUTING -s 10.244.1.0/24 -o tailscale0 -j SNAT --to-source 100.64.0.11
				ip6tables-legacy -t nat -A POSTROUTING -s fd00:10:244:1::/64 -o tailscale0 -j SNAT --to-source fd7a:115c:a1e0::b`)
		}, want: []string{"agent.pending(warn)"}, probed: []string{"source.elsewhere(warn)"}},
		{name: "9 stale connection", do: func(n *ill) {
			n.Run(noSNAT)
			n.InPod(func() { _, _ = n.Try("ping -n -c 1 -W 1 100.64.0.12") })
			before := n.doc
			n.restoreWithoutDropping()
			n.doc = before
		}, want: []string{"connections.stale"}},
		{
			name: "10 SNAT to an address of before", inject: `nft flush chain inet tailmesh postrouting
			nft add rule inet tailmesh postrouting oifname tailscale0 ip saddr @pods4 ip daddr @peers4 counter snat ip to 100.64.0.99
			nft add rule inet tailmesh postrouting oifname tailscale0 ip6 saddr @pods6 ip6 daddr @peers6 counter snat ip6 to fd7a:115c:a1e0::b`,
			want: []string{"source.wrong-address"},
		},
		{
			name: "SNAT too wide", inject: "nft add table ip other\nnft add chain ip other post '{ type nat hook postrouting priority 94; }'\nnft add rule ip other post ip saddr 10.244.1.0/24 snat to 100.64.0.11",
			want: []string{"source.too-wide"},
		},
		{name: "11 FORWARD drops", inject: dropAll + "\niptables -A ts-forward -i tailscale0 -j ACCEPT", want: []string{"firewall.drops"}},
		{name: "11 look-alike: DROP, but accepted before", quiet: true, inject: "iptables -P FORWARD DROP"},
		{name: "11 a rule drops in a table of its own", inject: `
			nft add table inet fw
			nft add chain inet fw forward '{ type filter hook forward priority 10; }'
			nft add rule inet fw forward iifname "kube-*" oifname tailscale0 ct state new counter drop`, want: []string{"firewall.drops"}},
		{name: "11 dropped before it is routed or marked", inject: "iptables -t raw -A PREROUTING -d 100.64.0.12 -j DROP", want: []string{"firewall.drops"}},
		{name: "11 only TCP is dropped", inject: "iptables -I FORWARD -i kube-bridge -o tailscale0 -p tcp -j DROP", want: []string{"firewall.drops"}},
		{
			name: "11 look-alike: only echo requests are dropped", quiet: true, inject: "iptables -I FORWARD -i kube-bridge -o tailscale0 -p icmp -j DROP",
			probed: []string{"probe.echo-dropped(warn)"},
		},
		{name: "11 look-alike: some ports are dropped, table is dormant", quiet: true, inject: `
			iptables -I FORWARD -i kube-bridge -o eth0 -p tcp --dport 25 -j DROP
			nft add table inet dormant '{ flags dormant; }'
			nft add chain inet dormant forward '{ type filter hook forward priority 0; policy drop; }'`},
		{name: "11 a policy of legacy iptables drops", inject: "iptables-legacy -P FORWARD DROP\nip6tables-legacy -P FORWARD DROP", probed: []string{"probe.lost-here"}},
		{name: "12 ts-forward lost", inject: "iptables -P FORWARD DROP\niptables -F\niptables -X\nip6tables -F\nip6tables -X", want: []string{"firewall.chains-lost"}},
		{name: "12 look-alike: lost, without effect", quiet: true, inject: "iptables -F\niptables -X\nip6tables -F\nip6tables -X", want: []string{"firewall.chains-lost(warn)"}},
		{name: "13 stateful filtering", inject: "iptables -I ts-forward 3 -o tailscale0 -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP", want: []string{"firewall.stateful"}},
		{name: "firewalld rejects", inject: `
			nft add table inet firewalld
			nft add chain inet firewalld filter_FORWARD '{ type filter hook forward priority filter + 10; }'
			nft add rule inet firewalld filter_FORWARD ct state established,related accept
			nft add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited`, want: []string{"firewall.firewalld"}},
		{name: "15 forwarding off", inject: "echo 0 > /proc/sys/net/ipv4/ip_forward", want: []string{"forwarding.off"}},
		{name: "14 look-alike: a NetworkPolicy of another pod", quiet: true, inject: denyPod},
		{name: "14 look-alike: a NetworkPolicy admits the pod", quiet: true, pod: "10.244.1.5", inject: denyPod + "\niptables -A KUBE-NWPLCY-YYY -j MARK --set-xmark 0x10000/0x10000"},
		{name: "14 a NetworkPolicy denies", pod: "10.244.1.5", inject: denyPod, want: []string{"firewall.network-policy"}},
		{name: "14 a NetworkPolicy denies, and no rule", pod: "10.244.1.5", inject: denyPod + "\n" + noRule, want: []string{"firewall.network-policy+", "route.rule-missing"}, first: "route.rule-missing"},
		{name: "14 look-alike: a chain that drops, and is no policy's", pod: "10.244.1.5", inject: strings.ReplaceAll(denyPod, "KUBE-POD-FW-", "OUR-FW-"), want: []string{"firewall.drops"}},
		{name: "15 forwarding off, IPv6", inject: "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding", want: []string{"forwarding.off"}},
		{name: "16 forwarding off where pods come in", inject: noBridge, want: []string{"forwarding.interface"}},
		{name: "17 strict rp_filter, marks not looked at", inject: noSrcOK, want: []string{"return.src-valid-mark"}},
		{name: "17 look-alike: marks not looked at, loose", quiet: true, inject: "echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark"},
		{name: "18 answers dropped", inject: "iptables -I FORWARD -i tailscale0 -o kube-bridge -j DROP", want: []string{"return.firewall"}},
		{name: "19 MTU black hole", do: func(n *ill) {
			n.Run(`
				ip link set tailscale0 mtu 1280
				iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP
				ip6tables -A OUTPUT -p ipv6-icmp --icmpv6-type packet-too-big -j DROP`)
		}, want: nil, probed: []string{"mtu.black-hole"}},
		{name: "19 look-alike: smaller MTU, sender is told", quiet: true, inject: "ip link set tailscale0 mtu 1280"},
		{name: "20 policy drops the overlay", do: func(n *ill) {
			n.tailnet.filter = n.tailnet.filter[:1]
			n.tailnet.drops = 41
		}, want: []string{"policy.overlay-dropped"}},
		{name: "20 the policy was edited", do: func(n *ill) {
			n.tailnet.filter = n.tailnet.filter[:1]
			n.options.Admissions = doctor.Admissions{Protocol: "ip-in-ip", Peers: map[string]doctor.Admission{"nFra": {Since: time.Now().Add(-time.Hour)}, "nPar": {Since: time.Now().Add(-time.Hour), Until: time.Now()}}}
		}, want: []string{"policy.edited"}},
		{name: "20 another overlay's was admitted before", do: func(n *ill) {
			n.tailnet.filter = n.tailnet.filter[:1]
			n.options.Admissions = doctor.Admissions{Protocol: "gre", Peers: map[string]doctor.Admission{"nFra": {Since: time.Now()}, "nPar": {Since: time.Now()}}}
		}, want: []string{"policy.overlay-dropped"}},
		{name: "20 look-alike: it was dropped once", quiet: true, do: func(n *ill) {
			n.options.Admissions = doctor.Admissions{Protocol: "ip-in-ip", Peers: map[string]doctor.Admission{"nFra": {Since: time.Now().Add(-time.Hour), Until: time.Now()}}}
		}},
		{name: "20 protocol 4 on one port only", do: func(n *ill) { n.tailnet.filter[1] = admission([]int{4}, 22, 22) }, want: []string{"policy.overlay-dropped"}},
		{name: "20 an empty filter", do: func(n *ill) { n.tailnet.filter = []any{} }, want: []string{"policy.overlay-dropped"}},
		{name: "20 beyond this node: the peer drops ICMP", quiet: true, do: func(n *ill) {
			n.InPeer(func() {
				n.Run("nft insert rule inet wireguard input iifname p0 meta l4proto '{ icmp, ipv6-icmp }' drop")
			})
		}, probed: []string{"probe.unanswered(unknown)"}},
		{name: "20 look-alike: rp_filter, when the peer answers by another way", do: func(n *ill) {
			n.Run(strict + "\necho 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter\nip link add wan type veth peer name w0 netns " + n.peerPath() + "\nip addr add 192.168.77.1/24 dev wan\nip link set wan up\necho 1 > /proc/sys/net/ipv4/conf/wan/rp_filter")
			n.InPeer(func() {
				n.Run("echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce\nip addr add 192.168.77.2/24 dev w0\nip link set w0 up\nip route replace 100.64.0.11 via 192.168.77.1 dev w0 src 100.64.0.12")
			})
		}, want: nil, probed: []string{"return.rp-filter"}},
		{name: "21 mark collision", do: func(n *ill) {
			n.Run("iptables -t mangle -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x80000/0xff0000\nip rule del from 10.244.1.0/24 lookup 77\n" + noRule)
		}, want: []string{"agent.pending(warn)", "marks.collision"}},
		{name: "21 mark collision, peers spared", quiet: true, do: func(n *ill) {
			n.Run("iptables -t mangle -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x80000/0xff0000\nip route add 100.100.100.100 dev tailscale0 table 52")
		}, want: []string{"marks.collision(warn)"}},
		{name: "22 accepted route swallows the LAN", inject: "ip route add 192.168.10.0/24 dev tailscale0 table 52", want: []string{"local.swallowed"}},
		{name: "22 accepted route swallows the pods", inject: "ip route add 10.244.0.0/16 dev tailscale0 table 52", want: []string{"local.swallowed"}},
		{name: "22 look-alike: exit node with throws", quiet: true, inject: "ip route add default dev tailscale0 table 52\nip route add throw 192.168.0.0/16 table 52\nip route add throw 10.0.0.0/8 table 52"},
		{name: "23 VIP in the rules", inject: "ip rule add pref 50 to 192.168.10.77 lookup 52\nip route add 192.168.10.77 dev tailscale0 table 52", want: []string{"document.vip-in-peers"}},
		{name: "23 VIP in the set, without effect", quiet: true, inject: "nft add element inet tailmesh peers4 '{ 192.168.10.77 }'", want: []string{"document.vip-in-peers(warn)"}},
		{name: "24 rule fight", do: func(n *ill) {
			n.options.Watch = 900 * time.Millisecond
			stop := make(chan struct{})
			wait := n.Go(func() {
				rule := desired.Rule{Family: desired.IPv4, Mark: 0x2000, Mask: 0x2000, Action: desired.Lookup, Table: 52, Protocol: desired.RouteProtocol}
				for {
					select {
					case <-stop:
						return
					case <-time.After(150 * time.Millisecond):
					}
					_ = kernel.Linux{}.Apply(n.t.Context(), desired.Changes{DelRules: []desired.Rule{rule}})
					_ = kernel.Linux{}.Apply(n.t.Context(), desired.Changes{AddRules: []desired.Rule{rule}})
				}
			})
			n.t.Cleanup(func() { close(stop); wait() })
		}, want: []string{"fights.rule"}},
		{name: "25 leftover of an older agent", quiet: true, inject: "ip rule add pref 10 fwmark 0x10/0x10 lookup 52 protocol 116", want: []string{"agent.leftover(warn)"}},
		{name: "the document was changed, nobody applied it", quiet: true, do: failClosed, want: []string{"agent.pending(warn)"}},
		{name: "the document was changed, a peer is offline", do: func(n *ill) {
			failClosed(n)
			peer(n, "k2", "Online", false)
			n.InPeer(func() { n.Run("ip addr del 100.64.0.13/32 dev lo") })
		}, want: []string{"agent.pending(warn)", "peers.offline"}},
		{name: "the mark was changed, nobody applied it", quiet: true, do: func(n *ill) { n.doc.Routing.Mark = 0x1000 }, want: []string{"agent.pending(warn)"}},
		{name: "25 leftover of a script, beside the agent's", quiet: true, inject: "ip rule add pref 5 fwmark 0x2000/0x2000 lookup 52", want: []string{"agent.leftover(warn)"}},
		{name: "25 look-alike: the rule of a script that serves in the agent's stead", quiet: true, inject: noRule + "\nip rule add pref 0 fwmark 0x2000/0x2000 lookup 52", want: []string{"agent.leftover(warn)", "agent.pending(warn)"}},
		{name: "25 leftover rule of a script", inject: "ip rule add pref 10 to 100.64.0.12 lookup 52", want: []string{"peer-connections.captured"}},
		{name: "CNI tunnel down", inject: "ip link add tun-par1 type veth peer name tun-x", want: []string{"overlay.down"}},
		{name: "Tailscale's rules lost", inject: "ip rule del pref 5270", want: []string{"tailscaled.rules-lost"}},

		{name: "1 and 6", inject: noRule + "\n" + noSNAT, want: []string{"route.rule-missing", "source.untranslated", "source.untranslated+"}, first: "route.rule-missing"},
		{name: "1 and 18", inject: noRule + "\niptables -I FORWARD -i tailscale0 -o kube-bridge -j DROP", want: []string{"return.firewall+", "route.rule-missing"}, first: "route.rule-missing"},
		{name: "1 and 11", inject: noRule + "\n" + dropAll, want: []string{"firewall.drops+", "route.rule-missing"}, first: "route.rule-missing"},
		{name: "16 and 1", inject: noBridge + "\n" + noRule, want: []string{"forwarding.interface", "route.rule-missing+"}, first: "forwarding.interface"},
		{name: "16 and 6", inject: noBridge + "\n" + noSNAT, want: []string{"forwarding.interface", "source.untranslated", "source.untranslated+"}, first: "forwarding.interface"},
		{name: "6 and 11", inject: noSNAT + "\n" + dropAll, want: []string{"firewall.drops", "source.untranslated", "source.untranslated+"}, first: "firewall.drops"},
		{name: "6 and 17", inject: noSNAT + "\n" + noSrcOK, want: []string{"return.src-valid-mark+", "source.untranslated"}, first: "source.untranslated"},
		{name: "1 and the policy", inject: noRule, do: func(n *ill) { n.tailnet.filter = n.tailnet.filter[:1] }, want: []string{"policy.overlay-dropped", "route.rule-missing"}, first: "route.rule-missing"},
	}
}

// TestFaults injects faults into a node of a cluster, one or two at once, and compares what is named with what was
// done: every fault, and nothing that is absent. Run with -v it prints the table.
func TestFaults(t *testing.T) {
	list := slices.Concat(faults(), shapes())
	rows := make([]string, len(list))
	t.Cleanup(func() { // after the parallel ones
		t.Logf("%-60s | %-60s | %s\n%s", "FAULT", "NAMED", "NAMED WITH --probe", strings.Join(rows, "\n"))
	})
	for i, f := range list {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			n := newIll(t)
			if f.inject != "" {
				n.Run(f.inject)
			}
			if f.do != nil {
				f.do(n)
			}
			if f.pod != "" {
				n.options.Pod = netip.MustParseAddr(f.pod)
			}
			n.serve()
			before := settled(n.Dump())
			var row []string
			for _, probe := range []bool{false, true} {
				want := f.want
				if probe && f.probed != nil {
					want = f.probed
				}
				if probe && (f.pod != "" || f.still || slices.Contains([]string{"document.foreign"}, firstOf(want))) {
					row = append(row, "-")
					continue
				}
				r := n.examine(probe)
				got := named(r)
				row = append(row, strings.Join(got, " "))
				if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
					t.Errorf("probe %v: named %q, want %q\n%s", probe, got, want, text(r))
				}
				if f.first != "" && r.First != f.first {
					t.Errorf("probe %v: first to fix %q, want %q", probe, r.First, f.first)
				}
				wrong := slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(s, "(") })
				if wrong != (r.Verdict == doctor.VerdictWrong) {
					t.Errorf("probe %v: verdict %s", probe, r.Verdict)
				}
				if strings.HasPrefix(f.name, "healthy") && r.Verdict != doctor.VerdictOK && (probe || !f.unsure) {
					t.Errorf("a healthy node is judged %s\n%s", r.Verdict, text(r))
				}
			}
			if diff := cmp.Diff(before, settled(n.Dump())); f.name != "24 rule fight" && diff != "" {
				t.Errorf("the look changed the node (-before +after):\n%s", diff)
			}
			if links := n.Run("ip -o link | grep -c tmprobe0 || true"); strings.TrimSpace(links) != "0" {
				t.Error("the probe left its interface")
			}
			followFixes(n, f)
			rows[i] = fmt.Sprintf("%-60s | %-60s | %s", f.name, orNothing(row[0]), orNothing(row[1]))
		})
	}
}

// followFixes does what is said of leftovers and of a rule that comes too early, where commands are said:
// packets then go right. (Connections that the probe left are not what is asked about.)
func followFixes(n *ill, f fault) {
	if f.fixed {
		followAll(n)
		return
	}
	leftover, shadowed := f.quiet && slices.Contains(f.want, "agent.leftover(warn)"), slices.Contains(f.want, "route.shadowed")
	if !leftover && !shadowed {
		return
	}
	for _, finding := range n.examine(false).Findings() {
		if fix, _, _ := strings.Cut(finding.Fix, ";"); strings.HasPrefix(fix, "ip ") {
			n.Run(strings.ReplaceAll(fix, ", then ", "\n"))
		}
	}
	r := n.examine(false)
	if slices.ContainsFunc(r.Findings(), func(f doctor.Finding) bool { return strings.HasPrefix(f.Code, "route.") }) || leftover && r.Verdict != doctor.VerdictOK {
		n.t.Errorf("after what is said, the node is judged %s\n%s", r.Verdict, text(r))
	}
}

// followAll runs the command that the first finding says first, until there is none: nothing may be wrong then.
func followAll(n *ill) {
	n.t.Helper()
	const most = 6 // causes, one for each family at least
	for range most {
		list := n.examine(false).Findings()
		i := slices.IndexFunc(list, func(f doctor.Finding) bool { return f.Level == doctor.Fail })
		if i < 0 {
			break
		}
		fix, _, _ := strings.Cut(list[i].Fix, "; ")
		n.Run(strings.ReplaceAll(fix, ", then ", "\n"))
	}
	if r := n.examine(false); r.Verdict != doctor.VerdictOK {
		n.t.Errorf("after what is said, the node is judged %s\n%s", r.Verdict, text(r))
	}
}

func orNothing(named string) string {
	if named == "" {
		return "nothing"
	}
	return named
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// text shows a report for a failed test.
func text(r doctor.Report) string {
	var b strings.Builder
	for _, result := range r.Results {
		if result.Status != doctor.StatusOK || len(result.Findings) > 0 {
			fmt.Fprintf(&b, "%s %s: %s\n", result.Status, result.Check, result.Detail)
		}
		for _, f := range result.Findings {
			fmt.Fprintf(&b, "    %s %s %v: %s (cause: %s) behind %q\n", f.Level, f.Code, f.Peers, f.Summary, f.Cause, f.Behind)
			for _, e := range f.Evidence {
				fmt.Fprintf(&b, "        %s\n", e.What)
			}
		}
	}
	return b.String()
}

// settled takes out of a listing what changes by itself: what is counted, link-local addresses, which appear some time
// after their interface, and that an interface has no carrier yet, which the kernel says of its routes.
func settled(listing string) string {
	return changing.ReplaceAllString(listing, "")
}

var changing = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+|linkdown |(?m:^.*fe80::.*\n)`)
