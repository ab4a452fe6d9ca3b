//go:build linux

package cli

import (
	"bufio"
	"bytes"
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

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// buffer is what a running program prints.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// listenNotify stands in for systemd.
func listenNotify(t *testing.T) *buffer {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	got := &buffer{}
	go func() {
		message := make([]byte, 4096)
		for {
			n, err := conn.Read(message)
			if err != nil {
				return
			}
			fmt.Fprintf(got, "%s\n", message[:n])
		}
	}()
	return got
}

// get asks a running service. By hand, because the library dials on another thread, which is in another namespace.
func get(path string) string {
	conn, err := net.Dial("tcp", "127.0.0.1:9464")
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", string(text))
}

func TestRun(t *testing.T) {
	node := nstest.NewNode(t)
	closeTunnel(node)
	systemd := listenNotify(t)
	a := newAgent(t, nodeDocument)
	state := filepath.Join(t.TempDir(), "state")
	log := &buffer{}
	ctx, stop := context.WithCancel(t.Context())
	code := -1
	wait := node.Go(func() {
		code = Run(ctx, Env{Kernel: kernel.NewLinux(), Stdout: io.Discard, Stderr: log}, []string{
			"run", "--config", a.path, "--socket", a.path + ".no-socket", "--lock", a.path + ".lock", "--state", state,
			"--listen", "127.0.0.1:9464",
		})
	})
	defer func() { stop(); wait() }()
	ruleThere := func() bool { return strings.Contains(node.Run("ip rule"), "fwmark 0x2000/0x2000 lookup 52") }
	tableHas := func(text string) func() bool {
		return func() bool { out, _ := node.Try("nft list table inet tailmesh"); return strings.Contains(out, text) }
	}
	expect := func(what string, condition func() bool) {
		t.Helper()
		if !node.Wait(condition) {
			t.Fatalf("%s did not happen; log:\n%s", what, log)
		}
	}
	healthz := func() string { return get("/healthz") }

	expect("the first pass", func() bool { return ruleThere() && strings.Contains(systemd.String(), "READY=1") })
	expect("the status", func() bool {
		return strings.Contains(systemd.String(), "STATUS=ok: 2 of 2 addresses of peers are reached through the mesh")
	})
	if !node.PodReaches(nstest.Peer) {
		t.Error("the pod does not reach the peer")
	}
	if health := healthz(); health != "200 ok\n" {
		t.Errorf("healthz: %s", health)
	}
	whole := node.Dump()

	node.Run("ip rule del pref 0 fwmark 0x2000/0x2000")
	expect("the repair of the rule", ruleThere)
	node.Run("ip -6 rule del pref 0 fwmark 0x2000/0x2000")
	expect("the repair of the IPv6 rule", func() bool { return strings.Contains(node.Run("ip -6 rule"), "fwmark 0x2000/0x2000") })
	node.Run("nft delete table inet tailmesh")
	expect("the repair of the table", tableHas("snat ip6 to"))
	node.Run("nft delete element inet tailmesh peers4 '{ 100.64.0.12 }'")
	expect("the repair of the set", tableHas("elements = { 100.64.0.12 }"))
	if diff := cmp.Diff(whole, node.Dump()); diff != "" {
		t.Errorf("after the repairs (-before +after):\n%s", diff)
	}

	more := strings.Replace(nodeDocument, `"peers": [`, `"peers": [{"name": "par1", "addresses": ["100.64.0.13"]}, `, 1)
	replace := func(document string) {
		t.Helper()
		if err := os.WriteFile(a.path+".new", []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(a.path+".new", a.path); err != nil {
			t.Fatal(err)
		}
	}
	replace(more)
	expect("the new document", tableHas("elements = { 100.64.0.12, 100.64.0.13 }"))
	replace(`{"version": 1, "colour": "red"}`)
	expect("the bad document", func() bool { return strings.Contains(log.String(), "the last good one stays in force") })
	if !tableHas("elements = { 100.64.0.12, 100.64.0.13 }")() {
		t.Error("a bad document changed the node")
	}
	expect("the bad health", func() bool { return strings.HasPrefix(healthz(), "503 the document cannot be used: ") })
	replace(nodeDocument)
	expect("a good document again", tableHas("elements = { 100.64.0.12 }"))

	node.StopTailscale()
	expect("the loss of tailscale0", func() bool { return strings.Contains(systemd.String(), "STATUS=unknown: 0 of 2") })
	node.StartTailscale()
	expect("the return of tailscale0", func() bool {
		return strings.HasSuffix(systemd.String(), "STATUS=ok: 2 of 2 addresses of peers are reached through the mesh\n")
	})

	status := func(text string) func() bool {
		return func() bool {
			return strings.HasSuffix(systemd.String(), "STATUS="+text+" addresses of peers are reached through the mesh\n")
		}
	}
	node.Run("ip route del 100.64.0.12 dev tailscale0 table 52")
	expect("the loss of a route", status("wrong: 1 of 2"))
	node.Run("ip route add 100.64.0.12 dev tailscale0 table 52")
	expect("the return of the route", status("ok: 2 of 2"))
	node.Run("ip -4 addr del 100.64.0.11/32 dev tailscale0")
	expect("the loss of an address", func() bool { return strings.Contains(log.String(), "tailscale0 has no IPv4 address") })
	node.Run("ip -4 addr add 100.64.0.11/32 dev tailscale0\nip route add 100.64.0.12 dev tailscale0 table 52")
	expect("the return of the address", status("ok: 2 of 2"))
	node.Run("ip link set tailscale0 down")
	expect("the device that is down", status("wrong: 0 of 2"))

	_, stderr, got := a.run("cleanup")
	if want := "is at work on this node and holds"; got != exitUnknown || !strings.Contains(stderr, want) {
		t.Errorf("cleanup beside a running agent: exit code %d, %s", got, stderr)
	}
	stop()
	wait()
	if code != exitYes {
		t.Errorf("exit code %d at the end; log:\n%s", code, log)
	}
	if !ruleThere() || !tableHas("snat ip to")() {
		t.Error("what was installed did not stay at the end")
	}
	if !strings.Contains(systemd.String(), "STOPPING=1") {
		t.Error("systemd was not told of the end")
	}
	if _, err := os.Stat(filepath.Join(state, "good.json")); err != nil {
		t.Error(err)
	}
	a.want(exitYes, "cleanup")
}

func TestRunRefusesBadUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"log format", []string{"run", "--log-format", "xml"}, `--log-format "xml" is not known: want text or json`},
		{"address", []string{"run", "--listen", "nowhere"}, "--listen: listen tcp: address nowhere: missing port in address"},
		{"no folder", []string{"run", "--state", ""}, "--state is empty: want a folder"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nstest.New(t)
			var errs strings.Builder
			dir := t.TempDir()
			args := append([]string{"--config", filepath.Join(dir, "node.json")}, tt.args...)
			code := Run(t.Context(), Env{Kernel: kernel.NewFake(), Stdout: io.Discard, Stderr: &errs}, append(args, "--lock", filepath.Join(dir, "lock")))
			if got := strings.TrimSpace(errs.String()); code != exitUnknown || got != "tailmesh-agent: "+tt.want {
				t.Errorf("exit code %d, %q", code, got)
			}
		})
	}
}

