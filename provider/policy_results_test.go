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

// result expects an element of test_results, whose values are equal to those that are given.
func result(fields ...string) knownvalue.Check {
	names := []string{"name", "src", "dst", "proto", "want", "verdict", "rule", "pairs"}
	checks := map[string]knownvalue.Check{}
	for i, n := range names {
		checks[n] = knownvalue.StringExact(fields[i])
		if fields[i] == "" {
			checks[n] = knownvalue.Null()
		}
	}
	return knownvalue.ObjectExact(checks)
}

func plannedResults(checks ...knownvalue.Check) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("test_results"), knownvalue.ListExact(checks))
}

func storedResults(checks ...knownvalue.Check) []statecheck.StateCheck {
	return []statecheck.StateCheck{
		statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("test_results"), knownvalue.ListExact(checks)),
	}
}

func preApply(checks ...plancheck.PlanCheck) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: checks}
}

// meshNodes is an inventory of as many nodes as are asked for.
func meshNodes(n int) []byte {
	devices := make([]string, n)
	for i := range devices {
		devices[i] = fmt.Sprintf(`{"id": "%d", "nodeId": "n%dCNTRL", "name": "node%d.x.ts.net", "hostname": "node%d", "addresses": ["100.64.%d.%d"],
			"tags": ["tag:node"], "authorized": true}`, i+1, i+1, i, i, i/250, i%250+1)
	}
	return []byte(`{"devices": [` + strings.Join(devices, ",") + `], "users": [{"loginName": "ada@example.com", "role": "owner"}]}`)
}

// The plan shows that each requirement and test is met, by which rule and for how many pairs.
func TestPolicyResults(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Inventory: meshNodes(3)})
	const rule = "grants[0] (line 5)"
	overlay := func(pairs string) knownvalue.Check {
		return result("mesh futhark", "tag:node", "tag:node", "ip-in-ip", "accept", "pass", rule, pairs)
	}
	test := func(port string) knownvalue.Check {
		return result("tests[0].accept[0]", "tag:node", "tag:node:"+port, "tcp", "accept", "pass", rule, "")
	}
	at := func(field string) tfjsonpath.Path {
		return tfjsonpath.New("test_results").AtSliceIndex(0).AtMapKey(field)
	}
	changed := strings.Replace(meshPolicy, "6443", "10250", 1)
	reformatted := strings.Replace(changed, `["*", "ip-in-ip:*"]`, "[\n\"*\",\n\"ip-in-ip:*\"]", 1)
	requirement := strings.Replace(meshRequirement, "futhark", "alphabet", 1)
	var foretold string
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: tailnet.config(policyConfig(meshPolicy, meshRequirement)),
				ConfigPlanChecks: preApply(
					plancheck.ExpectKnownValue("tailmesh_policy.this", at("verdict"), knownvalue.StringExact("pass")),
					plancheck.ExpectKnownValue("tailmesh_policy.this", at("rule"), knownvalue.StringExact(rule)),
					plancheck.ExpectUnknownValue("tailmesh_policy.this", at("pairs")),
				),
				ConfigStateChecks: append(storedResults(overlay("6 of 6 pairs"), test("6443")),
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("live_content"), knownvalue.StringRegexp(says("// who may carry the tag")))),
			},
			{
				Config:           tailnet.config(policyConfig(meshPolicy, meshRequirement)),
				ConfigPlanChecks: preApply(plancheck.ExpectEmptyPlan()),
			},
			{
				Config:            tailnet.config(policyConfig(changed, meshRequirement)),
				ConfigPlanChecks:  preApply(plannedResults(overlay("6 of 6 pairs"), test("10250"))),
				ConfigStateChecks: storedResults(overlay("6 of 6 pairs"), test("10250")),
			},
			{
				Config:           tailnet.config(policyConfig(reformatted, meshRequirement)),
				ConfigPlanChecks: preApply(plancheck.ExpectEmptyPlan()),
			},
			{ // a node that joined is in the state after a refresh, and is no change
				PreConfig: func() {
					if err := tailnet.AddDevice(controlsim.Device{
						Hostname: "late", Addresses: []string{"100.64.9.9"}, Tags: []string{"tag:node"}, Authorized: true,
					}); err != nil {
						t.Error(err)
					}
				},
				Config:            tailnet.config(policyConfig(changed, meshRequirement)),
				ConfigPlanChecks:  preApply(plancheck.ExpectEmptyPlan()),
				ConfigStateChecks: storedResults(overlay("12 of 12 pairs"), test("10250")),
			},
			{ // other requirements alone change the results, and not the file
				PreConfig: tailnet.ClearRequests,
				Config:    tailnet.config(policyConfig(changed, requirement)),
				ConfigPlanChecks: preApply(plannedResults(
					result("mesh alphabet", "tag:node", "tag:node", "ip-in-ip", "accept", "pass", rule, "12 of 12 pairs"), test("10250"))),
				Check: func(*terraform.State) error {
					if n := len(tailnet.writes()); n != 0 {
						return fmt.Errorf("%d writes, want none", n)
					}
					return nil
				},
			},
			{
				Config: tailnet.config(policyConfig(meshPolicy, "validation = \"server\"\n"+requirement)),
				ConfigPlanChecks: preApply(plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("test_results"), knownvalue.Null()),
					plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("live_content"), knownvalue.StringFunc(func(text string) error {
						foretold = text
						return nil
					}))),
				Check: func(*terraform.State) error {
					if live, _ := tailnet.Policy(); live != foretold {
						return fmt.Errorf("the plan foretold %q, and stored is %q", foretold, live)
					}
					return nil
				},
			},
			{ // with devices that are given, all is known, of the first plan too
				Config:           tailnet.config(policyConfig(meshPolicy, "inventory = "+heredoc(string(meshNodes(2)))+meshRequirement)),
				Taint:            []string{"tailmesh_policy.this"},
				ConfigPlanChecks: preApply(plancheck.ExpectKnownValue("tailmesh_policy.this", at("pairs"), knownvalue.StringExact("2 of 2 pairs"))),
			},
		},
	})
}

