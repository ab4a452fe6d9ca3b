package provider

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/echoprovider"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// ams1 is a device of the simulator's own tailnet.
func (n *tailnet) ams1(t *testing.T) controlsim.Device {
	t.Helper()
	for _, d := range n.Devices() {
		if d.Hostname == "ams1" {
			return d
		}
	}
	t.Fatal("no device ams1")
	return controlsim.Device{}
}

func emptySecondPlan(config string) resource.TestStep {
	return resource.TestStep{
		Config:           config,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
	}
}

func TestDeviceTags(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: `{"tagOwners": {"tag:node": [], "tag:gateway": []}}`})
	ams1 := tailnet.ams1(t)
	config := func(tags string) string {
		return tailnet.config(fmt.Sprintf("resource \"tailmesh_device_tags\" \"this\" {\n  device_id = %q\n  tags = [%s]\n}\n", ams1.NodeID, tags))
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(`"node"`), ExpectError: says(`want the form "tag:node"`)},
			{Config: config(`"tag:node", "tag:gateway"`)},
			emptySecondPlan(config(`"tag:gateway", "tag:node"`)),
			{ResourceName: "tailmesh_device_tags.this", ImportState: true, ImportStateId: ams1.NodeID, ImportStateVerify: true},
			{Config: config(`"tag:gateway"`)},
			{Config: config(`"tag:nobody"`), ExpectError: says("cannot", "tag:nobody")},
		},
		CheckDestroy: func(*terraform.State) error {
			if tags := tailnet.ams1(t).Tags; !slices.Equal(tags, []string{"tag:gateway"}) {
				return fmt.Errorf("tags %q, want them left as they were", tags)
			}
			return nil
		},
	})
}

func TestDeviceRoutes(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	ams1 := tailnet.ams1(t)
	enable := func(routes ...string) func() {
		return func() {
			if _, err := connected(t, tailnet, controlsim.DefaultAPIKey).client.SetDeviceRoutes(t.Context(), ams1.NodeID, routes); err != nil {
				t.Error(err)
			}
		}
	}
	enabled := func(want ...string) resource.TestCheckFunc {
		return func(*terraform.State) error {
			if got := sorted(tailnet.ams1(t).EnabledRoutes); !slices.Equal(got, want) {
				return fmt.Errorf("enabled routes %q, want %q", got, want)
			}
			return nil
		}
	}
	config := func(routes string) string {
		return tailnet.config(fmt.Sprintf("resource \"tailmesh_device_routes\" \"this\" {\n  device_id = %q\n  routes = [%s]\n}\n", ams1.NodeID, routes))
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(`"10.7.0.1/16"`), ExpectError: says(`Got "10.7.0.1/16"`, `write "10.7.0.0/16"`)},
			{Config: config(`"10.7.0.0/16", ""`), ExpectError: says(`Got ""`, "want a network")},
			{PreConfig: enable("192.168.1.0/24"), Config: config(`"10.7.0.0/16"`), Check: enabled("10.7.0.0/16", "192.168.1.0/24")},
			emptySecondPlan(config(`"10.7.0.0/16"`)),
			{Config: config(`"10.8.0.0/16", "10.9.0.0/16"`), Check: enabled("10.8.0.0/16", "10.9.0.0/16", "192.168.1.0/24")},
			{ // somebody disables one
				PreConfig: enable("10.8.0.0/16", "192.168.1.0/24"), Config: config(`"10.8.0.0/16", "10.9.0.0/16"`),
				Check: enabled("10.8.0.0/16", "10.9.0.0/16", "192.168.1.0/24"),
			},
			{ResourceName: "tailmesh_device_routes.this", ImportState: true, ImportStateId: ams1.NodeID},
		},
		CheckDestroy: enabled("192.168.1.0/24"),
	})
}

// A device has two IDs. One in place of the other changes nothing of the device; that of another device is another resource.
func TestDeviceRoutesByOtherID(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	ams1 := tailnet.ams1(t)
	config := func(id string) string {
		return tailnet.config(fmt.Sprintf("resource \"tailmesh_device_routes\" \"this\" {\n  device_id = %q\n  routes = [\"10.8.0.0/16\"]\n}\n", id))
	}
	action := func(a plancheck.ResourceActionType) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction("tailmesh_device_routes.this", a)}}
	}
	disabled := func(*terraform.State) error {
		for _, r := range tailnet.Requests() {
			if r.Method == "POST" && strings.HasSuffix(r.Path, "/routes") {
				return fmt.Errorf("the routes were written: %+v", r)
			}
		}
		return nil
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(ams1.ID)},
			{
				PreConfig: tailnet.ClearRequests, Config: config(ams1.NodeID), ConfigPlanChecks: action(plancheck.ResourceActionUpdate),
				Check: resource.ComposeTestCheckFunc(disabled, resource.TestCheckResourceAttr("tailmesh_device_routes.this", "id", ams1.NodeID)),
			},
			emptySecondPlan(config(ams1.NodeID)),
			{Config: config("nsim12CNTRL"), ConfigPlanChecks: action(plancheck.ResourceActionDestroyBeforeCreate)},
		},
	})
	if slices.Contains(tailnet.ams1(t).EnabledRoutes, "10.8.0.0/16") {
		t.Error("the first device still has the route")
	}
}

