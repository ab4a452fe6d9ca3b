//go:build linux

package doctor_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// firewalldTable is what firewalld writes on a host with one zone, shortened. ZONE stands for the rules that send
// interfaces to a zone of their own.
const firewalldTable = `
table inet firewalld {
  chain mangle_PREROUTING_ZONES { }
  chain filter_IN_public { tcp dport 22 accept; meta l4proto { icmp, ipv6-icmp } accept; reject with icmpx admin-prohibited; }
  chain filter_FWD_public { oifname "eth0" accept; reject with icmpx admin-prohibited; }
  chain trusted { accept; }
  chain filter_INPUT_ZONES { ZONEIN
 goto filter_IN_public; }
  chain filter_FORWARD_ZONES { ZONEFWD
 goto filter_FWD_public; }
  chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept; jump mangle_PREROUTING_ZONES; }
  chain filter_PREROUTING { type filter hook prerouting priority filter + 10; policy accept;
    icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
    meta nfproto ipv6 fib saddr . mark . iif oif missing drop
  }
  chain filter_INPUT { type filter hook input priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_INPUT_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24, 2002:a00::/24, 2002:7f00::/24, 2002:a9fe::/32, 2002:ac10::/28, 2002:c0a8::/32, 2002:e000::/19 } reject with icmpv6 addr-unreachable
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
}
`

func (n *ill) firewalld(zone string) {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "firewalld.nft")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("ZONEIN", zone, "ZONEFWD", zone).Replace(firewalldTable)), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.Run("nft -f " + file)
}

// latePlace puts the rules for local addresses at a later place, as VRFs (32765) and Cilium (100) need it.
func latePlace(tool, pref string) string {
	return tool + " rule add pref " + pref + " lookup local\n" + tool + " rule del pref 0 lookup local\n"
}

const kubeRouterSets = `
	ipset create kube-router-node-ips hash:ip
	ipset add kube-router-node-ips 100.64.0.12
	ipset add kube-router-node-ips 100.64.0.13
	ipset create kube-router-pod-subnets hash:net
	ipset add kube-router-pod-subnets 10.244.0.0/16
	iptables -A INPUT -p 4 -m set ! --match-set kube-router-node-ips src -j REJECT
	iptables -t nat -A POSTROUTING -m set --match-set kube-router-pod-subnets src -m set ! --match-set kube-router-pod-subnets dst -m set ! --match-set kube-router-node-ips dst -j MASQUERADE
`

// twoNetworks gives the node a second network of pods.
func twoNetworks(n *ill) {
	n.Run("ip link add second type bridge\nip addr add 10.245.1.1/24 dev second\nip link set second up")
	n.doc.PodCIDRs = append(n.doc.PodCIDRs, netip.MustParsePrefix("10.245.1.0/24"))
	n.apply()
}

// ownRoutes gives pods what Calico gives them: an interface without an address, a route to each pod, and none to the rest.
func ownRoutes(n *ill) {
	n.Run(`
		ip addr flush dev kube-bridge scope global
		ip link add cali1 type veth peer name caliX
		ip link set cali1 up
		ip link set caliX up
		ip route add blackhole 10.244.1.0/26
		ip route add 10.244.1.2 dev cali1
		ip -6 route add fd00:10:244:1::2 dev cali1`)
}

