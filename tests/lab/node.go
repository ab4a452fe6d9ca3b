//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tailscale.com/client/local"
)

// Node is a machine of the tailnet: a namespace with a tailscaled. Its addresses are its mesh addresses.
type Node struct {
	Machine
	ID         string // stable, the control plane's
	Tag        string
	PodCIDRs   []netip.Prefix // empty: no node of the cluster
	Pod        *Machine
	LocalCIDRs []netip.Prefix

	lab     *Lab
	dir     string
	socket  string
	daemon  *exec.Cmd
	exited  chan struct{}
	tunnels []*tunnel
}

func (l *Lab) addNode(index int, name, tag string, pods bool) (*Node, error) {
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{Machine: Machine{Name: name}, Tag: tag, lab: l, dir: dir, socket: filepath.Join(dir, "tailscaled.sock")}
	n.Node = n
	number := strconv.Itoa(index)
	if err := steps(`
		netns add NODE
		link add u-NODE type veth peer name eth0 netns NODE
		link set u-NODE master br-under up
		-n NODE link set lo up
		-n NODE addr add 172.31.250.1NUMBER/24 dev eth0
		-n NODE addr add fd31:250::1NUMBER/64 dev eth0 nodad
		-n NODE link set eth0 up
		-n NODE route add default via ROUTER4
		-n NODE -6 route add default via ROUTER6
	`, "NODE", name, "NUMBER", number, "ROUTER4", underlayRouter, "ROUTER6", underlayRouter6); err != nil {
		return nil, err
	}
	if _, err := Sh(context.Background(), name, `cd /proc/sys/net
		echo 1 >ipv4/ip_forward
		echo 1 >ipv6/conf/all/forwarding
		echo 0 >ipv4/conf/all/rp_filter
		echo 0 >ipv4/conf/default/rp_filter
		echo 0 >ipv6/conf/all/accept_dad
		echo 0 >ipv6/conf/default/accept_dad`); err != nil {
		return nil, err
	}
	if err := l.taps.add(name); err != nil {
		return nil, err
	}
	if !pods {
		return n, nil
	}
	n.PodCIDRs = []netip.Prefix{
		netip.MustParsePrefix("10.42." + number + ".0/24"), netip.MustParsePrefix("fd00:10:42:" + number + "::/64"),
	}
	n.Pod = &Machine{Name: name + "-pod", Node: n, Addrs: []netip.Addr{
		netip.MustParseAddr("10.42." + number + ".2"), netip.MustParseAddr("fd00:10:42:" + number + "::2"),
	}}
	if err := steps(`
		-n NODE link add BRIDGE type bridge
		-n NODE addr add 10.42.NUMBER.1/24 dev BRIDGE
		-n NODE addr add fd00:10:42:NUMBER::1/64 dev BRIDGE nodad
		-n NODE link set BRIDGE up
		netns add POD
		-n NODE link add veth-pod type veth peer name eth0 netns POD
		-n NODE link set veth-pod master BRIDGE up
		-n POD link set lo up
		-n POD addr add 10.42.NUMBER.2/24 dev eth0
		-n POD addr add fd00:10:42:NUMBER::2/64 dev eth0 nodad
		-n POD link set eth0 up
		-n POD route add default via 10.42.NUMBER.1
		-n POD -6 route add default via fd00:10:42:NUMBER::1
	`, "POD", n.Pod.Name, "NODE", name, "NUMBER", number, "BRIDGE", PodBridge); err != nil {
		return nil, err
	}
	return n, l.taps.add(n.Pod.Name)
}

// SetReversePathFilter sets rp_filter on every interface of a node, and on those that come later, and whether the filter
// looks at the mark (src_valid_mark).
func SetReversePathFilter(n *Node, mode int, mark bool) error {
	looks := map[bool]int{false: 0, true: 1}[mark]
	_, err := Sh(context.Background(), n.Name, fmt.Sprintf(`cd /proc/sys/net/ipv4/conf
		for f in */rp_filter; do echo %d >$f; done
		for f in */src_valid_mark; do echo %d >$f; done`, mode, looks))
	return err
}

// Tailscale runs the tailscale command against the node's daemon.
func (n *Node) Tailscale(ctx context.Context, args ...string) (string, error) {
	path, err := program(tailscaleEnv)
	if err != nil {
		return "", err
	}
	return Run(ctx, n.Name, append([]string{path, "--socket=" + n.socket}, args...)...)
}

