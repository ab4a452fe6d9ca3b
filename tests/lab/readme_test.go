//go:build linux

package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testReadme does what the README tells those to do who ask whether they need any of this: on a node on which nothing is
// installed, the doctor with a document written by hand says what the README shows.
func testReadme(t *testing.T, l *Lab) {
	l.policyFile(t, withoutOverlay)
	l.overlayRule(t, behindNobody, false)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "cat >try.json <<END\n")
	doc, rest, _ := strings.Cut(rest, "END\n")
	command, rest, _ := strings.Cut(rest, "\n")
	_, rest, _ = strings.Cut(rest, "```\n") // the end of that block
	_, rest, _ = strings.Cut(rest, "```\n")
	shown, _, ok := strings.Cut(rest, "```\n")
	args := strings.Fields(command)
	if !ok || len(args) < 3 || args[0] != "tailmesh-agent" {
		t.Fatal("README.md does not ask a node")
	}
	doc = strings.NewReplacer("100.64.0.11", l.Ams.Addr(4).String(), "100.64.0.21", l.Fra.Addr(4).String()).Replace(doc)
	file := filepath.Join(l.Ams.dir, "try.json")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	args[slices.Index(args, "try.json")] = file
	out, err := l.Ams.Agent(t.Context(), args[1:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("%s: %v, want exit code 1", command, err)
	}
	said := strings.Split(out, "\n")
	for line := range strings.Lines(shown) {
		if !slices.Contains(said, strings.TrimRight(line, "\n")) {
			t.Errorf("README.md shows %q, which is not among\n%s", line, out)
		}
	}
}
