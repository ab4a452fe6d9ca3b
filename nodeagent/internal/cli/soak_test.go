//go:build linux

package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// For as long as TAILMESH_SOAK says, something happens to the node each second, to the agent's own things or to those of
// others. At the end the node is as its document asks, and the agent's memory and files are what they were: `make soak`.
func TestSoak(t *testing.T) {
	text := os.Getenv("TAILMESH_SOAK")
	if text == "" {
		t.Skip("it takes minutes: make soak")
	}
	duration, err := time.ParseDuration(text)
	must(t, err)
	overFirewalls(t, func(t *testing.T, b backend) { b.soak(t, duration) })
}

// damage is what happens to the agent's part of the firewall in a soak. Any of it may fail where the one before has taken
// away what it is about.
func (b backend) damage() []string {
	if b.name == desired.NFTables {
		return []string{
			"nft flush table inet tailmesh",
			"nft delete table inet tailmesh",
			"nft flush chain inet tailmesh prerouting",
			"nft flush set inet tailmesh peers4",
			"nft add element inet tailmesh peers4 '{ 100.64.77.77 }'",
			"nft add chain inet tailmesh other",
		}
	}
	list := []string{
		"IPT -w -t nat -F",
		"IP6T -w -t mangle -F",
		"IPT -w -t mangle -F TAILMESH-PREROUTING",
		"IP6T -w -t nat -F TAILMESH-POSTROUTING",
		"IPT -w -t mangle -D PREROUTING 1",
		"IPT -w -t nat -I POSTROUTING 1 -p sctp -j ACCEPT",
		"IPT -w -t nat -F TAILMESH-POSTROUTING && IPT -w -t nat -F POSTROUTING && IPT -w -t nat -X TAILMESH-POSTROUTING",
		"ipset flush",
		"ipset add SET-peers4 100.64.77.77",
		"ipset del SET-peers4 100.64.0.12",
		"IPT -w -t mangle -F; IPT -w -t nat -F; ipset destroy SET-peers4; ipset destroy SET-pods4",
	}
	for i := range list {
		list[i] = b.tools(list[i])
	}
	return list
}

func (b backend) soak(t *testing.T, duration time.Duration) {
	node := b.node(t)
	node.Crowd()
	node.Run("ip route add 100.64.0.0/16 dev tailscale0 table 52")
	closeTunnel(node)
	documents := []string{b.document(""), b.in(manyPeers(200)), b.in(manyPeers(101)), "{", ""}
	a := b.agent(t, documents[0])
	log := &buffer{}
	cmd := a.program("run", "--state", t.TempDir())
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	own := func() string { own, _ := parts(node.Dump()); return own }
	if !node.Wait(func() bool { return a.code("status") == exitYes }) {
		t.Fatalf("the agent did not begin:\n%s", log)
	}
	whole := own()

	restartTailscale := func() {
		node.StopTailscale()
		node.StartTailscale()
		node.Run("ip route add 100.64.0.0/16 dev tailscale0 table 52")
	}
	reload := func() { node.ReloadFirewall(); b.hint(node) }
	try := func(lines string) func() { return func() { _, _ = node.Try(lines) } }
	faults := []func(){
		try("ip rule del pref 0 fwmark 0x2000/0x2000"),
		try("ip -6 rule del pref 0 fwmark 0x2000/0x2000"),
		try("ip rule add pref 3 fwmark 0x2000/0x2000 lookup 53 protocol 116"),
		func() { node.Run("nft flush ruleset"); reload() },
		reload,
		restartTailscale,
		func() { node.StopRouter(); node.StartRouter() },
		func() { a.write(documents[rand.IntN(len(documents))]) },
		func() { a.replace(documents[rand.IntN(len(documents))]) },
		func() { _ = cmd.Process.Signal(syscall.SIGHUP) },
	}
	for _, commands := range b.damage() {
		faults = append(faults, try(commands))
	}
	var memory, files []int64
	count := 0
	for end := time.Now().Add(duration); time.Now().Before(end); count++ {
		began := time.Now()
		faults[rand.IntN(len(faults))]()
		memory, files = append(memory, resident(t, cmd.Process.Pid)), append(files, openFiles(t, cmd.Process.Pid))
		time.Sleep(time.Until(began.Add(time.Second)))
	}

	a.replace(documents[0])
	// While the router's rule stands at priority 0, the agent's is not exchanged; where the agent's was deleted then, that one
	// came first, which is not the agent's to change.
	node.StopRouter()
	node.Wait(func() bool { return own() == whole })
	node.StartRouter()
	if !node.Wait(func() bool { return own() == whole && a.code("plan") == exitYes && a.code("status") == exitYes }) {
		stdout, stderr, _ := a.run("status")
		t.Errorf("not as it must be after %d faults:\n%s\n%s%s\n%s", count, own(), stdout, stderr, tail(log.String(), 30))
	}
	for _, address := range []string{nstest.Peer, nstest.Peer6} {
		if !node.PodReaches(address) {
			t.Errorf("the pod does not reach %s", address)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("at the end: %v", err)
	}
	// The first quarter warms up. What grows, grows from one half of the rest to the other.
	rest := memory[len(memory)/4:]
	early, late := median(rest[:len(rest)/2]), median(rest[len(rest)/2:])
	firstFiles, lastFiles := median(files[:len(files)/2]), median(files[len(files)/2:])
	var tenths []string
	for part := range slices.Chunk(memory, max(1, len(memory)/10)) {
		tenths = append(tenths, fmt.Sprintf("%.1f", mib(median(part))))
	}
	t.Logf("%d faults, %d repairs logged; resident MiB over time %s, at most %.1f; %d open files, then %d", count,
		strings.Count(log.String(), "msg=repaired"), strings.Join(tenths, " "), mib(slices.Max(memory)), firstFiles, lastFiles)
	if late > early+early/10+(1<<20) || lastFiles > firstFiles {
		t.Error("the agent grows")
	}
}

func (a *agent) code(args ...string) int { _, _, code := a.run(args...); return code }

func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func median(list []int64) int64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// resident reads how many bytes of memory a process holds.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	match := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(status)
	if match == nil {
		t.Fatalf("process %d has ended", pid)
	}
	kib, err := strconv.ParseInt(string(match[1]), 10, 64)
	must(t, err)
	return kib << 10
}

func openFiles(t *testing.T, pid int) int64 {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return int64(len(list))
}
