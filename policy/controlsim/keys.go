package controlsim

import (
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// key is an auth key, an OAuth client or a federated identity that was made through the API.
type key struct {
	ID          string    `json:"id"`
	KeyType     string    `json:"keyType"`
	Description string    `json:"description"`
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires,omitzero"`
	Revoked     time.Time `json:"revoked,omitzero"`
	Invalid     bool      `json:"invalid"`
	UserID      string    `json:"userId,omitempty"`

	ExpirySeconds int64         `json:"expirySeconds,omitempty"` // auth keys
	Capabilities  *capabilities `json:"capabilities,omitempty"`

	Scopes []string `json:"scopes,omitempty"` // clients and identities
	Tags   []string `json:"tags,omitempty"`

	Issuer           string            `json:"issuer,omitempty"` // identities
	Subject          string            `json:"subject,omitempty"`
	Audience         string            `json:"audience,omitempty"`
	CustomClaimRules map[string]string `json:"customClaimRules,omitempty"`

	// Secret is kept for a client only, which is checked against it; it leaves in the answer to the creation and never again.
	Secret string `json:"secret,omitempty"`
}

type capabilities struct {
	Devices *struct {
		Create struct {
			Reusable      bool     `json:"reusable"`
			Ephemeral     bool     `json:"ephemeral"`
			Preauthorized bool     `json:"preauthorized"`
			Tags          []string `json:"tags"`
		} `json:"create"`
	} `json:"devices"`
}

// keyRequest is what creates or replaces a key, of any type.
type keyRequest struct {
	KeyType          string            `json:"keyType"`
	Description      string            `json:"description"`
	ExpirySeconds    int64             `json:"expirySeconds"`
	Capabilities     *capabilities     `json:"capabilities"`
	Scopes           []string          `json:"scopes"`
	Tags             []string          `json:"tags"`
	Issuer           string            `json:"issuer"`
	Subject          string            `json:"subject"`
	Audience         string            `json:"audience"`
	CustomClaimRules map[string]string `json:"customClaimRules"`
}

const (
	authKey           = "auth"
	defaultKeyExpiry  = 90 * 24 * time.Hour
	maxDescription    = 50
	descriptionLetter = `^[A-Za-z0-9 _-]*$`
)

func keyScope(keyType string) string {
	switch keyType {
	case authKey:
		return "auth_keys"
	case string(Federated):
		return "federated_keys"
	}
	return "oauth_keys"
}

// credential is what the key lets call the API; nil for an auth key, which does not.
func (k *key) credential() *Credential {
	if k.KeyType == authKey {
		return nil
	}
	scopes := k.Scopes
	if scopes == nil {
		scopes = []string{} // none at all, where nil would be all
	}
	return &Credential{
		Kind: CredentialKind(k.KeyType), ID: k.ID, Secret: k.Secret, Scopes: scopes, Tags: k.Tags,
		Issuer: k.Issuer, Subject: k.Subject, Audience: k.Audience, ClaimRules: k.CustomClaimRules,
	}
}

// shown is the key as the API shows it: without its secret, invalid once it has expired.
func (k *key) shown() *key {
	v := *k
	v.Secret = ""
	v.Invalid = v.Invalid || expired(v.Expires)
	return &v
}

func (st *state) key(id string) *key {
	for _, k := range st.Keys {
		if k.ID == id {
			return k
		}
	}
	return nil
}

func noKey() *refusal { return refuse(http.StatusNotFound, "key not found") }

func (s *Sim) listKeys(c *call) *refusal {
	type id struct {
		ID          string `json:"id"`
		KeyType     string `json:"keyType,omitempty"`
		Description string `json:"description,omitempty"`
	}
	list := []id{}
	seen := false
	for _, k := range c.st.Keys {
		if !c.who.may(keyScope(k.KeyType) + ":read") {
			continue
		}
		seen = true
		if k.Invalid || expired(k.Expires) {
			continue
		}
		if c.r.URL.Query().Get("all") == "true" || k.UserID == c.st.callerID(c.who) {
			list = append(list, id{ID: k.ID})
		}
	}
	if !seen && !c.who.may("auth_keys:read") && !c.who.may("oauth_keys:read") && !c.who.may("federated_keys:read") {
		return c.who.need("auth_keys:read")
	}
	return c.answer(map[string]any{"keys": list})
}

// callerID is the ID of the user whom an API key belongs to; empty for tokens, which belong to the tailnet.
func (st *state) callerID(who *caller) string {
	if who.credential.Kind != APIKey {
		return ""
	}
	if u := st.userByLogin(who.credential.User); u != nil {
		return u.ID
	}
	return ""
}

func (s *Sim) createKey(c *call) *refusal {
	var req keyRequest
	if no := c.decode(&req); no != nil {
		return no
	}
	k := &key{KeyType: req.KeyType, Created: time.Now().UTC().Truncate(time.Second), UserID: c.st.callerID(c.who)}
	if k.KeyType == "" {
		k.KeyType = authKey
	}
	if no := c.who.need(keyScope(k.KeyType)); no != nil {
		return no
	}
	if no := c.fill(k, req); no != nil {
		return no
	}
	k.ID = c.st.newID("k")
	answer := struct {
		*key
		Key string `json:"key,omitempty"`
	}{}
	switch k.KeyType {
	case authKey:
		answer.Key = "tskey-auth-" + k.ID + "-" + rand.Text()
	case string(OAuth):
		k.Secret = "tskey-client-" + k.ID + "-" + rand.Text()
		answer.Key = k.Secret
	case string(Federated):
		if k.Audience == "" {
			k.Audience = "api.tailscale.com/" + k.ID
		}
	}
	c.st.Keys = append(c.st.Keys, k)
	if no := s.commit(c.st); no != nil {
		return no
	}
	answer.key = k.shown()
	return c.answer(answer)
}

// fill puts what was asked for into the key, or refuses it.
func (c *call) fill(k *key, req keyRequest) *refusal {
	bad := func(format string, args ...any) *refusal { return refuse(http.StatusBadRequest, format, args...) }
	if len(req.Description) > maxDescription {
		return bad("description must be at most %d characters", maxDescription)
	}
	if !regexp.MustCompile(descriptionLetter).MatchString(req.Description) {
		return bad("description may only contain letters, digits, hyphens, underscores and spaces")
	}
	k.Description = req.Description
	switch k.KeyType {
	case authKey:
		if req.Capabilities == nil || req.Capabilities.Devices == nil {
			return bad("capabilities.devices is required")
		}
		if req.ExpirySeconds < 0 || time.Duration(req.ExpirySeconds)*time.Second > defaultKeyExpiry {
			return bad("expirySeconds must be between 1 and %d", int64(defaultKeyExpiry/time.Second))
		}
		if req.ExpirySeconds == 0 {
			req.ExpirySeconds = int64(defaultKeyExpiry / time.Second)
		}
		k.ExpirySeconds = req.ExpirySeconds
		k.Expires = k.Created.Add(time.Duration(req.ExpirySeconds) * time.Second)
		k.Capabilities = req.Capabilities
		create := &k.Capabilities.Devices.Create
		if create.Tags == nil {
			create.Tags = []string{}
		}
		return c.keyTags(create.Tags, c.who.credential.Kind != APIKey)
	case string(OAuth), string(Federated):
		if len(req.Scopes) == 0 {
			return bad("scopes are required")
		}
		needsTags := false
		for _, scope := range req.Scopes {
			if no := c.who.need(scope); no != nil {
				return no
			}
			needsTags = needsTags || scope == "devices:core" || scope == "auth_keys" || scope == "all"
		}
		k.Scopes, k.Tags = req.Scopes, req.Tags
		if k.KeyType == string(Federated) {
			if !strings.HasPrefix(req.Issuer, "https://") {
				return bad("issuer must be an https URL")
			}
			if req.Subject == "" {
				return bad("subject is required")
			}
			k.Issuer, k.Subject, k.CustomClaimRules = req.Issuer, req.Subject, req.CustomClaimRules
			if req.Audience != "" {
				k.Audience = req.Audience
			}
		}
		return c.keyTags(req.Tags, needsTags)
	}
	return bad("invalid keyType %q", k.KeyType)
}

// keyTags checks the tags that a key is to carry.
func (c *call) keyTags(tags []string, required bool) *refusal {
	if required && len(tags) == 0 {
		return refuse(http.StatusBadRequest, "tags are required: requested tags [] are invalid or not permitted")
	}
	return c.st.mayUseTags(c.who, tags)
}

// getKey shows a key. A revoked one is shown as invalid for a time and then not found. A credential may see itself.
func (s *Sim) getKey(c *call) *refusal {
	k := c.st.key(c.r.PathValue("id"))
	if k == nil || k.Invalid && time.Since(k.Revoked) >= max(s.revokedKeyLife, 0) {
		return noKey()
	}
	if c.who.credential.ID != k.ID {
		if no := c.who.need(keyScope(k.KeyType) + ":read"); no != nil {
			return no
		}
	}
	return c.answer(k.shown())
}

func (s *Sim) replaceKey(c *call) *refusal {
	k := c.st.key(c.r.PathValue("id"))
	if k == nil || k.Invalid {
		return noKey()
	}
	if no := c.who.need(keyScope(k.KeyType)); no != nil {
		return no
	}
	var req keyRequest
	if no := c.decode(&req); no != nil {
		return no
	}
	if k.KeyType == authKey {
		return refuse(http.StatusBadRequest, "auth keys can not be changed")
	}
	if req.KeyType != "" && req.KeyType != k.KeyType {
		return refuse(http.StatusBadRequest, "keyType can not be changed")
	}
	if no := c.fill(k, req); no != nil {
		return no
	}
	if no := s.commit(c.st); no != nil {
		return no
	}
	return c.answer(k.shown())
}

func (s *Sim) deleteKey(c *call) *refusal {
	k := c.st.key(c.r.PathValue("id"))
	if k == nil || k.Invalid {
		return noKey()
	}
	if no := c.who.need(keyScope(k.KeyType)); no != nil {
		return no
	}
	k.Invalid, k.Revoked = true, time.Now().UTC()
	if no := s.commit(c.st); no != nil {
		return no
	}
	return c.answer(nil)
}
