//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asProgram makes the test's own program the agent, so that it can be killed.
const asProgram = "TAILMESH_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// program prepares the agent as a process of its own, in the namespace that the thread is in.
func (a *agent) program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	must(a.t, err)
	cmd := exec.CommandContext(a.t.Context(), self, append(args, "--config", a.path, "--socket", a.path+".no-socket", "--lock", a.path+".lock")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// manyPeers is a document with n peers more, and with other settings for odd n.
func manyPeers(n int) string {
	var peers strings.Builder
	for i := range n {
		fmt.Fprintf(&peers, `{"name": "p%d", "addresses": ["100.64.%d.%d"]}, `, i, 1+i/250, 1+i%250)
	}
	settings := `"peers"`
	if n%2 == 1 {
		settings = `"local_cidrs": ["10.0.0.0/8"], "routing": {"mode": "rules", "mark": "0x1000", "fail_closed": true}, "peers"`
	}
	return strings.Replace(strings.Replace(nodeDocument, `"peers": [`, `"peers": [`+peers.String(), 1), `"peers"`, settings, 1)
}

// Killed at any instant of an apply, the agent leaves nothing that the next start does not put right, and nothing foreign
// is touched. It does as many as there is time for, and goes on until one kill came amid the changes; TAILMESH_KILLS names a
// number.
func TestKilledAnywhere(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Crowd()
		node.Run("ip route add 100.64.0.0/16 dev tailscale0 table 52")
		_, foreign := parts(node.Dump())
		documents := []string{b.in(manyPeers(200)), b.in(manyPeers(151)), b.document("")}
		a := b.agent(t, documents[0])
		wholes := make([]string, len(documents))
		took := func(args ...string) time.Duration {
			begin := time.Now()
			if out, err := a.program(args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			return time.Since(begin)
		}
		var longest time.Duration
		for i, document := range documents {
			a.write(document)
			longest = max(longest, took("apply"))
			wholes[i], _ = parts(node.Dump())
		}
		startup := took("validate") / 2

		kills, end := 1<<30, time.Now().Add(5*time.Second)
		if text := os.Getenv("TAILMESH_KILLS"); text != "" {
			n, err := strconv.Atoi(text)
			must(t, err)
			kills, end = n, time.Now().Add(time.Hour)
		}
		done, amid, last := 0, 0, 2
		patience := time.Now().Add(time.Minute)
		for ; done < kills && time.Now().Before(end) || amid == 0 && time.Now().Before(patience); done++ {
			next := (last + 1 + rand.IntN(len(documents)-1)) % len(documents)
			a.write(documents[next])
			cmd := a.program("apply")
			must(t, cmd.Start())
			time.Sleep(startup + rand.N(longest))
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			own, others := parts(node.Dump())
			if others != foreign {
				t.Fatalf("killed: what is not the agent's changed (-before +after):\n%s", cmp.Diff(foreign, others))
			}
			if sorted(own) != sorted(wholes[last]) && sorted(own) != sorted(wholes[next]) {
				amid++
			}
			a.want(exitYes, "apply")
			own, others = parts(node.Dump())
			if sorted(own) != sorted(wholes[next]) || others != foreign {
				t.Fatalf("the next start after a kill (-want +got):\n%s%s", cmp.Diff(sorted(wholes[next]), sorted(own)), cmp.Diff(foreign, others))
			}
			last = next
		}
		t.Logf("%d kills, %d of them between two states", done, amid)
		if amid == 0 {
			t.Error("no kill came between two states: this test proves nothing")
		}
		a.want(exitYes, "cleanup")
		if own, others := parts(node.Dump()); own != "" || others != foreign {
			t.Errorf("cleanup left %s or touched what is not the agent's:\n%s", own, cmp.Diff(foreign, others))
		}
	})
}

// The sets that an agent leaves that was killed amid an exchange are taken away by whoever comes next: by a cleanup, an apply
// that has nothing else to do, and one that exchanges the same sets again, also by hand.
func TestSparesAreTakenAway(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		first := b.document(`"local_cidrs": ["192.168.0.0/24"], `)
		a := b.agent(t, first)
		pristine := node.Dump()
		leave := func() {
			for _, family := range []string{"4 hash:net family inet", "6 hash:net family inet6"} {
				for _, name := range []string{"pods", "peers", "local"} {
					node.Run("ipset create " + b.name.SetName(name) + strings.Replace(family, " ", "-new ", 1))
				}
			}
		}
		want := func(what, dump string) {
			t.Helper()
			if diff := cmp.Diff(dump, node.Dump()); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", what, diff)
			}
		}
		leave()
		if got := a.want(exitYes, "cleanup"); strings.Count(got, "ipset destroy") != 6 {
			t.Errorf("cleanup: %s", got)
		}
		want("cleanup of spares alone", pristine)

		second := strings.Replace(first, "10.244.1.0/24", "10.244.1.0/25", 1)
		a.write(second)
		a.want(exitYes, "apply")
		exchanged := node.Dump()
		a.write(first)
		a.want(exitYes, "apply")
		whole := node.Dump()

		leave()
		a.want(exitNo, "plan")
		a.want(exitYes, "apply")
		want("apply with nothing else to do", whole)
		leave()
		a.write(second)
		a.want(exitYes, "apply")
		want("apply that exchanges", exchanged)
		a.write(first)
		leave()
		node.Run(a.want(exitNo, "plan"))
		if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
			t.Errorf("after the commands by hand: %s", got)
		}
		leave()
		a.want(exitYes, "cleanup")
		want("cleanup", pristine)
	})
}

