package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit must be free of mistakes, which systemd-analyze prints without failing, and well confined (4.0 is "OK").
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	text, err := os.ReadFile("tailmesh-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	// The program is not installed where the tests run.
	unit := filepath.Join(t.TempDir(), "tailmesh-agent.service")
	if err := os.WriteFile(unit, []byte(strings.Replace(string(text), "/usr/local/bin/tailmesh-agent run", "/bin/true", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=40", unit).CombinedOutput(); err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
}
