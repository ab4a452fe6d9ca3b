//go:build linux

package doctor_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// ill is a node that something is done to, its document and its tailscaled.
type ill struct {
	*nstest.Node
	t       *testing.T
	doc     config.Document
	tailnet tailnet
	socket  string
	options doctor.Options
}

// tailnet is what the imitated tailscaled says.
type tailnet struct {
	silent   bool
	state    string
	self     map[string]any
	peers    map[string]map[string]any
	filter   []any
	noFilter bool
	prefs    map[string]any
	drops    float64
}

func healthyTailnet() tailnet {
	peer := func(id, name string, addresses ...string) map[string]any {
		return map[string]any{"ID": id, "DNSName": name + ".futhark.ts.net.", "TailscaleIPs": addresses, "Online": true, "Tags": []string{"tag:node"}}
	}
	return tailnet{
		state: "Running",
		self: map[string]any{
			"ID": "nAms", "DNSName": "ams1.futhark.ts.net.", "Online": true, "KeyExpiry": "2099-01-01T00:00:00Z",
			"TailscaleIPs": []string{nstest.OwnAddress, nstest.OwnAddress6}, "AllowedIPs": []string{"100.64.0.11/32", "fd7a:115c:a1e0::b/128"},
		},
		peers: map[string]map[string]any{
			"k1": peer("nFra", "fra1", nstest.Peer, nstest.Peer6),
			"k2": peer("nPar", "par1", secondPeer),
		},
		filter: []any{
			admission([]int{6, 17, 1, 58}, 0, 65535),
			admission([]int{4}, 0, 65535),
		},
		prefs: map[string]any{"NetfilterMode": 2},
	}
}

// admission is an entry of a packet filter as tailscaled prints it.
func admission(protocols []int, first, last int) map[string]any {
	return map[string]any{
		"IPProto": protocols, "Srcs": []string{"100.64.0.12/32", "100.64.0.13/32", "100.64.0.77/32", "fd7a:115c:a1e0::c/128"},
		"Dsts": []any{
			map[string]any{"Net": "100.64.0.11/32", "Ports": map[string]int{"First": first, "Last": last}},
			map[string]any{"Net": "fd7a:115c:a1e0::b/128", "Ports": map[string]int{"First": first, "Last": last}},
		},
		"SrcCaps": nil, "Caps": []any{},
	}
}

const secondPeer = "100.64.0.13"

