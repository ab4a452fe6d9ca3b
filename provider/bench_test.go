//go:build linux

package provider

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// BenchmarkPlan plans, with nothing to change, a tailnet of 1,000 devices under a policy of 200 rules, with the built
// provider in a process of its own, which is what it measures: CPU time, peak memory and requests of one plan. Where the
// documents of a full mesh list all peers, what tailmesh_mesh answers grows with the square of the nodes; that is
// measured for a mesh of 100, and one of 1,000 with peers that the agents discover.
func BenchmarkPlan(b *testing.B) {
	const mesh = `data "tailmesh_mesh" "this" {
  name     = "big"
  selector = { tags = ["tag:node"] }
  peers    = %q
}
`
	b.Run("policy-1000", func(b *testing.B) {
		benchmarkPlan(b, 1000, "", `[{ name = "mesh", src = ["tag:node"], dst = ["tag:node"], proto = "ip-in-ip" }]`)
	})
	for _, m := range []struct {
		nodes int
		peers string
	}{{100, "listed"}, {1000, "discovered"}} {
		b.Run(fmt.Sprintf("mesh-%d-%s", m.nodes, m.peers), func(b *testing.B) {
			benchmarkPlan(b, m.nodes, fmt.Sprintf(mesh, m.peers), "data.tailmesh_mesh.this.requirements")
		})
	}
}

func benchmarkPlan(b *testing.B, devices int, more, requirements string) {
	if program() == "" {
		b.Skip("needs OpenTofu or Terraform: set TAILMESH_TOFU to the program")
	}
	sim, err := controlsim.New(controlsim.Options{Inventory: meshNodes(devices)})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(sim)
	b.Cleanup(server.Close)
	dir := b.TempDir()
	config := `terraform {
  required_providers {
    tailmesh = { source = "` + Address + `" }
  }
}
provider "tailmesh" {
  api_key  = "` + controlsim.DefaultAPIKey + `"
  base_url = "` + server.URL + `"
}
` + more + `resource "tailmesh_policy" "this" {
  content      = file("policy.hujson")
  requirements = ` + requirements + `
}
`
	for name, text := range map[string]string{"main.tf": config, "policy.hujson": bigPolicy(200)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	process, attach := startProvider(b)
	tofu := func(args ...string) {
		cmd := exec.CommandContext(b.Context(), program(), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TF_REATTACH_PROVIDERS="+attach, "TF_IN_AUTOMATION=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", args, err, out)
		} else if args[0] == "plan" && !bytes.Contains(out, []byte("No changes.")) {
			b.Fatalf("the plan changes something:\n%s", out)
		}
	}
	tofu("init", "-input=false")
	tofu("apply", "-input=false", "-auto-approve")

	var cpu time.Duration
	var peak, most int
	for b.Loop() {
		// 5 forgets the peak of the process's resident memory.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", process), []byte("5"), 0o600); err != nil {
			b.Fatal(err)
		}
		sim.ClearRequests()
		before := cpuTime(b, process)
		tofu("plan", "-input=false")
		cpu += cpuTime(b, process) - before
		peak = max(peak, peakMemory(b, process))
		counts := map[string]int{}
		for _, r := range sim.Requests() {
			counts[r.Method+" "+r.Path]++
			if most = max(most, counts[r.Method+" "+r.Path]); most > 1 {
				b.Errorf("%s %s is asked more than once in a plan", r.Method, r.Path)
			}
		}
		b.ReportMetric(float64(len(sim.Requests())), "requests/plan")
	}
	each := cpu / time.Duration(b.N)
	b.ReportMetric(each.Seconds(), "cpu-s/plan")
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	if each > time.Second || peak > 200<<20 {
		b.Errorf("%v of CPU and %d MiB a plan, want at most 1 s and 200 MiB", each, peak>>20)
	}
}

// bigPolicy is a policy of as many rules, of which the last is the mesh's.
func bigPolicy(rules int) string {
	var b strings.Builder
	b.WriteString(`{"tagOwners": {"tag:node": ["autogroup:admin"]}, "grants": [` + "\n")
	for i := range rules - 1 {
		fmt.Fprintf(&b, "  {\"src\": [\"100.64.%d.%d\", \"autogroup:member\"], \"dst\": [\"tag:node\"], \"ip\": [\"tcp:%d\"]},\n", i/250, i%250+1, 1000+i)
	}
	b.WriteString(`  {"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]},` + "\n],\n")
	b.WriteString(`"tests": [{"src": "tag:node", "proto": "tcp", "accept": ["tag:node:6443"]}]}`)
	return b.String()
}

// startProvider builds the provider and starts it in a process that outlives each run of the program under test.
func startProvider(b *testing.B) (process int, attach string) {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "terraform-provider-tailmesh")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(b.Context(), binary, "-debug")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, value, ok := strings.Cut(lines.Text(), "TF_REATTACH_PROVIDERS="); ok {
			return cmd.Process.Pid, strings.Trim(value, "'")
		}
	}
	b.Fatal("the provider does not say how to reach it")
	return 0, ""
}

// cpuTime is what a process has used so far. The kernel counts it in hundredths of a second.
func cpuTime(b *testing.B, process int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		b.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peakMemory is the most that a process had resident, in bytes.
func peakMemory(b *testing.B, process int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
