package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What the agent must not be built of, and why.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		switch {
		case path == "os/exec":
			t.Error("os/exec: the agent starts no process")
		case strings.Contains(path, "terraform-provider-tailmesh/policy"), strings.Contains(path, "terraform-provider-tailmesh/provider"):
			t.Errorf("%s: the agent carries neither the policy engine nor the provider", path)
		case strings.HasPrefix(path, "tailscale.com"):
			t.Errorf("%s: the agent asks tailscaled over HTTP, and needs no code of it", path)
		case strings.HasPrefix(path, "github.com/hashicorp/"):
			t.Errorf("%s: the agent needs nothing of Terraform", path)
		}
	}
}
