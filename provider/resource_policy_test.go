package provider

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
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
    name = "mesh futhark"
    src = ["tag:node"], dst = ["tag:node"], proto = "ip-in-ip", ports = null, why = null
  }]
`

func policyConfig(content, more string) string {
	return fmt.Sprintf("resource \"tailmesh_policy\" \"this\" {\n  content = %s\n%s}\n", heredoc(content), more)
}

func TestPolicyLife(t *testing.T) {
	needTofu(t)
	t.Parallel()
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

// noWrites checks that the file in force is the one given and that nobody asked to change it.
func (n *tailnet) noWrites(t *testing.T) {
	t.Helper()
	if w := n.writes(); len(w) != 0 {
		t.Errorf("%d writes, want none: %+v", len(w), w)
	}
}

// The reason that the provider exists: a policy without the overlay's protocol does not get past the plan.
func TestPolicyWithoutOverlayFailsThePlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for _, tt := range []struct {
		name, content, addition string
	}{
		{"grants", without(t, meshPolicy, `, "ip-in-ip:*"`), "ip-in-ip"},
		{"acls", `{
			"tagOwners": {"tag:node": []},
			"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*"]}],
		}`, "ip-in-ip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tailnet := newTailnet(t, controlsim.Options{})
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{{
					Config:      tailnet.config(policyConfig(tt.content, meshRequirement)),
					ExpectError: says("Error:", "ip-in-ip", "with tailmesh_policy.this", "content", "line", "help:", tt.addition),
				}},
			})
			tailnet.noWrites(t)
		})
	}
}

func TestPolicyLosingOverlayFailsThePlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: tailnet.config(policyConfig(meshPolicy, meshRequirement))},
			{
				PreConfig:   tailnet.ClearRequests,
				Config:      tailnet.config(policyConfig(without(t, meshPolicy, `, "ip-in-ip:*"`), meshRequirement)),
				ExpectError: says("Error:", "ip-in-ip"),
			},
		},
	})
	tailnet.noWrites(t)
}

func TestPolicyFailingTestFailsThePlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	failing := strings.Replace(meshPolicy, `"accept": ["tag:node:6443"]`, `"deny": ["tag:node:6443"]`, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{{
			Config:      tailnet.config(policyConfig(failing, "")),
			ExpectError: says("Error:", "with tailmesh_policy.this", "content", "line 8"),
		}},
	})
	tailnet.noWrites(t)
}

// A file without a policy in it would restore the default, which allows everything. Nobody validates that, so it is refused
// before, also where the text is known only during the apply; and what is no policy file at all is refused by validation
// alone, without the API.
func TestPolicyTextRefused(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: meshPolicy})
	config := func(content, validation string) string {
		return tailnet.config(fmt.Sprintf(`
resource "terraform_data" "text" {
  input = %q
}
resource "tailmesh_policy" "this" {
  content    = %s
  adopt      = "always"
  validation = %q
}
`, content, map[bool]string{true: fmt.Sprintf("%q", content), false: "terraform_data.text.output"}[validation != "off, unknown"],
			strings.TrimSuffix(validation, ", unknown")))
	}
	var steps []resource.TestStep
	for _, validation := range append(validations(), "off, unknown") {
		for _, content := range []string{"", " \n"} {
			steps = append(steps, resource.TestStep{Config: config(content, validation), ExpectError: says("the policy file is empty", "allows everything", `{"grants":[]}`)})
		}
		steps = append(steps, resource.TestStep{Config: config("{", validation), ExpectError: says("line 1, column 2", "never closed")})
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: factories(), Steps: steps})
	tailnet.noWrites(t)
}

// A policy that is not known at plan time blocks nothing then, and is checked before it is written.
func TestPolicyUnknownAtPlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	unknown := func(content string) string {
		return fmt.Sprintf("resource \"terraform_data\" \"content\" {\n  input = %s\n}\n", heredoc(content)) + `