// That metrics cannot be served where they are unless told otherwise is no reason to leave the node alone; where the
// operator has named the place, it is an error.
func TestPortTaken(t *testing.T) {
	node := nstest.NewNode(t)
	listener, err := net.Listen("tcp", "127.0.0.1:9464")
	must(t, err)
	defer listener.Close()
	a := newAgent(t, nodeDocument)
	s := startService(t, node, a)
	s.status("ok: 2 of 2")
	const taken = "listen tcp 127.0.0.1:9464: bind: address already in use"
	if log := s.log.String(); strings.Count(log, `level=WARN msg="no metrics are served" error="`+taken) != 1 {
		t.Errorf("the log does not say so:\n%s", log)
	}
	s.stop()
	_, stderr, code := a.run("run", "--listen", "127.0.0.1:9464", "--state", t.TempDir())
	if want := "tailmesh-agent: --listen: " + taken + "\n"; code != exitUnknown || stderr != want {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The service runs the doctor's checks when there is nothing to do, and shows what they came to.
func TestChecksAreExported(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	s := startService(t, node, a)
	s.status("ok: 2 of 2")
	var got string
	shown := func() bool {
		got = get("/metrics")
		return strings.Contains(got, "tailmesh_agent_checks_timestamp_seconds")
	}
	s.expect("a look by the doctor's checks", func() bool { s.nudge(); return shown() })
	if !strings.Contains(got, `tailmesh_agent_check_failed{check="route"} 0`) || strings.Contains(got, `check="probe"`) {
		t.Errorf("metrics:\n%s", got)
	}
}

// The service makes do with little memory, and with more for more machines, so that collecting garbage is not all that it
// does among many.
func TestLimitMemory(t *testing.T) {
	var limit int64
	r := &runner{command: &command{env: Env{LimitMemory: func(bytes int64) { limit = bytes }}}}
	for _, step := range []struct {
		machines int
		want     int64
	}{{0, 12 << 20}, {1000, 12 << 20}, {1001, 12<<20 + 4<<10}, {20000, 12<<20 + 19000*4<<10}, {3, 12<<20 + 19000*4<<10}} {
		if r.limitMemory(step.machines); limit != step.want {
			t.Errorf("%d machines: %d bytes, want %d", step.machines, limit, step.want)
		}
	}
	(&runner{command: &command{}}).limitMemory(1) // nobody is to be told
}
