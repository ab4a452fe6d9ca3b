package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// deviceAuthorization is the resource tailmesh_device_authorization.
type deviceAuthorization struct{ session }

var (
	_ resource.ResourceWithConfigure   = (*deviceAuthorization)(nil)
	_ resource.ResourceWithImportState = (*deviceAuthorization)(nil)
)

func newDeviceAuthorization() resource.Resource { return &deviceAuthorization{} }

type deviceAuthorizationModel struct {
	ID         types.String `tfsdk:"id"`
	DeviceID   types.String `tfsdk:"device_id"`
	Authorized types.Bool   `tfsdk:"authorized"`
}

func (r *deviceAuthorization) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_device_authorization"
}

func (r *deviceAuthorization) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *deviceAuthorization) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Whether a device is admitted to the tailnet, where devices need approval. Destroying this resource leaves that as it is. " +
			"Needs the scope `devices:core`.",
		Attributes: map[string]schema.Attribute{
			"id":        deviceResourceID(),
			"device_id": deviceIDAttribute(),
			"authorized": schema.BoolAttribute{
				Required: true, MarkdownDescription: "Whether the device is admitted to the tailnet.",
			},
		},
	}
}

func (r *deviceAuthorization) write(ctx context.Context, m deviceAuthorizationModel) error {
	api, err := r.api()
	if err != nil {
		return err
	}
	return api.SetDeviceAuthorized(ctx, m.DeviceID.ValueString(), m.Authorized.ValueBool())
}

func (r *deviceAuthorization) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m deviceAuthorizationModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.write(ctx, m); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.ID = m.DeviceID
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceAuthorization) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m deviceAuthorizationModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "read the device")
	if resp.Diagnostics.HasError() {
		return
	}
	device, err := api.Device(ctx, m.DeviceID.ValueString())
	switch {
	case client.IsNotFound(err):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.Authorized = types.BoolValue(device.Authorized)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceAuthorization) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m deviceAuthorizationModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if err := r.write(ctx, m); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Delete leaves the device as it is: to lock it out is a decision of its own.
func (r *deviceAuthorization) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {
}

func (r *deviceAuthorization) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	importDevice(ctx, req, resp)
}
