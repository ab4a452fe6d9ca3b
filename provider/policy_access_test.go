package provider

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// lines expects a list of texts, each by a part of it.
func lines(parts ...string) knownvalue.Check {
	checks := make([]knownvalue.Check, len(parts))
	for i, p := range parts {
		checks[i] = knownvalue.StringRegexp(says(p))
	}
	return knownvalue.ListExact(checks)
}

func planned(gained, lost knownvalue.Check) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
		plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("access_gained"), gained),
		plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("access_lost"), lost),
	}}
}

// The plan says who will reach whom and who no longer, and the state says it of the first write, which
// replaces the default file.
func TestPolicyAccess(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{})
	changed := strings.Replace(meshPolicy, `"ip": ["*", "ip-in-ip:*"]}`, `"ip": ["tcp:*", "ip-in-ip:*"]}, {"src": ["autogroup:member"], "dst": ["tag:node"], "ip": ["22"]}`, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: tailnet.config(policyConfig(meshPolicy, "")),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectUnknownValue("tailmesh_policy.this", tfjsonpath.New("access_gained")),
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("access_gained"), lines("tag:node -> tag:node: ip-in-ip")),
					statecheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("access_lost"), knownvalue.NotNull()),
				},
			},
			{
				Config:           tailnet.config(policyConfig(changed, "")),
				ConfigPlanChecks: planned(lines("-> tag:node: tcp,udp 22"), lines("tag:node -> tag:node: udp *")),
			},
			{ // what does not change the file keeps what the last change did
				Config:           tailnet.config(policyConfig(changed, "on_destroy = \"reset\"\n")),
				ConfigPlanChecks: planned(lines("-> tag:node: tcp,udp 22"), lines("tag:node -> tag:node: udp *")),
			},
			{
				Config:           tailnet.config(policyConfig(meshPolicy, "validation = \"off\"\n")),
				ConfigPlanChecks: planned(knownvalue.Null(), knownvalue.Null()),
			},
			{
				Config:           tailnet.config(policyConfig(changed, "inventory = jsonencode({ devices = [], users = [] })\n")),
				ConfigPlanChecks: planned(lines(), lines()),
			},
		},
	})
}

// between does something after the plan and before the apply.
type between func()

func (f between) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	f()
}

// A node that joins after the plan does not make the apply differ from it.
func TestPolicyNodeJoinsAfterPlan(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Inventory: []byte(`{"devices": [{"nodeId": "n1", "name": "l.x.ts.net", "hostname": "l", "addresses": ["100.64.0.1"], "user": "ada@example.com", "authorized": true}], "users": [{"loginName": "ada@example.com", "role": "owner"}]}`)})
	join := between(func() {
		for i, name := range []string{"ams1", "fra1"} {
			err := tailnet.AddDevice(controlsim.Device{
				Hostname: name, Addresses: []string{fmt.Sprintf("100.64.0.%d", 11+i)}, Tags: []string{"tag:node"}, Authorized: true,
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{Config: tailnet.config(policyConfig(strings.Replace(meshPolicy, `, "ip-in-ip:*"`, "", 1), ""))},
			{
				Config:           tailnet.config(policyConfig(meshPolicy, meshRequirement)),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{join, plancheck.ExpectKnownValue("tailmesh_policy.this", tfjsonpath.New("access_gained"), lines())}},
			},
		},
	})
	if n := len(tailnet.Devices()); n != 3 {
		t.Errorf("%d devices, want that of the inventory and the one that joined", n)
	}
}

// The first write of a resource is not in the values of its plan. A warning says whom it takes what.
func TestPolicyReplaced(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const warning = "Warning: the policy that is in force will be replaced"
	foreign := strings.Replace(meshPolicy, `"ip": ["*", "ip-in-ip:*"]`, `"ip": ["tcp:*"]`, 1)
	for _, c := range []struct {
		name, inForce, arguments string
		want                     []string
		not                      string
	}{
		{"the default, which admits everything", "", "", []string{
			warning, "Where somebody has written that one, the apply refuses to", `no longer let through:\n\n  \* `, `tag:node -> tag:node: ip-in-ip \(grants`,
		}, ""},
		{"the same", meshPolicy, "", []string{"Plan: 1 to add"}, warning},
		{"another", foreign, `adopt = "always"`, []string{warning, `let through that was not:\n\n  tag:node -> tag:node: ip-in-ip`}, "refuses|no longer"},
		{"another, when nothing is judged", foreign, "adopt = \"always\"\nvalidation = \"off\"", []string{"Plan: 1 to add"}, warning},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, newTailnet(t, controlsim.Options{Policy: c.inForce}), fstest.MapFS{})
			w.withSource()
			w.write("policy.tf", policyConfig(meshPolicy, c.arguments+"\n"))
			w.must("tofu init")
			out := w.must("tofu plan")
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("does not say %q:\n%s", want, out)
				}
			}
			if c.not != "" && regexp.MustCompile(c.not).MatchString(out) {
				t.Errorf("says %q:\n%s", c.not, out)
			}
		})
	}
}
