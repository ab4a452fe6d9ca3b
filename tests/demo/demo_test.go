//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

const projectRoot = "../.."

// programs builds the three programs and the demo, and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	if _, err := findTofu(); err != nil {
		missing(t, "REQUIRE_TOFU", err.Error())
	}
	// go test remembers a success for as long as the files are the same that the test looked at. It does not see what
	// the compiler looks at.
	for _, dir := range []string{"main.go", "go.mod", "policy", "provider", "nodeagent", "tests/demo", "examples/meshes/quickstart"} {
		err := filepath.WalkDir(filepath.Join(projectRoot, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/",
		".", "./policy/cmd/tailmesh-policy", "./nodeagent/cmd/tailmesh-agent", "./tests/demo")
	cmd.Dir = projectRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return bin
}

// missing skips the test, or fails it where the environment requires what is missing.
func missing(t *testing.T, require, what string) {
	t.Helper()
	if os.Getenv(require) != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// startDemo prepares a run of the demo with a folder of its own for temporary files.
func startDemo(t *testing.T, bin string, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), filepath.Join(bin, "demo"), append([]string{"-bin", bin}, args...)...)
	cmd.Dir = projectRoot
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

// runDemo runs the demo to its end and reads what it saw.
func runDemo(t *testing.T, bin string, args ...string) (res result, code int, stderr, tmp string) {
	t.Helper()
	cmd, tmp := startDemo(t, bin, append([]string{"-json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	stderr = errs.String()
	if code == exitUnknown && strings.Contains(stderr, errNoNamespaces.Error()) || strings.Contains(stderr, "demo: needs ") {
		missing(t, "REQUIRE_NETNS", stderr)
	}
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("exit code %d, output is not JSON: %v\n%s\n%s", code, err, out.String(), stderr)
	}
	return res, code, stderr, tmp
}

// leftovers lists what is in a folder.
func leftovers(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDemo(t *testing.T) {
	bin := programs(t)
	holds := t.Run("holds", func(t *testing.T) { testHolds(t, bin) })
	if !holds {
		return
	}
	t.Run("notices", func(t *testing.T) { testNotices(t, bin) })
	t.Run("ends", func(t *testing.T) { testEnds(t, bin) })
}

// testReadme sees that what the README shows of the demo is what it prints, line by line and in this order.
func testReadme(t *testing.T, story string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(projectRoot, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```\n2. ")
	block, _, ok := strings.Cut("2. "+block, "```\n")
	if !ok {
		t.Fatal("README.md shows nothing of the demo")
	}
	// What the machine has a say in: the program that is run, and how long the listings are.
	varies := regexp.MustCompile(`\((?:OpenTofu|Terraform) v[^)]*\)|\(\d+ lines compared\)|\b(?:tofu|terraform) `)
	rest := strings.Split(varies.ReplaceAllString(story, ""), "\n")
	for line := range strings.SplitSeq(varies.ReplaceAllString(block, ""), "\n") {
		if strings.TrimSpace(line) == "| ..." {
			continue
		}
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("README.md: the demo does not print, or not there:\n%s\nbut\n%s", line, story)
		}
		rest = rest[at+1:]
	}
}

// What the demo says it saw is judged here by the raw answers, not by the demo's own judgement.
func testHolds(t *testing.T, bin string) {
	t.Helper()
	res, code, stderr, tmp := runDemo(t, bin)
	if code != exitHeld || !res.Held {
		t.Fatalf("exit code %d, held %t\n%s", code, res.Held, stderr)
	}
	if left := leftovers(t, tmp); left != nil {
		t.Errorf("left behind: %v", left)
	}

	testReadme(t, stderr)

	policy, err := os.ReadFile(filepath.Join(projectRoot, "examples/meshes/quickstart/policy.hujson"))
	if err != nil {
		t.Fatal(err)
	}
	a, r := res.Applied, res.Refused
	if diff := cmp.Diff(string(policy), a.Policy.Text); diff != "" {
		t.Errorf("the policy in force after apply (-want +got):\n%s", diff)
	}
	if a.Policy.ETag == res.Started.Policy.ETag {
		t.Error("apply did not change the policy's tag")
	}
	nodes := map[string]config.Document{}
	for name, text := range a.Documents {
		doc, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatalf("document of %s: %v", name, err)
		}
		nodes[name] = doc
	}
	if len(nodes) != 3 {
		t.Errorf("there are %d documents, want 3", len(nodes))
	}

	if r.Plan.Exit != 1 {
		t.Errorf("the plan without the rule: exit code %d, want 1", r.Plan.Exit)
	}
	if r.Before != a.Policy || r.After != a.Policy || r.Writes != 1 {
		t.Errorf("the policy was touched by the plan that failed: %d writes\n%+v", r.Writes, r.After)
	}
	without, _ := without(string(policy), "ip-in-ip")
	line := strings.Split(without, "\n")[r.Said.Line-1]
	if strings.Contains(without, `"ip-in-ip`) || !strings.Contains(line, `"ip": ["*"]`) ||
		!strings.HasPrefix(r.Said.Position, "line "+strconv.Itoa(r.Said.Line)+", ") {
		t.Errorf("the plan names %q, which is %q", r.Said.Position, line)
	}
	if r.Said.Pairs != "6 of 6 pairs" {
		t.Errorf("the plan names %q, want all six ordered pairs of three nodes", r.Said.Pairs)
	}

	m := res.Mended
	doc := nodes[m.Node]
	if len(m.Ways) != len(doc.Peers) || len(m.Ways) == 0 {
		t.Fatalf("%d peers were tried of %d", len(m.Ways), len(doc.Peers))
	}
	for i, w := range m.Ways {
		peer := doc.Peers[i]
		if w.To != peer.Addresses[0] {
			t.Errorf("%s was tried at %s", peer.Name, w.To)
		}
		if w.Before.Dev != "tun-"+peer.Name || w.Before.Table != "77" || w.After.Dev != "tailscale0" || w.After.Table != "52" {
			t.Errorf("to %s: before %+v, after %+v", peer.Name, w.Before, w.After)
		}
		if w.PacketBefore.Source != m.Pod || w.PacketAfter.Source != doc.Node.Addresses[0] || !w.PacketAfter.Answered {
			t.Errorf("to %s: before %+v, after %+v", peer.Name, w.PacketBefore, w.PacketAfter)
		}
		if w.FromPeer.Source != w.To || w.FromPeer.Back != "tun-"+m.Node {
			t.Errorf("from %s: %+v", peer.Name, w.FromPeer)
		}
	}
	if moved := m.CounterAfter - m.CounterBefore; moved != uint64(len(m.Ways)) {
		t.Errorf("the counter moved by %d for %d connections", moved, len(m.Ways))
	}

	e := res.Restored
	if diff := cmp.Diff(e.Pristine, e.Clean); diff != "" {
		t.Errorf("cleanup left something (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(e.Mended, e.Same); diff != "" {
		t.Errorf("the second run changed something (-first +second):\n%s", diff)
	}
	if !strings.Contains(e.Pristine, "lookup 77") || strings.Contains(e.Pristine, "lookup 52 proto") || !strings.Contains(e.Mended, "lookup 52 proto") {
		t.Errorf("the dumps do not show the rules:\n%s\n%s", e.Pristine, e.Mended)
	}
}

// The demo is only worth something if it fails where a program does not do its part.
func testNotices(t *testing.T, bin string) {
	t.Helper()
	agentThat := func(script string) func(t *testing.T, bin, example string) {
		return func(t *testing.T, bin, _ string) {
			real := filepath.Join(bin, "tailmesh-agent")
			if err := os.Rename(real, real+"-real"); err != nil {
				t.Fatal(err)
			}
			script = "#!/bin/sh\n" + strings.ReplaceAll(script, "REAL", real+"-real") + "\n"
			if err := os.WriteFile(real, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(file, old, new string) func(t *testing.T, bin, example string) {
		return func(t *testing.T, _, example string) {
			path := filepath.Join(example, file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), old) {
				t.Fatalf("%s does not hold %q", file, old)
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, new)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, bin, example string)
		want   string
	}{
		{"policy without the rule", edit("policy.hujson", `"ip-in-ip:*"`, `"tcp:9"`), "the plan failed"},
		{
			"mesh that requires nothing", edit("main.tf", `requirements = data.tailmesh_mesh.this.requirements`, ""),
			"the plan has not the one requirement",
		},
		{"documents that are not written", edit("main.tf", "printf %s", "true"), "the document of node"},
		{"agent that does nothing", agentThat(`test "$1" != status || echo {}`), "after, a packet to ams2 goes to tun-ams2"},
		{"agent that leaves sources alone", edit("main.tf", `overlay = {`, "firewall = { snat = false }\n  overlay = {"), "after, ams2 saw a packet from"},
		{"cleanup that leaves things behind", agentThat(`test "$1" = cleanup || exec REAL "$@"`), "cleanup left the node different"},
		{
			"agent that starts over each time", agentThat(`test "$1" != apply || REAL cleanup >/dev/null; exec REAL "$@"`),
			"the second run did something",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own, example := t.TempDir(), filepath.Join(t.TempDir(), "quickstart")
			if err := os.CopyFS(own, os.DirFS(bin)); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(example, os.DirFS(filepath.Join(projectRoot, "examples/meshes/quickstart"))); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, own, example)
			res, code, stderr, tmp := runDemo(t, own, "-example", example)
			if code != exitBroken || res.Held || !strings.Contains(strings.Join(res.Broken, "\n"), tt.want) {
				t.Errorf("exit code %d, broken %q, want %q\n%s", code, res.Broken, tt.want, stderr)
			}
			kept := leftovers(t, tmp)
			if len(kept) != 1 || !strings.Contains(stderr, filepath.Join(tmp, kept[0], "logs")) {
				t.Errorf("kept %v, and said:\n%s", kept, stderr)
			}
		})
	}
}

// However the demo is ended, nothing of it goes on.
func testEnds(t *testing.T, bin string) {
	t.Helper()
	tests := []struct {
		name   string
		signal os.Signal
		code   int
		clean  bool
	}{
		{"interrupt", os.Interrupt, exitInterrupted, true},
		{"termination", syscall.SIGTERM, exitInterrupted, true},
		{"kill", syscall.SIGKILL, -1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd, tmp := startDemo(t, bin)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "2. ") {
			}
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			// The inner process holds the pipe, and with it ends everything that it has started.
			ended := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, out)
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the inner process goes on")
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
			if left := leftovers(t, tmp); tt.clean && left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, args := range [][]string{{"surplus"}, {"-unknown"}, {"-bin", "/nonexistent", "-example", "/nonexistent"}} {
		if code := outside(args); code != exitUnknown {
			t.Errorf("demo %v: exit code %d, want %d", args, code, exitUnknown)
		}
	}
	for program, want := range map[string]string{
		"/nonexistent": `cannot run "/nonexistent"`, "false": `cannot run "false"`, "true": `"true" is neither OpenTofu nor Terraform`,
	} {
		if got, err := tofuVersion(t.Context(), program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version of %s: %q, %v", program, got, err)
		}
	}
	if left := leftovers(t, os.Getenv("TMPDIR")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
