package provider

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// passing are faults that a client gets over by asking again.
func passing() map[string]controlsim.Fault {
	return map[string]controlsim.Fault{
		"too many requests": {Kind: controlsim.StatusFault, Status: http.StatusTooManyRequests, RetryAfter: "1"},
		"internal error":    {Kind: controlsim.StatusFault, Status: http.StatusInternalServerError},
		"proxy's page":      {Kind: controlsim.HTMLFault},
		"gateway timeout":   {Kind: controlsim.StatusFault, Status: http.StatusGatewayTimeout, NoBody: true},
		"cut":               {Kind: controlsim.CutFault},
		"slow":              {Kind: controlsim.SlowFault, Delay: controlsim.Delay(500 * time.Millisecond)},
	}
}

// Whatever passes, on a read during a plan and on the write during an apply, is got over: the policy is in force, and it
// was written once.
func TestPolicyPassingFaults(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for name, fault := range passing() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tailnet := newTailnet(t, controlsim.Options{Inventory: meshNodes(3)})
			fail := func(method, path string) {
				f := fault
				f.Method, f.Path = method, path
				if err := tailnet.AddFault(f); err != nil {
					t.Error(err)
				}
			}
			changed := strings.Replace(meshPolicy, "6443", "10250", 1)
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{
						PreConfig: func() { fail("GET", "/devices"); fail("POST", "/acl/validate") },
						Config:    tailnet.config(policyConfig(meshPolicy, meshRequirement)),
					},
					{
						PreConfig:        func() { tailnet.ClearFaults(); fail("GET", "/acl") },
						Config:           tailnet.config(policyConfig(changed, meshRequirement)),
						ConfigPlanChecks: preApply(between(func() { tailnet.ClearFaults(); tailnet.ClearRequests(); fail("POST", "/tailnet/-/acl") })),
					},
				},
			})
			if text, _ := tailnet.Policy(); !strings.Contains(text, "10250") {
				t.Errorf("the file in force is\n%s", text)
			}
			done := 0
			for _, w := range tailnet.writes() {
				if w.Status == http.StatusOK {
					done++
				}
			}
			if done != 1 {
				t.Errorf("%d writes that were carried out, want 1: %+v", done, tailnet.writes())
			}
		})
	}
}

// What does not pass is one error, and the next run finds everything as it was.
func TestPolicyLastingFaultOfTheWrite(t *testing.T) {
	needTofu(t)
	t.Parallel()
	for name, fault := range map[string]controlsim.Fault{
		"internal error": {Kind: controlsim.StatusFault, Status: http.StatusInternalServerError},
		"proxy's page":   {Kind: controlsim.HTMLFault},
		"cut":            {Kind: controlsim.CutFault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tailnet := newTailnet(t, controlsim.Options{Inventory: meshNodes(3)})
			changed := strings.Replace(meshPolicy, "6443", "10250", 1)
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps: []resource.TestStep{
					{Config: tailnet.config(policyConfig(meshPolicy, meshRequirement))},
					{
						Config: tailnet.config(policyConfig(changed, meshRequirement)),
						ConfigPlanChecks: preApply(between(func() {
							fault.Method, fault.Path, fault.Times = "POST", "/tailnet/-/acl", -1
							if err := tailnet.AddFault(fault); err != nil {
								t.Error(err)
							}
						})),
						ExpectError: says("cannot write the policy file", "Whether it was written cannot be told"),
					},
					{
						PreConfig: func() {
							tailnet.ClearFaults()
							if text, _ := tailnet.Policy(); strings.Contains(text, "10250") {
								t.Error("the file was written")
							}
						},
						Config: tailnet.config(policyConfig(changed, meshRequirement)),
					},
				},
			})
		})
	}
}

// The most talkative log holds no secret, whatever the provider identifies itself with: neither those of the configuration
// nor the tokens and keys that a run makes.
func TestTraceShowsNoSecret(t *testing.T) {
	needTofu(t)
	claims, err := json.Marshal(map[string]any{
		"iss": controlsim.DefaultFederatedIssuer, "aud": controlsim.DefaultFederatedAudience, "sub": "repo:x", "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	jwt := part([]byte(`{"alg":"none"}`)) + "." + part(claims) + "." + part([]byte("signature"))
	// Secrets come from files, because the program under test logs the configuration that it reads.
	for _, tt := range []struct{ name, settings, secret string }{
		{"API key", `api_key = "file:%s"`, controlsim.DefaultAPIKey},
		{"OAuth client", `oauth_client_id = "` + controlsim.DefaultOAuthClientID + `"` + "\n" + `oauth_client_secret = "file:%s"`, controlsim.DefaultOAuthClientSecret},
		{"federated identity", `oauth_client_id = "` + controlsim.DefaultFederatedID + `"` + "\n" + `identity_token = "file:%s"`, jwt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TF_LOG", "TRACE")
			t.Setenv("TF_ACC_LOG_PATH", filepath.Join(dir, "provider.log"))
			t.Setenv("TF_LOG_PATH_MASK", filepath.Join(dir, "%s.log"))
			tailnet := newTailnet(t, controlsim.Options{Inventory: meshNodes(3), Policy: meshPolicy})
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte(tt.secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			config := strings.Replace(tailnet.config(policyConfig(meshPolicy, "adopt = \"always\"\n"+meshRequirement)),
				`api_key  = "`+controlsim.DefaultAPIKey+`"`, fmt.Sprintf(tt.settings, secret), 1)
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: factories(),
				Steps:                    []resource.TestStep{{Config: config + "ephemeral \"tailmesh_auth_key\" \"node\" {\n  tags = [\"tag:node\"]\n}\n"}},
			})
			seesNone(t, dir, tt.secret, "tskey-auth-", "tskey-api-")
		})
	}
}

// seesNone looks for secrets in all files of a directory.
func seesNone(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	total := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		total += strings.Count(string(text), "\n")
		for _, secret := range secrets {
			if i := strings.Index(string(text), secret); i >= 0 {
				t.Errorf("%s holds %q: …%.200s", d.Name(), secret, text[max(0, i-100):])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if total < 100 {
		t.Errorf("%d lines of log: this looked at nothing", total)
	}
}
