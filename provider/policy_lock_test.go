package provider

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// locked checks the lock of the console's editor.
func (n *tailnet) locked(t *testing.T, on bool, link string) resource.TestCheckFunc {
	return func(*terraform.State) error {
		api, err := connected(t, n, controlsim.DefaultAPIKey).api()
		if err != nil {
			return err
		}
		got, err := api.TailnetSettings(t.Context())
		if err == nil && (got.ACLsExternallyManagedOn != on || got.ACLsExternalLink != link) {
			err = fmt.Errorf("lock %v with link %q, want %v with %q", got.ACLsExternallyManagedOn, got.ACLsExternalLink, on, link)
		}
		return err
	}
}

func (n *tailnet) lock(t *testing.T, on bool, link string) {
	t.Helper()
	api, err := connected(t, n, controlsim.DefaultAPIKey).api()
	if err == nil {
		err = api.SetTailnetSettings(t.Context(), client.TailnetSettingsChange{ACLsExternallyManagedOn: &on, ACLsExternalLink: &link})
	}
	if err != nil {
		t.Error(err)
	}
}

func (n *tailnet) settingsRequests() (count int) {
	for _, r := range n.Requests() {
		if strings.HasSuffix(r.Path, "/settings") {
			count++
		}
	}
	return count
}

func TestPolicyConsoleLock(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const link = "https://git.example.com/policy"
	on := "console_lock = true\nexternal_link = \"" + link + "\"\n"
	tailnet := newTailnet(t, controlsim.Options{})
	changed := strings.Replace(meshPolicy, "6443", "10250", 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: tailnet.config(policyConfig(meshPolicy, "")),
				Check: func(*terraform.State) error {
					if n := tailnet.settingsRequests(); n != 0 {
						return fmt.Errorf("%d requests for settings that nobody asked for", n)
					}
					return nil
				},
			},
			{Config: tailnet.config(policyConfig(meshPolicy, on)), Check: tailnet.locked(t, true, link)},
			{Config: tailnet.config(policyConfig(meshPolicy, on)), ConfigPlanChecks: preApply(plancheck.ExpectEmptyPlan())},
			{ // somebody unlocks it
				PreConfig: func() { tailnet.lock(t, false, link) },
				Config:    tailnet.config(policyConfig(meshPolicy, on)),
				ConfigPlanChecks: preApply(plancheck.ExpectNonEmptyPlan(),
					plancheck.ExpectResourceAction("tailmesh_policy.this", plancheck.ResourceActionUpdate)),
				Check: tailnet.locked(t, true, link),
			},
			{Config: tailnet.config(policyConfig(meshPolicy, "console_lock = false\n")), Check: tailnet.locked(t, false, link)},
			{ // unset is nobody's business
				PreConfig: func() { tailnet.lock(t, true, "https://example.com/theirs") },
				Config:    tailnet.config(policyConfig(changed, "")),
				Check:     tailnet.locked(t, true, "https://example.com/theirs"),
			},
			{
				Config:      tailnet.config(policyConfig(changed, "external_link = \"x\"\n")),
				ExpectError: says(`"console_lock"`),
			},
			{
				Config:      tailnet.config(policyConfig(changed, "console_lock = true\nexternal_link = \"git.example.com\"\n")),
				ExpectError: says("want a URL"),
			},
			{Config: tailnet.config(policyConfig(changed, on)), Check: tailnet.locked(t, true, link)},
		},
		CheckDestroy: tailnet.locked(t, false, ""),
	})
}

// A step that fails leaves the other as it was: no lock without the policy, and no policy without the lock.
func TestPolicyConsoleLockFails(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fault controlsim.Fault
		want  string
	}{
		{
			"the lock",
			controlsim.Fault{Kind: controlsim.StatusFault, Method: "PATCH", Path: "/settings", Status: http.StatusForbidden, Times: -1},
			"cannot change the tailnet's settings",
		},
		{"the file", controlsim.Fault{Kind: controlsim.StatusFault, Method: "POST", Path: "/acl", Status: http.StatusForbidden, Times: -1}, "cannot write the policy file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tailnet := newTailnet(t, controlsim.Options{})
			before, _ := tailnet.Policy()
			config := tailnet.config(policyConfig(meshPolicy, "validation = \"offline\"\nconsole_lock = true\n"))
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{{
					PreConfig: func() {
						if err := tailnet.AddFault(tt.fault); err != nil {
							t.Error(err)
						}
					},
					Config: config, ExpectError: says(tt.want),
				}},
			})
			if after, _ := tailnet.Policy(); after != before {
				t.Errorf("the file in force is\n%s", after)
			}
			if err := tailnet.locked(t, false, "")(nil); err != nil {
				t.Error(err)
			}
		})
	}
}
