//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// The namespaces that are no node of the mesh.
const (
	podNS  = "pod"  // a pod of the node
	wireNS = "wire" // what lies between the nodes' tailscale0
)

const podBridge = "kube-bridge"

// network is one node of the mesh with a pod, and its peers, each in a network namespace that is called by its name. It
// looks as tailscaled and kube-router leave it. Every device is a veth pair: this needs no kernel module, and whatever
// enters one end of a tunnel or of tailscale0 leaves at the other.
type network struct {
	s       *story
	node    config.Node
	pods    netip.Prefix
	gateway netip.Addr // the bridge's own address
	pod     netip.Addr
	peers   []config.Node
	mark    config.Mark
}

// address is a node's IPv4 mesh address, the first in a document. The demo's packets are IPv4, to keep the picture small.
func address(n config.Node) netip.Addr { return n.Addresses[0] }

// tunnelPrefix and a node's name are the device that leads to a node through the overlay.
const tunnelPrefix = "tun-"

func tunnel(n config.Node) string { return tunnelPrefix + n.Name }

// newNetwork builds the network around the node of a document.
func newNetwork(ctx context.Context, s *story, doc config.Document) (*network, error) {
	if len(doc.PodCIDRs) == 0 || len(doc.Peers) == 0 {
		return nil, fmt.Errorf("the document of node %q has no pods or no peers", doc.Node.Name)
	}
	n := &network{s: s, node: doc.Node, pods: doc.PodCIDRs[0], peers: doc.Peers, mark: doc.Routing.Mark}
	n.gateway = n.pods.Addr().Next()
	n.pod = n.gateway.Next()
	for _, build := range []func(context.Context) error{n.namespaces, n.podSide, n.tailscale, n.kubeRouter} {
		if err := build(ctx); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// script runs commands, one a line, in a namespace.
func (n *network) script(ctx context.Context, ns, lines string) error {
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := n.s.must(ctx, command{NS: ns, Args: []string{"sh", "-c", line}}); err != nil {
			return err
		}
	}
	return nil
}

func (n *network) namespaces(ctx context.Context) error {
	for _, ns := range n.names() {
		if _, err := n.s.must(ctx, command{Args: []string{"ip", "netns", "add", ns}}); err != nil {
			return err
		}
		// Settings come from the machine, so those that matter are set. IPv6 is off where nothing needs it: it adds addresses
		// and routes by itself, later.
		err := n.script(ctx, ns, `
			test ! -e /proc/sys/net/ipv6 || echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
			test ! -e /proc/sys/net/ipv6 || echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
			echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
			echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter
			ip link set lo up
		`)
		if err != nil {
			return err
		}
	}
	return n.script(ctx, n.node.Name, `
		echo 1 > /proc/sys/net/ipv4/ip_forward
		echo 1 > /proc/sys/net/ipv4/conf/all/src_valid_mark
		echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter
	`)
}

func (n *network) names() []string {
	names := []string{n.node.Name, podNS, wireNS}
	for _, p := range n.peers {
		names = append(names, p.Name)
	}
	return names
}

func (n *network) podSide(ctx context.Context) error {
	err := n.script(ctx, n.node.Name, fmt.Sprintf(`
		ip link add %[1]s type bridge
		ip addr add %[2]s/%[3]d dev %[1]s
		ip link set %[1]s up
		ip link add veth-pod type veth peer name eth0 netns %[4]s
		ip link set veth-pod master %[1]s up
	`, podBridge, n.gateway, n.pods.Bits(), podNS))
	if err != nil {
		return err
	}
	return n.script(ctx, podNS, fmt.Sprintf(`
		ip addr add %s/%d dev eth0
		ip link set eth0 up
		ip route add default via %s
	`, n.pod, n.pods.Bits(), n.gateway))
}

// wire joins two namespaces by a device without link addresses to ask for, as tunnels have none: both ends have the same.
func (n *network) wire(ctx context.Context, ns, dev, otherNS, otherDev string) error {
	const hw = "02:00:00:00:00:01"
	err := n.script(ctx, ns, fmt.Sprintf(`
		ip link add %[1]s address %[4]s type veth peer name %[3]s address %[4]s netns %[2]s
		ip link set %[1]s arp off up
	`, dev, otherNS, otherDev, hw))
	if err != nil {
		return err
	}
	return n.script(ctx, otherNS, "ip link set "+otherDev+" arp off up")
}

// tailscale imitates tailscaled on all nodes: the device, and on this one its rules and its table. Between the devices a
// packet is thrown away whose source is not its node's mesh address, which is what WireGuard does at the receiver.
func (n *network) tailscale(ctx context.Context) error {
	err := n.script(ctx, wireNS, `
		echo 1 > /proc/sys/net/ipv4/ip_forward
		nft add table ip wireguard
		nft add chain ip wireguard forward '{ type filter hook forward priority 0; }'
	`)
	if err != nil {
		return err
	}
	for _, node := range append([]config.Node{n.node}, n.peers...) {
		if err := n.wire(ctx, node.Name, "tailscale0", wireNS, node.Name); err != nil {
			return err
		}
		err := n.script(ctx, wireNS, fmt.Sprintf(`
			ip route add %[1]s dev %[2]s
			nft add rule ip wireguard forward iifname %[2]s ip saddr != %[1]s counter drop
		`, address(node), node.Name))
		if err != nil {
			return err
		}
		if err := n.script(ctx, node.Name, fmt.Sprintf("ip addr add %s/32 dev tailscale0", address(node))); err != nil {
			return err
		}
		if node.Name != n.node.Name {
			if err := n.script(ctx, node.Name, "ip route add "+config.MeshRange4().String()+" dev tailscale0"); err != nil {
				return err
			}
			continue
		}
		if err := n.tailscaleHere(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tailscaleHere adds what tailscaled has on the node itself: a mesh address of each family, the rules and the table.
func (n *network) tailscaleHere(ctx context.Context) error {
	ns := n.node.Name
	_, err := os.Stat("/proc/sys/net/ipv6")
	ipv6 := err == nil
	for _, a := range n.node.Addresses[1:] {
		if !ipv6 {
			continue
		}
		// The kernel adds a route for multicast when it finds the device up, which may be a moment later.
		err := n.script(ctx, ns, fmt.Sprintf(`
			ip link set tailscale0 addrgenmode none
			echo 0 > /proc/sys/net/ipv6/conf/tailscale0/disable_ipv6
			ip -6 addr add %s/128 dev tailscale0 nodad
			until ip -6 route show table all | grep -q '^multicast .*tailscale0'; do sleep 0.01; done
		`, a))
		if err != nil {
			return err
		}
	}
	for _, p := range n.peers {
		for _, a := range p.Addresses {
			if a.Is6() && !ipv6 {
				continue
			}
			if err := n.script(ctx, ns, fmt.Sprintf("ip route add %s dev tailscale0 table 52", a)); err != nil {
				return err
			}
		}
	}
	for _, rule := range []string{
		"pref 5210 fwmark 0x80000/0xff0000 lookup main",
		"pref 5230 fwmark 0x80000/0xff0000 lookup default",
		"pref 5250 fwmark 0x80000/0xff0000 unreachable",
		"pref 5270 lookup 52",
	} {
		if err := n.script(ctx, ns, "ip rule add "+rule); err != nil {
			return err
		}
		if ipv6 {
			if err := n.script(ctx, ns, "ip -6 rule add "+rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// kubeRouter imitates the overlay of kube-router: a tunnel to each peer, table 77 with the peers' mesh addresses, and the
// rule to it, for which it names no priority. Its firewall uses connection tracking, which is thereby on.
func (n *network) kubeRouter(ctx context.Context) error {
	for _, p := range n.peers {
		if err := n.wire(ctx, n.node.Name, tunnel(p), p.Name, tunnel(n.node)); err != nil {
			return err
		}
		if err := n.script(ctx, n.node.Name, fmt.Sprintf("ip route add %s dev %s table 77", address(p), tunnel(p))); err != nil {
			return err
		}
		if err := n.script(ctx, p.Name, fmt.Sprintf("ip route add %s dev %s src %s", n.pods, tunnel(n.node), address(p))); err != nil {
			return err
		}
	}
	return n.script(ctx, n.node.Name, fmt.Sprintf(`
		nft add table ip kube-router
		nft add chain ip kube-router forward '{ type filter hook forward priority 0; }'
		nft add rule ip kube-router forward ct state established,related accept
		ip rule add from %s lookup 77
	`, n.pods))
}

// dump is everything of the node that the agent could change, as the tools print it.
func (n *network) dump(ctx context.Context) (string, error) {
	var all strings.Builder
	for _, line := range []string{
		"ip rule",
		"ip -6 rule",
		"ip -4 route show table all",
		"ip -6 route show table all",
		"nft -s list ruleset",
		"iptables-save",
		"ip6tables-save",
		"iptables-legacy-save",
	} {
		args := strings.Fields(line)
		// There may be no IPv6, no program for iptables, or one that this kernel does not serve.
		r, err := n.s.run(ctx, command{NS: n.node.Name, Args: args})
		if err != nil {
			return "", err
		}
		if r.Exit != 0 && !strings.Contains(line, "tables-") && !strings.Contains(line, "ip -6") {
			return "", fmt.Errorf("%s: exit code %d: %s", line, r.Exit, r.Stderr)
		}
		for _, l := range splitLines(r.Stdout) {
			if !strings.HasPrefix(l, "#") { // comments carry the time
				fmt.Fprintln(&all, strings.TrimRight(l, " "))
			}
		}
	}
	return all.String(), nil
}

// route is the kernel's answer to where a packet would go.
type route struct {
	Text  string `json:"text"` // as ip prints it
	Dev   string `json:"dev"`
	Table string `json:"table,omitempty"` // none: main
}

// ask asks the kernel for the way of a packet that comes from the pod, with the mark that the agent's firewall rule
// gives it.
func (n *network) ask(ctx context.Context, to netip.Addr) (route, error) {
	args := []string{
		"route", "get", to.String(), "from", n.pod.String(), "iif", podBridge, "mark", n.mark.String(),
	}
	text, err := n.s.must(ctx, command{NS: n.node.Name, Args: append([]string{"ip"}, args...)})
	if err != nil {
		return route{}, err
	}
	r, err := n.s.must(ctx, command{NS: n.node.Name, Args: append([]string{"ip", "-j"}, args...)})
	if err != nil {
		return route{}, err
	}
	var answers []route
	if err := json.Unmarshal([]byte(r.Stdout), &answers); err != nil || len(answers) != 1 {
		return route{}, fmt.Errorf("%s: not one route: %q (%w)", r.Command, r.Stdout, err)
	}
	answers[0].Text = strings.Join(strings.Fields(text.Stdout), " ")
	return answers[0], nil
}

// foreign counts the packets that were thrown away between the nodes because of their source.
func (n *network) foreign(ctx context.Context) (uint64, error) {
	r, err := n.s.must(ctx, command{NS: wireNS, Args: []string{"nft", "-j", "list", "chain", "ip", "wireguard", "forward"}})
	if err != nil {
		return 0, err
	}
	var list struct {
		Nftables []struct {
			Rule struct {
				Expr []struct {
					Counter struct{ Packets uint64 }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
		return 0, fmt.Errorf("%s: %w", r.Command, err)
	}
	var sum uint64
	for _, o := range list.Nftables {
		for _, e := range o.Rule.Expr {
			sum += e.Counter.Packets
		}
	}
	return sum, nil
}

// fromPod sends a packet from a port of the pod to a peer's mesh address.
func (n *network) fromPod(ctx context.Context, p config.Node, port int) (packet, error) {
	return exchange(ctx, podNS, netip.AddrPortFrom(n.pod, uint16(port)), p.Name, address(p))
}

// toPod sends a packet from a port of a peer's mesh address to the pod.
func (n *network) toPod(ctx context.Context, p config.Node, port int) (packet, error) {
	return exchange(ctx, p.Name, netip.AddrPortFrom(address(p), uint16(port)), podNS, n.pod)
}
