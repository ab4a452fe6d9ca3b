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

// services are the agents as they run on nodes: each follows the node, its document and the tailnet.
type services struct {
	running map[*Node]*exec.Cmd
}

func (l *Lab) services() services { return services{map[*Node]*exec.Cmd{}} }

// start writes a node's document and starts its agent, which may need a while until all is right.
func (s services) start(t *testing.T, n *Node) {
	t.Helper()
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
	s.running[n] = cmd
}

// kill ends a node's agent without a chance to do anything about it.
func (s services) kill(t *testing.T, n *Node) {
	t.Helper()
	if err := s.running[n].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.running[n].Wait() // killed
	delete(s.running, n)
}

// stop ends the agents that run, as a service manager does, and takes away what they did.
func (s services) stop(ctx context.Context, t *testing.T) {
	t.Helper()
	for n, cmd := range s.running {
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
		delete(s.running, n)
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

// testService takes away what the service did: it does it again, with nobody touching it. Starts and restarts of the parts of a
// node are testOrders'.
func testService(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	agents := l.services()
	t.Cleanup(func() { agents.stop(context.WithoutCancel(t.Context()), t) })
	for _, n := range l.Mesh() {
		agents.start(t, n)
	}
	for _, n := range l.Mesh() {
		n.waitAgent(t)
	}
	t.Run("rules and firewall are flushed", func(t *testing.T) {
		for _, n := range l.Mesh() {
			if _, err := Sh(t.Context(), n.Name, `nft delete table inet tailmesh
				ip rule del pref 0 fwmark 0x2000/0x2000
				ip -6 rule del pref 0 fwmark 0x2000/0x2000`); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range l.Mesh() {
			n.waitAgent(t)
		}
		l.judge(t, l.rows(), overlayAdmitted().and(repaired()))
	})
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
