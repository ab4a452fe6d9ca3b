//go:build linux

package bench_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

var table = flag.Bool("table", false, "measure, and print the table")

// Peers of the documents: the last one is the one that answers, so that a list of rules is walked to its end.
const answering = "100.127.0.1"

func addresses(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = netip.AddrFrom4([4]byte{100, 65, byte(i / 250), byte(1 + i%250)}).String()
	}
	out[n-1] = answering
	return out
}

func document(t testing.TB, backend, mode string, peers ...string) string {
	doc := config.New()
	doc.Mesh, doc.Firewall.Backend, doc.Routing.Mode = "bench", backend, mode
	doc.Node = config.Node{Name: "ams1", Addresses: []netip.Addr{netip.MustParseAddr(nstest.OwnAddress)}}
	doc.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(nstest.PodNetwork)}
	for i, a := range peers {
		doc.Peers = append(doc.Peers, config.Node{Name: fmt.Sprintf("peer%d", i), Addresses: []netip.Addr{netip.MustParseAddr(a)}})
	}
	text, err := doc.Marshal()
	check(t, err)
	return string(text)
}

func backends() []string { return []string{config.BackendNFTables, config.BackendIPTables} }

// newNode is a node whose tailscaled knows a thousand peers.
func newNode(t testing.TB) *nstest.Node {
	node := nstest.NewNode(t)
	var batch strings.Builder
	for _, a := range addresses(1001) {
		fmt.Fprintf(&batch, "route add %s dev tailscale0 table 52\n", a)
		fmt.Fprintf(&batch, "route add %s dev tun-fra1 table 77\n", a)
	}
	file := write(t, "routes", batch.String())
	node.Run("ip -batch " + file)
	return node
}

func write(t testing.TB, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func median[T int64 | float64 | time.Duration](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// report collects the table's lines and the targets that were missed.
type report struct {
	*tabwriter.Writer
	missed []string
	busy   bool // others use the machine as well
}

// fair is the time that a target is held against: the median, or the best where the machine has other work.
func (r *report) fair(median, best time.Duration) time.Duration {
	if r.busy {
		return best
	}
	return median
}

func (r *report) target(what string, held bool) string {
	if !held {
		r.missed = append(r.missed, what)
		return what + ": MISSED"
	}
	return what + ": held"
}

// binary builds the agent as it is released.
func binary(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "tailmesh-agent")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "../cmd/tailmesh-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestTable measures everything and prints one table. A target that is missed fails it.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("measuring takes eight minutes: make bench-agent")
	}
	r := &report{Writer: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	var load float64
	text, err := os.ReadFile("/proc/loadavg")
	check(t, err)
	_, err = fmt.Sscan(string(text), &load)
	check(t, err)
	r.busy = load > float64(runtime.NumCPU())
	fmt.Fprintf(r, "medians; %d processors, load %.1f", runtime.NumCPU(), load)
	if r.busy {
		fmt.Fprint(r, ": the machine has other work, so that targets in milliseconds are held against the best")
	}
	fmt.Fprint(r, "\n\n")
	agent := binary(t)
	converge(t, r, agent)
	for _, backend := range backends() {
		react(t, r, backend)
	}
	weigh(t, r, agent)
	forward(t, r, agent)
	check(t, r.Flush())
	if len(r.missed) > 0 {
		t.Errorf("missed:\n  %s", strings.Join(r.missed, "\n  "))
	}
}
