//go:build linux

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// tunnelPrefix is what names of kube-router's tunnel devices begin with.
const tunnelPrefix = "tun-"

// overlayTable is the routing table in which kube-router sends packets from pods to a peer's address into the tunnel.
const overlayTable = "77"

// startOverlay does on a node what kube-router does with its IP-in-IP overlay, except for the rule: a tunnel per peer
// between the mesh addresses, and the routes into it. kube-router's own masquerading of pods is off.
func (l *Lab) startOverlay(n *Node) error {
	for _, peer := range l.peers(n) {
		for _, remote := range peer.Addrs {
			f := familyOf(remote)
			dev, local := tunnelName(remote), n.Addr(f)
			t, err := within(n.Name, func() (*tunnel, error) { return openTunnel(dev, local, remote) })
			if err != nil {
				return err
			}
			n.tunnels = append(n.tunnels, t)
			// 1280 bytes of tailscale0 less the outer header; IPv6 cannot do with less than 1280 itself.
			mtu := map[Family]string{4: "1260", 6: "1280"}[f]
			if err := ip("-n", n.Name, "link", "set", dev, "up", "mtu", mtu); err != nil {
				return err
			}
		}
	}
	return l.RouteOverlay(n)
}

// RouteOverlay makes the overlay's routes on a node: the peers' pods by the tunnels, from the mesh address, and in table
// 77 the peers' mesh addresses. The kernel forgets the former when the mesh address goes, as it does when tailscaled ends;
// kube-router makes them again when its sessions come back.
func (l *Lab) RouteOverlay(n *Node) error {
	for _, peer := range l.peers(n) {
		for _, remote := range peer.Addrs {
			f := familyOf(remote)
			if err := steps(`
				-n NODE FAMILY route replace PODS dev DEV proto 17 src LOCAL
				-n NODE FAMILY route replace REMOTE dev DEV table TABLE
			`, "NODE", n.Name, "DEV", tunnelName(remote), "FAMILY", "-"+strconv.Itoa(int(f)), "PODS", peer.podCIDR(f).String(),
				"LOCAL", n.Addr(f).String(), "REMOTE", remote.String(), "TABLE", overlayTable); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) stopTunnels() {
	for _, t := range n.tunnels {
		t.close()
	}
	n.tunnels = nil
}

func (n *Node) podCIDR(f Family) netip.Prefix {
	for _, p := range n.PodCIDRs {
		if familyOf(p.Addr()) == f {
			return p
		}
	}
	return netip.Prefix{}
}

// tunnelName names the tunnel to a node's address as kube-router does.
func tunnelName(remote netip.Addr) string {
	sum := sha256.Sum256([]byte(strings.NewReplacer(".", "", ":", "").Replace(remote.String())))
	return tunnelPrefix + hex.EncodeToString(sum[:])[:11]
}

// AddOverlayRule adds kube-router's rule for both families: packets from this node's pods look into table 77. As
// kube-router does, it asks for no priority; it returns the one that the kernel chose for IPv4.
func AddOverlayRule(ctx context.Context, n *Node) (int, error) {
	for _, f := range []Family{4, 6} {
		if err := n.rule(f, "add", "from", n.podCIDR(f).String(), "lookup", overlayTable); err != nil {
			return 0, err
		}
	}
	rules, err := run(ctx, "ip", "-n", n.Name, "rule")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(rules) {
		priority, rest, _ := strings.Cut(line, ":")
		if strings.Contains(rest, n.podCIDR(4).String()) && strings.Contains(rest, "lookup "+overlayTable) {
			return strconv.Atoi(priority)
		}
	}
	return 0, fmt.Errorf("the overlay's rule is not there:\n%s", rules)
}

// DeleteOverlayRule takes kube-router's rule away.
func DeleteOverlayRule(n *Node) error {
	for _, f := range []Family{4, 6} {
		if err := n.rule(f, "del", "from", n.podCIDR(f).String(), "lookup", overlayTable); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) rule(f Family, args ...string) error {
	return ip(append([]string{"-n", n.Name, "-" + strconv.Itoa(int(f)), "rule"}, args...)...)
}