// Devices that come or go between a plan and its apply, of a new policy or a changed one, do not make the apply differ
// from the plan.
func TestPolicyDevicesChangeAfterPlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	changed := strings.Replace(meshPolicy, "6443", "10250", 1)
	for name, change := range map[string]func(*testing.T, *tailnet){
		"one joins": func(t *testing.T, n *tailnet) {
			if err := n.AddDevice(controlsim.Device{
				Hostname: "late", Addresses: []string{"100.64.9.9"}, Tags: []string{"tag:node"}, Authorized: true,
			}); err != nil {
				t.Error(err)
			}
		},
		"one vanishes": func(t *testing.T, n *tailnet) { removeDevices(t, n, 1) },
		"all vanish":   func(t *testing.T, n *tailnet) { removeDevices(t, n, 3) },
		"none does":    func(t *testing.T, n *tailnet) { removeDevices(t, n, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			created := newTailnet(t, controlsim.Options{Inventory: meshNodes(3)})
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{{
					Config:           created.config(policyConfig(meshPolicy, meshRequirement)),
					ConfigPlanChecks: preApply(between(func() { change(t, created) })),
				}},
			})
			updated := newTailnet(t, controlsim.Options{Inventory: meshNodes(3)})
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{Config: updated.config(policyConfig(meshPolicy, meshRequirement))},
					{
						Config:           updated.config(policyConfig(changed, meshRequirement)),
						ConfigPlanChecks: preApply(between(func() { change(t, updated) })),
					},
				},
			})
		})
	}
}

// removeDevices removes as many of the tailnet's devices.
func removeDevices(t *testing.T, n *tailnet, count int) {
	t.Helper()
	api, err := connected(t, n, controlsim.DefaultAPIKey).api()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range n.Devices()[:count] {
		if err := api.DeleteDevice(t.Context(), d.ID); err != nil {
			t.Error(err)
		}
	}
}