resource "tailmesh_policy" "this" {
  content = terraform_data.content.output
` + meshRequirement + "}\n"
	}
	t.Run("good", func(t *testing.T) {
		tailnet := newTailnet(t, controlsim.Options{})
		resource.UnitTest(t, resource.TestCase{
			ProtoV6ProviderFactories: factories(),
			Steps:                    []resource.TestStep{{Config: tailnet.config(unknown(meshPolicy))}},
		})
		if len(tailnet.writes()) != 1 {
			t.Errorf("writes %+v, want one", tailnet.writes())
		}
	})
	t.Run("bad", func(t *testing.T) {
		tailnet := newTailnet(t, controlsim.Options{})
		resource.UnitTest(t, resource.TestCase{
			ProtoV6ProviderFactories: factories(),
			Steps: []resource.TestStep{{
				Config:      tailnet.config(unknown(without(t, meshPolicy, `, "ip-in-ip:*"`))),
				ExpectError: says("Error:", "ip-in-ip"),
			}},
		})
		tailnet.noWrites(t)
	})
}

// Somebody else writes between the plan and the apply.
func TestPolicyRival(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	rival := strings.Replace(meshPolicy, `"tagOwners": {`, `"tagOwners": {"tag:rival": [], `, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: tailnet.config(policyConfig(meshPolicy, ""))},
			{
				PreConfig: func() {
					if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.RivalFault, Times: -1, Policy: rival}); err != nil {
						t.Error(err)
					}
				},
				Config: tailnet.config(policyConfig(strings.Replace(meshPolicy, "6443", "10250", 1), "")),
				ExpectError: says("the policy file was changed by somebody else since the plan", "Nothing was written",
					"They changed: tagOwners", "Your change is in: tests", "tag:rival"),
			},
		},
	})
	if text, _ := tailnet.Policy(); !strings.Contains(text, "tag:rival") {
		t.Errorf("the rival's file was overwritten by\n%s", text)
	}
}

func TestPolicyAdoption(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const other = `{"tagOwners": {"tag:other": []}}`
	const default412, refusedAtPlan = "the tailnet has a policy file of its own already", "the policy file must be imported"
	for _, tt := range []struct {
		adopt, inForce string // inForce empty: nobody has written one
		err            string
		writes         int // that were carried out
	}{
		{adoptIfDefault, "", "", 1},
		{adoptIfDefault, other, default412, 0},
		{adoptIfDefault, meshPolicy, "", 0}, // ours already, though somebody else wrote it
		{adoptIfEqual, "", "", 1},
		{adoptIfEqual, other, default412, 0},
		{adoptIfEqual, meshPolicy, "", 0},
		{adoptAlways, other, "", 1},
		{adoptNever, other, refusedAtPlan, 0},
	} {
		name := tt.adopt + " default"
		switch tt.inForce {
		case other:
			name = tt.adopt + " other"
		case meshPolicy:
			name = tt.adopt + " equal"
		}
		t.Run(name, func(t *testing.T) {
			tailnet := newTailnet(t, controlsim.Options{Policy: tt.inForce})
			step := resource.TestStep{
				Config: tailnet.config(policyConfig(strings.ReplaceAll(meshPolicy, "  ", "\t\t"), fmt.Sprintf("adopt = %q\n", tt.adopt))),
			}
			if tt.err != "" {
				step.ExpectError = says(tt.err)
			}
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: factories(), Steps: []resource.TestStep{step}})
			done := 0
			for _, w := range tailnet.writes() {
				if w.IfMatch == "" {
					t.Errorf("a write without If-Match: %+v", w)
				}
				if w.Status == http.StatusOK {
					done++
				}
			}
			if done != tt.writes {
				t.Errorf("%d writes, want %d: %+v", done, tt.writes, tailnet.writes())
			}
		})
	}
}

func TestPolicyImportThenNothingToDo(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: meshPolicy})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config:             tailnet.config(policyConfig(strings.ReplaceAll(meshPolicy, "  ", "\t\t\t"), "")),
				ResourceName:       "tailmesh_policy.this",
				ImportState:        true,
				ImportStateId:      "policy",
				ImportStatePersist: true,
			},
			{
				Config:           tailnet.config(policyConfig(strings.ReplaceAll(meshPolicy, "  ", "\t\t\t"), "")),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
		},
	})
	tailnet.noWrites(t)
}

func TestPolicyReset(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rival string
		keeps string
	}{
		{name: "ours", keeps: `"src": ["*"]`},
		{name: "somebody else's", rival: `{"tagOwners": {"tag:rival": []}}`, keeps: "tag:rival"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tailnet := newTailnet(t, controlsim.Options{})
			destroy := resource.TestStep{
				PreConfig: func() {
					if tt.rival == "" {
						return
					}
					if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.RivalFault, Policy: tt.rival, Times: -1}); err != nil {
						t.Error(err)
					}
				},
				Config:  tailnet.config(policyConfig(meshPolicy, "on_destroy = \"reset\"\n")),
				Destroy: true,
			}
			last := resource.TestStep{Config: tailnet.config("")}
			if tt.rival != "" {
				destroy.ExpectError = says("the policy file was changed by somebody else", "It was not reset", "tag:rival")
				last = resource.TestStep{
					PreConfig: tailnet.ClearFaults,
					Config:    tailnet.config("removed {\n  from = tailmesh_policy.this\n  lifecycle {\n    destroy = false\n  }\n}\n"),
				}
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps:                    []resource.TestStep{{Config: destroy.Config}, destroy, last},
			})
			if text, _ := tailnet.Policy(); !strings.Contains(text, tt.keeps) || strings.Contains(text, "6443") {
				t.Errorf("the file in force is\n%s", text)
			}
		})
	}
}

// A provider that was turned to another tailnet would replace the policy there by that of the first, which the refresh says.
func TestPolicyOfAnotherTailnet(t *testing.T) {
	tailnet := newTailnet(t, controlsim.Options{Policy: meshPolicy})
	for _, tt := range []struct {
		state, provider string
		warned          bool
	}{
		{"other.example", controlsim.DefaultTailnet, true},
		{controlsim.DefaultTailnet, controlsim.DefaultTailnet, false},
		{"-", controlsim.DefaultTailnet, false},
		{"other.example", "-", false},
	} {
		t.Run(tt.state+" to "+tt.provider, func(t *testing.T) {
			server := providerserver.NewProtocol6(New("test")())()
			schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
			if err != nil {
				t.Fatal(err)
			}
			value := func(schema *tfprotov6.Schema, set map[string]string) *tfprotov6.DynamicValue {
				object, _ := schema.ValueType().(tftypes.Object)
				values := map[string]tftypes.Value{}
				for name, typ := range object.AttributeTypes {
					values[name] = tftypes.NewValue(typ, nil)
				}
				for name, text := range set {
					values[name] = tftypes.NewValue(tftypes.String, text)
				}
				v, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
				if err != nil {
					t.Fatal(err)
				}
				return &v
			}
			_, err = server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: value(schemas.Provider,
				map[string]string{"api_key": controlsim.DefaultAPIKey, "base_url": tailnet.url, "tailnet": tt.provider})})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := server.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{
				TypeName: "tailmesh_policy", CurrentState: value(schemas.ResourceSchemas["tailmesh_policy"], map[string]string{"id": tt.state, "content": meshPolicy}),
			})
			if err != nil {
				t.Fatal(err)
			}
			said := said(resp.Diagnostics)
			if warned := len(said) == 1 && strings.Contains(said[0], "another tailnet"); warned != tt.warned || len(said) > 1 {
				t.Errorf("said was %q; a warning is wanted: %v", said, tt.warned)
			}
		})
	}
}

// An API that cannot be reached, or that knows the key no longer, is one clear error; the state stays.
func TestPolicyAPIInTrouble(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fault controlsim.Fault
		words []string
	}{
		{
			"down",
			controlsim.Fault{Kind: controlsim.StatusFault, Status: http.StatusBadGateway, Times: -1},
			[]string{"cannot", "502"},
		},
		{
			"key expired",
			controlsim.Fault{Kind: controlsim.StatusFault, Status: http.StatusUnauthorized, Times: -1},
			[]string{"HTTP 401", "The API key was refused"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tailnet := newTailnet(t, controlsim.Options{})
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{Config: tailnet.config(policyConfig(meshPolicy, meshRequirement))},
					{
						PreConfig: func() {
							tailnet.ClearRequests()
							if err := tailnet.AddFault(tt.fault); err != nil {
								t.Error(err)
							}
						},
						Config:      tailnet.config(policyConfig(strings.Replace(meshPolicy, "6443", "10250", 1), meshRequirement)),
						ExpectError: says(tt.words...),
					},
					{
						PreConfig:        tailnet.ClearFaults,
						Config:           tailnet.config(policyConfig(meshPolicy, meshRequirement)),
						ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
					},
				},
			})
			tailnet.noWrites(t)
		})
	}
}

// Nothing is said to have been written, or not, that is not known.
func TestAfterWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"refused":            {&client.Error{Status: http.StatusBadRequest}, "Nothing was written"},
		"redirected":         {&client.Error{Status: http.StatusFound}, "Nothing was written"},
		"never sent":         {&client.Error{Message: "no ETag"}, "Nothing was written"},
		"answer lost":        {&client.Error{Err: io.ErrUnexpectedEOF}, "cannot be told"},
		"gateway timed out":  {&client.Error{Status: http.StatusGatewayTimeout}, "cannot be told"},
		"taken, without tag": {&client.Error{Status: http.StatusOK}, "cannot be told"},
		"of another kind":    {io.ErrUnexpectedEOF, "cannot be told"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := afterWrite(tt.err); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A proxy that takes out the ETags takes away what says which version is replaced: then nothing is written over one that
// is there, whatever adopt says.
func TestPolicyWithoutTags(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for _, adopt := range []string{adoptIfDefault, adoptIfEqual, adoptAlways} {
		t.Run(adopt, func(t *testing.T) {
			tailnet := newTailnet(t, controlsim.Options{})
			if err := tailnet.SetPolicy(`{"tagOwners": {"tag:rival": []}}`); err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				tailnet.ServeHTTP(rec, r)
				maps.Copy(w.Header(), rec.Header())
				w.Header().Del("ETag")
				w.WriteHeader(rec.Code)
				_, _ = w.Write(rec.Body.Bytes())
			}))
			t.Cleanup(proxy.Close)
			tailnet.url = proxy.URL
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{{
					Config:      tailnet.config(policyConfig(meshPolicy, fmt.Sprintf("adopt = %q\n", adopt))),
					ExpectError: says("without the ETag"),
				}},
			})
			tailnet.noWrites(t)
		})
	}
}

// A write that was carried out while its answer was lost is repeated by the client and finds itself.
func TestPolicyLostAnswer(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{{
			PreConfig: func() {
				if err := tailnet.AddFault(controlsim.Fault{Kind: controlsim.LostFault, Method: "POST", Path: "/tailnet/-/acl"}); err != nil {
					t.Error(err)
				}
			},
			Config: tailnet.config(policyConfig(meshPolicy, "validation = \"offline\"\n")),
		}},
	})
}

// What somebody else changed is seen as a change and undone, unless the configuration takes it over.
func TestPolicyDrift(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	config := tailnet.config(policyConfig(meshPolicy, ""))
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: config},
			{
				PreConfig: func() {
					if err := tailnet.SetPolicy(`{"tagOwners": {"tag:rival": []}}`); err != nil {
						t.Error(err)
					}
				},
				Config: config,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction("tailmesh_policy.this", plancheck.ResourceActionUpdate),
				}},
			},
		},
	})
	if text, _ := tailnet.Policy(); strings.Contains(text, "tag:rival") {
		t.Errorf("the file in force is\n%s", text)
	}
}

// A moved block makes a tailscale_acl this resource. Its state has no tag, and until a refresh finds one nothing can be
// written.
func TestPolicyMovedFromOfficialProvider(t *testing.T) {
	server, err := factories()["tailmesh"]()
	if err != nil {
		t.Fatal(err)
	}
	move := func(source, state string) *tfprotov6.MoveResourceStateResponse {
		t.Helper()
		resp, err := server.MoveResourceState(t.Context(), &tfprotov6.MoveResourceStateRequest{
			SourceProviderAddress: "registry.terraform.io/tailscale/tailscale", SourceTypeName: source, TargetTypeName: "tailmesh_policy",
			SourceState: &tfprotov6.RawState{JSON: []byte(state)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := move("tailscale_acl", `{"id": "acl", "acl": "{} // mine\n", "reset_acl_on_destroy": true, "overwrite_existing_content": false}`)
	if len(resp.Diagnostics) > 0 {
		t.Fatalf("%+v", resp.Diagnostics[0])
	}
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	value, err := resp.TargetState.Unmarshal(schemas.ResourceSchemas["tailmesh_policy"].ValueType())
	if err != nil {
		t.Fatal(err)
	}
	attributes := map[string]tftypes.Value{}
	if err := value.As(&attributes); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"content": "{} // mine\n", "on_destroy": destroyReset, "adopt": adoptIfDefault, "id": "-"} {
		var got string
		if err := attributes[name].As(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	if resp := move("tailscale_dns_preferences", `{}`); len(resp.Diagnostics) == 0 {
		t.Error("another resource was taken")
	}
}

// A credential that another resource makes is not known at plan time; the policy is checked and written in the apply.
func TestPolicyCredentialUnknownAtPlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	config := func(tailnet *tailnet, content string) string {
		return fmt.Sprintf(`
resource "terraform_data" "key" {
  input = %q
}
provider "tailmesh" {
  api_key  = terraform_data.key.output
  base_url = %q
}
`, controlsim.DefaultAPIKey, tailnet.url) + policyConfig(content, meshRequirement)
	}
	t.Run("good", func(t *testing.T) {
		tailnet := newTailnet(t, controlsim.Options{})
		resource.UnitTest(t, resource.TestCase{
			ProtoV6ProviderFactories: factories(),
			Steps:                    []resource.TestStep{{Config: config(tailnet, meshPolicy)}},
		})
		if n := len(tailnet.writes()); n != 1 {
			t.Errorf("%d writes, want one", n)
		}
	})
	t.Run("bad", func(t *testing.T) {
		tailnet := newTailnet(t, controlsim.Options{})
		resource.UnitTest(t, resource.TestCase{
			ProtoV6ProviderFactories: factories(),
			Steps: []resource.TestStep{{
				Config: config(tailnet, without(t, meshPolicy, `, "ip-in-ip:*"`)), ExpectError: says("ip-in-ip"),
			}},
		})
		tailnet.noWrites(t)
	})
}
