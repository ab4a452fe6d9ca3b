package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

const meshPolicy = `{
  // who may carry the tag
  "tagOwners": {"tag:node": ["autogroup:admin"]},
  "grants": [
    {"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]},
  ],
  "tests": [
    {"src": "tag:node", "proto": "tcp", "accept": ["tag:node:6443"]},
  ],
}`

// without drops a piece of a text that must be there.
func without(t *testing.T, text, piece string) string {
	t.Helper()
	if !strings.Contains(text, piece) {
		t.Fatalf("%q is not in the text", piece)
	}
	return strings.Replace(text, piece, "", 1)
}

const meshRequirement = `
  requirements = [{
    name = "mesh \"futhark\""
    src = ["tag:node"], dst = ["tag:node"], proto = "ip-in-ip", ports = null, why = null
  }]
`

func policyConfig(content, more string) string {
	return fmt.Sprintf("resource \"tailmesh_policy\" \"this\" {\n  content = %s\n%s}\n", heredoc(content), more)
}

func TestPolicyLife(t *testing.T) {
	needTofu(t)
	tailnet := newTailnet(t, controlsim.Options{})
	changed := strings.Replace(meshPolicy, "6443", "10250", 1)
	reformatted := strings.NewReplacer("  ", "        ", `["*", "ip-in-ip:*"]`, "[\n\"*\",\n\"ip-in-ip:*\"]").Replace(changed)
	noWrite := func(*terraform.State) error {
		if n := len(tailnet.writes()); n != 0 {
			return fmt.Errorf("%d writes, want none", n)
		}
		return nil
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: tailnet.config(policyConfig(meshPolicy, meshRequirement)),
				Check: func(*terraform.State) error {
					w := tailnet.writes()
					if len(w) != 1 || w[0].IfMatch != `"ts-default"` {
						return fmt.Errorf("writes %+v, want one that replaces the default file only", w)
					}
					return nil
				},
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("id"), knownvalue.StringExact("-")),
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("etag"), knownvalue.NotNull()),
				},
			},
			{
				Config:           tailnet.config(policyConfig(meshPolicy, meshRequirement)),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
			{
				PreConfig: tailnet.ClearRequests,
				Config:    tailnet.config(policyConfig(changed, meshRequirement)),
				Check: func(*terraform.State) error {
					w := tailnet.writes()
					if len(w) != 1 || len(w[0].IfMatch) != 66 {
						return fmt.Errorf("writes %+v, want one with the tag of the file before", w)
					}
					if text, _ := tailnet.Policy(); !strings.Contains(text, "10250") || !strings.Contains(text, "// who may carry the tag") {
						return fmt.Errorf("the file in force is\n%s", text)
					}
					return nil
				},
			},
			{
				PreConfig:        tailnet.ClearRequests,
				Config:           tailnet.config(policyConfig(reformatted, meshRequirement)),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
				Check:            noWrite,
			},
			{ // dropping the requirements changes the resource, and not the file
				Config: tailnet.config(policyConfig(changed, "")),
				Check:  noWrite,
			},
			{
				ResourceName:            "tailmesh_policy.this",
				ImportState:             true,
				ImportStateId:           "whatever",
				ImportStateVerify:       true,
				ImportStateVerifyIgnore: []string{"content"}, // as the control plane formats it
			},
		},
		CheckDestroy: func(*terraform.State) error {
			if text, _ := tailnet.Policy(); !strings.Contains(text, "tag:node") {
				return fmt.Errorf("the file in force is\n%s\nwant the policy kept", text)
			}
			return noWrite(nil)
		},
	})
}
