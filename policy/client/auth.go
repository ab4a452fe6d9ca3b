package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"tailscale.com/wif"
)

// credentialKind is what the client identifies itself with; it words the advice after a 401.
type credentialKind int

const (
	apiKey credentialKind = iota + 1
	oauthClient
	workloadIdentity
)

// authenticate puts the credential of cfg on top of plain.
func authenticate(cfg Config, c *Client, plain http.RoundTripper) (http.RoundTripper, credentialKind, error) {
	identity := cfg.identityTokens() > 0
	given := 0
	for _, is := range []bool{cfg.APIKey != "", cfg.OAuthClientSecret != "", identity} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, 0, errors.New("no credential: give an API key, an OAuth client's secret, or an identity token")
	case given > 1:
		return nil, 0, errors.New("more than one credential: give an API key, or an OAuth client's secret, or an identity token")
	case cfg.identityTokens() > 1:
		return nil, 0, errors.New("more than one identity token: give the token, or a variable that holds it, or an audience to fetch one for")
	case cfg.APIKey != "":
		return &basicAuth{key: cfg.APIKey, next: plain}, apiKey, nil
	}

	tokens := &tokenSource{client: c, http: &http.Client{Transport: plain, CheckRedirect: refuseRedirect}}
	kind := oauthClient
	if identity {
		kind = workloadIdentity
		if cfg.OAuthClientID == "" {
			return nil, 0, errors.New("an identity token needs the client ID of the federated identity that it is for")
		}
		tokens.op, tokens.endpoint = operation{name: "exchange the identity token", replay: writing}, c.url("oauth", "token-exchange")
		// What GitHub is asked with for a JWT, which an answer may repeat.
		c.secrets.add(Secret(os.Getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")))
		tokens.form = func(ctx context.Context) (url.Values, error) {
			jwt, err := identityToken(ctx, cfg)
			if err != nil {
				return nil, err
			}
			c.secrets.add(Secret(jwt))
			return url.Values{"client_id": {cfg.OAuthClientID}, "jwt": {jwt}}, nil
		}
	} else {
		id := cfg.OAuthClientID
		if id == "" {
			parts := strings.Split(string(cfg.OAuthClientSecret), "-")
			if len(parts) != 4 || parts[0] != "tskey" || parts[1] != "client" {
				return nil, 0, errors.New("the OAuth client's ID is missing, and its secret does not contain it")
			}
			id = parts[2]
		}
		form := url.Values{
			"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {string(cfg.OAuthClientSecret)},
		}
		if len(cfg.Scopes) > 0 {
			form.Set("scope", strings.Join(cfg.Scopes, " "))
		}
		tokens.op, tokens.endpoint = operation{name: "get an OAuth token", replay: writing}, c.url("oauth", "token")
		tokens.form = func(context.Context) (url.Values, error) { return form, nil }
	}
	return &bearer{tokens: oauth2.ReuseTokenSource(nil, tokens), next: plain}, kind, nil
}

// identityTokens counts the ways to an identity token that are given.
func (cfg Config) identityTokens() int {
	n := 0
	for _, given := range []bool{cfg.IdentityToken != "", cfg.IdentityTokenEnv != "", cfg.Audience != ""} {
		if given {
			n++
		}
	}
	return n
}

// basicAuth sends an API key as the API documents it: as user name, with an empty password.
type basicAuth struct {
	key  Secret
	next http.RoundTripper
}

func (b *basicAuth) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.SetBasicAuth(string(b.key), "")
	return b.next.RoundTrip(req)
}

// bearer sends a token. Unlike oauth2.Transport it waits for one no longer than the request does.
type bearer struct {
	tokens oauth2.TokenSource
	next   http.RoundTripper
}

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	type answer struct {
		token *oauth2.Token
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		token, err := b.tokens.Token()
		got <- answer{token, err}
	}()
	var a answer
	select {
	case a = <-got:
	case <-req.Context().Done():
		a.err = req.Context().Err()
	}
	if a.err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, a.err
	}
	req = req.Clone(req.Context())
	a.token.SetAuthHeader(req)
	return b.next.RoundTrip(req)
}

// tokenTimeout bounds a token call with its retries; such a call serves every request that waits for it, so it has no
// caller's context to end it.
const tokenTimeout = 3 * time.Minute

// tokenSource gets API tokens, through the same transport as every other request.
type tokenSource struct {
	client   *Client
	http     *http.Client
	op       operation
	endpoint *url.URL
	form     func(context.Context) (url.Values, error)
}

// Token makes tokenSource an oauth2.TokenSource. Its errors are *Error.
func (s *tokenSource) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	form, err := s.form(ctx)
	if err != nil {
		return nil, &Error{Op: s.op.name, Message: s.client.secrets.redact(err.Error())} // no Err, which is not redacted
	}
	var token struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"` // seconds
	}
	err = s.client.call(ctx, s.op, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint.String(), strings.NewReader(form.Encode()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Accept", "application/json")
		req.Header.Set("User-Agent", s.client.agent)
		res, err := s.http.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &token); err != nil || token.AccessToken == "" {
			return &Error{Op: s.op.name, Status: res.StatusCode, Message: "the service answered without a token", Err: err}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.client.secrets.add(Secret(token.AccessToken))
	t := &oauth2.Token{AccessToken: token.AccessToken, TokenType: "Bearer"}
	if token.ExpiresIn > 0 {
		t.Expiry = time.Now().Add(time.Duration(token.ExpiresIn) * time.Second)
	}
	return t, nil
}

// identityToken gets the JWT and refuses one that cannot work, since the service's own answer to it says less.
func identityToken(ctx context.Context, cfg Config) (string, error) {
	jwt := strings.TrimSpace(string(cfg.IdentityToken))
	switch {
	case cfg.Audience != "":
		var err error
		if jwt, err = wif.ObtainProviderToken(ctx, cfg.Audience); err != nil {
			return "", fmt.Errorf("no identity token for the audience %q could be fetched, which takes GitHub Actions (with the "+
				"permission id-token: write), AWS EC2 or Google Cloud: %w", cfg.Audience, err)
		}
	case jwt == "":
		if jwt = strings.TrimSpace(os.Getenv(cfg.IdentityTokenEnv)); jwt == "" {
			return "", fmt.Errorf("the environment variable %q, which should hold the identity token, is empty or not set",
				cfg.IdentityTokenEnv)
		}
	}
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("the identity token is not a JWT: want 3 parts with dots between, got %d", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", errors.New("the identity token is not a JWT: its second part is not base64url")
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", errors.New("the identity token is not a JWT: its second part is not JSON")
	}
	if expiry := time.Unix(int64(claims.Exp), 0).UTC(); claims.Exp != 0 && time.Now().After(expiry) {
		return "", fmt.Errorf("the identity token expired at %s; fetch a new one", expiry.Format(time.RFC3339))
	}
	return jwt, nil
}