// Several resources, as of several modules, own routes of one device. They are applied and destroyed side by side, and none
// takes another's routes away.
func TestDeviceRoutesOfManyOwners(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	const owners = 8
	config := func(first int) string {
		return tailnet.config(fmt.Sprintf(`resource "tailmesh_device_routes" "this" {
  count     = %d
  device_id = %q
  routes    = ["10.${count.index + %d}.0.0/16"]
}
`, owners, tailnet.ams1(t).NodeID, first))
	}
	enabled := func(n int) resource.TestCheckFunc {
		return func(*terraform.State) error {
			if got := tailnet.ams1(t).EnabledRoutes; len(got) != n {
				return fmt.Errorf("enabled routes %q, want %d of them", got, n)
			}
			return nil
		}
	}
	before := len(tailnet.ams1(t).EnabledRoutes)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(100), Check: enabled(before + owners)},
			{Config: config(200), Check: enabled(before + owners)},
		},
		CheckDestroy: enabled(before),
	})
}

// What passes is got over, a device that vanishes between plan and apply is one error and a plan to make it anew, and
// what lasts is one error, after which the next run goes on.
func TestDevicePartFaults(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const policy = `{"tagOwners": {"tag:node": [], "tag:gateway": []}}`
	for _, part := range []struct{ name, before, after, call string }{
		{"tags", `tags = ["tag:node"]`, `tags = ["tag:gateway"]`, "/tags"},
		{"routes", `routes = ["10.7.0.0/16"]`, `routes = ["10.8.0.0/16"]`, "/routes"},
		{"authorization", `authorized = true`, `authorized = false`, "/authorized"},
	} {
		setup := func(t *testing.T) (*tailnet, func(attribute string) string, func(controlsim.Fault) resource.ConfigPlanChecks) {
			t.Parallel()
			n := newTailnet(t, controlsim.Options{Policy: policy})
			config := func(attribute string) string {
				return n.config(fmt.Sprintf("resource \"tailmesh_device_%s\" \"this\" {\n  device_id = %q\n  %s\n}\n", part.name, n.ams1(t).NodeID, attribute))
			}
			afterPlan := func(f controlsim.Fault) resource.ConfigPlanChecks {
				f.Method, f.Path = "POST", part.call
				return preApply(between(func() {
					if err := n.AddFault(f); err != nil {
						t.Error(err)
					}
				}))
			}
			return n, config, afterPlan
		}
		for name, fault := range passing() {
			t.Run(part.name+"/"+name, func(t *testing.T) {
				_, config, afterPlan := setup(t)
				resource.UnitTest(t, resource.TestCase{
					ProtoV6ProviderFactories: factories(),
					Steps: []resource.TestStep{
						{Config: config(part.before), ConfigPlanChecks: afterPlan(fault)},
						emptySecondPlan(config(part.before)),
					},
				})
			})
		}
		t.Run(part.name+"/lasting", func(t *testing.T) {
			n, config, afterPlan := setup(t)
			broken := controlsim.Fault{Kind: controlsim.StatusFault, Status: http.StatusInternalServerError, Times: -1}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{Config: config(part.before)},
					{Config: config(part.after), ConfigPlanChecks: afterPlan(broken), ExpectError: says("cannot", "500")},
					{PreConfig: n.ClearFaults, Config: config(part.after)},
					emptySecondPlan(config(part.after)),
				},
			})
		})
		t.Run(part.name+"/device gone between plan and apply", func(t *testing.T) {
			n, config, _ := setup(t)
			before, after := config(part.before), config(part.after)
			gone := preApply(between(func() {
				if err := connected(t, n, controlsim.DefaultAPIKey).client.DeleteDevice(t.Context(), n.ams1(t).NodeID); err != nil {
					t.Error(err)
				}
			}))
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{Config: before},
					{Config: after, ConfigPlanChecks: gone, ExpectError: says("cannot", "404")},
					{Config: after, PlanOnly: true, ExpectNonEmptyPlan: true},
				},
			})
		})
	}
}

