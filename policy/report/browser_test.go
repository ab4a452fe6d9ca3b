package report

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// pages are those that are looked at in a browser.
func pages(t *testing.T) map[string]Input {
	t.Helper()
	small := newFixture(5, []string{"fra", "hel"}, 4)
	small.policy = strings.Replace(small.policy, `"deny": ["tag:db:22", "tag:ci:22"]`, `"deny": ["tag:db:22", "tag:web:443"]`, 1)
	small.requirements = append(small.requirements, policy.Requirement{Name: "backups", Src: []string{"tag:db"}, Dst: []string{"tag:node"}, Proto: "tcp", Ports: "22"})
	broken := newFixture(50, sixLocations(), 7)
	return map[string]Input{"5": small.input(t), "50": newFixture(50, sixLocations()).input(t), "50-broken": broken.input(t)}
}

func TestBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("chromium is not installed")
	}
	dir := t.ArtifactDir()
	for name, in := range pages(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name+".html")
			if err := os.WriteFile(file, []byte(render(t, in)), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--dump-dom", "file://"+file)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
		})
	}
}
