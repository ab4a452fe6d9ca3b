package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/internal/cli"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/metrics"
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
			text := regexp.MustCompile(`ExecStart=tailmesh-agent \w+`).ReplaceAllString(read(t, name), "ExecStart=/bin/true")
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

// The DaemonSet mounts every folder that the program looks into unless it is told otherwise, the units make those that are
// the agent's own, and the probes ask for what the program serves.
func TestSamePaths(t *testing.T) {
	manifest := read(t, "../../../examples/kubernetes/tailmesh-agent.yaml")
	mounted := map[string]string{} // the host's folder by the container's
	for _, m := range regexp.MustCompile(`(?m)^ +- \{name: (\w+), mountPath: (\S+?)(?:, readOnly: true)?\}$`).FindAllStringSubmatch(manifest, -1) {
		volume := regexp.MustCompile(`(?m)^ +- name: ` + m[1] + ` .*\n +(?:hostPath: \{path: ([^,}]+)|(configMap))`).FindStringSubmatch(manifest)
		if volume == nil {
			t.Fatalf("there is no volume for the mount %q", m[1])
		}
		mounted[m[2]] = volume[1] + volume[2]
	}
	var help strings.Builder
	cli.Run(t.Context(), cli.Env{Kernel: kernel.NewFake(), Stdout: &help, Stderr: io.Discard}, []string{"run", "--help"})
	want := map[string]string{"/etc/cni/net.d": "/etc/cni/net.d"}
	for _, m := range regexp.MustCompile(`--(\w+) string .*\(default "(/.*?)"\)`).FindAllStringSubmatch(help.String(), -1) {
		flag, path := m[1], m[2]
		switch flag {
		case "config":
			want[filepath.Dir(path)] = "configMap"
		case "socket":
			want[filepath.Dir(path)] = strings.TrimPrefix(filepath.Dir(path), "/var")
		case "lock":
			want[filepath.Dir(path)] = filepath.Dir(path)
		case "state":
			want[path] = path
		}
	}
	if diff := cmp.Diff(want, mounted); diff != "" || len(want) != 5 {
		t.Errorf("mounts (-of the program's folders +of the DaemonSet):\n%s", diff)
	}
	for kind, folder := range map[string]string{"Configuration": "/etc/", "Runtime": "/run/", "State": "/var/lib/"} {
		name := regexp.MustCompile(`(?m)^` + kind + `Directory=(.*)$`).FindStringSubmatch(read(t, "tailmesh-agent.service"))
		if name == nil || mounted[folder+name[1]] == "" {
			t.Errorf("the unit has the %s directory %q, and the DaemonSet mounts %v", kind, name, mounted)
		}
	}
	handler := metrics.New("").Handler()
	listen := regexp.MustCompile(`--listen, "(.*):(\d+)"`).FindStringSubmatch(manifest)
	probes := regexp.MustCompile(`httpGet: \{host: (.*), port: (\d+), path: (.*)\}`).FindAllStringSubmatch(manifest, -1)
	for _, probe := range probes {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, probe[3], nil))
		if w.Code == http.StatusNotFound || probe[1] != listen[1] || probe[2] != listen[2] {
			t.Errorf("the probe %q asks for what is not served at %q", probe[0], listen[0])
		}
	}
	if len(probes) != 2 {
		t.Errorf("%d probes, want one of readiness and one of liveness", len(probes))
	}
}
