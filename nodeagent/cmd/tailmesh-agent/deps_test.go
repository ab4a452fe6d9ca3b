package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What the agent must not be built of, and why. Processes are iptables' alone. That none is started without need is seen in
// the tests of the command line.
func TestDependencies(t *testing.T) {
	const edge = "github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		path, imports := words[0], words[1:]
		for _, imported := range imports {
			switch {
			case imported != "os/exec":
			case path == edge:
				found++
			default:
				t.Errorf("%s imports os/exec: only %s may start a process", path, edge)
			}
		}
		switch {
		case strings.Contains(path, "terraform-provider-tailmesh/policy"), strings.Contains(path, "terraform-provider-tailmesh/provider"):
			t.Errorf("%s: the agent carries neither the policy engine nor the provider", path)
		case strings.HasPrefix(path, "tailscale.com"):
			t.Errorf("%s: the agent asks tailscaled over HTTP, and needs no code of it", path)
		case strings.HasPrefix(path, "github.com/hashicorp/"):
			t.Errorf("%s: the agent needs nothing of Terraform", path)
		}
	}
	if found != 1 {
		t.Errorf("%d imports that are allowed were seen, want 1: this test proves nothing", found)
	}
}
