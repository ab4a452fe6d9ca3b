package provider

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// providerModel is the provider's configuration, by the names that the official provider uses, so that one set of
// variables serves both.
type providerModel struct {
	APIKey            types.String `tfsdk:"api_key"`
	OAuthClientID     types.String `tfsdk:"oauth_client_id"`
	OAuthClientSecret types.String `tfsdk:"oauth_client_secret"`
	IdentityToken     types.String `tfsdk:"identity_token"`
	IdentityTokenEnv  types.String `tfsdk:"identity_token_environment_variable_name"`
	Audience          types.String `tfsdk:"audience"`
	Scopes            types.List   `tfsdk:"scopes"`
	Tailnet           types.String `tfsdk:"tailnet"`
	BaseURL           types.String `tfsdk:"base_url"`
	UserAgent         types.String `tfsdk:"user_agent"`
}

func (p *tailmesh) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	const file = " `file:PATH` reads it from a file."
	resp.Schema = schema.Schema{
		MarkdownDescription: "Owns a tailnet's policy file, proves offline and at plan time that the policy admits what a mesh of " +
			"nodes needs, and works out the mesh.\n\nSettings have the names and environment variables of the provider " +
			"`tailscale/tailscale`, so that one configuration serves both. Credentials are an API key, or an OAuth client, or a " +
			"federated identity; exactly one of them. What needs no API, such as functions, works without any.",
		Attributes: map[string]schema.Attribute{
			"api_key": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "API key, `tskey-api-…`." + file + " Environment: `TAILSCALE_API_KEY`.",
			},
			"oauth_client_id": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "ID of an OAuth client, or of a federated identity where an identity token is given or fetched." + file +
					" Environment: `TAILSCALE_OAUTH_CLIENT_ID`, `OAUTH_CLIENT_ID`.",
			},
			"oauth_client_secret": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "Secret of the OAuth client, `tskey-client-…`." + file +
					" Environment: `TAILSCALE_OAUTH_CLIENT_SECRET`, `OAUTH_CLIENT_SECRET`.",
			},
			"identity_token": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "JWT of an identity provider that the tailnet trusts (workload identity federation)." + file +
					" Environment: `TAILSCALE_IDENTITY_TOKEN`, `IDENTITY_TOKEN`.",
			},
			"identity_token_environment_variable_name": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Name of the environment variable that holds the JWT, in place of `identity_token`. It is read " +
					"anew for each exchange, so that a token which is rotated during a run is noticed.",
			},
			"audience": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Audience of the federated identity, to have the JWT fetched, in place of `identity_token`, from " +
					"where the provider runs: GitHub Actions (which takes the permission `id-token: write`), AWS EC2 or Google Cloud. " +
					"Environment: `TAILSCALE_AUDIENCE`.",
			},
			"scopes": schema.ListAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
				MarkdownDescription: "Scopes to ask for with an OAuth client, to have less than the client may. All that it may by default.",
			},
			"tailnet": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Tailnet ID, or the organisation's name. Environment: `TAILSCALE_TAILNET`. Default `-`: the tailnet " +
					"that the credential belongs to.",
			},
			"base_url": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Where the API is, without `/api/v2`. Environment: `TAILSCALE_BASE_URL`. Default `" +
					client.DefaultBaseURL + "`.",
			},
			"user_agent": schema.StringAttribute{
				Optional: true, MarkdownDescription: "User agent of API requests, to tell in the API's log who asks.",
			},
		},
	}
}

func (p *tailmesh) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	s := &session{last: &lastInventory{}, changes: &sync.Map{}}
	cfg, unknown, diags := m.settings(ctx, os.Getenv)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	switch {
	case len(unknown) > 0:
		s.unknown = unknown
	case cfg.APIKey == "" && cfg.OAuthClientSecret == "" && cfg.IdentityToken == "" && cfg.IdentityTokenEnv == "" &&
		cfg.Audience == "":
		// No credentials. That is an error where the API is needed, and only there.
	default:
		if cfg.UserAgent == "" {
			cfg.UserAgent = fmt.Sprintf("Terraform/%s (+https://www.terraform.io) terraform-provider-tailmesh/%s", req.TerraformVersion, p.version)
		}
		cfg.Logger = apiLog()
		c, err := client.New(cfg)
		if err != nil {
			resp.Diagnostics.AddError("the provider's settings cannot be used", err.Error())
			return
		}
		s.client = c
	}
	resp.ResourceData = s
	resp.DataSourceData = s
	resp.EphemeralResourceData = s
}

// setting is one string of the configuration: its attribute and the environment variables that stand in for it.
type setting struct {
	attribute string
	value     types.String
	env       []string
}

