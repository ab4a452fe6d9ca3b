package mesh

import (
	"os/exec"
	"strings"
	"testing"
)

// The planner and what joins fragments are pure and of use without Terraform.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../fragment").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		for _, no := range []string{"github.com/hashicorp/", "tailscale.com/client", "os/exec"} {
			if strings.HasPrefix(dep, no) {
				t.Errorf("depends on %s", dep)
			}
		}
	}
}
