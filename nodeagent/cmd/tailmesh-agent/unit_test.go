package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The units must be free of mistakes, which systemd-analyze prints without failing, and confined to an exposure of 2.5 at
// most (of 10; up to 4.0 is "OK").
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	for _, name := range []string{"tailmesh-agent.service", "tailmesh-agent-apply.service"} {
		t.Run(name, func(t *testing.T) {
			// The program is not installed where the tests run.
			text := regexp.MustCompile(`/usr/local/bin/tailmesh-agent \w+`).ReplaceAllString(read(t, name), "/bin/true")
			unit := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("verify: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", unit).CombinedOutput()
			if err != nil {
				t.Errorf("security: %v\n%s", err, out)
			}
		})
	}
}

// Whichever way the agent is started, it has the same few rights.
func TestSameConfinement(t *testing.T) {
	confinement := func(name string) string {
		_, text, _ := strings.Cut(read(t, name), "ConfigurationDirectory=tailmesh\n")
		return text
	}
	if diff := cmp.Diff(confinement("tailmesh-agent.service"), confinement("tailmesh-agent-apply.service")); diff != "" {
		t.Errorf("the units differ (-run +apply):\n%s", diff)
	}

	manifest := read(t, "../../../examples/kubernetes/tailmesh-agent.yaml")
	added := regexp.MustCompile(`add: \[(.*)\]`).FindAllStringSubmatch(manifest, -1)
	bounds := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(read(t, "tailmesh-agent.service"))
	want := strings.ReplaceAll(bounds[1], "CAP_", "")
	if len(added) != 1 || added[0][1] != want {
		t.Errorf("the DaemonSet adds the capabilities %q, and the unit has %q", added, want)
	}
	for _, line := range []string{
		"drop: [ALL]", "allowPrivilegeEscalation: false", "readOnlyRootFilesystem: true", "automountServiceAccountToken: false",
		"type: RuntimeDefault", "hostNetwork: true",
	} {
		if !strings.Contains(manifest, line) {
			t.Errorf("the DaemonSet lacks %q", line)
		}
	}
	for _, line := range []string{"privileged: true", "hostPID: true", "hostIPC: true"} {
		if strings.Contains(manifest, line) {
			t.Errorf("the DaemonSet has %q", line)
		}
	}
	// Of the host's files, the agent may write its own folders only.
	mounts := regexp.MustCompile(`(?m)^ +- \{name: (\w+), mountPath: (\S+?)(, readOnly: true)?\}$`).FindAllStringSubmatch(manifest, -1)
	var writable []string
	for _, m := range mounts {
		if m[3] == "" {
			writable = append(writable, m[2])
		}
	}
	slices.Sort(writable)
	if diff := cmp.Diff([]string{"/run/tailmesh", "/var/lib/tailmesh"}, writable); diff != "" || len(mounts) < 4 {
		t.Errorf("of %d mounts these can be written (-want +got):\n%s", len(mounts), diff)
	}
}
