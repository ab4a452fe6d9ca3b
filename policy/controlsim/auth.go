package controlsim

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// CredentialKind says what a Credential is.
type CredentialKind string

// The kinds of credentials, named as the API names the keys that they are.
const (
	APIKey    CredentialKind = "api"       // a personal access token, used as it is
	OAuth     CredentialKind = "client"    // an OAuth client, whose secret buys tokens
	Federated CredentialKind = "federated" // a workload identity, whose provider's token buys tokens
)

// Credential is somebody who may call the API.
type Credential struct {
	Kind CredentialKind
	// ID is the key's ID. For OAuth and Federated it is the client ID.
	ID string
	// Secret is the API key or the OAuth client's secret; empty for Federated.
	Secret string
	// User is the login name of an API key's user; the key has that user's rights over tags.
	User string
	// Scopes are what the credential may do; nil means everything. The real service knows no scopes for API keys.
	Scopes []string
	// Tags are what OAuth and Federated credentials may give to devices and keys, and whose owned tags too.
	Tags []string
	// Expires ends the credential; zero means never.
	Expires time.Time
	// Issuer, Subject and Audience are what an identity token must say, for Federated. Subject may contain "*".
	// Signatures are not checked: anybody can make a token for a simulator.
	Issuer   string
	Subject  string
	Audience string
	// ClaimRules are further claims that the token must have, values as patterns like Subject.
	ClaimRules map[string]string
}

// DefaultCredentials are the documented ones: the API key of the owner, an OAuth client and a federated identity, all of
// them with every scope; the latter two with tag:node.
func DefaultCredentials() []Credential {
	return []Credential{
		{Kind: APIKey, ID: "simA1CNTRL", Secret: DefaultAPIKey, User: "alice@example.com"},
		{Kind: OAuth, ID: DefaultOAuthClientID, Secret: DefaultOAuthClientSecret, Tags: []string{"tag:node"}},
		{
			Kind: Federated, ID: DefaultFederatedID, Tags: []string{"tag:node"},
			Issuer: DefaultFederatedIssuer, Subject: "*", Audience: DefaultFederatedAudience,
		},
	}
}

func (c Credential) validate() error {
	switch {
	case c.Kind != APIKey && c.Kind != OAuth && c.Kind != Federated:
		return fmt.Errorf("credential %q: unknown kind %q", c.ID, c.Kind)
	case c.ID == "":
		return errors.New("credential: it needs an ID")
	case c.Kind == Federated && c.Issuer == "":
		return fmt.Errorf("credential %q: a federated identity needs an issuer", c.ID)
	case c.Kind != Federated && c.Secret == "":
		return fmt.Errorf("credential %q: it needs a secret", c.ID)
	}
	return nil
}

// caller is who made a request.
type caller struct {
	credential Credential
	scopes     []string // nil: all
	tags       []string
	expires    time.Time
}

// may reports whether the caller has the scope. A scope contains its ":read" half; "all" and "all:read" contain theirs.
func (c *caller) may(scope string) bool {
	if c.scopes == nil {
		return true
	}
	write, isRead := strings.CutSuffix(scope, ":read")
	return slices.ContainsFunc(c.scopes, func(have string) bool {
		return have == scope || have == "all" || isRead && (have == write || have == "all:read")
	})
}

// need refuses a caller that lacks one of the scopes; the real service does not say which one either.
func (c *caller) need(scopes ...string) *refusal {
	for _, scope := range scopes {
		if !c.may(scope) {
			return refuse(http.StatusForbidden, "calling actor does not have enough permissions to perform this function")
		}
	}
	return nil
}

// authenticated wraps a handler with what is common to all: who calls, whether they may, and on which tailnet.
func (s *Sim) authenticated(h handler, scopes []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			refuse(http.StatusBadRequest, "request body: %v", err).write(w)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		who := s.identify(r)
		if who == nil {
			refuse(http.StatusUnauthorized, "API token invalid").write(w)
			return
		}
		if t := r.PathValue("tailnet"); t != "" && t != "-" && t != s.state.Tailnet {
			refuse(http.StatusNotFound, "tailnet %q not found", t).write(w)
			return
		}
		if no := who.need(scopes...); no != nil {
			no.write(w)
			return
		}
		c := &call{w: w, r: r, body: body, who: who, st: s.state}
		if r.Method != http.MethodGet {
			c.st = s.state.clone()
		}
		if no := h(c); no != nil {
			no.write(w)
		}
	}
}

// identify finds the caller by Basic (token as user name) or Bearer authentication; nil is nobody, or not any more.
func (s *Sim) identify(r *http.Request) *caller {
	token, _, ok := r.BasicAuth()
	if !ok {
		kind, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(kind, "bearer") {
			return nil
		}
		token = strings.TrimSpace(rest)
	}
	if c := s.tokens[token]; c != nil {
		if expired(c.expires) || s.credential(c.credential.ID) == nil {
			return nil
		}
		return c
	}
	for _, c := range s.credentials {
		if c.Kind == APIKey && subtle.ConstantTimeCompare([]byte(c.Secret), []byte(token)) == 1 && !expired(c.Expires) {
			return &caller{credential: c, scopes: c.Scopes}
		}
	}
	return nil
}

// credential finds a credential by its ID, among those of Options and those made through the API; nil where it is
// unknown or revoked.
func (s *Sim) credential(id string) *Credential {
	for _, c := range s.credentials {
		if c.ID == id {
			return &c
		}
	}
	k := s.state.key(id)
	if k == nil || k.Invalid {
		return nil
	}
	return k.credential()
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }
