//go:build linux

package lab

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// requireTofuEnv makes a failure of what is otherwise skipped without an OpenTofu.
const requireTofuEnv = "REQUIRE_TOFU"

// tofu is a configuration of the mesh, applied to a simulated control-plane API that has the lab's devices.
type tofu struct {
	t    *testing.T
	sim  *controlsim.Sim
	root string
	env  []string
}

func newTofu(t *testing.T, l *Lab) *tofu {
	t.Helper()
	if os.Getenv(tofuEnv) == "" {
		if os.Getenv(requireTofuEnv) != "" {
			t.Fatalf("needs OpenTofu or Terraform: set %s to the program", tofuEnv)
		}
		t.Skipf("needs OpenTofu or Terraform: set %s to the program", tofuEnv)
	}
	inventory, err := json.Marshal(l.Inventory())
	if err != nil {
		t.Fatal(err)
	}
	sim, err := controlsim.New(controlsim.Options{Inventory: inventory})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)

	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/mesh")); err != nil {
		t.Fatal(err)
	}
	provider, err := program(providerEnv)
	if err != nil {
		t.Fatal(err)
	}
	rc := filepath.Join(root, "cli.tfrc")
	if err := os.WriteFile(rc, []byte(`provider_installation { dev_overrides { "tailmesh/tailmesh" = "`+filepath.Dir(provider)+`" } }`), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tofu{t: t, sim: sim, root: root, env: append(os.Environ(),
		"TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		"TAILSCALE_BASE_URL="+server.URL, "TAILSCALE_API_KEY="+controlsim.DefaultAPIKey,
	)}
}

// run runs a command of tofu and returns its answer, and what it says.
func (o *tofu) run(ctx context.Context, args ...string) (stdout, all string, err error) {
	o.t.Helper()
	cmd := exec.CommandContext(ctx, os.Getenv(tofuEnv), args...)
	cmd.Dir, cmd.Env = o.root, o.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), out.String() + errs.String(), err
}

// apply applies the configuration with a policy file of testdata.
func (o *tofu) apply(policy string) (said string, err error) {
	o.t.Helper()
	path, err := filepath.Abs("testdata/" + policy)
	if err != nil {
		o.t.Fatal(err)
	}
	_, said, err = o.run(o.t.Context(), "apply", "-auto-approve", "-input=false", "-no-color", "-var=policy="+path)
	return said, err
}

// documents returns the nodes' documents as the last apply gave them.
func (o *tofu) documents() map[string]config.Document {
	o.t.Helper()
	out, said, err := o.run(o.t.Context(), "output", "-json", "node_configs")
	if err != nil {
		o.t.Fatalf("%v\n%s", err, said)
	}
	var texts map[string]string
	if err := json.Unmarshal([]byte(out), &texts); err != nil {
		o.t.Fatal(err)
	}
	documents := map[string]config.Document{}
	for name, text := range texts {
		if documents[name], err = config.Parse([]byte(text)); err != nil {
			o.t.Fatalf("document of %s: %v", name, err)
		}
	}
	return documents
}

// testApply goes from a configuration to packets: what `tofu apply` writes is what the nodes' filters are compiled from,
// and what it gives out is what their agents carry out.
func testApply(t *testing.T, l *Lab) {
	o := newTofu(t, l)
	rows := l.rows()
	l.policyFile(t, withoutOverlay)
	l.overlayRule(t, behindNobody, false)
	l.judge(t, rows, overlayRefused().and(capturedRefused()))

	before, _ := o.sim.Policy()
	said, err := o.apply(withoutOverlay)
	if err == nil {
		t.Fatalf("a policy that does not admit the overlay was applied:\n%s", said)
	}
	t.Logf("a policy that does not admit the overlay is refused:\n%s", said)
	if after, _ := o.sim.Policy(); after != before {
		t.Fatal("it was written all the same")
	}

	said, err = o.apply(withOverlay)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	written, _ := o.sim.Policy()
	if err := l.SetPolicy(t.Context(), "policy file of the tailnet", []byte(written)); err != nil {
		t.Fatal(err)
	}
	documents := o.documents()
	l.install(t, agent(func(n *Node) config.Document {
		doc, ok := documents[n.Name]
		if !ok {
			t.Fatalf("no document for %s", n.Name)
		}
		return doc
	}, 0))
	l.judge(t, rows, overlayAdmitted().and(repaired()))
}
