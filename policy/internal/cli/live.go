package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// liveName is the argument that stands for the policy in force.
const liveName = "live"

// credentialsHelp says in a command's help what it talks to the API with.
const credentialsHelp = `The API is asked with what the environment gives, in the variables of the Terraform provider: TAILSCALE_API_KEY, or
TAILSCALE_OAUTH_CLIENT_ID with TAILSCALE_OAUTH_CLIENT_SECRET, TAILSCALE_IDENTITY_TOKEN or TAILSCALE_AUDIENCE;
TAILSCALE_TAILNET; and TAILSCALE_BASE_URL.`

// isLive reports whether a name means the policy in force. A file of that name is that file.
func isLive(name string) bool {
	if name != liveName {
		return false
	}
	_, err := os.Stat(name)
	return err != nil
}

// connect makes a client of what the environment gives. It sends nothing.
func (e env) connect() (*client.Client, error) {
	cfg, err := client.FromEnv(e.Getenv)
	if err != nil {
		return nil, err
	}
	if cfg.APIKey == "" && cfg.OAuthClientSecret == "" && cfg.IdentityToken == "" && cfg.Audience == "" {
		return nil, errors.New("no credentials: set TAILSCALE_API_KEY, or TAILSCALE_OAUTH_CLIENT_ID and TAILSCALE_OAUTH_CLIENT_SECRET")
	}
	cfg.UserAgent = "tailmesh-policy/" + programVersion()
	return client.New(cfg)
}

// tailnet is what the API says of the tailnet.
type tailnet struct {
	api       *client.Client
	policy    client.Policy
	inventory *policy.Inventory
}

// live reads the policy in force, and the devices and users where there is no inventory of another source.
func live(ctx context.Context, api *client.Client, inv *policy.Inventory) (*tailnet, error) {
	tn := &tailnet{api: api, inventory: inv}
	var err error
	if tn.policy, err = api.GetPolicy(ctx); err != nil {
		return nil, err
	}
	if inv == nil {
		tn.inventory, err = api.Inventory(ctx)
	}
	return tn, err
}

// loaded is the policy in force as commands take it.
func (tn *tailnet) loaded() *loaded {
	return &loaded{file: liveName, src: []byte(tn.policy.HuJSON), inventory: tn.inventory}
}

// apiFailure is a refusal of the service, for which its message is the answer; other errors are trouble.
func apiFailure(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == 400 {
		return exitError{code: exitNo, err: fmt.Errorf("nothing was written: %w", err)}
	}
	return err
}
