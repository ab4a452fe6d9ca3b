package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	key, empty := filepath.Join(dir, "key"), filepath.Join(dir, "empty")
	for name, text := range map[string]string{key: "tskey-api-x\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want Config
		err  string
	}{
		{"nothing", nil, Config{}, ""},
		{
			"an API key, and where",
			map[string]string{"TAILSCALE_API_KEY": "tskey-api-x", "TAILSCALE_TAILNET": "example.com", "TAILSCALE_BASE_URL": "http://127.0.0.1:1"},
			Config{APIKey: "tskey-api-x", Tailnet: "example.com", BaseURL: "http://127.0.0.1:1"},
			"",
		},
		{
			"an OAuth client by its older names",
			map[string]string{"OAUTH_CLIENT_ID": "k1", "OAUTH_CLIENT_SECRET": "tskey-client-k1-x"},
			Config{OAuthClientID: "k1", OAuthClientSecret: "tskey-client-k1-x"},
			"",
		},
		{
			"the newer names first",
			map[string]string{"OAUTH_CLIENT_ID": "old", "TAILSCALE_OAUTH_CLIENT_ID": "k1", "TAILSCALE_IDENTITY_TOKEN": "a.b.c"},
			Config{OAuthClientID: "k1", IdentityToken: "a.b.c"},
			"",
		},
		{
			"an audience to fetch a token for",
			map[string]string{"TAILSCALE_OAUTH_CLIENT_ID": "k1", "TAILSCALE_AUDIENCE": "example.com/k1"},
			Config{OAuthClientID: "k1", Audience: "example.com/k1"},
			"",
		},
		{"white space around it", map[string]string{"TAILSCALE_API_KEY": " tskey-api-x\r\n"}, Config{APIKey: "tskey-api-x"}, ""},
		{"a file", map[string]string{"TAILSCALE_API_KEY": "file:" + key}, Config{APIKey: "tskey-api-x"}, ""},
		{"an empty file", map[string]string{"TAILSCALE_API_KEY": "file:" + empty}, Config{}, "TAILSCALE_API_KEY: "},
		{"no file", map[string]string{"OAUTH_CLIENT_SECRET": "file:" + filepath.Join(dir, "none")}, Config{}, "OAUTH_CLIENT_SECRET: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromEnv(func(name string) string { return tt.env[name] })
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
