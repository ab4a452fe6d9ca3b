package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// session is what Configure hands to resources and data sources.
type session struct {
	client  *client.Client // nil without credentials
	unknown []string       // settings whose values are not known yet
	last    *lastInventory // nil: nothing is kept
	changes *sync.Map      // device ID to the *sync.Mutex that whoever changes the device holds
}

// lastInventory is what the API said last, for those parts of one walk that need not ask again. Each walk, be it a plan
// or an apply, configures the provider anew.
type lastInventory struct {
	mu  sync.Mutex
	inv *policy.Inventory
	at  time.Time
}

// recent is how old an answer may be for a policy to be judged with it.
const recent = 30 * time.Second

// recently is what the API said a moment ago, or now.
func (s *session) recently(ctx context.Context, api *client.Client) (*policy.Inventory, error) {
	if s.last != nil {
		s.last.mu.Lock()
		defer s.last.mu.Unlock()
		if s.last.inv != nil && time.Since(s.last.at) < recent {
			return s.last.inv, nil
		}
	}
	inv, err := api.Inventory(ctx)
	if err == nil && s.last != nil {
		s.last.inv, s.last.at = inv, time.Now()
	}
	return inv, err
}

// ask asks the API, whatever it said before.
func (s *session) ask(ctx context.Context, api *client.Client) (*policy.Inventory, error) {
	inv, err := api.Inventory(ctx)
	if err == nil && s.last != nil {
		s.last.mu.Lock()
		defer s.last.mu.Unlock()
		s.last.inv, s.last.at = inv, time.Now()
	}
	return inv, err
}

// change waits until nobody else changes the device, and keeps others from it until done is called. Resources are applied
// side by side, and what one device has several may own in part: they read it, add their own and write it whole.
func (s *session) change(device string) (done func()) {
	mu, _ := s.changes.LoadOrStore(device, new(sync.Mutex))
	m, _ := mu.(*sync.Mutex)
	m.Lock()
	return m.Unlock
}

// use takes what Configure left; before Configure there is nothing.
func (s *session) use(data any) {
	if other, ok := data.(*session); ok {
		*s = *other
	}
}

// api returns the client, or an error that says what is missing.
func (s *session) api() (*client.Client, error) {
	switch {
	case s.client != nil:
		return s.client, nil
	case len(s.unknown) > 0:
		return nil, fmt.Errorf("the provider's %s will be known only after apply", strings.Join(s.unknown, ", "))
	}
	return nil, errors.New("the provider has no credentials: set api_key (or TAILSCALE_API_KEY), or oauth_client_id and " +
		"oauth_client_secret (or TAILSCALE_OAUTH_CLIENT_ID and TAILSCALE_OAUTH_CLIENT_SECRET)")
}

// need is api for where nothing can be done without it: it reports what is missing and returns nil.
func (s *session) need(diags *diag.Diagnostics, to string) *client.Client {
	c, err := s.api()
	if err != nil {
		diags.AddError("cannot "+to, sentence(err.Error()))
	}
	return c
}

// unread says with a warning that nothing can be read yet, where the settings are not known: what is planned goes by the
// last state, and the apply knows more.
func (s *session) unread(diags *diag.Diagnostics, what string) bool {
	if len(s.unknown) == 0 {
		return false
	}
	_, err := s.api()
	diags.AddWarning(what+" was not read", sentence(err.Error())+" What is planned goes by the last state.")
	return true
}

// inventory returns the devices and users of the attribute or, where it is null, of the API.
func (s *session) inventory(ctx context.Context, text types.String) (inv *policy.Inventory, diags diag.Diagnostics) {
	if !text.IsNull() {
		return inventoryOf(text)
	}
	api, err := s.api()
	if err != nil {
		diags.AddError("cannot read the tailnet's devices", sentence(err.Error())+" Or give an inventory.")
		return nil, diags
	}
	inv, err = s.ask(ctx, api)
	if err != nil {
		diags.Append(apiError(err, ""))
	}
	return inv, diags
}

// inventoryText is the inventory in the form in which attributes take it.
func inventoryText(inv *policy.Inventory) string {
	text, err := json.Marshal(inv)
	if err != nil {
		return "" // cannot be: it holds strings and booleans
	}
	return string(text)
}

// apiError reports a failed call, with what the service found and what to do about it.
func apiError(err error, consequence string) diag.Diagnostic {
	return diag.NewErrorDiagnostic(apiSummary(err), apiDetail(err, consequence))
}

func apiSummary(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return "cannot " + e.Op
	}
	return "the API call failed"
}

func apiDetail(err error, consequence string) string {
	var b strings.Builder
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return sentence(err.Error())
	}
	b.WriteString(e.Message)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	}
	for _, f := range e.Data {
		for _, text := range slices.Concat(f.Errors, f.Warnings) {
			fmt.Fprintf(&b, "\n  %s: %s", f.User, text)
		}
	}
	for _, more := range []string{e.Hint, consequence} {
		if more != "" {
			b.WriteString("\n\n" + sentence(more))
		}
	}
	return b.String()
}

// sentence makes a full sentence of a message.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if c := s[0]; 'a' <= c && c <= 'z' {
		s = string(c-'a'+'A') + s[1:]
	}
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// apiLog passes the client's log on to Terraform's, which it finds in the context of each call.
func apiLog() *slog.Logger { return slog.New(tfLog{}) }

type tfLog struct{ attrs []slog.Attr }

func (h tfLog) Enabled(context.Context, slog.Level) bool { return true }

func (h tfLog) Handle(ctx context.Context, r slog.Record) error {
	fields := map[string]any{}
	add := func(a slog.Attr) bool {
		fields[a.Key] = a.Value.Resolve().Any()
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	tflog.Debug(ctx, r.Message, fields)
	return nil
}

func (h tfLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(slices.Clip(h.attrs), attrs...)
	return h
}

func (h tfLog) WithGroup(string) slog.Handler { return h }
