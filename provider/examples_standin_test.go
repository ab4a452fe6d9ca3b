package provider

import (
	"context"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	providerschema "github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// The official provider, tailscale/tailscale, cannot be had from the Go module proxy. What stands in for it here has its
// names, its settings and the attributes of its tailscale_acl and tailscale_device_*
// (https://registry.terraform.io/providers/tailscale/tailscale/latest/docs/resources/acl), and writes the policy that it is
// given: enough for these to be checked and taken over by this provider, and for nothing to be proved of the other.

// standInVariable makes the test program be that provider.
const standInVariable = "TAILMESH_TEST_STAND_IN"

func serveStandIn() {
	err := providerserver.Serve(context.Background(), func() provider.Provider { return standIn{} },
		providerserver.ServeOpts{Address: "registry.opentofu.org/tailscale/tailscale"})
	if err != nil {
		log.Fatal(err)
	}
}

type standIn struct{}

func (standIn) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "tailscale"
}

// Schema has the settings of the official provider
// (https://registry.terraform.io/providers/tailscale/tailscale/latest/docs).
func (standIn) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	attributes := map[string]providerschema.Attribute{
		"scopes": providerschema.ListAttribute{Optional: true, ElementType: types.StringType},
	}
	for _, name := range []string{
		"api_key", "oauth_client_id", "oauth_client_secret", "identity_token", "identity_token_environment_variable_name", "audience",
		"tailnet", "base_url", "user_agent",
	} {
		attributes[name] = providerschema.StringAttribute{Optional: true}
	}
	resp.Schema = providerschema.Schema{Attributes: attributes}
}

func (standIn) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (standIn) DataSources(context.Context) []func() datasource.DataSource                        { return nil }

func (standIn) Resources(context.Context) []func() resource.Resource {
	of := func(name string, attribute schema.Attribute) func() resource.Resource {
		return func() resource.Resource { return standInDevice{name: name, attribute: attribute} }
	}
	return []func() resource.Resource{
		func() resource.Resource { return standInACL{} },
		of("tags", schema.SetAttribute{Required: true, ElementType: types.StringType}),
		of("routes", schema.SetAttribute{Required: true, ElementType: types.StringType}),
		of("authorized", schema.BoolAttribute{Required: true}),
	}
}

// standInDevice stands for a part of a device that is as the configuration says already.
type standInDevice struct {
	name      string
	attribute schema.Attribute
}

func (r standInDevice) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = map[string]string{
		"tags": "tailscale_device_tags", "routes": "tailscale_device_subnet_routes", "authorized": "tailscale_device_authorization",
	}[r.name]
}

func (r standInDevice) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id": schema.StringAttribute{Computed: true}, "device_id": schema.StringAttribute{Required: true}, r.name: r.attribute,
	}}
}

func (standInDevice) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.State.Raw = req.Plan.Raw
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), "c7db1330-f7f9-ac6e-75cb-e1bcf9b26f6d")...)
}

func (standInDevice) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {}

func (standInDevice) Update(_ context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
}

func (standInDevice) Delete(_ context.Context, _ resource.DeleteRequest, resp *resource.DeleteResponse) {
	resp.Diagnostics.AddError("the other provider was asked to destroy what it had", "A moved block hands it over.")
}

type standInACL struct{}

func (standInACL) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "tailscale_acl"
}

func (standInACL) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"acl":                        schema.StringAttribute{Required: true},
		"overwrite_existing_content": schema.BoolAttribute{Optional: true},
		"reset_acl_on_destroy":       schema.BoolAttribute{Optional: true},
		"id": schema.StringAttribute{
			Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
	}}
}

func (standInACL) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.State.Raw = req.Plan.Raw
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), "acl")...)
	resp.Diagnostics.Append(writeACL(ctx, req.Plan)...)
}

func (standInACL) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {}

func (standInACL) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
	resp.Diagnostics.Append(writeACL(ctx, req.Plan)...)
}

func writeACL(ctx context.Context, plan tfsdk.Plan) (diags diag.Diagnostics) {
	var text string
	diags.Append(plan.GetAttribute(ctx, path.Root("acl"), &text)...)
	api, err := client.New(client.Config{APIKey: client.Secret(os.Getenv("TAILSCALE_API_KEY")), BaseURL: os.Getenv("TAILSCALE_BASE_URL")})
	if err == nil {
		_, err = api.SetPolicy(ctx, text, client.MatchAny)
	}
	if err != nil {
		diags.AddError("cannot write the policy", err.Error())
	}
	return diags
}

func (standInACL) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}
