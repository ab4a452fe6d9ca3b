//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
)

// The router of the underlay.
const (
	underlayRouter  = "172.31.250.1"
	underlayRouter6 = "fd31:250::1"
)

// Names of devices.
const (
	PodBridge = "kube-bridge"
	MeshLink  = "tailscale0"
)

// Family is a version of the internet protocol: 4 or 6.
type Family int

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return 4
	}
	return 6
}

// Machine is a namespace that sends and answers packets: a node, a pod, or a machine of a location's network.
type Machine struct {
	Name  string       // of the namespace
	Addrs []netip.Addr // at most one per family
	Node  *Node        // the node that routes for it; a node routes for itself
}

// Addr returns the machine's address of a family, invalid where it has none.
func (m *Machine) Addr(f Family) netip.Addr {
	for _, a := range m.Addrs {
		if familyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Lab is a tailnet with a mesh of two cluster nodes and a device that is no peer of theirs.
type Lab struct {
	Control  *Control
	Nodes    []*Node // all, in the order of their mesh addresses
	Ams, Fra *Node   // nodes of the mesh; Ams has the location's networks behind it
	Laptop   *Node   // in the tailnet, no peer
	Location []*Machine

	dir   string
	taps  *taps
	flows atomic.Int64 // how many there were
}

// New builds the network, starts the control server and the nodes, and waits until each node sees all others. dir is for
// the daemons' state, sockets and logs. The caller must be inside [Enter].
func New(ctx context.Context, dir string) (_ *Lab, err error) {
	l := &Lab{dir: dir, taps: newTaps()}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := steps(`
		link add br-under type bridge
		addr add ADDR4/24 dev br-under
		addr add ADDR6/64 dev br-under nodad
		link set br-under up
	`, "ADDR4", underlayRouter, "ADDR6", underlayRouter6); err != nil {
		return nil, err
	}
	if l.Control, err = startControl(underlayRouter, func(string, ...any) {}); err != nil {
		return nil, err
	}
	for i, spec := range []struct {
		node **Node
		name string
		tag  string
		pods bool
	}{
		{&l.Ams, "ams1", "tag:node", true},
		{&l.Fra, "fra1", "tag:node", true},
		{&l.Laptop, "laptop", "tag:laptop", false},
	} {
		n, err := l.addNode(i+1, spec.name, spec.tag, spec.pods)
		if err != nil {
			return nil, err
		}
		*spec.node = n
		l.Nodes = append(l.Nodes, n)
	}
	if err := l.addLocation(l.Ams, "192.168.10.0/24", "10.7.0.0/16"); err != nil {
		return nil, err
	}
	// Daemons start side by side; logins go one after the other, because the control server numbers nodes in that order.
	for _, n := range l.Nodes {
		if err := n.StartDaemon(ctx); err != nil {
			return nil, err
		}
	}
	for _, n := range l.Nodes {
		if err := n.login(ctx); err != nil {
			return nil, err
		}
	}
	for _, n := range l.Nodes {
		if err := n.WaitPeers(ctx); err != nil {
			return nil, err
		}
	}
	for _, n := range l.Mesh() {
		if err := l.startOverlay(n); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Close stops everything in order. The end of the process does the same, less politely.
func (l *Lab) Close() {
	for _, n := range l.Nodes {
		n.stopTunnels()
		n.StopDaemon()
	}
	l.taps.close()
	if l.Control != nil {
		l.Control.close()
	}
}

// Mesh returns the nodes of the mesh.
func (l *Lab) Mesh() []*Node { return []*Node{l.Ams, l.Fra} }

// peers returns the other nodes of the mesh.
func (l *Lab) peers(n *Node) []*Node {
	return slices.DeleteFunc(l.Mesh(), func(p *Node) bool { return p == n })
}

// addLocation puts networks behind a node, each with one machine that has the address .50 of it as a floating address,
// and sends the pods' packets back to the node.
func (l *Lab) addLocation(n *Node, networks ...string) error {
	for i, text := range networks {
		network := netip.MustParsePrefix(text)
		host := func(last byte) netip.Addr {
			b := network.Addr().As4()
			b[3] = last
			return netip.AddrFrom4(b)
		}
		m := &Machine{Name: fmt.Sprintf("%s-lan%d", n.Name, i), Addrs: []netip.Addr{host(50)}, Node: n}
		if err := steps(`
			netns add LAN
			-n NODE link add DEV type veth peer name eth0 netns LAN
			-n NODE addr add GATEWAY/BITS dev DEV
			-n NODE link set DEV up
			-n LAN link set lo up
			-n LAN addr add OWN/BITS dev eth0
			-n LAN addr add VIP/32 dev eth0
			-n LAN link set eth0 up
			-n LAN route add default via GATEWAY
		`, "LAN", m.Name, "NODE", n.Name, "DEV", fmt.Sprintf("lan%d", i), "BITS", fmt.Sprint(network.Bits()),
			"GATEWAY", host(1).String(), "OWN", host(9).String(), "VIP", host(50).String()); err != nil {
			return err
		}
		if err := l.taps.add(m.Name); err != nil {
			return err
		}
		n.LocalCIDRs = append(n.LocalCIDRs, network)
		l.Location = append(l.Location, m)
	}
	return nil
}

// programs are named by the environment, see BuildPrograms.
func program(env string) (string, error) {
	path := os.Getenv(env)
	if path == "" {
		return "", fmt.Errorf("%s is not set: call BuildPrograms first", env)
	}
	return path, nil
}
