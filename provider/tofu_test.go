package provider

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// The tests on a real OpenTofu or Terraform run the program that TAILMESH_TOFU or TF_ACC_TERRAFORM_PATH names, against a
// simulated control plane in the test's own process.
func TestMain(m *testing.M) {
	if os.Getenv(standInVariable) != "" {
		serveStandIn()
		return
	}
	if program := program(); program != "" {
		_ = os.Setenv("TF_ACC_TERRAFORM_PATH", program)
		_ = os.Setenv("TF_CLI_CONFIG_FILE", os.DevNull) // not the user's own, which may override providers
		out, _ := exec.Command(program, "version").Output()
		if strings.HasPrefix(string(out), "OpenTofu") {
			_ = os.Setenv("TF_ACC_PROVIDER_HOST", "registry.opentofu.org")
			_ = os.Setenv("TF_ACC_PROVIDER_NAMESPACE", "hashicorp")
		}
	}
	for _, name := range []string{
		"TAILSCALE_API_KEY", "TAILSCALE_OAUTH_CLIENT_ID", "OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET", "OAUTH_CLIENT_SECRET",
		"TAILSCALE_IDENTITY_TOKEN", "IDENTITY_TOKEN", "TAILSCALE_AUDIENCE", "TAILSCALE_TAILNET", "TAILSCALE_BASE_URL",
	} {
		_ = os.Unsetenv(name)
	}
	code := m.Run()
	_ = os.RemoveAll(builtPrograms) // "" removes nothing
	os.Exit(code)
}

func program() string {
	if p := os.Getenv("TAILMESH_TOFU"); p != "" {
		return p
	}
	return os.Getenv("TF_ACC_TERRAFORM_PATH")
}

// needTofu skips a test where there is no OpenTofu; REQUIRE_TOFU=1 makes that a failure.
func needTofu(t *testing.T) {
	t.Helper()
	if program() != "" {
		return
	}
	const message = "needs OpenTofu or Terraform: set TAILMESH_TOFU to the program"
	if os.Getenv("REQUIRE_TOFU") == "1" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// factories serve this provider to the program under test.
func factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"tailmesh": providerserver.NewProtocol6WithError(New("test")()),
	}
}

// tailnet is a simulated control plane with a server in front.
type tailnet struct {
	*controlsim.Sim
	url string
	// verdict is answered to a request to validate a policy, where it is not empty, in place of the simulator's.
	verdict string
}

func newTailnet(t *testing.T, opts controlsim.Options) *tailnet {
	t.Helper()
	sim, err := controlsim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	n := &tailnet{Sim: sim}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.verdict != "" && strings.HasSuffix(r.URL.Path, "/acl/validate") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, n.verdict)
			return
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	n.url = server.URL
	return n
}

// config is a configuration for this tailnet.
func (n *tailnet) config(hcl string) string {
	return `provider "tailmesh" {
  api_key  = "` + controlsim.DefaultAPIKey + `"
  base_url = "` + n.url + `"
}
` + hcl
}

// writes are the requests that wrote the policy file or tried to.
func (n *tailnet) writes() (out []controlsim.Request) {
	for _, r := range n.Requests() {
		if r.Method == "POST" && strings.HasSuffix(r.Path, "/acl") {
			out = append(out, r)
		}
	}
	return out
}

// heredoc puts a text into a configuration. Its lines must not hold "EOT".
func heredoc(text string) string {
	return "<<-EOT\n" + strings.ReplaceAll(text, "${", "$${") + "\nEOT\n"
}

// says matches an error of OpenTofu's, which wraps its lines, by words in this order.
func says(words ...string) *regexp.Regexp {
	parts := make([]string, len(words))
	for i, w := range words {
		fields := strings.Fields(w)
		for j, f := range fields {
			fields[j] = regexp.QuoteMeta(f)
		}
		parts[i] = strings.Join(fields, `[\s│|]+`)
	}
	return regexp.MustCompile(`(?s)` + strings.Join(parts, `.*`))
}
