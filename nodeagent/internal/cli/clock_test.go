//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// jumpyAgent builds the agent with a standard library in which each reading of the wall clock is ten years from the one
// before, there and back again. The monotonic clock is what it is, as on a node whose time is set.
func jumpyAgent(t *testing.T) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the Go toolchain")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), tool, "env", "GOROOT").Output()
	must(t, err)
	clock := filepath.Join(strings.TrimSpace(string(out)), "src/time/time.go")
	source, err := os.ReadFile(clock)
	must(t, err)
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !strings.Contains(string(source), reading) {
		t.Fatalf("%s reads the clock in another way (%s): this test has to follow", clock, runtime.Version())
	}
	jumpy := strings.Replace(string(source), reading, reading+"\twallReadings++\n\tsec += int64(wallReadings%3-1) * 10 * 365 * 24 * 3600\n", 1)
	patched, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "agent")
	must(t, os.WriteFile(patched, []byte(jumpy+"\nvar wallReadings uint8\n"), 0o600))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{clock: patched}})
	must(t, err)
	must(t, os.WriteFile(overlay, text, 0o600))
	cmd := exec.CommandContext(t.Context(), tool, "build", "-overlay", overlay, "-o", program, "../../cmd/tailmesh-agent")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// However the wall clock jumps, damage is repaired as fast, a quiet node is left in peace, and systemd's watchdog is fed.
func TestClockJumps(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the agent anew")
	}
	program := jumpyAgent(t)
	node := nstest.NewNode(t)
	closeTunnel(node)
	a := newAgent(t, nodeDocument)
	systemd, log := listenNotify(t), &buffer{}
	cmd := exec.CommandContext(t.Context(), program, "run", "--config", a.path, "--socket", a.path+".no-socket", "--lock", a.path+".lock",
		"--state", a.path+".state")
	cmd.Env = append(os.Environ(), "WATCHDOG_USEC=600000")
	cmd.Stderr = log
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s := &service{t: t, node: node, agent: a, log: log, systemd: systemd}
	s.expect("the start", func() bool { return strings.Contains(systemd.String(), "STATUS=ok: 2 of 2") })
	whole, _ := parts(node.Dump())
	for range 4 {
		node.Run("nft delete table inet tailmesh\nip rule del pref 0 fwmark 0x2000/0x2000")
		s.settled(whole)
	}
	time.Sleep(time.Second) // the notices of its own repairs
	passes, fed := s.passes(), strings.Count(systemd.String(), "WATCHDOG=1")
	time.Sleep(3 * time.Second)
	if n := s.passes() - passes; n != 0 {
		t.Errorf("%d passes in three quiet seconds, want none", n)
	}
	if n := strings.Count(systemd.String(), "WATCHDOG=1") - fed; n < 10 || n > 18 {
		t.Errorf("the watchdog was fed %d times in three seconds, want one in 200 ms", n)
	}
	years := map[string]bool{}
	for _, year := range regexp.MustCompile(`(?m)^time=(\d{4})`).FindAllString(log.String(), -1) {
		years[year] = true
	}
	if len(years) != 3 {
		t.Errorf("the clock of the log did not jump (%v): this test proves nothing\n%s", years, log)
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("at the end: %v", err)
	}
}
