//go:build linux

package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
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
	d := &tailscaled{status: status, change: make(chan struct{})}
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
	d.socket = serveSocket(t, mux)
	return d
}

// serveSocket answers on a unix socket until the test ends, and returns its path.
func serveSocket(t *testing.T, handler http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ts") //nolint:usetesting // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return socket
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
	overFirewalls(t, func(t *testing.T, b backend) {
		const status = `{"BackendState":"Running","Self":{"ID":"nAms","DNSName":"ams1.t.","TailscaleIPs":["100.64.0.11","fd7a:115c:a1e0::b"]},
			"Peer":{"k1":{"ID":"nFra","DNSName":"fra1.t.","TailscaleIPs":["100.64.0.12"]}%s}}`
		node := b.node(t)
		daemon := startTailscaled(t, fmt.Sprintf(status, ""))
		a := b.agent(t, b.in(`{"version": 1, "mesh": "futhark",
			"node": {"name": "ams1", "id": "nAms", "addresses": ["100.64.0.11"]},
			"pod_cidrs": ["10.244.1.0/24"],
			"peers": [{"name": "fra1", "id": "nFra", "addresses": ["100.64.0.99"]}],
			"discover": {"tags": ["tag:node"]}}`))
		s := startService(t, node, a, "--socket", daemon.socket)
		list := "ipset save " + b.name.SetName("peers4") + " | grep ^add"
		if b.name == desired.NFTables {
			list = "nft list set inet tailmesh peers4 | tr -d , | grep elements"
		}
		mesh := regexp.MustCompile(`100\.64\.\d+\.\d+`)
		expect := func(peers ...string) {
			t.Helper()
			s.expect(fmt.Sprint("the peers ", peers), func() bool {
				out, _ := node.Try(list)
				found := mesh.FindAllString(out, -1)
				slices.Sort(found)
				return slices.Equal(found, peers)
			})
		}
		expect("100.64.0.12")
		daemon.set(strings.Replace(fmt.Sprintf(status, ""), "100.64.0.12", "100.64.0.77", 1))
		expect("100.64.0.77")
		daemon.set(fmt.Sprintf(status, `,"k2":{"ID":"nPar","DNSName":"par1.t.","TailscaleIPs":["100.64.0.13"],"Tags":["tag:node"]}`))
		expect("100.64.0.12", "100.64.0.13")
		daemon.set(`{"BackendState":"Stopped"}`) // what was known stays
		if b.name == desired.NFTables {
			node.Run("nft flush set inet tailmesh peers4")
		} else {
			node.Run("ipset flush " + b.name.SetName("peers4"))
			s.nudge()
		}
		expect("100.64.0.12", "100.64.0.13")
		daemon.set(strings.Replace(fmt.Sprintf(status, ""), "nAms", "nOther", 1))
		s.expect("the refusal of another node's document", func() bool { return strings.Contains(s.log.String(), "this host is nOther") })
		expect("100.64.0.12", "100.64.0.13")

		// A service that starts while tailscaled does not answer takes none of them for gone.
		s.stop()
		before := node.Run(list)
		daemon.set(`{"BackendState":"Stopped"}`)
		s = startService(t, node, a, "--socket", daemon.socket)
		s.expect("a pass", func() bool { return s.passes() > 0 })
		if after := node.Run(list); after != before {
			t.Errorf("the peers were\n%sand are after a restart\n%s", before, after)
		}
	})
}

// A tailscaled that takes questions and answers none, or answers nonsense, delays a command by two seconds at most, and is
// named; the document's addresses serve.
func TestTailscaledInTrouble(t *testing.T) {
	answer := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, text) }
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		why     string
	}{
		{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "ask tailscaled: no answer within 2s"},
		{"garbage", answer(200, "<html>"), "read tailscaled's status: invalid character '<'"},
		{"out of order", answer(500, "no"), "ask tailscaled: 500 Internal Server Error: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nstest.NewNode(t)
			a := newAgent(t, nodeDocument)
			socket := serveSocket(t, tt.handler)
			for _, verb := range []string{"plan", "apply", "status"} {
				begin := time.Now()
				stdout, stderr, code := a.run(verb, "--socket", socket)
				if took := time.Since(begin); took > 4*time.Second {
					t.Errorf("%s took %s", verb, took)
				}
				if want := map[string]int{"plan": exitNo}[verb]; code != want || strings.Count(stderr, "\n") != 1 ||
					!strings.HasPrefix(stderr, "note: tailscaled does not say who is in the tailnet: the addresses of the document serve ("+tt.why) {
					t.Errorf("%s: exit code %d\n%s%s", verb, code, stdout, stderr)
				}
			}
		})
	}
}
