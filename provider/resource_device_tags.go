package provider

import (
	"context"
	"regexp"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// deviceTags is the resource tailmesh_device_tags.
type deviceTags struct{ session }

var (
	_ resource.ResourceWithConfigure   = (*deviceTags)(nil)
	_ resource.ResourceWithImportState = (*deviceTags)(nil)
)

func newDeviceTags() resource.Resource { return &deviceTags{} }

type deviceTagsModel struct {
	ID       types.String `tfsdk:"id"`
	DeviceID types.String `tfsdk:"device_id"`
	Tags     []string     `tfsdk:"tags"`
}

func (r *deviceTags) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_device_tags"
}

func (r *deviceTags) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *deviceTags) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The tags of a device, all of them. A device with tags belongs to nobody; it is not given back to its user when " +
			"this resource is destroyed, which leaves the tags as they are. Needs the scope `devices:core`.",
		Attributes: map[string]schema.Attribute{
			"id":        deviceResourceID(),
			"device_id": deviceIDAttribute(),
			"tags": schema.SetAttribute{
				Required: true, ElementType: types.StringType, MarkdownDescription: "Tags, as in `tag:node`. The policy must define them.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1),
					setvalidator.ValueStringsAre(stringvalidator.RegexMatches(regexp.MustCompile(`^tag:.`), `want the form "tag:node"`)),
				},
			},
		},
	}
}

// deviceResourceID is the ID of resources that are a part of a device.
func deviceResourceID() schema.Attribute {
	return schema.StringAttribute{
		Computed: true, MarkdownDescription: "The device's ID, which is `device_id`.",
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

func deviceIDAttribute() schema.Attribute {
	return schema.StringAttribute{
		Required: true, MarkdownDescription: "Node ID, as `tailmesh_devices` and `tailmesh_mesh` give it.",
		Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// importDevice takes a node ID.
func importDevice(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("device_id"), req, resp)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
}

func (r *deviceTags) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m deviceTagsModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "set the device's tags")
	if resp.Diagnostics.HasError() {
		return
	}
	if err := api.SetDeviceTags(ctx, m.DeviceID.ValueString(), m.Tags); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.ID = m.DeviceID
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceTags) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m deviceTagsModel
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
	m.Tags = sorted(device.Tags)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *deviceTags) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m deviceTagsModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	api := r.need(&resp.Diagnostics, "set the device's tags")
	if resp.Diagnostics.HasError() {
		return
	}
	if err := api.SetDeviceTags(ctx, m.DeviceID.ValueString(), slices.Clone(m.Tags)); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// Delete leaves the tags: a device without them would belong to nobody and to no rule.
func (r *deviceTags) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}

func (r *deviceTags) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	importDevice(ctx, req, resp)
}