// api is tailscaled's own.
func (n *Node) api() *local.Client { return &local.Client{Socket: n.socket, UseSocketOnly: true} }

// DaemonLog returns what the node's tailscaled has logged, at its default verbosity.
func (n *Node) DaemonLog() (string, error) {
	log, err := os.ReadFile(filepath.Join(n.dir, "tailscaled.log"))
	return string(log), err
}

// StartDaemon starts the node's tailscaled and waits for its socket.
func (n *Node) StartDaemon(ctx context.Context) error {
	path, err := program(tailscaledEnv)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "tailscaled.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("ip", "netns", "exec", n.Name, path,
		"--statedir="+n.dir, "--socket="+n.socket, "--port=41641", "--no-logs-no-support")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(),
		"TS_PANIC_IF_HIT_MAIN_CONTROL=1",
		"TS_ASSUME_NETWORK_UP_FOR_TEST=1",
		"TS_DISABLE_PORTMAPPER=1",
		"TS_LOGS_DIR="+n.dir,
		"TS_NETCHECK_GENERATE_204_URL="+n.lab.Control.URL+"/generate_204",
		"TS_DEBUG_LOG_RATE=all",
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.daemon, n.exited = cmd, make(chan struct{})
	go func() {
		defer close(n.exited)
		_ = cmd.Wait() // its state is looked at below
	}()
	return wait(ctx, 15*time.Second, n.Name+"'s socket", func() error {
		select {
		case <-n.exited:
			return fmt.Errorf("tailscaled: %v", cmd.ProcessState)
		default:
		}
		_, err := os.Stat(n.socket)
		return err
	})
}

// StopDaemon stops tailscaled as a service manager does, and waits until it is gone.
func (n *Node) StopDaemon() {
	if n.daemon == nil {
		return
	}
	_ = n.daemon.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-n.exited:
	case <-time.After(8 * time.Second):
		_ = n.daemon.Process.Kill()
		<-n.exited
	}
	n.daemon = nil
	os.Remove(n.socket)
}

// CleanUp takes away what the node's tailscaled has left, as its unit does after it ended: a node that boots has nothing of it.
func (n *Node) CleanUp(ctx context.Context) error {
	path, err := program(tailscaledEnv)
	if err != nil {
		return err
	}
	_, err = Run(ctx, n.Name, "env", "TS_LOGS_DIR="+n.dir, path, "--cleanup", "--statedir="+n.dir, "--socket="+n.socket, "--no-logs-no-support")
	return err
}

func (n *Node) login(ctx context.Context) error {
	if _, err := n.Tailscale(ctx, "up", "--login-server="+n.lab.Control.URL, "--hostname="+n.Name,
		"--accept-dns=false", "--timeout=20s"); err != nil {
		return err
	}
	status, err := n.api().Status(ctx)
	if err != nil {
		return err
	}
	n.ID, n.Addrs = string(status.Self.ID), status.TailscaleIPs
	n.lab.Control.SetTags(n.Addr(4), n.Tag)
	return nil
}

// WaitPeers waits until the node runs, sees all others and has routes to them in Tailscale's table.
func (n *Node) WaitPeers(ctx context.Context) error {
	return wait(ctx, 30*time.Second, n.Name+" to see its peers", func() error {
		status, err := n.api().Status(ctx)
		if err != nil {
			return err
		}
		if want := len(n.lab.Nodes) - 1; status.BackendState != "Running" || len(status.Peer) != want {
			return fmt.Errorf("state %s with %d peers, not %d", status.BackendState, len(status.Peer), want)
		}
		routes, err := run(ctx, "ip", "-n", n.Name, "route", "show", "table", "52")
		if err != nil {
			return err
		}
		for _, p := range status.Peer {
			if !strings.Contains(routes, p.TailscaleIPs[0].String()+" dev") {
				return fmt.Errorf("no route to %v in table 52", p.TailscaleIPs[0])
			}
		}
		return nil
	})
}

// DroppedByPolicy returns how many packets the node's filter has refused.
func (n *Node) DroppedByPolicy(ctx context.Context) (int, error) {
	out, err := n.Tailscale(ctx, "metrics", "print")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, `tailscaled_inbound_dropped_packets_total{reason="acl"} `); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, nil // the line is absent until the first drop
}
