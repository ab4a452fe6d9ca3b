//go:build linux

package nstest

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Addresses of the node and of its surroundings.
const (
	OwnAddress  = "100.64.0.11"
	OwnAddress6 = "fd7a:115c:a1e0::b"
	Peer        = "100.64.0.12"
	Peer6       = "fd7a:115c:a1e0::c"
	PodNetwork  = "10.244.1.0/24"
	PodNetwork6 = "fd00:10:244:1::/64"
	Pod         = "10.244.1.2"
	Pod6        = "fd00:10:244:1::2"
	Bridge      = "kube-bridge"
	Tunnel      = "tun-fra1"
)

// Node is a cluster's node. The thread is in its namespace.
type Node struct {
	*Namespace
	PodSide  *Namespace // a pod, with the addresses Pod and Pod6
	PeerSide *Namespace // a peer, behind tailscale0 (its p0) and behind the overlay's tunnel (its tun-ams1)
}

// NewNode makes a node as tailscaled and kube-router leave it, tailscaled first.
func NewNode(t testing.TB) *Node {
	t.Helper()
	n := NewIdleNode(t)
	n.StartTailscale()
	n.StartRouter()
	return n
}

// NewIdleNode makes a node on which neither tailscaled nor kube-router has started. Packets to the peer's p0 whose source
// is not the node's mesh address are dropped there, as WireGuard does. Connection tracking is on from the start.
func NewIdleNode(t testing.TB) *Node {
	t.Helper()
	node := New(t)
	n := &Node{Namespace: node, PodSide: node.Another(), PeerSide: node.Another()}
	node.Sysctl("ipv4.ip_forward", "1")
	node.Sysctl("ipv6.conf.all.forwarding", "1")
	node.Run(`
		nft add table inet lab
		nft add chain inet lab input '{ type filter hook input priority 0; }'
		nft add rule inet lab input ct state established accept
		ip link add ` + Bridge + ` type bridge
		ip addr add 10.244.1.1/24 dev ` + Bridge + `
		ip addr add fd00:10:244:1::1/64 dev ` + Bridge + ` nodad
		ip link set ` + Bridge + ` up
		ip link add veth-pod type veth peer name eth0 netns ` + n.PodSide.path() + `
		ip link set veth-pod master ` + Bridge + ` up
	`)
	n.pointToPoint("tun-fra1", "tun-ams1")
	n.InPod(func() {
		node.Run(`
			ip addr add 10.244.1.2/24 dev eth0
			ip addr add fd00:10:244:1::2/64 dev eth0 nodad
			ip link set eth0 up
			ip route add default via 10.244.1.1
			ip -6 route add default via fd00:10:244:1::1
		`)
	})
	n.InPeer(func() {
		node.Sysctl("ipv4.conf.all.rp_filter", "0")
		node.Run(`
			ip addr add 100.64.0.12/32 dev lo
			ip -6 addr add fd7a:115c:a1e0::c/128 dev lo nodad
			ip route add 10.244.1.0/24 dev tun-ams1 src 100.64.0.12
			ip -6 route add fd00:10:244:1::/64 dev tun-ams1 src fd7a:115c:a1e0::c
			nft add table inet wireguard
			nft add chain inet wireguard input '{ type filter hook input priority 0; }'
			nft add rule inet wireguard input iifname p0 ip saddr != 100.64.0.11 counter drop
			nft add rule inet wireguard input iifname p0 ip6 saddr fd00:10:244:1::/64 counter drop
		`)
	})
	return n
}

// StartRouter does what kube-router does at its start: its rules have no priority, so that the kernel chooses one.
func (n *Node) StartRouter() {
	n.t.Helper()
	n.Run(`
		ip route add 100.64.0.12 dev tun-fra1 table 77
		ip -6 route add fd7a:115c:a1e0::c dev tun-fra1 table 77
		ip rule add from 10.244.1.0/24 lookup 77
		ip -6 rule add from fd00:10:244:1::/64 lookup 77
	`)
}

// StopRouter takes away what StartRouter made.
func (n *Node) StopRouter() {
	n.t.Helper()
	n.Run(`
		ip rule del from 10.244.1.0/24 lookup 77
		ip -6 rule del from fd00:10:244:1::/64 lookup 77
		ip route flush table 77
		ip -6 route flush table 77
	`)
}

