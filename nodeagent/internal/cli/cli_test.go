package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// The document's path differs from run to run; tests see it as FILE.
func runFake(t *testing.T, f kernel.Interface, document string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.json")
	if document != "" {
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	code = Run(t.Context(), Env{Kernel: f, Stdout: &out, Stderr: &errs}, append(args, "--config", path, "--socket", path+".no-socket", "--lock", path+".lock"))
	clean := strings.NewReplacer(path, "FILE")
	return clean.Replace(out.String()), clean.Replace(errs.String()), code
}

func TestOneClearMessage(t *testing.T) {
	denied := kernel.NewFake()
	denied.Err = fmt.Errorf("read nftables: %w", syscall.EPERM)
	broken := kernel.NewFake()
	broken.Err = fmt.Errorf("list interfaces: %w", syscall.ENOBUFS)
	tests := []struct {
		name     string
		kernel   kernel.Interface
		document string
		args     []string
		code     int
		stderr   string
	}{
		{
			"missing file", kernel.NewFake(), "",
			[]string{"apply"},
			2,
			`tailmesh-agent: no document at "FILE": write the node's document there, or name another file with --config` + "\n",
		},
		{
			"garbage", kernel.NewFake(), "\x00\x01\x02",
			[]string{"apply"},
			2,
			"tailmesh-agent: FILE: line 1, column 1: invalid character '\\x00' looking for beginning of value\n",
		},
		{
			"two problems", kernel.NewFake(), strings.Replace(nodeDocument, `"mesh"`, `"colour": 1, "routing": {"table": 0}, "mesh"`, 1),
			[]string{"plan"},
			2,
			"tailmesh-agent: FILE: 2 problems\n" +
				"  colour: unknown key; known here: discover, firewall, local_cidrs, mesh, node, overlay, peers, pod_cidrs, routing, version\n" +
				"  routing.table: 0 is out of range: want a number from 1 to 4294967295\n",
		},
		{
			"another backend", kernel.NewFake(), strings.Replace(nodeDocument, `"mesh"`, `"firewall": {"backend": "iptables"}, "mesh"`, 1),
			[]string{"apply"},
			2,
			`tailmesh-agent: FILE: firewall.backend: "iptables" cannot be had: there is no iptables here, or use "nftables"` + "\n",
		},
		{
			"no permission", denied, nodeDocument,
			[]string{"apply"},
			2,
			"tailmesh-agent: not permitted: run as root, or with CAP_NET_ADMIN (read nftables: operation not permitted)\n",
		},
		{
			"no permission to clean up", denied, "",
			[]string{"cleanup"},
			2,
			"tailmesh-agent: not permitted: run as root, or with CAP_NET_ADMIN (read nftables: operation not permitted)\n",
		},
		{
			"kernel trouble", broken, nodeDocument,
			[]string{"status"},
			2,
			"tailmesh-agent: list interfaces: no buffer space available\n",
		},
		{
			"unknown command", kernel.NewFake(), "",
			[]string{"aply"},
			2,
			"tailmesh-agent: unknown command \"aply\" (did you mean \"apply\"?); see tailmesh-agent --help\n",
		},
		{"unknown flag", kernel.NewFake(), "", []string{"apply", "--colour"}, 2, "tailmesh-agent: unknown flag: --colour; see tailmesh-agent apply --help\n"},
		{"flag without a value", kernel.NewFake(), "", []string{"status", "--json=maybe"}, 2, "tailmesh-agent: invalid argument \"maybe\" for \"--json\" flag: " +
			"strconv.ParseBool: parsing \"maybe\": invalid syntax; see tailmesh-agent status --help\n"},
		{"argument", kernel.NewFake(), "", []string{"apply", "now"}, 2, "tailmesh-agent: apply takes no arguments, and \"now\" is one; see tailmesh-agent apply --help\n"},
		{"invalid document", kernel.NewFake(), "{}", []string{"validate"}, 1, "tailmesh-agent: FILE: 4 problems\n" +
			"  version: missing\n  mesh: missing\n  node: missing\n  peers: missing\n"},
		{
			"nothing to validate", kernel.NewFake(), "",
			[]string{"validate"},
			2,
			`tailmesh-agent: no document at "FILE": write the node's document there, or name another file with --config` + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := runFake(t, tt.kernel, tt.document, tt.args...)
			if diff := cmp.Diff(tt.stderr, stderr); diff != "" || code != tt.code || stdout != "" {
				t.Errorf("exit code %d, want %d; stdout %q; stderr (-want +got):\n%s", code, tt.code, stdout, diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	stdout, stderr, code := runFake(t, kernel.NewFake(), nodeDocument, "validate")
	if stdout != "FILE: valid: node ams1 of mesh futhark, 1 peer\n" || stderr != "" || code != 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// With --json, stdout is one JSON object that says its version, for failures too.
func TestJSON(t *testing.T) {
	denied := kernel.NewFake()
	denied.Err = syscall.EPERM
	tests := []struct {
		name     string
		kernel   kernel.Interface
		document string
		verb     string
		code     int
		want     map[string]any
	}{
		{"apply", kernel.NewFake(), nodeDocument, "apply", 2, map[string]any{"verdict": "unknown", "node": "ams1"}},
		{"plan", kernel.NewFake(), nodeDocument, "plan", 1, map[string]any{"node": "ams1"}},
		{"status", kernel.NewFake(), nodeDocument, "status", 1, map[string]any{"verdict": "wrong"}},
		{"cleanup", kernel.NewFake(), "", "cleanup", 0, map[string]any{"changes": []any{}}},
		{"valid", kernel.NewFake(), nodeDocument, "validate", 0, map[string]any{"valid": true}},
		{"not valid", kernel.NewFake(), `{"x":1}`, "validate", 1, map[string]any{"valid": false}},
		{"bad document", kernel.NewFake(), `[]`, "apply", 2, map[string]any{
			"error": "FILE: want an object, got an array", "problems": []any{map[string]any{"path": "", "message": "want an object, got an array"}},
		}},
		{"no permission", denied, nodeDocument, "apply", 2, map[string]any{
			"error": "not permitted: run as root, or with CAP_NET_ADMIN (operation not permitted)",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := runFake(t, tt.kernel, tt.document, tt.verb, "--json")
			if code != tt.code || stderr != "" {
				t.Errorf("exit code %d, want %d; stderr %q", code, tt.code, stderr)
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%v in %s", err, stdout)
			}
			tt.want["schemaVersion"], tt.want["command"] = 1.0, tt.verb
			for key, want := range tt.want {
				if diff := cmp.Diff(want, got[key]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

// An answer that cannot be written is none, whatever it was.
func TestAnswerThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full")
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(path, []byte(nodeDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply"}, {"plan"}, {"status"}, {"cleanup"}, {"validate"}, {"status", "--json"}, {"validate", "--json"}, {"--help"}, {"--version"}, {},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var errs strings.Builder
			code := Run(t.Context(), Env{Kernel: kernel.NewFake(), Stdout: full, Stderr: &errs},
				append(args, "--config", path, "--socket", path+".no-socket", "--lock", path+".lock"))
			var messages []string
			for line := range strings.Lines(errs.String()) {
				if !strings.HasPrefix(line, "note: ") {
					messages = append(messages, line)
				}
			}
			want := []string{"tailmesh-agent: cannot write the answer: write /dev/full: no space left on device\n"}
			if diff := cmp.Diff(want, messages); diff != "" || code != exitUnknown {
				t.Errorf("exit code %d (-want +got):\n%s", code, diff)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	stdout, stderr, code := runFake(t, kernel.NewFake(), "", "--version")
	if !strings.HasPrefix(stdout, "tailmesh-agent ") || len(strings.Fields(stdout)) != 2 || stderr != "" || code != exitYes {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// Without a command there is help, and no success.
func TestNoCommand(t *testing.T) {
	stdout, stderr, code := runFake(t, kernel.NewFake(), "")
	if !strings.Contains(stdout, "Available Commands:") || stderr != "" || code != exitUnknown {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// A lock that is held is never blamed on a process that has ended.
func TestLockHolder(t *testing.T) {
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"alive":             {fmt.Sprintln(os.Getpid()), fmt.Sprintf("another tailmesh-agent (process %d) is at work on this node and holds ", os.Getpid())},
		"ended":             {fmt.Sprintln(ended.Process.Pid), "another tailmesh-agent (`fuser -v FILE.lock` shows it) is at work on this node and holds "},
		"not yet written":   {"", "another tailmesh-agent (`fuser -v FILE.lock` shows it) is at work on this node and holds "},
		"something else":    {"-1\n", "another tailmesh-agent (`fuser -v FILE.lock` shows it) is at work on this node and holds "},
		"everybody's group": {"0\n", "another tailmesh-agent (`fuser -v FILE.lock` shows it) is at work on this node and holds "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.json")
			c := &command{lock: path + ".lock"}
			release, err := c.acquire()
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if err := os.WriteFile(c.lock, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = (&command{lock: c.lock}).acquire()
			if err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), path, "FILE"), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// A peer to which there is no way in any family is shown with the reason, by whatever looks at the document.
func TestStrandedPeer(t *testing.T) {
	six := strings.Replace(nodeDocument, `"peers": [`, `"peers": [{"name": "par1", "addresses": ["fd7a:115c:a1e0::d"]}, `, 1)
	noAddress := strings.Replace(six, `, "fd7a:115c:a1e0::b"`, "", 1)
	noPods := strings.Replace(six, `, "fd00:10:244:1::/64"`, "", 1)
	for _, tt := range []struct{ name, document, why string }{
		{"the node has no address of the family", noAddress, "it has an IPv6 address, and the node has none"},
		{"pods have no network of the family", noPods, "it has an IPv6 address, and pods have no network of IPv6"},
		{"all have both", six, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			note := "note: peer par1 (fd7a:115c:a1e0::d) cannot be reached by pods: " + tt.why + "\n"
			for _, verb := range []string{"validate", "plan"} {
				_, stderr, _ := runFake(t, kernel.NewFake(), tt.document, verb)
				if strings.Contains(stderr, note) != (tt.why != "") || strings.Contains(stderr, "cannot be reached") != (tt.why != "") {
					t.Errorf("%s: %s", verb, stderr)
				}
				stdout, _, _ := runFake(t, kernel.NewFake(), tt.document, verb, "--json")
				if strings.Contains(stdout, `"why": "`+tt.why+`"`) != (tt.why != "") {
					t.Errorf("%s --json: %s", verb, stdout)
				}
			}
			for _, verb := range []string{"status", "apply"} {
				stdout, _, code := runFake(t, kernel.NewFake(), tt.document, verb)
				if strings.Contains(stdout, "wrong: "+tt.why) != (tt.why != "") || tt.why != "" && code != exitNo {
					t.Errorf("%s: exit code %d\n%s", verb, code, stdout)
				}
			}
		})
	}
}
