//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

const runningTailnet = `{"BackendState":"Running","Self":{"ID":"nAms","DNSName":"ams1.t.","Online":true,"TailscaleIPs":["100.64.0.11","fd7a:115c:a1e0::b"]},
	"Peer":{"k1":{"ID":"nFra","DNSName":"fra1.t.","Online":true,"TailscaleIPs":["100.64.0.12","fd7a:115c:a1e0::c"]}}}`

func TestDoctor(t *testing.T) {
	node := nstest.NewNode(t)
	daemon := startTailscaled(t, runningTailnet)
	// The imitated tailscaled tells nothing of its packet filter; without an overlay nothing is asked of it.
	a := newAgent(t, strings.Replace(nodeDocument, `"peers"`, `"overlay": {"protocol": "none"}, "peers"`, 1))
	doctor := func(args ...string) (string, int) {
		t.Helper()
		stdout, stderr, code := a.run(append([]string{"doctor", "--socket", daemon.socket}, args...)...)
		if stderr != "" {
			t.Errorf("stderr: %s", stderr)
		}
		return stdout, code
	}
	if out, code := doctor(); code != exitNo || !strings.Contains(out, "first to fix: route.not-applied") {
		t.Errorf("before apply: exit code %d\n%s", code, out)
	}
	a.want(exitYes, "apply")
	out, code := doctor("--probe")
	if code != exitYes || strings.Contains(out, "FAIL") || strings.Contains(out, "warn ") {
		t.Errorf("after apply: exit code %d\n%s", code, out)
	}
	if out, _ := doctor("-v"); !strings.Contains(out, "ok        route             2 of 2 addresses leave through tailscale0") {
		t.Errorf("-v:\n%s", out)
	}

	node.Run("nft flush chain inet tailmesh postrouting")
	out, code = doctor("--json")
	var report struct {
		SchemaVersion int
		Command       string
		Verdict       string
		First         string
		Checks        []struct {
			Check    string
			Findings []struct {
				Code     string
				Evidence []struct{ What, How string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitNo {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	if report.SchemaVersion != 1 || report.Command != "doctor" || report.Verdict != "wrong" || report.First != "source.untranslated" {
		t.Errorf("%+v", report)
	}

	node.Run("ip link add \"$(printf 'a\\033[31m')\" type bridge")
	reports := t.TempDir()
	for _, name := range []string{"page.html", "text.txt"} {
		file := filepath.Join(reports, name)
		if _, code := doctor("--report", file, "--redact"); code != exitNo {
			t.Errorf("--report %s: exit code %d", name, code)
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "source.untranslated") || strings.Contains(string(text), "ams1") ||
			strings.Contains(string(text), "<html") != (name == "page.html") || strings.Contains(string(text), "\x1b") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if _, stderr, code := a.run("doctor", "--socket", daemon.socket, "--report", filepath.Join(reports, "none", "page.html")); code != exitUnknown ||
		!strings.Contains(stderr, `none/page.html": no such file or directory`) {
		t.Errorf("--report into no folder: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := a.run("doctor", "--watch", "-1s"); code != exitUnknown || !strings.Contains(stderr, "want a time to watch for") {
		t.Errorf("--watch -1s: exit code %d, %s", code, stderr)
	}

	path := filepath.Join(t.TempDir(), "ams1.json")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := a.run("doctor", "merge", path)
	if code != exitNo || !strings.Contains(stdout, "ams1  fra1  wrong    ams1: source.untranslated") {
		t.Errorf("merge: exit code %d\n%s%s", code, stdout, stderr)
	}
	if _, stderr, code := a.run("doctor", "merge", a.path); code != exitUnknown || !strings.Contains(stderr, "not what `tailmesh-agent doctor --json`") {
		t.Errorf("merge of a document: exit code %d, %s", code, stderr)
	}

	a.write(`{"version": 1,`)
	if out, code := doctor(); code != exitNo || !strings.Contains(out, "document.unusable") {
		t.Errorf("without a document: exit code %d\n%s", code, out)
	}
}

// Without root, what cannot be seen is said and nothing is claimed.
func TestDoctorWithoutCapability(t *testing.T) {
	node := nstest.NewNode(t)
	daemon := startTailscaled(t, runningTailnet)
	a := newAgent(t, nodeDocument)
	a.want(exitYes, "apply")
	var out string
	var code int
	nstest.WithoutCapabilities(t, func() { out, _, code = a.run("doctor", "--probe", "--socket", daemon.socket) })
	if code != exitUnknown || strings.Contains(out, "FAIL") || !strings.Contains(out, "needs root") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	node.Run("ip rule del pref 0 fwmark 0x2000/0x2000") // which goes wrong whatever the mark
	nstest.WithoutCapabilities(t, func() { out, _, code = a.run("doctor", "--socket", daemon.socket) })
	if code != exitNo || !strings.Contains(out, "route.rule-missing") {
		t.Errorf("without the rule: exit code %d\n%s", code, out)
	}
}
