package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExamplePolicies runs the commands of examples/policies/README.md and compares what they print with what stands
// there; -update writes it.
func TestExamplePolicies(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/policies")
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.CopyFS(".", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	inside, ran := false, 0
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```console")
			out.WriteString(line)
		case !inside:
			out.WriteString(line)
		case strings.HasPrefix(line, "$ "):
			out.WriteString(line)
			out.WriteString(printed(t, strings.Fields(line)[1:]))
			ran++
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands", ran)
	}
	if out.String() == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s (-written +printed; go test -run TestExamplePolicies -update writes it):\n%s", page, cmp.Diff(string(text), out.String()))
}

// printed is what a command prints: findings, which go to standard error, after the answer, and the policy that convert
// prints left out, since it is a file that stands beside.
func printed(t *testing.T, words []string) string {
	t.Helper()
	if words[0] == "cp" {
		text, err := os.ReadFile(words[1])
		if err == nil {
			err = os.WriteFile(words[2], text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ""
	}
	var answer, said bytes.Buffer
	e := env{Stdin: strings.NewReader(""), Stdout: &answer, Stderr: &said, Getenv: func(string) string { return "" }}
	if words[1] == "convert" {
		e.Stdout = io.Discard
	}
	code := run(t.Context(), e, words[1:])
	if code == exitCannotDo {
		t.Errorf("%q: exit %d: %s", words, code, said.String())
	}
	return strings.TrimRight(answer.String()+said.String(), "\n") + "\n"
}