// shapes are nodes beside whose mesh other programs work, rightly or not.
func shapes() []fault {
	iptablesBackend := func(n *ill) {
		n.doc.Firewall.Backend = "iptables"
		n.apply()
	}
	return []fault{
		{name: "healthy, Docker", quiet: true, inject: `
			iptables -P FORWARD DROP
			iptables -N DOCKER
			iptables -N DOCKER-FORWARD
			iptables -N DOCKER-USER
			iptables -N DOCKER-CT
			iptables -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			iptables -A DOCKER ! -i docker0 -o docker0 -j DROP
			iptables -A DOCKER-FORWARD -j DOCKER-CT
			iptables -A DOCKER-FORWARD -o docker0 -j DOCKER
			iptables -A DOCKER-FORWARD -i docker0 -j ACCEPT
			iptables -A FORWARD -j DOCKER-USER
			iptables -A FORWARD -j DOCKER-FORWARD
			iptables -A FORWARD -i kube-bridge -j ACCEPT
			iptables -A FORWARD -o kube-bridge -j ACCEPT
			iptables -t nat -N DOCKER
			iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
			iptables -t nat -A DOCKER -p tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
			iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
			iptables -t raw -A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP`},
		{name: "healthy, NetBird and wg-quick", quiet: true, inject: `ip rule add pref 105 lookup main suppress_prefixlength 0
			ip rule add pref 110 not fwmark 0x1bd00 lookup 7120
			ip rule add pref 32764 lookup main suppress_prefixlength 0
			ip rule add pref 32765 not fwmark 0xca6c lookup 51820
			ip route add default dev eth0 table 51820
			nft add table ip wg-quick-wg0
			nft add chain ip wg-quick-wg0 preraw '{ type filter hook prerouting priority raw; }'
			nft add rule ip wg-quick-wg0 preraw iifname != wg0 ip daddr 10.99.0.2 fib saddr type != local drop
			nft add chain ip wg-quick-wg0 premangle '{ type filter hook prerouting priority mangle; }'
			nft add rule ip wg-quick-wg0 premangle meta l4proto udp meta mark set ct mark`},
		{name: "healthy, the rules of a cloud's CNI", quiet: true, inject: `ip rule add pref 512 to 10.244.1.5 lookup main
			ip rule add pref 1024 fwmark 0x80/0x80 lookup main
			ip rule add pref 1536 from 10.244.1.5 lookup 2
			ip route add default dev eth0 table 2
			iptables -t nat -N AWS-SNAT-CHAIN-0
			iptables -t nat -A POSTROUTING -j AWS-SNAT-CHAIN-0
			iptables -t nat -A AWS-SNAT-CHAIN-0 -d 10.7.0.0/16 -j RETURN
			iptables -t nat -A AWS-SNAT-CHAIN-0 ! -o vlan+ -m addrtype ! --dst-type LOCAL -j SNAT --to-source 192.168.10.5 --random-fully
			iptables -t mangle -A PREROUTING -i eth0 -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
			iptables -t mangle -A PREROUTING -i eni+ -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80`},
		{name: "healthy, some ports are dropped", quiet: true, inject: "iptables -I FORWARD -p tcp --dport 25 -j DROP\niptables -I FORWARD -p tcp -m multiport --dports 135,445 -j DROP"},
		{name: "healthy, reverse path filtering in the firewall, marks looked at", quiet: true, inject: `
			iptables -t mangle -N nixos-fw-rpfilter
			iptables -t mangle -A nixos-fw-rpfilter -m rpfilter --validmark -j RETURN
			iptables -t mangle -A nixos-fw-rpfilter -p udp -m udp --sport 67 --dport 68 -j RETURN
			iptables -t mangle -A nixos-fw-rpfilter -j DROP
			iptables -t mangle -A PREROUTING -j nixos-fw-rpfilter`},
		{name: "healthy, VRF's rule", quiet: true, inject: "ip rule add l3mdev pref 1000\nip -6 rule add l3mdev pref 1000"},
		{name: "healthy, local addresses later", quiet: true, inject: latePlace("ip", "100") + "ip rule add pref 9 fwmark 0x200/0xf00 lookup 2004"},
		{name: "healthy, firewalld trusts the interfaces", quiet: true, do: func(n *ill) {
			n.firewalld("iifname { tailscale0, kube-bridge, tun-fra1 } goto trusted;")
		}},
		{name: "healthy, kube-router's sets", quiet: true, inject: kubeRouterSets},
		{name: "healthy, a service on one port of a node's address", quiet: true, inject: "iptables -t nat -A PREROUTING -d 100.64.0.12 -p tcp --dport 443 -j DNAT --to-destination 10.244.1.9"},
		{name: "healthy, INPUT drops but what peers send", quiet: true, inject: `
			iptables -A INPUT -i tailscale0 -j ACCEPT
			iptables -P INPUT DROP`},
		{name: "healthy, a network of the carrier's that nothing drops", quiet: true, inject: "ip addr add 100.100.2.10/24 dev eth0"},

		{name: "healthy, two networks of pods", quiet: true, do: twoNetworks},
		{name: "2 rule shadowed for the second network of pods alone", fixed: true, do: func(n *ill) {
			twoNetworks(n)
			n.Run("ip rule add pref 0 from 10.245.1.0/24 lookup 77\nip rule del pref 0 fwmark 0x2000/0x2000\nip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116")
		}, want: []string{"route.shadowed"}},
		{name: "16 forwarding off where pods of the second network come in", fixed: true, do: func(n *ill) {
			twoNetworks(n)
			n.Run("echo 0 > /proc/sys/net/ipv4/conf/second/forwarding")
		}, want: []string{"forwarding.interface"}},
		{name: "healthy, pods have no bridge but routes of their own", quiet: true, still: true, do: ownRoutes},
		{name: "1 rule missing, pods have no bridge", still: true, do: func(n *ill) {
			ownRoutes(n)
			n.Run(noRule)
		}, want: []string{"route.rule-missing"}},
		{name: "forwarding is off where the pod that is asked for comes in, pods have no bridge", still: true, pod: "10.244.1.5", do: func(n *ill) {
			ownRoutes(n)
			n.Run(`
				ip link add cali2 type veth peer name caliY
				ip link set cali2 up
				ip link set caliY up
				ip route add 10.244.1.5 dev cali2
				echo 0 > /proc/sys/net/ipv4/conf/cali2/forwarding`)
		}, want: []string{"forwarding.interface"}},
		{name: "firewalld does not know the interfaces", do: func(n *ill) { n.firewalld("") }, want: []string{"firewall.firewalld", "overlay.input-dropped"}, first: "firewall.firewalld"},
		{name: "kube-router's sets, SNAT missing", inject: noSNAT + kubeRouterSets, want: []string{"source.untranslated"}},
		{name: "a Service took the peer's address (ipvs)", fixed: true, inject: "ip link add kube-ipvs0 type bridge\nip addr add 100.64.0.12/32 dev kube-ipvs0", want: []string{"document.peer-captured"}},
		{name: "a Service took every port of the peer's address", inject: "iptables -t nat -A PREROUTING -d 100.64.0.12 -j DNAT --to-destination 192.168.10.9", want: []string{"route.redirected"}},
		{name: "a network of the carrier's, which Tailscale drops", fixed: true, inject: `
			ip addr add 100.100.2.10/24 dev eth0
			iptables -N ts-input
			iptables -I INPUT -j ts-input
			iptables -A ts-input ! -i tailscale0 -s 100.64.0.0/10 -j DROP`, want: []string{"local.mesh-range"}},
		{name: "a network of the carrier's behind one route for the mesh", fixed: true, inject: "ip addr add 100.100.2.10/24 dev eth0\nip route add 100.64.0.0/10 dev tailscale0 table 52", want: []string{"local.swallowed"}},
		{name: "INPUT drops the overlay", fixed: true, inject: "iptables -P INPUT DROP\niptables -A INPUT -p tcp --dport 22 -j ACCEPT", want: []string{"overlay.input-dropped"}},
		{name: "OUTPUT drops the overlay", fixed: true, inject: "iptables -A OUTPUT -p 4 -j DROP", want: []string{"overlay.output-dropped"}},
		{name: "FORWARD drops what the overlay carries", fixed: true, inject: "iptables -P FORWARD DROP\nip route add 10.244.2.0/24 dev tun-fra1", want: []string{"overlay.forward-dropped"}},
		{name: "local addresses later than Tailscale's route", fixed: true, inject: latePlace("ip -6", "32765"), want: []string{"node.own-address"}},
		{name: "2 rule shadowed by one that refuses", fixed: true, inject: `
			ip rule add pref 0 to 100.64.0.12 blackhole
			ip rule del pref 0 fwmark 0x2000/0x2000
			ip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116`, want: []string{"node.captured", "route.shadowed"}, first: "route.shadowed"},
		{name: "another VPN takes all that is not marked", fixed: true, inject: `
			ip route add default dev eth0 table 51820
			ip rule add pref 5208 not fwmark 0xca6c lookup 51820`, want: []string{"node.captured", "return.elsewhere"}, first: "return.elsewhere"},
		{name: "another VPN takes the node's own packets", fixed: true, inject: `
			ip route add default dev eth0 table 51820
			ip rule add pref 5208 to 100.64.0.0/10 lookup 51820`, want: []string{"node.captured"}},
		{name: "a blackhole in Tailscale's table", fixed: true, inject: "ip route replace blackhole 100.64.0.12 table 52\nip route add 100.64.0.12 dev tailscale0 metric 5 table 52", want: []string{"route.refused"}},
		{name: "a route to elsewhere in Tailscale's table", inject: "ip route replace 100.64.0.12 dev eth0 table 52", want: []string{"route.elsewhere"}},
		{name: "shields up", do: func(n *ill) { n.tailnet.prefs["ShieldsUp"] = true }, want: []string{"policy.shields-up"}},
		{name: "11 look-alike of lost chains: netfilter mode off", do: func(n *ill) { n.tailnet.prefs["NetfilterMode"] = 0 }, inject: "iptables -F\niptables -X\niptables -P FORWARD DROP", want: []string{"firewall.drops"}},
		{name: "a tunnel begins at an address of before", inject: "ip link add flannel.1 type vxlan id 1 local 100.64.0.99 dstport 8472 nolearning\nip link set flannel.1 mtu 1230 up", want: []string{"overlay.local"}},
		{name: "a tunnel's packets are too large", quiet: true, inject: "ip link add flannel.1 type vxlan id 1 local 100.64.0.11 dstport 8472 nolearning\nip link set flannel.1 mtu 1450 up\nip link set tailscale0 mtu 1280", want: []string{"overlay.mtu(warn)"}},
		{name: "mark cleared by another, iptables backend", do: func(n *ill) {
			iptablesBackend(n)
			n.Run("iptables -t mangle -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x0/0xffffffff")
		}, want: []string{"route.mark-cleared"}},
		{name: "mark cleared behind it in nat, iptables backend", do: func(n *ill) {
			iptablesBackend(n)
			n.Run("iptables -t nat -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x0/0xffffffff")
		}, want: []string{"route.mark-cleared"}},
	}
}
