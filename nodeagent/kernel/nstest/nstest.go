//go:build linux

// Package nstest gives a test network namespaces of its own, and a node in them that looks like one of a cluster: pods
// behind a bridge, tailscaled's device, rules and table, kube-router's rule, table and tunnel, and one peer. Nothing of
// the machine's own networking is touched.
//
// A test that uses it stays on its goroutine: no subtests, no parallelism.
package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace.
type Namespace struct {
	t      testing.TB
	handle netns.NsHandle
}

// New locks the goroutine to its thread, enters a fresh network namespace and leaves it when the test ends. Where that
// is not possible the test is skipped, or fails if REQUIRE_NETNS is set.
func New(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root")
	}
	need(t, "ip", "nft", "ping")
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	handle, err := netns.New()
	if err != nil {
		Missing(t, "network namespaces: "+err.Error())
	}
	t.Cleanup(func() {
		// A thread that cannot go back stays locked, so that it ends with the goroutine.
		if err := netns.Set(origin); err != nil {
			t.Errorf("leave the namespace: %v", err)
			return
		}
		handle.Close()
		origin.Close()
		runtime.UnlockOSThread()
	})
	n := &Namespace{t: t, handle: handle}
	n.prepare()
	return n
}

func need(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			Missing(t, tool)
		}
	}
}

// Missing skips a test that cannot run for want of something, or fails it if REQUIRE_NETNS is set.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_NETNS") != "" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// Another makes one more namespace, without entering it.
func (n *Namespace) Another() *Namespace {
	n.t.Helper()
	handle, err := netns.New()
	if err != nil {
		n.t.Fatal(err)
	}
	n.enter()
	n.t.Cleanup(func() { handle.Close() })
	other := &Namespace{t: n.t, handle: handle}
	other.Visit(other.prepare)
	return other
}

// prepare makes addresses usable at once: without duplicate detection nothing appears later by itself.
func (n *Namespace) prepare() {
	n.t.Helper()
	n.Sysctl("ipv6.conf.all.accept_dad", "0")
	n.Sysctl("ipv6.conf.default.accept_dad", "0")
	n.Run("ip link set lo up")
}

// path names the namespace for the ip tool.
func (n *Namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle)) }

func (n *Namespace) enter() {
	n.t.Helper()
	if err := netns.Set(n.handle); err != nil {
		n.t.Fatal(err)
	}
}

// Visit runs f in the namespace, and comes back to the one that the thread is in.
func (n *Namespace) Visit(f func()) {
	n.t.Helper()
	home, err := netns.Get()
	if err != nil {
		n.t.Fatal(err)
	}
	defer home.Close()
	n.enter()
	defer func() {
		if err := netns.Set(home); err != nil {
			n.t.Fatal(err)
		}
	}()
	f()
}

// Go runs f on another goroutine, in the namespace, and returns a function that waits until it has ended.
func (n *Namespace) Go(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if err := netns.Set(n.handle); err != nil {
			n.t.Error(err)
			return
		}
		f()
	}()
	return func() { <-done }
}

// Run runs commands, one a line, in the namespace that the thread is in, and returns what they print. The test ends if
// one fails.
func (n *Namespace) Run(lines string) string {
	n.t.Helper()
	out, err := n.Try(lines)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// Try is Run for commands that may fail.
func (n *Namespace) Try(lines string) (string, error) {
	var all strings.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		out, err := exec.CommandContext(n.t.Context(), "sh", "-c", line).CombinedOutput()
		all.Write(out)
		if err != nil {
			return all.String(), fmt.Errorf("%s: %w\n%s", line, err, out)
		}
	}
	return all.String(), nil
}

// Sysctl writes a network setting of the namespace that the thread is in.
func (n *Namespace) Sysctl(key, value string) {
	n.t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+strings.ReplaceAll(key, ".", "/"), []byte(value), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// WithoutCapabilities runs f while the thread has no effective capabilities. The goroutine must be locked to its thread,
// as [New] does.
func WithoutCapabilities(t testing.TB, f func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	none := all
	none[0].Effective, none[1].Effective = 0, 0
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &all[0]); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
