package provider

import (
	"context"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// deviceRoutes is the resource tailmesh_device_routes. The set of enabled routes has several owners (the policy's
// autoApprovers, the admin console), of which this is one: it adds and removes its own routes and no others.
type deviceRoutes struct{ session }

var (
	_ resource.ResourceWithConfigure   = (*deviceRoutes)(nil)
	_ resource.ResourceWithImportState = (*deviceRoutes)(nil)
)

func newDeviceRoutes() resource.Resource { return &deviceRoutes{} }

type deviceRoutesModel struct {
	ID       types.String `tfsdk:"id"`
	DeviceID types.String `tfsdk:"device_id"`
	Routes   []string     `tfsdk:"routes"`
}

func (r *deviceRoutes) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_device_routes"
}

func (r *deviceRoutes) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *deviceRoutes) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Subnet routes that a device may have. A route carries traffic when the device offers it too " +
			"(`tailscale set --advertise-routes`), before or after.\n\n" +
			"Only the routes named here are added and removed; those that the policy's `autoApprovers` or the admin console enable stay. Needs the scope " +
			"`devices:routes`.",
		Attributes: map[string]schema.Attribute{
			"id":        deviceResourceID(),
			"device_id": deviceIDAttribute(),
			"routes": schema.SetAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Networks, as in `10.7.0.0/16`; `0.0.0.0/0` and `::/0` make the device an exit node.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(networkValidator{})},
			},
		},
	}
}

// networkValidator wants a network as the API writes it, without bits behind its length: else it would come back changed.
type networkValidator struct{}

func (networkValidator) Description(context.Context) string {
	return `want a network such as "10.7.0.0/16"`
}

func (v networkValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (v networkValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	text := req.ConfigValue.ValueString()
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		resp.Diagnostics.AddAttributeError(req.Path, "not a network", "Got "+text+": "+v.Description(ctx)+".")
	case p.Masked().String() != text:
		resp.Diagnostics.AddAttributeError(req.Path, "not a network", "Got "+text+": write "+p.Masked().String()+".")
	}
}

// replace takes some routes away and adds others, and leaves those alone that are neither.
func (r *deviceRoutes) replace(ctx context.Context, api *client.Client, device string, old, now []string) error {
	is, err := api.DeviceRoutes(ctx, device)
	if err != nil {
		return err
	}
	want := slices.DeleteFunc(slices.Clone(is.Enabled), func(p string) bool { return slices.Contains(old, p) })
	want = sorted(append(want, now...))
	want = slices.Compact(want)
	if slices.Equal(want, sorted(is.Enabled)) {
		return nil
	}
	_, err = api.SetDeviceRoutes(ctx, device, want)
	return err
}

func (r *deviceRoutes) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m deviceRoutesModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "enable the device's routes")
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.replace(ctx, api, m.DeviceID.ValueString(), nil, m.Routes); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.ID = m.DeviceID
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Read keeps the routes of this resource that are still enabled. On import, which knows none, it takes them all.
func (r *deviceRoutes) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m deviceRoutesModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "read the device's routes")
	if resp.Diagnostics.HasError() {
		return
	}
	is, err := api.DeviceRoutes(ctx, m.DeviceID.ValueString())
	switch {
	case client.IsNotFound(err):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	if m.Routes == nil {
		m.Routes = sorted(is.Enabled)
	}
	m.Routes = slices.DeleteFunc(m.Routes, func(p string) bool { return !slices.Contains(is.Enabled, p) })
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceRoutes) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, old deviceRoutesModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &old)...)
	api := r.need(&resp.Diagnostics, "enable the device's routes")
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.replace(ctx, api, m.DeviceID.ValueString(), old.Routes, m.Routes); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceRoutes) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m deviceRoutesModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "disable the device's routes")
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.replace(ctx, api, m.DeviceID.ValueString(), m.Routes, nil); err != nil && !client.IsNotFound(err) {
		resp.Diagnostics.Append(apiError(err, ""))
	}
}

func (r *deviceRoutes) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	importDevice(ctx, req, resp)
}
