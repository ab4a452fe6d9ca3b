package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// simOptions are the flags of the command sim.
type simOptions struct {
	inputs
	state       string
	listen      string
	tailnet     string
	apiKey      string
	allowRemote bool
}

func newSimCmd(e env) *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate Tailscale's control-plane API, to try things without an account",
		Long: `sim serves Tailscale's API for one simulated tailnet: policy file, devices, users, keys and settings, with state,
until it is interrupted. It is for trying the provider and for tests; no device can connect to it.

When it listens it prints one line to standard output, which sets for a shell what Terraform and OpenTofu providers read:

  export TAILSCALE_BASE_URL=http://127.0.0.1:41217 TAILSCALE_API_KEY=tskey-api-...

Without --inventory the tailnet has four nodes with tag:node in two places, a laptop and two users; without --policy it
has a policy file that nobody has set. With --state everything is kept in a file; where that file exists, its content
is taken, and --inventory, --policy and --tailnet are not. The file holds keys and is readable by its owner only.

Besides the API key, OAuth client ` + controlsim.DefaultOAuthClientID + ` with the secret
` + controlsim.DefaultOAuthClientSecret + ` may call.

Under /sim/, without a credential, are the requests that were made (GET /sim/requests), a way for devices to join
(POST /sim/devices) and faults to come (POST /sim/faults). A fault has a kind: status, html, cut, lost, slow, rival or
empty; and may have status, retryAfter, delay, method, path (a part of it), and times (-1 is for ever).

The credentials are printed here and /sim/ asks for none. Therefore sim listens on loopback addresses only, unless it
is told --allow-remote.`,
		Example: `  tailmesh-policy sim --inventory inventory.json --policy policy.hujson
  tailmesh-policy sim --listen 127.0.0.1:8080 --state tailnet.json
  curl -d '{"kind":"status","status":429,"retryAfter":"2","times":3}' http://127.0.0.1:8080/sim/faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.CommandPath(), e) },
	}
	o.inventoryFlag(cmd, false)
	f := cmd.Flags()
	f.StringVar(&o.policy, "policy", "", "policy file that is in force (- is standard input)")
	f.StringVar(&o.state, "state", "", "file that keeps the tailnet across restarts")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "address and port to listen on; port 0 takes a free one")
	f.StringVar(&o.tailnet, "tailnet", controlsim.DefaultTailnet, "name of the tailnet; - in a request means it too")
	f.StringVar(&o.apiKey, "api-key", controlsim.DefaultAPIKey, "API key that may do everything")
	f.BoolVar(&o.allowRemote, "allow-remote", false, "allow --listen to be an address that other machines reach")
	must(cmd.MarkFlagFilename("policy", "hujson", "json"))
	must(cmd.MarkFlagFilename("state", "json"))
	return cmd
}

// run serves until the context ends, which is the good end.
func (o *simOptions) run(ctx context.Context, name string, e env) error {
	addr, err := net.ResolveTCPAddr("tcp", o.listen)
	if err != nil {
		return usageError{name, fmt.Errorf("--listen %q: %w", o.listen, err)}
	}
	if !o.allowRemote && !addr.IP.IsLoopback() {
		return usageError{name, fmt.Errorf(
			"--listen %q is not a loopback address: anybody who reaches it could use it; say --allow-remote if that is meant", o.listen)}
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(o.apiKey) { // it is printed for a shell to read
		return usageError{name, errors.New("--api-key: want letters, digits, - and _")}
	}
	sim, err := o.simulator(e)
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	ctx, stop := untilTold(ctx)
	defer stop()
	srv := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(l) }()
	fmt.Fprintf(e.Stdout, "export TAILSCALE_BASE_URL=http://%s TAILSCALE_API_KEY=%s\n", l.Addr(), o.apiKey)

	select {
	case err := <-stopped:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	// Requests under way are finished, slow faults among them not waited for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

func (o *simOptions) simulator(e env) (*controlsim.Sim, error) {
	if o.policy == stdinName && o.inventory == stdinName {
		return nil, errors.New("only one file can be read from standard input")
	}
	opts := controlsim.Options{Tailnet: o.tailnet, StateFile: o.state, Credentials: controlsim.DefaultCredentials()}
	for i, c := range opts.Credentials {
		if c.Kind == controlsim.APIKey {
			opts.Credentials[i].Secret = o.apiKey
		}
	}
	if o.inventory != "" {
		text, err := readFile(e, o.inventory, maxInventory)
		if err != nil {
			return nil, err
		}
		if len(text) == 0 { // to Options this would mean the built-in one
			return nil, fmt.Errorf("%s: empty file", displayName(o.inventory))
		}
		opts.Inventory = text
	}
	if o.policy != "" {
		text, err := readFile(e, o.policy, maxText)
		if err != nil {
			return nil, err
		}
		if len(text) == 0 {
			return nil, fmt.Errorf("%s: empty file", displayName(o.policy))
		}
		opts.Policy = string(text)
	}
	sim, err := controlsim.New(opts)
	if rest, ok := strings.CutPrefix(fmt.Sprint(err), "policy: "); ok && o.policy != "" {
		return nil, fmt.Errorf("%s: would be refused: %s", displayName(o.policy), rest)
	}
	if rest, ok := strings.CutPrefix(fmt.Sprint(err), "inventory: "); ok && o.inventory != "" {
		return nil, fmt.Errorf("%s: %s", displayName(o.inventory), rest)
	}
	return sim, err
}
