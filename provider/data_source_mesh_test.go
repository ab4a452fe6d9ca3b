package provider

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
	"github.com/tailmesh/terraform-provider-tailmesh/provider/mesh"
)

const quickstart = `
data "tailmesh_mesh" "this" {
  name        = "quickstart"
  selector    = { tags = ["tag:node"] }
  pod_cidrs   = { ams1 = ["10.244.1.0/24"], ams2 = ["10.244.2.0/24"], fra1 = ["10.244.3.0/24"], fra2 = ["10.244.4.0/24"] }
  locations   = { ams1 = "ams", ams2 = "ams", fra1 = "fra", fra2 = "fra" }
  granularity = "full"
  overlay     = { protocol = "ip-in-ip" }
  local_cidrs = { ams = ["192.168.10.0/24"] }
  routing     = { mode = "rules", priority = "100", fail_closed = true }
  firewall    = { backend = "iptables", snat = false }
}

output "node_configs" {
  value = data.tailmesh_mesh.this.node_configs
}
`

// The requirements of the mesh go into the policy as they are, the documents are what agents read, and the second plan
// is empty.
func TestMeshToPolicy(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	hcl := tailnet.config(quickstart + policyConfig(meshPolicy, "requirements = data.tailmesh_mesh.this.requirements\n"))
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: hcl,
				Check: func(s *terraform.State) error {
					documents := s.RootModule().Outputs["node_configs"].Value.(map[string]any)
					if len(documents) != 4 {
						return fmt.Errorf("%d documents, want 4: %v", len(documents), documents)
					}
					for name, text := range documents {
						doc, err := config.Parse([]byte(text.(string)))
						if err != nil {
							return fmt.Errorf("document of %s: %w", name, err)
						}
						priority, fixed := doc.Routing.Priority.Fixed()
						if doc.Node.Name != name || len(doc.Peers) != 3 || doc.Routing.Mode != config.ModeRules || !fixed || priority != 100 ||
							!doc.Routing.FailClosed || doc.Firewall.Backend != config.BackendIPTables || doc.Firewall.SNAT {
							got, _ := json.Marshal(doc)
							return fmt.Errorf("document of %s: %s", name, got)
						}
					}
					return nil
				},
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("requirements").AtSliceIndex(0).AtMapKey("name"),
						knownvalue.StringExact("mesh quickstart")),
					statecheck.ExpectKnownValue("data.tailmesh_mesh.this", tfjsonpath.New("nodes").AtMapKey("ams1").AtMapKey("peers"),
						knownvalue.ListExact([]knownvalue.Check{
							knownvalue.StringExact("ams2"), knownvalue.StringExact("fra1"), knownvalue.StringExact("fra2"),
						})),
				},
			},
			{
				Config:           hcl,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
		},
	})
}

func TestMeshProblems(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	const head = "data \"tailmesh_mesh\" \"this\" {\n  name = \"quickstart\"\n  selector = { tags = [\"tag:node\"] }\n"
	for _, tt := range []struct {
		name, hcl string
		words     []string
	}{
		{
			"overlap", `pod_cidrs = { ams1 = ["10.244.1.0/24"], ams2 = ["10.244.0.0/16"] }`,
			[]string{`mesh "quickstart" cannot be worked out`, "pod_cidrs = {", `10.244.0.0/16 of node "ams2" overlaps 10.244.1.0/24 of node "ams1"`},
		},
		{"not a network", `pod_cidrs = { ams1 = ["10.244.1.0"] }`, []string{"not a network", `"10.244.1.0" is not a network`}},
		{"mark", `routing = { mark = "0x4000" }`, []string{"routing = {", "routing.mark: 0x4000 is used by kube-proxy"}},
		{"mark that is none", `routing = { mark = "tailnet" }`, []string{"routing.mark is not a mark", "routing = {"}},
		{"priority", `routing = { priority = "first" }`, []string{"not a priority"}},
		{"overlay", `overlay = { protocol = "ipip" }`, []string{"overlay", "ip-in-ip"}},
		{"too few nodes", `min_nodes = 5`, []string{"min_nodes = 5", "The mesh has 4 nodes, and at least 5 are wanted"}},
		{"inventory", `inventory = "{}"`, []string{"this is not an inventory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps:                    []resource.TestStep{{Config: tailnet.config(head + tt.hcl + "\n}\n"), ExpectError: says(tt.words...)}},
			})
		})
	}
}

// A mesh of an inventory that is given needs neither API nor credentials.
func TestMeshWithoutCredentials(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const inventory = `{"devices": [
	  {"nodeId": "n1", "name": "a.example.ts.net", "hostname": "a", "addresses": ["100.64.0.1"], "tags": ["tag:node"], "authorized": true},
	  {"nodeId": "n2", "name": "b.example.ts.net", "hostname": "b", "addresses": ["100.64.0.2"], "tags": ["tag:node"], "authorized": true}
	]}`
	const head = "data \"tailmesh_mesh\" \"this\" {\n  name = \"m\"\n  selector = { names = [\"a\", \"b\"] }\n"
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: head + "}\n", ExpectError: says("cannot read the tailnet's devices", "The provider has no credentials: set api_key")},
			{
				Config: head + "  inventory = " + heredoc(inventory) + "}\n",
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_mesh.this", tfjsonpath.New("requirements").AtSliceIndex(0).AtMapKey("dst"),
						knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("100.64.0.1"), knownvalue.StringExact("100.64.0.2")})),
				},
			},
		},
	})
}

// A data source that may wait sees a node that joins meanwhile.
func TestMeshWaits(t *testing.T) {
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.EmptyFault}); err != nil {
		t.Fatal(err)
	}
	d := &meshDataSource{*connected(t, tailnet, controlsim.DefaultAPIKey)}
	spec := mesh.New("m")
	spec.Selector.Tags, spec.MinNodes = []string{"tag:node"}, 4
	plan, diags := d.plan(t.Context(), types.StringNull(), spec, 0, time.Millisecond)
	if diags.HasError() || !plan.Failed() {
		t.Fatalf("without waiting: %v, %+v, want too few nodes", diags, plan.Problems)
	}
	if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.EmptyFault}); err != nil {
		t.Fatal(err)
	}
	if plan, diags = d.plan(t.Context(), types.StringNull(), spec, time.Minute, time.Millisecond); diags.HasError() || len(plan.Documents) != 4 {
		t.Errorf("with waiting: %v, %d documents, want 4", diags, len(plan.Documents))
	}
}

// A large tailnet is planned, applied and planned again with nothing to do; what the rule does for all pairs is counted.
func TestThousandDevices(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const devices = 1000
	tailnet := newTailnet(t, controlsim.Options{Inventory: meshNodes(devices)})
	hcl := tailnet.config(`
data "tailmesh_mesh" "this" {
  name     = "big"
  selector = { tags = ["tag:node"] }
  peers    = "discovered"
}

output "documents" {
  value = length(data.tailmesh_mesh.this.node_configs)
}
` + policyConfig(meshPolicy, "requirements = data.tailmesh_mesh.this.requirements\n"))
	documents := func(want int) resource.TestCheckFunc {
		return resource.TestCheckOutput("documents", strconv.Itoa(want))
	}
	pairs := func(n int) knownvalue.Check {
		return knownvalue.StringExact(fmt.Sprintf("%d of %d pairs", n*(n-1), n*(n-1)))
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: hcl, Check: documents(devices),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("test_results").AtSliceIndex(0).AtMapKey("pairs"), pairs(devices)),
				},
			},
			emptySecondPlan(hcl),
		},
	})
}
