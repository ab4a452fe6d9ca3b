//go:build linux

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// tailscaled answers on a socket as the real one does, and tells its watchers of each change.
type tailscaled struct {
	socket string

	mu     sync.Mutex
	status string
	change chan struct{} // closed at the next change
}

func startTailscaled(t *testing.T, status string) *tailscaled {
	t.Helper()
	dir, err := os.MkdirTemp("", "ts") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &tailscaled{socket: filepath.Join(dir, "s"), status: status, change: make(chan struct{})}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/localapi/v0/status", func(w http.ResponseWriter, _ *http.Request) {
		status, _ := d.now()
		fmt.Fprint(w, status)
	})
	mux.HandleFunc("/localapi/v0/watch-ipn-bus", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"State":6}`)
		for {
			_, change := d.now()
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-change:
				fmt.Fprintln(w, `{"NetMap":{"Name":"ams1"}}`)
			}
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return d
}

func (d *tailscaled) now() (string, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status, d.change
}

func (d *tailscaled) set(status string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.change)
	d.status, d.change = status, make(chan struct{})
}

// A peer that comes back under another address, and one that only has a tag, are followed as tailscaled tells of them.
func TestRunFollowsTheTailnet(t *testing.T) {
	const status = `{"BackendState":"Running","Self":{"ID":"nAms","DNSName":"ams1.t.","TailscaleIPs":["100.64.0.11","fd7a:115c:a1e0::b"]},
		"Peer":{"k1":{"ID":"nFra","DNSName":"fra1.t.","TailscaleIPs":["100.64.0.12"]}%s}}`
	node := nstest.NewNode(t)
	daemon := startTailscaled(t, fmt.Sprintf(status, ""))
	a := newAgent(t, `{"version": 1, "mesh": "futhark",
		"node": {"name": "ams1", "id": "nAms", "addresses": ["100.64.0.11"]},
		"pod_cidrs": ["10.244.1.0/24"],
		"peers": [{"name": "fra1", "id": "nFra", "addresses": ["100.64.0.99"]}],
		"discover": {"tags": ["tag:node"]}}`)
	log := &buffer{}
	ctx, stop := context.WithCancel(t.Context())
	wait := node.Go(func() {
		Run(ctx, Env{Kernel: kernel.Linux{}, Stdout: io.Discard, Stderr: log}, []string{
			"run", "--config", a.path, "--socket", daemon.socket, "--lock", a.path + ".lock", "--state", t.TempDir(),
		})
	})
	defer func() { stop(); wait() }()
	expect := func(elements string) {
		t.Helper()
		if !node.Wait(func() bool {
			out, _ := node.Try("nft list set inet tailmesh peers4")
			return strings.Contains(out, "elements = { "+elements+" }")
		}) {
			t.Fatalf("the peers are not %s; log:\n%s", elements, log)
		}
	}
	expect("100.64.0.12")
	daemon.set(fmt.Sprintf(strings.Replace(status, "100.64.0.12", "100.64.0.77", 1), ""))
	expect("100.64.0.77")
	daemon.set(fmt.Sprintf(status, `,"k2":{"ID":"nPar","DNSName":"par1.t.","TailscaleIPs":["100.64.0.13"],"Tags":["tag:node"]}`))
	expect("100.64.0.12, 100.64.0.13")
	daemon.set(`{"BackendState":"Stopped"}`) // what was known stays
	node.Run("nft flush set inet tailmesh peers4")
	expect("100.64.0.12, 100.64.0.13")
	daemon.set(strings.Replace(fmt.Sprintf(status, ""), "nAms", "nOther", 1))
	if !node.Wait(func() bool { return strings.Contains(log.String(), "this host is nOther") }) {
		t.Errorf("another node's document was not refused; log:\n%s", log)
	}
	expect("100.64.0.12, 100.64.0.13")
}
