package tailscale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// serve answers on a socket as tailscaled does.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "ts") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return New(socket)
}

const running = `{"Version":"1.98.10","BackendState":"Running","TailscaleIPs":["100.64.0.11"],
	"Self":{"ID":"nSelf","PublicKey":"nodekey:00","HostName":"ams1","DNSName":"ams1.tail.ts.net.","TailscaleIPs":["100.64.0.11","fd7a:115c:a1e0::b"],"Tags":["tag:node"],"Online":true},
	"Peer":{
		"nodekey:02":{"ID":"nFra","HostName":"localhost","DNSName":"fra1.tail.ts.net.","TailscaleIPs":["100.64.0.12"],"Tags":["tag:node"],"AllowedIPs":["100.64.0.12/32"]},
		"nodekey:01":{"ID":"nBare","HostName":"bare","DNSName":"","TailscaleIPs":null}},
	"User":{"1":{"ID":1}}}`

func TestTailnet(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/localapi/v0/status" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, running)
	})
	got, err := c.Tailnet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	want := &desired.Tailnet{
		Self: desired.TailnetNode{
			ID: "nSelf", Name: "ams1", Tags: []string{"tag:node"},
			Addresses: []netip.Addr{addr("100.64.0.11"), addr("fd7a:115c:a1e0::b")},
		},
		Peers: []desired.TailnetNode{
			{ID: "nBare", Name: "bare"},
			{ID: "nFra", Name: "fra1", Addresses: []netip.Addr{addr("100.64.0.12")}, Tags: []string{"tag:node"}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestName(t *testing.T) {
	for _, tt := range []struct{ dns, host, want string }{
		{"fra1.tail.ts.net.", "localhost", "fra1"},
		{"", "bare", "bare"},
		{"", "Zoë's phone", "Zoë's_phone"},
		{"", "a\x1b[31m\nnote: all is well\u202e", "a_[31m_note:_all_is_well_"},
		{"", "", ""},
	} {
		if got := Name(tt.dns, tt.host); got != tt.want {
			t.Errorf("%q, %q: got %q, want %q", tt.dns, tt.host, got, tt.want)
		}
	}
}

func TestTailnetErrors(t *testing.T) {
	answer := func(status int, text string) *Client {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})
	}
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		piece := []byte(strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			_, _ = w.Write(piece)
		}
	})
	hangs := func(begin string) *Client {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, begin)
			if begin != "" {
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		})
	}
	tests := []struct {
		name   string
		client *Client
		is     error
		text   string
	}{
		{"no socket", New(filepath.Join(t.TempDir(), "s")), os.ErrNotExist, ""},
		{"stopped", answer(200, `{"BackendState":"Stopped","Self":{"ID":"n"}}`), ErrNotRunning, `state "Stopped"`},
		{"starting", answer(200, `{"BackendState":"Starting"}`), ErrNotRunning, `state "Starting"`},
		{"denied", answer(403, "access denied\n"), nil, "ask tailscaled: 403 Forbidden: access denied"},
		{"garbage", answer(200, "<html>"), nil, "read tailscaled's status: invalid character"},
		{"broken", answer(500, "out of order"), nil, "ask tailscaled: 500 Internal Server Error: out of order"},
		{"hangs", hangs(""), nil, "ask tailscaled: no answer within 2s"},
		{"hangs amid the answer", hangs(`{"BackendState":`), nil, "read tailscaled's status: no answer within 2s"},
		{"endless", endless, nil, "read tailscaled's status: "},
		{"cut off", answer(200, `{"BackendState":"Run`), nil, "read tailscaled's status: unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			begin := time.Now()
			_, err := tt.client.Tailnet(t.Context())
			if took := time.Since(begin); took > requestTimeout+time.Second {
				t.Errorf("it took %s", took)
			}
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.is, tt.text)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	notices := []string{
		`{"Version":"1","SessionID":"x"}`, `{"State":6}`, `{"Health":{}}`, `{"NetMap":{"Peers":[{"ID":1}]}}`, `{"Engine":{}}`,
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/localapi/v0/watch-ipn-bus" || r.URL.Query().Get("mask") == "" {
			http.NotFound(w, r)
			return
		}
		for _, n := range notices {
			fmt.Fprintln(w, n)
		}
	})
	changes := 0
	err := c.Watch(t.Context(), func() { changes++ })
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("got %v, want the end of the stream", err)
	}
	if changes != 2 {
		t.Errorf("%d changes, want one of the state and one of the tailnet", changes)
	}
}

// No notice may exhaust the memory, and as many may come as do.
func TestWatchOfLargeNotices(t *testing.T) {
	const size = 1 << 20
	large := strings.Repeat("x", size)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range Limit/size + 5 {
			fmt.Fprintf(w, `{"State":6,"Other":%q}`, large)
		}
		fmt.Fprint(w, `{"State":6,"Other":"`)
		for r.Context().Err() == nil {
			fmt.Fprint(w, large)
		}
	})
	changes := 0
	err := c.Watch(t.Context(), func() { changes++ })
	if err == nil || changes != Limit/size+5 {
		t.Errorf("%d changes, %v", changes, err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"State":6}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Watch(ctx, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was canceled", err)
	}
}

// A tailscaled that hangs is waited for once, and then only for a moment. When it answers again, that is heard at once.
func TestSilence(t *testing.T) {
	var hanging atomic.Bool
	hanging.Store(true)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if hanging.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"BackendState":"Running","Self":{"ID":"n"}}`)
	})
	ask := func() (time.Duration, error) {
		begin := time.Now()
		_, err := c.Tailnet(t.Context())
		return time.Since(begin), err
	}
	first, reason := ask()
	if first < requestTimeout || reason == nil {
		t.Errorf("the first question: %s, %v", first, reason)
	}
	for range 3 {
		if took, err := ask(); took > requestTimeout/2 || err == nil || err.Error() != reason.Error() {
			t.Errorf("another question: %s, %v", took, err)
		}
	}
	c.since = c.since.Add(-patienceEvery - time.Second)
	if took, err := ask(); took < requestTimeout || err == nil {
		t.Errorf("after a while: %s, %v", took, err)
	}
	hanging.Store(false)
	if _, err := ask(); err != nil || c.silence != nil {
		t.Errorf("it answers: %v", err)
	}
	hanging.Store(true)
	if took, err := ask(); took < requestTimeout || err == nil {
		t.Errorf("hanging anew: %s, %v", took, err)
	}
}
