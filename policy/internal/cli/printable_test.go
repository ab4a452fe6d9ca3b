package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// TestHostileText asks every question about a policy, each of whose names would act on a terminal, or on a CI job as a line
// of its own.
func TestHostileText(t *testing.T) {
	evil := func(s string) string { return s + "\x1b[2J\x1b[31m\n::error file=x::hello\r\u202e" }
	group, user := evil("group:a"), evil("mallory")+"@example.com"
	policy, err := json.Marshal(map[string]any{
		"groups":    map[string]any{group: []string{user}},
		"hosts":     map[string]any{"far": "10.1.2.3"},
		"tagOwners": map[string]any{"tag:node": []string{group}},
		"acls": []any{
			map[string]any{"action": "accept", "src": []string{group}, "dst": []string{"tag:node:22"}},
			map[string]any{"action": "accept", "src": []string{"tag:node"}, "dst": []string{"tag:node:22"}, "srcPosture": []string{evil("posture:x")}},
		},
		"tests": []any{
			map[string]any{"src": user, "accept": []string{evil("tag:node") + ":22"}, "deny": []string{"tag:node:23"}},
			map[string]any{"src": evil("nobody"), "accept": []string{"tag:node:22"}},
		},
		"postures": map[string]any{evil("posture:x"): []string{"node:os == '" + evil("linux") + "'"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := json.Marshal(map[string]any{
		"devices": []any{map[string]any{
			"nodeId": "n1", "hostname": evil("ams1"), "name": evil("ams1") + ".ts.net", "addresses": []string{"100.64.0.1"}, "tags": []string{"tag:node"}, "authorized": true,
		}},
		"users": []any{map[string]any{"id": "1", "loginName": user, "role": "member", "status": "active"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, inv := filepath.Join(dir, "p.hujson"), filepath.Join(dir, "inv.json")
	sound := filepath.Join(dir, "sound.hujson") // what the control plane would accept, so that commands get further
	text, err := json.Marshal(map[string]any{
		"groups":    map[string]any{"group:a": []string{user}},
		"tagOwners": map[string]any{"tag:node": []string{"group:a"}},
		"postures":  map[string]any{"posture:x": []string{"custom:a == '" + evil("b") + "'"}},
		"acls": []any{
			map[string]any{"action": "accept", "src": []string{user}, "dst": []string{"tag:node:22"}},
			map[string]any{"action": "accept", "src": []string{"tag:node"}, "dst": []string{"tag:node:22"}, "srcPosture": []string{"posture:x"}},
		},
		"tests": []any{map[string]any{"src": user, "accept": []string{"tag:node:22"}, "deny": []string{"tag:node:23"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(dir, evil("p"))
	for name, text := range map[string][]byte{p: policy, inv: inventory, sound: text, named: []byte(`{"Groups": {}, "tagOwners":{}}`)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{p, sound} {
		for _, args := range [][]string{
			{"check", file, "-i", inv},
			{"test", file, "-i", inv},
			{"test", file, "-i", inv, "--coverage", "--suggest"},
			{"lint", file, "-i", inv},
			{"can", user, "tag:node", "--port", "22", file, "-i", inv},
			{"can", "tag:node", "tag:node", "--port", "22", file, "-i", inv},
			{"can", group, "tag:node", "--port", "22", file, "-i", inv},
			{"can", evil("tag:ghost"), "tag:node", "--port", "22", file, "-i", inv},
			{"explain", user, "tag:node", "--port", "22", file, "-i", inv},
			{"explain", "tag:node", group, "--port", "22", file, "-i", inv},
			{"explain", "tag:node", user, "--port", "22", file, "-i", inv},
			{"compile", file, "-i", inv},
			{"convert", file, "-i", inv, "-w"},
			{"diff", file, sound, "-i", inv},
			{"check", filepath.Join(dir, evil("nowhere"))},
			{"fmt", "--check", named},
			{"lint", "--fix", named},
			{evil("command")},
		} {
			t.Run(filepath.Base(file)+"/"+strings.Join(args[:1], " "), func(t *testing.T) {
				var said bytes.Buffer
				run(t.Context(), env{Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said, Getenv: func(string) string { return "" }}, args)
				if said.Len() == 0 {
					t.Error("nothing was said")
				}
				bad := "\x1b\r\u202e"
				if args[0] == "compile" { // JSON, in which only control characters have to be written otherwise
					bad = "\x1b\r"
				}
				for line := range strings.SplitSeq(said.String(), "\n") {
					if strings.ContainsAny(line, bad) || strings.HasPrefix(strings.TrimSpace(line), "::") {
						t.Errorf("%q says %q", args, line)
					}
				}
			})
		}
	}
}

// TestHostileService has the service speak to the terminal and to the CI job.
func TestHostileService(t *testing.T) {
	o := newOnline(t)
	body := `{"message": "no\n ::error::hello\r\u001b[31m", "data": [{"user": "u\n::error::hello", "errors": ["e\n::error::hello"]}]}`
	for _, tt := range []struct{ args, path string }{
		{"push second.hujson", "/validate"}, {"push second.hujson --json", "/validate"}, {"pull", "/acl"}, {"watch first.hujson --once", "/devices"},
	} {
		if err := o.sim.AddFault(controlsim.Fault{Kind: controlsim.StatusFault, Path: tt.path, Status: 400, Body: body}); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		if code := o.start(t.Context(), &said, tt.args); code == exitYes {
			t.Errorf("%s: exit 0", tt.args)
		}
		for line := range strings.SplitSeq(said.String(), "\n") {
			if strings.ContainsAny(line, "\x1b\r") || strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Errorf("%s says %q", tt.args, line)
			}
		}
	}
}