// newIll makes a node with tailscaled's chains, two peers and the agent's work done, on which nothing is wrong.
func newIll(t *testing.T) *ill {
	t.Helper()
	n := &ill{Node: nstest.NewNode(t), t: t, tailnet: healthyTailnet()}
	n.Sysctl("ipv4.conf.all.src_valid_mark", "1")
	n.InPeer(func() { n.Run("ip addr add " + secondPeer + "/32 dev lo") })
	n.Run("ip route add " + secondPeer + " dev tailscale0 table 52\nip route add " + secondPeer + " dev tun-fra1 table 77")
	n.tailscaleChains()
	n.doc = config.New()
	doc, err := config.Parse([]byte(`{
		"version": 1, "mesh": "futhark",
		"node": {"name": "ams1", "id": "nAms", "addresses": ["100.64.0.11", "fd7a:115c:a1e0::b"]},
		"pod_cidrs": ["10.244.1.0/24", "fd00:10:244:1::/64"],
		"local_cidrs": ["192.168.10.0/24", "10.7.0.0/16"],
		"peers": [
			{"name": "fra1", "id": "nFra", "addresses": ["100.64.0.12", "fd7a:115c:a1e0::c"]},
			{"name": "par1", "id": "nPar", "addresses": ["100.64.0.13"]}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	n.doc = doc
	n.lan()
	n.apply()
	return n
}

// lan gives the node an interface in its location's network.
func (n *ill) lan() {
	n.Run(`
		ip link add eth0 type bridge
		ip addr add 192.168.10.5/24 dev eth0
		ip link set eth0 up
		ip route add default via 192.168.10.1 dev eth0
	`)
}

// tailscaleChains adds what tailscaled adds to the firewall by iptables.
func (n *ill) tailscaleChains() {
	for _, tool := range []string{"iptables", "ip6tables"} {
		n.Run(strings.ReplaceAll(`
			IPT -N ts-forward
			IPT -A ts-forward -i tailscale0 -j MARK --set-mark 0x40000/0xff0000
			IPT -A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
			IPT -A ts-forward -o tailscale0 -j ACCEPT
			IPT -I FORWARD -j ts-forward
			IPT -t nat -N ts-postrouting
			IPT -t nat -A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
			IPT -t nat -I POSTROUTING -j ts-postrouting
			IPT -t mangle -A PREROUTING -m conntrack --ctstate ESTABLISHED,RELATED -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000
		`, "IPT", tool))
	}
	n.Run("iptables -I ts-forward 3 -o tailscale0 -s 100.64.0.0/10 -j DROP")
}

func (n *ill) apply() {
	n.t.Helper()
	node := reconcile.Node{Kernel: kernel.Linux{}}
	plan, err := node.Prepare(n.t.Context(), n.doc)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := node.Apply(n.t.Context(), plan); err != nil {
		n.t.Fatal(err)
	}
}

// serve starts the imitated tailscaled.
func (n *ill) serve() {
	dir, err := os.MkdirTemp("", "ts") //nolint:usetesting // a socket's path must be short
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { os.RemoveAll(dir) })
	n.socket = filepath.Join(dir, "s")
	if n.tailnet.silent {
		return
	}
	listener, err := net.Listen("unix", n.socket)
	if err != nil {
		n.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/localapi/v0/status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"BackendState": n.tailnet.state, "Self": n.tailnet.self, "Peer": n.tailnet.peers})
	})
	mux.HandleFunc("/localapi/v0/watch-ipn-bus", func(w http.ResponseWriter, r *http.Request) {
		message := map[string]any{"State": 6, "Prefs": n.tailnet.prefs}
		if !n.tailnet.noFilter && n.tailnet.state == "Running" {
			message["NetMap"] = map[string]any{"PacketFilter": n.tailnet.filter}
		}
		_ = json.NewEncoder(w).Encode(message)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/localapi/v0/usermetrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "tailscaled_inbound_packets_total{path=\"direct_ipv4\"} 7\n")
		if n.tailnet.drops > 0 {
			fmt.Fprintf(w, "tailscaled_inbound_dropped_packets_total{reason=\"acl\"} %g\n", n.tailnet.drops)
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	n.t.Cleanup(func() { server.Close() })
}

func (n *ill) examine(probe bool) doctor.Report {
	n.t.Helper()
	o := n.options
	o.Kernel, o.Socket, o.Document, o.Probe, o.ProbeWait = kernel.Linux{}, n.socket, &n.doc, probe, 300*time.Millisecond
	evidence, err := doctor.Gather(n.t.Context(), o)
	if err != nil {
		n.t.Fatal(err)
	}
	if probe && evidence.ProbeErr != "" {
		n.t.Errorf("no packet could be sent: %s", evidence.ProbeErr)
	}
	report := doctor.Judge(evidence)
	checkRedaction(n.t, evidence, report)
	return report
}

// peerPath names the peer's namespace for the ip tool.
func (n *ill) peerPath() string {
	n.t.Helper()
	var file *os.File
	n.InPeer(func() {
		var err error
		if file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			n.t.Fatal(err)
		}
	})
	n.t.Cleanup(func() { file.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
}

// restoreWithoutDropping puts the agent's table back as it was, and leaves tracked connections alone.
func (n *ill) restoreWithoutDropping() {
	n.t.Helper()
	k := kernel.Linux{}
	facts, err := k.Facts(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	state, err := desired.Build(n.doc, facts)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := k.Apply(n.t.Context(), desired.Diff(facts, state)); err != nil {
		n.t.Fatal(err)
	}
}