func TestDeviceAuthorization(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	ams1 := tailnet.ams1(t)
	config := func(authorized bool) string {
		return tailnet.config(fmt.Sprintf("resource \"tailmesh_device_authorization\" \"this\" {\n  device_id = %q\n  authorized = %v\n}\n", ams1.NodeID, authorized))
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(false)},
			emptySecondPlan(config(false)),
			{ResourceName: "tailmesh_device_authorization.this", ImportState: true, ImportStateId: ams1.NodeID, ImportStateVerify: true},
			{Config: config(true)},
			{ // the device leaves the tailnet: the plan goes on, and only what needs it fails
				PreConfig: func() {
					if err := connected(t, tailnet, controlsim.DefaultAPIKey).client.DeleteDevice(t.Context(), ams1.NodeID); err != nil {
						t.Error(err)
					}
				},
				Config: config(true), ExpectError: says("HTTP 404"),
			},
		},
	})
}

func TestDevices(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{{
			Config: tailnet.config("data \"tailmesh_devices\" \"nodes\" {\n  tags = [\"tag:node\"]\n}\n" + quickstart),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.tailmesh_devices.nodes", tfjsonpath.New("devices"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue("data.tailmesh_devices.nodes", tfjsonpath.New("devices").AtSliceIndex(0),
					knownvalue.ObjectPartial(map[string]knownvalue.Check{
						"name": knownvalue.StringExact("ams1"), "full_name": knownvalue.StringExact("ams1.tail1234.ts.net"),
						"tags": knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("tag:node")}),
					})),
				statecheck.ExpectKnownValue("data.tailmesh_devices.nodes", tfjsonpath.New("inventory"), knownvalue.StringFunc(func(s string) error {
					if _, diags := inventoryOf(optional(s)); diags.HasError() || !strings.Contains(s, "laptop") {
						return fmt.Errorf("%v of %s", diags, s)
					}
					return nil
				})),
			},
		}},
	})
}

func TestPolicyCheckDataSource(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: strings.Replace(meshPolicy, `, "ip-in-ip:*"`, "", 1)})
	text := knownvalue.StringExact
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{ // the policy in force
				Config: tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n" + meshRequirement + "}\n"),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("accepted"), knownvalue.Bool(true)),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("ok"), knownvalue.Bool(false)),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("findings").AtSliceIndex(0),
						knownvalue.ObjectPartial(map[string]knownvalue.Check{
							"severity": text("error"), "code": text("requirement-unmet"), "path": text("grants[0].ip[0]"), "line": knownvalue.NotNull(),
						})),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("requirement_results").AtSliceIndex(0),
						knownvalue.ObjectPartial(map[string]knownvalue.Check{
							"verdict": text("fail"), "pairs": knownvalue.Int64Exact(12), "failed": knownvalue.Int64Exact(12),
						})),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("test_results").AtSliceIndex(0).AtMapKey("verdict"), text("pass")),
				},
			},
			{
				Config: tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n  content = " + heredoc(meshPolicy) + meshRequirement + "}\n"),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("ok"), knownvalue.Bool(true)),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("findings"), knownvalue.ListSizeExact(0)),
				},
			},
			{
				Config:      tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n  findings_as = \"errors\"\n" + meshRequirement + "}\n"),
				ExpectError: says(`Error: requirement "mesh futhark" needs ip-in-ip from tag:node to tag:node; no rule allows it`, "line 5, column 53", "12 of 12 pairs"),
			},
			{
				Config:      tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n  findings_as = \"errors\"\n  content = \"{\"\n}\n"),
				ExpectError: says("Error:", `on`, `content = "{"`),
			},
			{
				Config: tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n  findings_as = \"warnings\"\n" + meshRequirement + "}\n"),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("ok"), knownvalue.Bool(false)),
				},
			},
			{
				Config: tailnet.config("data \"tailmesh_policy_check\" \"this\" {\n  content = \"{\"\n}\n"),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("accepted"), knownvalue.Bool(false)),
					statecheck.ExpectKnownValue("data.tailmesh_policy_check.this", tfjsonpath.New("findings"), knownvalue.ListSizeExact(1)),
				},
			},
		},
	})
}

// The key reaches what uses it, and neither plan nor state.
// A tag is asked for by its full name wherever one is.
func TestTagsByName(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	for _, block := range []string{
		`data "tailmesh_devices" "this" {`, `ephemeral "tailmesh_auth_key" "this" {`, `resource "tailmesh_device_tags" "this" {` + "\n  device_id = \"x\"",
	} {
		resource.UnitTest(t, resource.TestCase{
			ProtoV6ProviderFactories: factories(),
			Steps: []resource.TestStep{{
				Config: tailnet.config(block + "\n  tags = [\"node\"]\n}\n"), PlanOnly: true, ExpectError: says(`want the form "tag:node"`),
			}},
		})
	}
}

