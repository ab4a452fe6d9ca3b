package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	tfconfig "github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// Every example of the documentation can be applied as it stands, and leaves nothing to do, in a small tailnet.
func TestExamples(t *testing.T) {
	needTofu(t)
	files, err := filepath.Glob("../examples/*/*/*.tf")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, error %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasPrefix(file, "../examples/meshes/") {
			continue // whole walk-throughs, with providers of their own
		}
		kind, name := filepath.Base(filepath.Dir(filepath.Dir(file))), filepath.Base(filepath.Dir(file))
		t.Run(kind+"/"+name, func(t *testing.T) {
			var opts controlsim.Options
			if kind == "ephemeral-resources" {
				opts.Policy = meshPolicy // which defines the tag
			}
			tailnet := newTailnet(t, opts)
			t.Setenv("TAILSCALE_API_KEY", controlsim.DefaultAPIKey)
			t.Setenv("TAILSCALE_BASE_URL", tailnet.url)
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Dir(file))); err != nil {
				t.Fatal(err)
			}
			const source = "terraform {\n  required_providers {\n    tailmesh = {\n      source = \"hashicorp/tailmesh\"\n    }\n  }\n}\n"
			if err := os.WriteFile(filepath.Join(dir, "source.tf"), []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_10_0)},
				Steps: []resource.TestStep{{
					ConfigDirectory:    tfconfig.StaticDirectory(dir),
					ExpectNonEmptyPlan: name == "tailmesh_policy_check", // check blocks are read in every apply
				}},
			})
		})
	}
}
