//go:build linux

package nstest

import "strings"

// Crowd adds what else lives on nodes, in every place that the agent could touch by mistake: chains of both iptables
// backends, ipsets, a firewall's own nftables table, and things that look like the agent's but are not.
func (n *Node) Crowd() {
	n.t.Helper()
	need(n.t, "ipset", "iptables-legacy", "iptables-nft", "ip6tables-nft")
	n.Run(`
		ipset create kube-nodes hash:ip
		ipset add kube-nodes 100.64.0.12
		ip rule add pref 40 fwmark 0x2000/0x2000 lookup 99
		ip -6 rule add pref 40 fwmark 0x2000/0x2000 lookup 99
		ip route add 198.51.100.0/24 dev ` + Bridge + ` table 99 proto 116
		nft add table ip tailmesh
		nft add set ip tailmesh peers4 '{ type ipv4_addr; elements = { 100.64.0.12 }; }'
		nft add chain ip tailmesh postrouting '{ type nat hook postrouting priority 110; }'
	`)
	for _, tool := range []string{"iptables-legacy", "iptables-nft"} {
		n.Run(tool + ` -t mangle -A PREROUTING -p icmp -m comment --comment "tailmesh? no" -j ACCEPT`)
	}
	n.fillFirewalls()
}

// fillFirewalls writes the chains of kube-proxy and tailscaled, and the table of firewalld.
func (n *Node) fillFirewalls() {
	n.t.Helper()
	for _, tool := range []string{"iptables-legacy", "iptables-nft", "ip6tables-nft"} {
		n.Run(tool + ` -t nat -N KUBE-POSTROUTING
			` + tool + ` -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
			` + tool + ` -t nat -A KUBE-POSTROUTING -j MASQUERADE
			` + tool + ` -t nat -A POSTROUTING -j KUBE-POSTROUTING
			` + tool + ` -N ts-forward
			` + tool + ` -A ts-forward -o tailscale0 -j ACCEPT
			` + tool + ` -A FORWARD -j ts-forward`)
	}
	n.Run(`printf 'table inet firewalld\ndelete table inet firewalld\ntable inet firewalld {\n` +
		`chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept; ct state established,related accept; }\n` +
		`chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept; oifname "eth9" masquerade; }\n}\n' | nft -f -`)
}

// ReloadFirewall does what firewalld and those after it do at a reload: everything in both backends of iptables is
// flushed, firewalld's table is built anew, and the owners of the chains write them again.
func (n *Node) ReloadFirewall() {
	n.t.Helper()
	n.FlushTables("filter", "nat", "mangle")
	n.fillFirewalls()
}

// FlushTables flushes tables of both backends of iptables, and deletes their chains. A chain that somebody calls again in
// between cannot be deleted: then it begins anew.
func (n *Node) FlushTables(tables ...string) {
	n.t.Helper()
	for _, tool := range []string{"iptables-legacy", "iptables-nft", "ip6tables-nft"} {
		for _, table := range tables {
			n.Run(strings.ReplaceAll("for i in 1 2 3 4 5 6 7 8 9; do TOOL -F && TOOL -X && break; [ $i -lt 9 ]; done", "TOOL", tool+" -t "+table))
		}
	}
}
