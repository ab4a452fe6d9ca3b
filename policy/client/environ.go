package client

import (
	"fmt"
	"os"
	"strings"
)

// FromEnv is the configuration that the environment gives, in the variables of the official provider: TAILSCALE_API_KEY,
// or TAILSCALE_OAUTH_CLIENT_ID with TAILSCALE_OAUTH_CLIENT_SECRET, TAILSCALE_IDENTITY_TOKEN or TAILSCALE_AUDIENCE;
// TAILSCALE_TAILNET and TAILSCALE_BASE_URL. A credential of the form "file:PATH" is read from
// that file. The error names the variable whose file cannot be read.
func FromEnv(getenv func(string) string) (Config, error) {
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return name, v
			}
		}
		return "", ""
	}
	var failed error
	secret := func(names ...string) string {
		name, value := first(names...)
		text, err := ReadSecret(value)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
		return string(text)
	}
	cfg := Config{
		APIKey:            Secret(secret("TAILSCALE_API_KEY")),
		OAuthClientID:     secret("TAILSCALE_OAUTH_CLIENT_ID", "OAUTH_CLIENT_ID"),
		OAuthClientSecret: Secret(secret("TAILSCALE_OAUTH_CLIENT_SECRET", "OAUTH_CLIENT_SECRET")),
		IdentityToken:     Secret(secret("TAILSCALE_IDENTITY_TOKEN", "IDENTITY_TOKEN")),
	}
	_, cfg.Audience = first("TAILSCALE_AUDIENCE")
	_, cfg.Tailnet = first("TAILSCALE_TAILNET")
	_, cfg.BaseURL = first("TAILSCALE_BASE_URL")
	return cfg, failed
}

// ReadSecret returns a secret as it is given, or the text of the file that "file:PATH" names, without the white space around
// it, such as the line end that files have.
func ReadSecret(value string) (Secret, error) {
	value = strings.TrimSpace(value)
	name, isFile := strings.CutPrefix(value, "file:")
	if !isFile {
		return Secret(value), nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%q is empty", name)
	}
	return Secret(secret), nil
}
