//go:build linux

package cli

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// While tailscaled keeps the doctor's checks waiting, repairs are made as ever; what the checks saw meanwhile is not shown,
// and they look again.
func TestChecksKeepNobodyWaiting(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(""))
		var waiting atomic.Int32
		release := make(chan struct{})
		mux := http.NewServeMux()
		mux.HandleFunc("/localapi/v0/status", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"BackendState":"Running","Self":{"ID":"nAms","DNSName":"ams1.t.","TailscaleIPs":["100.64.0.11","fd7a:115c:a1e0::b"],"Online":true},
				"Peer":{"k1":{"ID":"nFra","DNSName":"fra1.t.","TailscaleIPs":["100.64.0.12","fd7a:115c:a1e0::c"],"Online":true}}}`)
		})
		mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/watch-ipn-bus") {
				waiting.Add(1)
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		s := startService(t, node, a, "--socket", serveSocket(t, mux))
		s.status("ok: 2 of 2")
		whole, _ := parts(node.Dump())
		s.nudge()
		s.expect("the checks' question, beside the loop's", func() bool { return waiting.Load() > 1 })
		begin := time.Now()
		for range 2 {
			node.Run("ip rule del pref 0 fwmark 0x2000/0x2000")
			s.expect("the repair", func() bool { own, _ := parts(node.Dump()); return own == whole })
		}
		if took := time.Since(begin); took > 4*time.Second { // the checks wait for five, and then for five more
			t.Errorf("two repairs took %s", took)
		}
		if got := get("/metrics"); strings.Contains(got, "tailmesh_agent_check") {
			t.Errorf("checks are shown that have not ended:\n%s", got)
		}
		close(release)
		var got string
		s.expect("the checks' end", func() bool {
			s.nudge()
			got = get("/metrics")
			return strings.Contains(got, `tailmesh_agent_check_failed{check="agent"} 0`)
		})
	})
}

// The checks look at the network namespace that the loop works on, on whatever thread they are.
func TestAlongside(t *testing.T) {
	node := nstest.New(t)
	node.Run("ip link add here type bridge")
	seen := make(chan error)
	f, err := alongside(func() {
		_, err := node.Try("ip link show here")
		seen <- err
	})
	must(t, err)
	go f()
	if err := <-seen; err != nil {
		t.Error(err)
	}
}
