// Package client talks to the Tailscale control-plane API, for the provider and for tailmesh-policy. It wraps the
// official client (tailscale.com/client/tailscale/v2) where that keeps everything, and calls an endpoint itself where the
// official client loses what these need: the ETag and text that a policy write answers, warnings of a validation, the
// status of an answer that is not JSON, and the Retry-After of a refusal. It knows nothing of Terraform.
//
// Every error that comes from a call is an *Error: data first, with predicates for what callers branch on.
package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	tailscale "tailscale.com/client/tailscale/v2"
)

// DefaultBaseURL is where Tailscale serves the API.
const DefaultBaseURL = "https://api.tailscale.com"

// Config says which tailnet to talk to and as whom. Exactly one credential must be given: APIKey, or OAuthClientID with
// OAuthClientSecret, or OAuthClientID with one of IdentityToken, IdentityTokenEnv and Audience.
type Config struct {
	// BaseURL is scheme and host of the API, without /api/v2. Empty means DefaultBaseURL.
	BaseURL string
	// Tailnet is a tailnet ID or legacy organisation name. Empty or "-" means the tailnet that owns the credential.
	Tailnet string
	// UserAgent is sent with every request. Empty means the name of this project.
	UserAgent string

	// APIKey is a personal access token, "tskey-api-…".
	APIKey Secret
	// OAuthClientID names an OAuth client or a federated identity. It may be empty when OAuthClientSecret has the form
	// "tskey-client-<id>-<random>", which contains it.
	OAuthClientID string
	// OAuthClientSecret is the secret of an OAuth client, "tskey-client-…".
	OAuthClientSecret Secret
	// Scopes narrow the tokens of an OAuth client; empty means all scopes that the client has.
	Scopes []string
	// IdentityToken is a JWT of an identity provider that the tailnet trusts (workload identity federation).
	IdentityToken Secret
	// IdentityTokenEnv names an environment variable that holds the JWT. It is read anew for every exchange, so a token
	// that is rotated during a long run is noticed.
	IdentityTokenEnv string
	// Audience has the JWT made out to it by where the program runs: GitHub Actions, AWS (EC2) or Google Cloud. A new one is
	// fetched for every exchange.
	Audience string

	// Transport carries the requests, tokens included. Nil means http.DefaultTransport's settings, on connections of the
	// client's own.
	Transport http.RoundTripper
	// Timeout bounds one attempt of a request. Zero means one minute.
	Timeout time.Duration
	// MaxRetries is how often a request is repeated at most. Zero means 4; a negative number means never.
	MaxRetries int
	// Logger is told of each attempt at level debug: method, path, status, duration; never headers or bodies. Nil is quiet.
	Logger *slog.Logger
}

// Client is a connection to one tailnet. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	tailnet  string
	agent    string
	kind     credentialKind
	http     *http.Client
	official *tailscale.Client
	secrets  secretList
}

// New checks the configuration and returns a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	base, err := parseBaseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base:    base,
		tailnet: cmp.Or(cfg.Tailnet, "-"),
		agent:   cmp.Or(cfg.UserAgent, "terraform-provider-tailmesh"),
	}
	basic := base64.StdEncoding.EncodeToString([]byte(cfg.APIKey + ":")) // as it travels
	for _, s := range []Secret{cfg.APIKey, Secret(basic), cfg.OAuthClientSecret, cfg.IdentityToken} {
		c.secrets.add(s)
	}
	plain := newTransport(cfg, c.failure)
	authenticated, kind, err := authenticate(cfg, c, plain)
	if err != nil {
		return nil, err
	}
	c.kind = kind
	c.http = &http.Client{Transport: authenticated, CheckRedirect: refuseRedirect}
	c.official = &tailscale.Client{BaseURL: base, UserAgent: c.agent, Tailnet: c.tailnet, HTTP: c.http}
	return c, nil
}

// Tailnet is the tailnet as configured, "-" for the one that owns the credential.
func (c *Client) Tailnet() string { return c.tailnet }

func parseBaseURL(s string) (*url.URL, error) {
	// What has not been taken apart is not shown where it may hold a password or a key.
	name := fmt.Sprintf("base URL %q", s)
	if strings.ContainsAny(s, "@?#") || strings.Contains(s, "tskey-") {
		name = "base URL"
	}
	u, err := url.Parse(cmp.Or(s, DefaultBaseURL))
	if err == nil && u.User != nil {
		return nil, errors.New("base URL: it must not contain a user or password; give the credential apart")
	}
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%s: want a URL such as %q", name, DefaultBaseURL)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("base URL: it must not contain a query or a fragment")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if strings.HasSuffix(u.Path, "/api/v2") {
		return nil, fmt.Errorf("%s: leave out /api/v2, it is added to every request", name)
	}
	return u, nil
}

// refuseRedirect leaves a redirect as the answer, which is then an *Error: authentication would follow it anywhere.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// request sends one request of the client's own and returns the answer, body read. An answer of 300 and above is an *Error.
func (c *Client) request(ctx context.Context, op operation, method string, u *url.URL, header http.Header, body string) (
	res *http.Response, text []byte, err error,
) {
	err = c.call(ctx, op, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
		if err != nil {
			return err
		}
		maps.Copy(req.Header, header)
		req.Header.Set("User-Agent", c.agent)
		res, err = c.http.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err = io.ReadAll(res.Body)
		return err
	})
	return res, text, err
}

// call runs do, which sends the requests of op, and makes every failure an *Error.
func (c *Client) call(ctx context.Context, op operation, do func(context.Context) error) error {
	x := &exchange{op: op}
	err := do(context.WithValue(ctx, exchangeKey{}, x))
	switch {
	case x.failed != nil:
		return x.failed
	case err == nil:
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok { // the token call that goes before
		return e
	}
	return c.noAnswer(op, err)
}

func (c *Client) url(elem ...string) *url.URL {
	escaped := []string{"api", "v2"}
	for _, e := range elem {
		escaped = append(escaped, url.PathEscape(e))
	}
	return c.base.JoinPath(escaped...)
}

func (c *Client) tailnetURL(elem ...string) *url.URL {
	return c.url(append([]string{"tailnet", c.tailnet}, elem...)...)
}