// settings reads the configuration and, where it is silent, the environment. A kind of credential that is given in the
// configuration outdoes another kind that is in the environment; two kinds in the same place are an error. Unknown lists
// the attributes whose values are not known yet.
func (m providerModel) settings(ctx context.Context, getenv func(string) string) (
	cfg client.Config, unknown []string, diags diag.Diagnostics,
) {
	read := func(s setting) (value string, configured bool) {
		switch {
		case s.value.IsUnknown():
			unknown = append(unknown, s.attribute)
			return "", true
		case s.value.ValueString() != "":
			return s.value.ValueString(), true
		}
		for _, name := range s.env {
			if v := getenv(name); v != "" {
				return v, false
			}
		}
		return "", false
	}
	secret := func(s setting) (value string, configured bool) {
		value, configured = read(s)
		text, err := client.ReadSecret(value)
		if err != nil {
			diags.AddAttributeError(path.Root(s.attribute), fmt.Sprintf("cannot read %s from a file", s.attribute), err.Error())
		}
		return string(text), configured
	}

	apiKey, keyHere := secret(setting{"api_key", m.APIKey, []string{"TAILSCALE_API_KEY"}})
	id, idHere := secret(setting{"oauth_client_id", m.OAuthClientID, []string{"TAILSCALE_OAUTH_CLIENT_ID", "OAUTH_CLIENT_ID"}})
	clientSecret, secretHere := secret(setting{
		"oauth_client_secret", m.OAuthClientSecret,
		[]string{"TAILSCALE_OAUTH_CLIENT_SECRET", "OAUTH_CLIENT_SECRET"},
	})
	token, tokenHere := secret(setting{"identity_token", m.IdentityToken, []string{"TAILSCALE_IDENTITY_TOKEN", "IDENTITY_TOKEN"}})
	tokenEnv, tokenEnvHere := read(setting{"identity_token_environment_variable_name", m.IdentityTokenEnv, nil})
	audience, audienceHere := read(setting{"audience", m.Audience, []string{"TAILSCALE_AUDIENCE"}})

	// What is configured outdoes what lies about in the environment: of the ways to an identity token one the other, and
	// of the kinds of credentials.
	identityHere := tokenHere || tokenEnvHere || audienceHere
	if identityHere {
		if !tokenHere {
			token = ""
		}
		if !audienceHere {
			audience = ""
		}
	}
	switch {
	case keyHere && !idHere && !secretHere && !identityHere:
		id, clientSecret, token, tokenEnv, audience = "", "", "", "", ""
	case !keyHere && (idHere || secretHere || identityHere):
		apiKey = ""
	}
	switch {
	case secretHere && !identityHere:
		token, tokenEnv, audience = "", "", ""
	case identityHere && !secretHere:
		clientSecret = ""
	}

	cfg = client.Config{
		APIKey: client.Secret(apiKey), OAuthClientID: id, OAuthClientSecret: client.Secret(clientSecret),
		IdentityToken: client.Secret(token), IdentityTokenEnv: tokenEnv, Audience: audience,
	}
	diags.Append(conflicts(cfg)...)
	cfg.Tailnet, _ = read(setting{"tailnet", m.Tailnet, []string{"TAILSCALE_TAILNET"}})
	cfg.BaseURL, _ = read(setting{"base_url", m.BaseURL, []string{"TAILSCALE_BASE_URL"}})
	cfg.UserAgent, _ = read(setting{"user_agent", m.UserAgent, nil})
	switch {
	case m.Scopes.IsUnknown():
		unknown = append(unknown, "scopes")
	case !m.Scopes.IsNull():
		var scopes []types.String
		diags.Append(m.Scopes.ElementsAs(ctx, &scopes, false)...)
		for _, s := range scopes {
			if s.IsUnknown() {
				unknown = append(unknown, "scopes")
			}
			cfg.Scopes = append(cfg.Scopes, s.ValueString())
		}
	}
	return cfg, unknown, diags
}

// conflicts says what keeps the credentials of a configuration from being used.
func conflicts(cfg client.Config) (diags diag.Diagnostics) {
	var kinds, ways []string
	if cfg.APIKey != "" {
		kinds = append(kinds, "an API key (api_key, TAILSCALE_API_KEY)")
	}
	if cfg.OAuthClientSecret != "" {
		kinds = append(kinds, "an OAuth client (oauth_client_secret, TAILSCALE_OAUTH_CLIENT_SECRET, OAUTH_CLIENT_SECRET)")
	}
	if cfg.IdentityToken != "" {
		ways = append(ways, "identity_token (TAILSCALE_IDENTITY_TOKEN, IDENTITY_TOKEN)")
	}
	if cfg.IdentityTokenEnv != "" {
		ways = append(ways, "identity_token_environment_variable_name")
	}
	if cfg.Audience != "" {
		ways = append(ways, "audience (TAILSCALE_AUDIENCE)")
	}
	if len(ways) > 0 {
		kinds = append(kinds, "a federated identity: "+strings.Join(ways, ", "))
	}
	const contradict = "credentials contradict each other"
	switch {
	case len(kinds) > 1:
		diags.AddError(contradict,
			"Exactly one kind of credential can be used, and these are given:\n\n  - "+strings.Join(kinds, "\n  - ")+"\n\nRemove all but one.")
	case len(ways) > 1:
		diags.AddError(contradict,
			"Each of these says where the identity token comes from:\n\n  - "+strings.Join(ways, "\n  - ")+"\n\nRemove all but one.")
	case len(ways) > 0 && cfg.OAuthClientID == "":
		diags.AddAttributeError(path.Root("oauth_client_id"), "credentials are incomplete",
			"An identity token is given, but not the federated identity that it is for: set oauth_client_id or TAILSCALE_OAUTH_CLIENT_ID.")
	case len(kinds) == 0 && cfg.OAuthClientID != "":
		diags.AddAttributeError(path.Root("oauth_client_id"), "credentials are incomplete",
			"An OAuth client is named, but nothing proves it: set oauth_client_secret or, for a federated identity, identity_token "+
				"or audience.")
	}
	return diags
}
