package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// Whatever stands in what the program is given, nothing that it prints acts on a terminal or hides, and as JSON it is the
// same as ever.
func TestHostileText(t *testing.T) {
	const evil = "a\x1b[31m\r\u007f\u009b2J\u202e\u200b\U000e0041\xff"
	valid := strings.TrimSuffix(evil, "\xff")
	document := func(name string) string {
		key, err := json.Marshal(name)
		must(t, err)
		path := filepath.Join(t.TempDir(), "node.json")
		must(t, os.WriteFile(path, []byte(strings.Replace(nodeDocument, `"mesh"`, string(key)+`: 1, "mesh"`, 1)), 0o600))
		return path
	}
	for _, args := range [][]string{
		{"validate", "--config", document(valid)},
		{"validate", "--config", document("\u009b")},
		{"validate", "--config", filepath.Join(t.TempDir(), evil)},
		{"validate", "--config", "https://" + evil},
		{"validate", "--config", evil + "://x"},
		{"status", "--config", document(valid)},
		{"apply", "--lock", filepath.Join(t.TempDir(), evil, "\x00")},
		{"run", "--log-format", evil},
		{"doctor", "--pod", evil},
		{"doctor", "merge", evil},
		{"validate", "--" + evil},
		{"validate", evil},
		{evil},
	} {
		for _, form := range []string{"--json=false", "--json"} {
			var stdout, stderr strings.Builder
			code := Run(t.Context(), Env{Kernel: kernel.NewFake(), Stdout: &stdout, Stderr: &stderr}, append(args, form))
			text := stdout.String() + stderr.String()
			if text == "" || code == exitYes || strings.ContainsFunc(text, acts) || strings.ToValidUTF8(text, "") != text {
				t.Errorf("%q: exit code %d\n%q", args, code, text)
			}
			if form == "--json" && stdout.Len() > 0 {
				var answer map[string]any
				if err := json.Unmarshal([]byte(stdout.String()), &answer); err != nil {
					t.Errorf("%q: %v\n%s", args, err, stdout.String())
				}
			}
		}
	}
	var out strings.Builder
	if _, err := (printable{&out}).Write([]byte(evil + "é\tß\n")); err != nil || out.String() !=
		`a\u001b[31m\u000d\u007f\u009b2J\u202e\u200b\udb40\udc41\xff`+"é\tß\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
