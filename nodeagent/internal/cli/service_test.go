//go:build linux

package cli

import (
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		s.code = Run(ctx, Env{Kernel: a.another(), Stdout: io.Discard, Stderr: s.log}, all)
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

// settled waits until the agent's own part of the node is as wanted, and nothing is left to do, which is to say that it
// is in its place as well.
func (s *service) settled(own string) {
	s.t.Helper()
	var got, plan string
	if !s.node.Wait(func() bool {
		if got, _ = parts(s.node.Dump()); got != own {
			return false
		}
		plan, _, _ = s.agent.run("plan")
		return plan == "nothing to do\n"
	}) {
		s.t.Fatalf("not as it must be (-want +got):\n%s\nleft to do:\n%s\nlog:\n%s", cmp.Diff(own, got), plan, s.log)
	}
}

// nudge makes the agent look where the kernel gives no notice of what was done to the firewall, which it does every half
// minute by itself.
func (s *service) nudge() { s.node.Run("ip link add nudge type bridge\nip link del nudge") }

var (
	// routerRule is a rule that was added without a priority: the kernel chooses one by the rules that are there.
	routerRule = regexp.MustCompile(`^\d+(:\tfrom \S+ lookup 77)\n`)
	// ownRule is one of the agent's policy rules, ownLine one of its lines of iptables or ipset.
	ownRule = regexp.MustCompile(`^\d+:\t.* lookup \d+ proto 116\s*$`)
	ownLine = regexp.MustCompile(`TAILMESH-|tailmesh-(nft|legacy)-`)
	// ofIPTables is a table of nftables that iptables-nft makes, and shows by itself.
	ofIPTables = regexp.MustCompile(`^table ip6? (filter|nat|mangle|raw|security) \{\n`)
	// unused is a chain of the kernel's, and a table, that iptables makes when it is first used, with nothing in it.
	unused = regexp.MustCompile(`(?m)^:[A-Z]+ ACCEPT\n|^\*\w+\n(:[A-Z]+ ACCEPT\n)*COMMIT\n`)
)

// parts divides a node's dump into what is the agent's and the rest. What differs from node to node is left out of that:
// addresses that the kernel makes up for each interface, and priorities that it chooses. The agent's ipsets and what is in
// them are sorted.
func parts(dump string) (own, foreign string) {
	var mine, others strings.Builder
	var sets []string
	block := &others // where a table of nftables goes
	inBlock := false
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "table ") {
			inBlock, block = true, &others
			switch {
			case line == "table inet tailmesh {\n":
				block = &mine
			case ofIPTables.MatchString(line):
				block = &strings.Builder{}
			}
		}
		switch {
		case inBlock:
			block.WriteString(line)
		case ownLine.MatchString(line) && (strings.HasPrefix(line, "create ") || strings.HasPrefix(line, "add ")):
			sets = append(sets, line)
		case ownRule.MatchString(line), ownLine.MatchString(line):
			mine.WriteString(line)
		case !strings.Contains(line, "fe80::"):
			others.WriteString(routerRule.ReplaceAllString(line, "auto$1\n"))
		}
		inBlock = inBlock && line != "}\n"
	}
	slices.Sort(sets)
	return mine.String() + strings.Join(sets, ""), unused.ReplaceAllString(others.String(), "")
}
