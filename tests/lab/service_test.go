//go:build linux

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// daemon is our own repair as it runs on nodes: a service that follows the node, its document and the tailnet.
func (l *Lab) daemon() repair {
	running := map[*Node]*exec.Cmd{}
	return repair{
		name: "the agent as a service",
		apply: func(ctx context.Context, t *testing.T, n *Node) {
			path, err := program(agentEnv)
			if err != nil {
				t.Fatal(err)
			}
			document := n.writeDocument(t)
			log, err := os.Create(filepath.Join(n.dir, "agent.log"))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			cmd := exec.Command("ip", "netns", "exec", n.Name, path, "run", "--config", document, "--socket", n.socket,
				"--lock", filepath.Join(n.dir, "agent.lock"), "--state", n.stateDir(), "--listen", "")
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running[n] = cmd
			n.waitAgent(t)
		},
		undo: func(ctx context.Context, t *testing.T, n *Node) {
			cmd := running[n]
			if cmd == nil {
				return
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				log, _ := os.ReadFile(filepath.Join(n.dir, "agent.log"))
				t.Errorf("%s: the agent ended badly: %v\n%s", n.Name, err, log)
			}
			if out, err := n.Agent(ctx, "cleanup"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		},
	}
}

// writeDocument writes a node's document and returns its path.
func (n *Node) writeDocument(t *testing.T) string {
	t.Helper()
	text, err := n.lab.Document(n).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, "node.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// stateDir is what the node's service puts away.
func (n *Node) stateDir() string { return filepath.Join(n.dir, "agent") }

// waitAgent waits until the kernel's answers for a node are those that the agent is to bring about.
func (n *Node) waitAgent(t *testing.T) {
	t.Helper()
	var out string
	var err error
	for begin := time.Now(); time.Since(begin) < soon; time.Sleep(50 * time.Millisecond) {
		if out, err = n.Agent(t.Context(), "status", "--config", filepath.Join(n.dir, "node.json")); err == nil {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(n.dir, "agent.log"))
	t.Fatalf("%s: %v after %v\n%s\n%s", n.Name, err, soon, out, log)
}

// testService has the service live through what happens to a node: tailscaled restarts, which takes its device and routes
// with it, and the router's rule goes and comes back where the kernel puts it. Nobody touches the agent meanwhile.
func testService(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	l.install(t, l.daemon())
	rows := l.rows()
	for _, step := range []struct {
		name string
		do   func(t *testing.T, n *Node) error
	}{
		{"at the start", func(*testing.T, *Node) error { return nil }},
		{"rules and firewall are flushed", func(t *testing.T, n *Node) error {
			_, err := Sh(t.Context(), n.Name, "nft delete table inet tailmesh\nip rule del pref 0 fwmark 0x2000/0x2000\nip -6 rule del pref 0 fwmark 0x2000/0x2000")
			return err
		}},
		{"tailscaled restarts", func(t *testing.T, n *Node) error {
			n.StopDaemon()
			if err := n.StartDaemon(t.Context()); err != nil {
				return err
			}
			if err := n.WaitPeers(t.Context()); err != nil {
				return err
			}
			return l.RouteOverlay(n)
		}},
		{"the router's rule comes back", func(t *testing.T, n *Node) error {
			if err := DeleteOverlayRule(n); err != nil {
				return err
			}
			_, err := AddOverlayRule(t.Context(), n)
			return err
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			for _, n := range l.Mesh() {
				if err := step.do(t, n); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range l.Mesh() {
				n.waitAgent(t)
			}
			l.judge(t, rows, overlayAdmitted().and(repaired()))
		})
	}
	t.Run("the policy is edited", func(t *testing.T) { testEdited(t, l) })
}

// testEdited takes the overlay out of the policy of nodes whose service has seen it admitted: their doctors tell that from a
// policy that never admitted it.
func testEdited(t *testing.T, l *Lab) {
	for _, n := range l.Mesh() {
		for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(n.stateDir(), "admissions.json")); err == nil {
				break
			}
			if time.Since(begin) > soon {
				t.Fatalf("%s: the service has put away nothing of the packet filter", n.Name)
			}
			n.writeDocument(t) // each is a pass, and one with nothing to do runs the checks
		}
	}
	l.policyFile(t, withoutOverlay)
	for _, n := range l.Mesh() {
		got, said, err := n.examined(t.Context(), "--state", n.stateDir())
		if err != nil || !slices.Equal(got, []string{"policy.edited"}) {
			t.Errorf("%s: named %q, want policy.edited (%v)\n%s", n.Name, got, err, said)
		}
	}
}
