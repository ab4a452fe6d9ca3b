package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneDocument holds commands that fail to one JSON document on standard output, which says so.
func TestOneDocument(t *testing.T) {
	if _, err := os.Stat("/dev/fd"); err != nil {
		t.Skip("no /dev/fd")
	}
	inventory := filepath.Join(t.TempDir(), "inv.json")
	text := `{"devices": [{"nodeId": "n1", "hostname": "a", "addresses": ["100.64.0.1"], "tags": ["tag:node"], "authorized": true},
		{"nodeId": "n2", "hostname": "b", "addresses": ["100.64.0.2"], "tags": ["tag:node"], "authorized": true}], "users": []}`
	if err := os.WriteFile(inventory, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const policy = `{"tagOwners": {"tag:node": []}, "acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:22"]}]}`
	for _, tt := range []struct{ args, want string }{
		{"check nowhere --json", "nowhere"},
		{"check nowhere --format json", "nowhere"},
		{"check nowhere --format=json --require nowhere", "nowhere"},
		{"check --json", "no POLICY given"},
		{"convert PIPE -i INV -w --json", "cannot write"}, // a pipe can be read, and not be written back
		{"test PIPE -i INV --suggest -w --json", "cannot write"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := w.WriteString(policy); err != nil {
				t.Fatal(err)
			}
			w.Close()
			args := strings.NewReplacer("PIPE", fmt.Sprintf("/dev/fd/%d", r.Fd()), "INV", inventory).Replace(tt.args)
			var stdout, stderr bytes.Buffer
			e := env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}
			if code := run(t.Context(), e, strings.Fields(args)); code != exitCannotDo {
				t.Errorf("exit %d", code)
			}
			var got struct{ Error string }
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || !strings.Contains(got.Error, tt.want) {
				t.Errorf("%v, want one document with %q:\n%s", err, tt.want, &stdout)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("standard error %q", &stderr)
			}
		})
	}
}