// pointToPoint makes a device that sends whatever it gets to the other end, in the peer: a veth without ARP whose ends
// have one hardware address.
func (n *Node) pointToPoint(here, there string) {
	n.t.Helper()
	n.Run(`ip link add ` + here + ` address 02:00:00:00:00:01 type veth peer name ` + there +
		` address 02:00:00:00:00:01 netns ` + n.PeerSide.path() + `
		ip link set ` + here + ` arp off up`)
	n.InPeer(func() { n.Run(`ip link set ` + there + ` arp off up`) })
}

// StartTailscale does what tailscaled does at its start.
func (n *Node) StartTailscale() {
	n.t.Helper()
	n.pointToPoint("tailscale0", "p0")
	n.Run(`
		ip addr add 100.64.0.11/32 dev tailscale0
		ip -6 addr add fd7a:115c:a1e0::b/128 dev tailscale0 nodad
		ip route add 100.64.0.12 dev tailscale0 table 52
		ip -6 route add fd7a:115c:a1e0::/48 dev tailscale0 table 52
	`)
	for _, tool := range []string{"ip", "ip -6"} {
		n.Run(strings.ReplaceAll(`
			IP rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
			IP rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
			IP rule add pref 5250 fwmark 0x80000/0xff0000 unreachable
			IP rule add pref 5270 lookup 52
		`, "IP", tool))
	}
	n.InPeer(func() {
		n.Run(`
			ip route add 100.64.0.11 dev p0 src 100.64.0.12
			ip -6 route add fd7a:115c:a1e0::b dev p0 src fd7a:115c:a1e0::c
		`)
	})
}

// StopTailscale does what tailscaled does at its end.
func (n *Node) StopTailscale() {
	n.t.Helper()
	n.Run("ip link del tailscale0")
	for _, tool := range []string{"ip", "ip -6"} {
		n.Run(strings.ReplaceAll("IP rule del pref 5210\nIP rule del pref 5230\nIP rule del pref 5250\nIP rule del pref 5270", "IP", tool))
	}
}

// InPod runs f in the pod's namespace.
func (n *Node) InPod(f func()) { n.PodSide.Visit(f) }

// InPeer runs f in the peer's namespace.
func (n *Node) InPeer(f func()) { n.PeerSide.Visit(f) }

// PodReaches says whether a ping from the pod to the address is answered.
func (n *Node) PodReaches(address string) bool {
	var err error
	n.InPod(func() { _, err = n.Try("ping -n -c 1 -W 1 " + address) })
	return err == nil
}

// PeerReaches says whether a ping from the peer's mesh address to the address is answered.
func (n *Node) PeerReaches(from, address string) bool {
	var err error
	n.InPeer(func() { _, err = n.Try("ping -n -c 1 -W 1 -I " + from + " " + address) })
	return err == nil
}

// Ping is one connection: echo requests of one identifier, sent by the pod again and again.
type Ping struct {
	node *Node
	out  *lines
}

// StartPing starts one and waits until its first request was sent. It ends with the test.
func (n *Node) StartPing(address string) *Ping {
	n.t.Helper()
	p := &Ping{node: n, out: &lines{}}
	cmd := exec.CommandContext(n.t.Context(), "ping", "-n", "-O", "-i", "0.2", address)
	cmd.Stdout = p.out
	n.InPod(func() {
		if err := cmd.Start(); err != nil {
			n.t.Fatal(err)
		}
	})
	n.t.Cleanup(func() { _ = cmd.Wait() })
	n.Wait(func() bool { return p.out.count("") > 1 })
	return p
}

// Answered says whether an answer comes within a few seconds.
func (p *Ping) Answered() bool {
	before := p.out.count("bytes from")
	return p.node.Wait(func() bool { return p.out.count("bytes from") > before })
}

// Lost counts the requests so far that were not answered in time.
func (p *Ping) Lost() int { return p.out.count("no answer") }

// Wait waits for a condition, for three seconds at most, and says whether it came.
func (n *Node) Wait(condition func() bool) bool {
	for range 150 {
		if condition() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// lines collects what a command prints.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// Dump returns everything of the node's networking that the agent could change, as the tools print it: policy rules,
// routes, nftables, both backends of iptables, ipsets.
func (n *Node) Dump() string {
	n.t.Helper()
	return n.Run(`{ ip rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all; nft -s list ruleset; ` +
		`for t in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do echo "# $t"; $t-save | grep -v '^#' | sed 's, \[.*\],,'; done; ` +
		`ipset -s save | sed "s, initval [^ ]*,,"; } 2>/dev/null || true`)
}
