package provider

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// authKeyResource makes a key with which devices join, and keeps it out of plans and state.
type authKeyResource struct{ session }

var (
	_ ephemeral.EphemeralResourceWithConfigure = (*authKeyResource)(nil)
	_ ephemeral.EphemeralResourceWithClose     = (*authKeyResource)(nil)
)

func newAuthKey() ephemeral.EphemeralResource { return &authKeyResource{} }

type authKeyModel struct {
	Tags          []string     `tfsdk:"tags"`
	Reusable      types.Bool   `tfsdk:"reusable"`
	Ephemeral     types.Bool   `tfsdk:"ephemeral"`
	Preauthorized types.Bool   `tfsdk:"preauthorized"`
	Expiry        types.String `tfsdk:"expiry"`
	Description   types.String `tfsdk:"description"`
	RevokeOnClose types.Bool   `tfsdk:"revoke_on_close"`
	ID            types.String `tfsdk:"id"`
	Key           types.String `tfsdk:"key"`
	ExpiresAt     types.String `tfsdk:"expires_at"`
}

// defaultExpiry is short, because a plan makes a key too, which nobody will use.
const defaultExpiry = time.Hour

func (r *authKeyResource) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_auth_key"
}

func (r *authKeyResource) Configure(_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *authKeyResource) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A key with which devices join the tailnet. It is in no plan and no state.\n\n" +
			"A plan opens ephemeral resources as an apply does, and so makes a key that nobody uses; that is why keys live for an hour only " +
			"unless `expiry` says otherwise. A tag must be in the policy before a key can give it: let this resource depend on " +
			"`tailmesh_policy`, if that is in the same configuration. Needs the scope `auth_keys`.",
		Attributes: map[string]schema.Attribute{
			"tags": schema.SetAttribute{
				Optional: true, ElementType: types.StringType, Validators: tagSet(),
				MarkdownDescription: "Tags that devices get. OAuth clients and federated identities must give at least one, and own it.",
			},
			"reusable": schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether more than one device can join with the key. Default `false`."},
			"ephemeral": schema.BoolAttribute{
				Optional: true, MarkdownDescription: "Whether devices leave the tailnet when they have been offline for a while. Default `false`.",
			},
			"preauthorized": schema.BoolAttribute{
				Optional: true, MarkdownDescription: "Whether devices need no approval, in a tailnet that approves devices. Default `false`.",
			},
			"expiry": schema.StringAttribute{
				Optional: true, MarkdownDescription: "How long the key can be used, as in `90m` or `24h`; at most 90 days. Default `1h`.",
			},
			"description": schema.StringAttribute{
				Optional: true, Validators: []validator.String{stringvalidator.LengthAtMost(50)},
				MarkdownDescription: "What the admin console shows: at most 50 letters, digits, spaces, `-` and `_`.",
			},
			"revoke_on_close": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether to revoke the key at the end of the plan or apply. Devices that have joined stay; those that would " +
					"join later cannot. Default `false`.",
			},
			"id":         schema.StringAttribute{Computed: true, MarkdownDescription: "ID of the key, with which the admin console names it."},
			"key":        schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The key itself, `tskey-auth-…`, for `tailscale up --auth-key`."},
			"expires_at": schema.StringAttribute{Computed: true, MarkdownDescription: "When the key expires, as in `2026-01-02T03:04:05Z` (RFC 3339)."},
		},
	}
}

func (r *authKeyResource) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m authKeyModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	expiry := defaultExpiry
	if text := m.Expiry.ValueString(); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > 90*24*time.Hour {
			resp.Diagnostics.AddAttributeError(path.Root("expiry"), "not a time that a key can live",
				"Want a duration of at most 90 days, such as \"90m\" or \"2160h\".")
			return
		}
		expiry = d
	}
	api := r.need(&resp.Diagnostics, "create an auth key")
	if api == nil {
		return
	}
	key, err := api.CreateAuthKey(ctx, client.AuthKeyRequest{
		Tags: m.Tags, Reusable: m.Reusable.ValueBool(), Ephemeral: m.Ephemeral.ValueBool(), Preauthorized: m.Preauthorized.ValueBool(),
		Expiry: expiry, Description: m.Description.ValueString(),
	})
	if err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	if m.RevokeOnClose.ValueBool() {
		id, err := json.Marshal(key.ID)
		if err == nil {
			resp.Diagnostics.Append(resp.Private.SetKey(ctx, "revoke", id)...)
		}
	}
	m.ID, m.Key = types.StringValue(key.ID), types.StringValue(string(key.Key))
	m.ExpiresAt = types.StringValue(key.Expires.UTC().Format(time.RFC3339))
	resp.Diagnostics.Append(resp.Result.Set(ctx, m)...)
}

func (r *authKeyResource) Close(ctx context.Context, req ephemeral.CloseRequest, resp *ephemeral.CloseResponse) {
	raw, diags := req.Private.GetKey(ctx, "revoke")
	resp.Diagnostics.Append(diags...)
	if raw == nil {
		return
	}
	var id string
	if err := json.Unmarshal(raw, &id); err != nil {
		resp.Diagnostics.AddError("the key to revoke is not known any more", sentence(err.Error()))
		return
	}
	api := r.need(&resp.Diagnostics, "revoke the auth key")
	if api == nil {
		return
	}
	if err := api.DeleteKey(ctx, id); err != nil {
		resp.Diagnostics.Append(apiError(err, "The key "+id+" stays valid until it expires."))
	}
}
