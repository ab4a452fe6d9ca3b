//go:build linux

package cli

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// service is the agent at work on a node.
type service struct {
	t       *testing.T
	node    *nstest.Node
	agent   *agent
	log     *buffer
	systemd *buffer
	code    int
	stop    func() // ends it and waits for that; may be called again
}

func startService(t *testing.T, node *nstest.Node, a *agent, args ...string) *service {
	t.Helper()
	s := &service{t: t, node: node, agent: a, log: &buffer{}, systemd: listenNotify(t), code: -1}
	ctx, cancel := context.WithCancel(t.Context())
	all := append([]string{
		"run", "--config", a.path, "--socket", a.path + ".no-socket", "--lock", a.path + ".lock", "--state", a.path + ".state",
	}, args...)
	wait := node.Go(func() {
		s.code = Run(ctx, Env{Kernel: kernel.NewLinux(), Stdout: io.Discard, Stderr: s.log}, all)
	})
	s.stop = func() { cancel(); wait() }
	t.Cleanup(s.stop)
	return s
}

// expect waits for a condition.
func (s *service) expect(what string, condition func() bool) {
	s.t.Helper()
	if !s.node.Wait(condition) {
		s.t.Fatalf("%s did not happen; log:\n%s\nlast of systemd: %s", what, s.log, lastLine(s.systemd.String()))
	}
}

// status waits until systemd was told so.
func (s *service) status(text string) {
	s.t.Helper()
	s.expect("the status "+text, func() bool { return strings.Contains(lastLine(s.systemd.String()), "STATUS="+text) })
}

// passes counts what the agent has done so far.
func (s *service) passes() int { return strings.Count(s.systemd.String(), "READY=1") }

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// settled waits until the agent's own part of the node is as wanted, and then holds it to having nothing left to do.
func (s *service) settled(own string) {
	s.t.Helper()
	var got string
	if !s.node.Wait(func() bool { got, _ = parts(s.node.Dump()); return got == own }) {
		s.t.Fatalf("not as it must be (-want +got):\n%s\nlog:\n%s", cmp.Diff(own, got), s.log)
	}
	if got := s.agent.want(exitYes, "plan"); got != "nothing to do\n" {
		s.t.Errorf("something is left to do: %s", got)
	}
}

// routerRule is a rule that was added without a priority: the kernel chooses one by the rules that are there.
var routerRule = regexp.MustCompile(`^\d+(:\tfrom \S+ lookup 77)\n`)

// parts divides a node's dump into what is the agent's and the rest. What differs from node to node is left out of that:
// addresses that the kernel makes up for each interface, and priorities that it chooses.
func parts(dump string) (own, foreign string) {
	var mine, others strings.Builder
	table := false
	for line := range strings.Lines(dump) {
		table = table || line == "table inet tailmesh {\n"
		rule := strings.Contains(line, "lookup") && strings.HasSuffix(strings.TrimSpace(line), "proto 116")
		switch {
		case table || rule:
			mine.WriteString(line)
		case !strings.Contains(line, "fe80::"):
			others.WriteString(routerRule.ReplaceAllString(line, "auto$1\n"))
		}
		table = table && line != "}\n"
	}
	return mine.String(), others.String()
}