// sorted orders policy rules of one priority, whose order among the agent's own does not matter.
func sorted(own string) string {
	var rules, rest []string
	for line := range strings.Lines(own) {
		if ownRule.MatchString(line) {
			rules = append(rules, line)
		} else {
			rest = append(rest, line)
		}
	}
	slices.Sort(rules)
	return strings.Join(append(rules, rest...), "")
}

// Of several agents at once, one works and the others say who does, change nothing and exit with 2.
func TestTwoAgents(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.in(manyPeers(200)))
		node.Run("ip route add 100.64.0.0/16 dev tailscale0 table 52")
		a.want(exitYes, "apply")
		whole, foreign := parts(node.Dump())
		a.want(exitYes, "cleanup")

		var wg sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range 8 {
			cmd := a.program("apply")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			must(t, cmd.Start()) // on this thread, in its namespace
			wg.Go(func() {
				_ = cmd.Wait()
				mu.Lock()
				defer mu.Unlock()
				code := cmd.ProcessState.ExitCode()
				codes[code]++
				if code == exitUnknown && !strings.Contains(stderr.String(), "is at work on this node") {
					t.Errorf("refused with %q", &stderr)
				}
			})
		}
		wg.Wait()
		if codes[exitYes] == 0 || codes[exitYes]+codes[exitUnknown] != 8 {
			t.Errorf("exit codes: %v", codes)
		}
		if own, others := parts(node.Dump()); own != whole || others != foreign {
			t.Errorf("eight agents at once (-want +got):\n%s%s", cmp.Diff(whole, own), cmp.Diff(foreign, others))
		}

		s := startService(t, node, a)
		s.status("ok: 202 of 202")
		for _, verb := range []string{"run", "apply", "cleanup"} {
			out, err := a.program(verb).CombinedOutput()
			want := fmt.Sprintf("another tailmesh-agent (process %d) is at work on this node", os.Getpid())
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%s beside a running agent: %v\n%s", verb, err, out)
			}
		}
		s.settled(whole)
	})
}

// From any document to any other in a real namespace: the node ends as when that document came first, and a second pass
// does nothing.
func TestTransitionsInKernel(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Run("ip route add 100.64.0.0/16 dev tailscale0 table 52")
		a := b.agent(t, nodeDocument)
		_, foreign := parts(node.Dump())
		with := func(old, replacement string) string { return strings.Replace(nodeDocument, old, replacement, 1) }
		documents := []string{
			nodeDocument, manyPeers(4), manyPeers(5),
			with(`"peers"`, `"routing": {"mode": "rules"}, "peers"`),
			with(`"peers"`, `"routing": {"priority": 50}, "peers"`),
			with(`"peers"`, `"routing": {"mode": "rules", "priority": 50, "mark": "0x10"}, "peers"`),
			with(`"peers"`, `"routing": {"fail_closed": true}, "firewall": {"snat": false}, "peers"`),
			with(`"peers"`, `"local_cidrs": ["192.168.0.0/24", "192.168.1.0/24"], "peers"`),
			with(`, "fd00:10:244:1::/64"`, ``),
			with(`"10.244.1.0/24", `, ``),
			with(`"10.244.1.0/24"`, `"10.244.1.0/25", "10.244.1.128/25"`),
			with(`"100.64.0.12"`, `"100.64.0.13"`),
		}
		if !b.noSets { // a rule for each, and for each rule a process
			documents = append(documents, manyPeers(20), manyPeers(21), manyPeers(300))
		}
		wholes := map[string]string{}
		for i := range documents {
			documents[i] = b.in(documents[i])
			a.write(documents[i])
			a.want(exitYes, "apply")
			own, _ := parts(node.Dump())
			wholes[documents[i]] = sorted(own)
			a.want(exitYes, "cleanup")
		}
		for range 40 {
			document := documents[rand.IntN(len(documents))]
			a.write(document)
			a.want(exitYes, "apply")
			own, others := parts(node.Dump())
			if sorted(own) != wholes[document] || others != foreign {
				t.Fatalf("%s\n(-as the first +after others):\n%s%s", document, cmp.Diff(wholes[document], sorted(own)), cmp.Diff(foreign, others))
			}
			if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
				t.Errorf("second apply: %s", got)
			}
		}
	})
}
