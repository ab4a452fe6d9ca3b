package controlsim

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

func readBody(r *http.Request) ([]byte, error) { return io.ReadAll(r.Body) }

// refuseToken writes an error of a token endpoint, which has the form of RFC 6749 section 5.2 and not the API's.
func refuseToken(w http.ResponseWriter, status int, code, description string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="oauth"`)
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, status, map[string]string{"error": code, "error_description": description})
}

func form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	if err := r.ParseForm(); err != nil {
		refuseToken(w, http.StatusBadRequest, "invalid_request", "the body is not a form: "+err.Error())
		return nil, false
	}
	return r.PostForm, true
}

// oauthToken sells a token for an OAuth client's secret, given in the body or by Basic.
func (s *Sim) oauthToken(w http.ResponseWriter, r *http.Request) {
	f, ok := form(w, r)
	if !ok {
		return
	}
	if grant := f.Get("grant_type"); grant != "" && grant != "client_credentials" {
		refuseToken(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type must be client_credentials")
		return
	}
	id, secret := f.Get("client_id"), f.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok && secret == "" {
		id, secret = unescape(user), unescape(password)
	}
	if parts := strings.Split(secret, "-"); id == "" && len(parts) == 4 { // tskey-client-<id>-<random>
		id = parts[2]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.credential(id)
	if c == nil || c.Kind != OAuth || expired(c.Expires) || subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) != 1 {
		refuseToken(w, http.StatusUnauthorized, "invalid_client", "client ID or secret is wrong, or the client was revoked")
		return
	}
	s.sellToken(w, *c, f)
}

// unescape undoes the form encoding that RFC 6749 asks for inside Basic.
func unescape(v string) string {
	if u, err := url.QueryUnescape(v); err == nil {
		return u
	}
	return v
}

// tokenExchange sells a token for an identity token of a provider that a federated identity trusts.
func (s *Sim) tokenExchange(w http.ResponseWriter, r *http.Request) {
	f, ok := form(w, r)
	if !ok {
		return
	}
	claims, err := claimsOf(f.Get("jwt"))
	if err != "" {
		refuseToken(w, http.StatusBadRequest, "invalid_request", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.credential(f.Get("client_id"))
	if c == nil || c.Kind != Federated {
		refuseToken(w, http.StatusUnauthorized, "invalid_client", "no federated identity has this client ID")
		return
	}
	if wrong := mismatch(c, claims); wrong != "" {
		refuseToken(w, http.StatusUnauthorized, "invalid_grant", wrong)
		return
	}
	s.sellToken(w, *c, f)
}

func claimsOf(jwt string) (claims map[string]any, problem string) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return nil, "jwt is not a JSON web token"
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, "jwt: payload is not base64url"
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return nil, "jwt: payload is not a JSON object"
	}
	return claims, ""
}

// mismatch says what an identity token lacks, or nothing.
func mismatch(c *Credential, claims map[string]any) string {
	exp, _ := claims["exp"].(float64)
	if time.Now().After(time.Unix(int64(exp), 0)) {
		return "the identity token has expired"
	}
	if claims["iss"] != c.Issuer {
		return "the issuer is not the one that the federated identity trusts"
	}
	if !matches(c.Subject, claims["sub"]) {
		return "the subject does not match"
	}
	audiences, isList := claims["aud"].([]any)
	if !isList {
		audiences = []any{claims["aud"]}
	}
	if c.Audience != "" && !slices.Contains(audiences, any(c.Audience)) {
		return "the audience does not match"
	}
	for name, pattern := range c.ClaimRules {
		if !matches(pattern, claims[name]) {
			return "the claim " + name + " does not match"
		}
	}
	return ""
}

// matches compares a claim with a pattern in which "*" stands for any text.
func matches(pattern string, claim any) bool {
	text, ok := claim.(string)
	if !ok {
		return false
	}
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return text == pattern
	}
	rest, ok := strings.CutPrefix(text, before)
	if !ok {
		return false
	}
	for i := 0; i <= len(rest); i++ {
		if matches(after, rest[i:]) {
			return true
		}
	}
	return false
}

// sellToken answers with a new token, narrowed to the scopes and tags that the form asks for.
func (s *Sim) sellToken(w http.ResponseWriter, c Credential, f url.Values) {
	who := &caller{credential: c, scopes: c.Scopes, tags: c.Tags, expires: time.Now().Add(s.tokenLife)}
	if asked := strings.Fields(f.Get("scope")); len(asked) > 0 {
		for _, scope := range asked {
			if !who.may(scope) {
				refuseToken(w, http.StatusBadRequest, "invalid_scope", "the client does not have the scope "+scope)
				return
			}
		}
		who.scopes = asked
	}
	if asked := strings.Fields(f.Get("tags")); len(asked) > 0 {
		if no := s.state.mayUseTags(who, asked); no != nil {
			refuseToken(w, http.StatusBadRequest, "invalid_target", no.Message)
			return
		}
		who.tags = asked
	}
	token := "tskey-api-" + c.ID + "-" + rand.Text()
	s.tokens[token] = who
	scope := strings.Join(who.scopes, " ")
	if who.scopes == nil {
		scope = "all"
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(s.tokenLife / time.Second), "scope": scope,
	})
}