func TestAuthKey(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: meshPolicy})
	both := factories()
	both["echo"] = echoprovider.NewProviderServer()
	config := func(more string) string {
		return tailnet.config(`
ephemeral "tailmesh_auth_key" "this" {
  tags     = ["tag:node"]
  reusable = true
` + more + `
}
provider "echo" {
  data = ephemeral.tailmesh_auth_key.this
}
resource "echo" "this" {}
`)
	}
	revoked := func() (n int) {
		for _, r := range tailnet.Requests() {
			if r.Method == http.MethodDelete && strings.Contains(r.Path, "/keys/") {
				n++
			}
		}
		return n
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: both,
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_10_0)},
		Steps: []resource.TestStep{
			{Config: config(`expiry = "91d"`), ExpectError: says("not a time that a key can live")},
			{Config: config(`description = "` + strings.Repeat("x", 51) + `"`), ExpectError: says("description", "at most 50")},
			{
				Config: config(`expiry = "90m"`),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("echo.this", tfjsonpath.New("data").AtMapKey("key"), knownvalue.StringRegexp(says("tskey-auth-"))),
					statecheck.ExpectKnownValue("echo.this", tfjsonpath.New("data").AtMapKey("expires_at"), knownvalue.NotNull()),
				},
				Check: func(*terraform.State) error {
					if n := revoked(); n > 0 {
						return fmt.Errorf("%d keys were revoked", n)
					}
					return nil
				},
			},
			{
				Config: config(`revoke_on_close = true`),
				Check: func(*terraform.State) error {
					if revoked() == 0 {
						return fmt.Errorf("no key was revoked")
					}
					return nil
				},
			},
		},
	})
}

// A moved block makes resources of the official provider these. What they hold stays, and nothing is written.
func TestDevicePartsMovedFromOfficialProvider(t *testing.T) {
	server := providerserver.NewProtocol6(New("test")())()
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, attribute, want string }{
		{"device_tags", "device_tags", `"tags": ["tag:a", "tag:b"]`, `tftypes.Set[tftypes.String]<tftypes.String<"tag:a">, tftypes.String<"tag:b">>`},
		{"device_subnet_routes", "device_routes", `"routes": ["10.7.0.0/16"]`, `tftypes.Set[tftypes.String]<tftypes.String<"10.7.0.0/16">>`},
		{"device_subnet_routes", "device_routes", `"routes": []`, `tftypes.Set[tftypes.String]<>`},
		{"device_authorization", "device_authorization", `"authorized": true`, `tftypes.Bool<"true">`},
		{"device_authorization", "device_tags", `"authorized": true`, ""},
		{"device_key", "device_authorization", `"key_expiry_disabled": true`, ""},
	} {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			resp, err := server.MoveResourceState(t.Context(), &tfprotov6.MoveResourceStateRequest{
				SourceProviderAddress: "registry.terraform.io/tailscale/tailscale", SourceTypeName: "tailscale_" + tt.from, TargetTypeName: "tailmesh_" + tt.to,
				SourceState: &tfprotov6.RawState{JSON: []byte(`{"id": "c7db1330", "device_id": "n1CNTRL", ` + tt.attribute + `}`)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if len(resp.Diagnostics) == 0 {
					t.Error("another resource was taken")
				}
				return
			}
			if len(resp.Diagnostics) > 0 {
				t.Fatalf("%+v", resp.Diagnostics[0])
			}
			value, err := resp.TargetState.Unmarshal(schemas.ResourceSchemas["tailmesh_"+tt.to].ValueType())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]tftypes.Value{}
			if err := value.As(&got); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(tt.attribute, `"`), `"`)
			for attribute, want := range map[string]string{
				"id": `tftypes.String<"n1CNTRL">`, "device_id": `tftypes.String<"n1CNTRL">`, name: tt.want,
			} {
				if got := got[attribute].String(); got != want {
					t.Errorf("%s = %s, want %s", attribute, got, want)
				}
			}
		})
	}
}

// A credential that another resource makes anew is not known at plan time. What is in the state stands until the apply.
func TestDeviceCredentialUnknownAtPlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: `{"tagOwners": {"tag:node": [], "tag:gateway": []}}`})
	config := func(generation int, tag string) string {
		return fmt.Sprintf(`
resource "terraform_data" "key" {
  input            = %q
  triggers_replace = %d
}
provider "tailmesh" {
  api_key  = terraform_data.key.output
  base_url = %q
}
resource "tailmesh_device_tags" "this" {
  device_id = %q
  tags      = [%q]
}
resource "tailmesh_device_routes" "this" {
  device_id = tailmesh_device_tags.this.device_id
  routes    = ["10.7.0.0/16"]
}
`, controlsim.DefaultAPIKey, generation, tailnet.url, tailnet.ams1(t).NodeID, tag)
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config(1, "tag:node")},
			{Config: config(2, "tag:gateway")},
			emptySecondPlan(config(2, "tag:gateway")),
		},
	})
}
