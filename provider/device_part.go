package provider

import (
	"context"
	"maps"

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

// devicePart is a resource that is a part of a device, such as its tags: it is there as long as the device is, is found
// by the device's ID, and is written whole. M is its model, which embeds devicePartModel.
type devicePart[M any, P devicePartPointer[M]] struct {
	session
	typeName, doc string
	// official is the resource of the provider tailscale/tailscale that is the same, with attributes of the same names.
	official   string
	attributes map[string]schema.Attribute
	// reading and writing say in messages what could not be done.
	reading, writing string
	// read fills the model with what the API says.
	read func(ctx context.Context, api *client.Client, m P) error
	// write puts a model in force; old is nil where there was none.
	write func(ctx context.Context, api *client.Client, old, m P) error
	// remove undoes it. Where it is nil, the device is left as it is.
	remove func(ctx context.Context, api *client.Client, m P) error
}

// devicePartModel is what such resources have in common.
type devicePartModel struct {
	ID       types.String `tfsdk:"id"`
	DeviceID types.String `tfsdk:"device_id"`
}

func (m *devicePartModel) part() *devicePartModel { return m }

// device is the device's ID.
func (m *devicePartModel) device() string { return m.DeviceID.ValueString() }

type devicePartPointer[M any] interface {
	*M
	part() *devicePartModel
}

func (r *devicePart[M, P]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + r.typeName
}

func (r *devicePart[M, P]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *devicePart[M, P]) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: r.doc + "\n\nA `" + r.official + "` of the provider `tailscale/tailscale` becomes this resource by a `moved` block.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The device's ID, which is `device_id`.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"device_id": schema.StringAttribute{
				Required: true, MarkdownDescription: "Node ID, as `tailmesh_devices` and `tailmesh_mesh` give it, or the device's older number.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
		},
	}
	maps.Copy(resp.Schema.Attributes, r.attributes)
}

// ModifyPlan makes another device another resource. The two IDs that a device has are no two devices: to replace the one
// by the other would take away for a moment what stays.
func (r *devicePart[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || req.State.Raw.IsNull() {
		return
	}
	at := path.Root("device_id")
	var old, now types.String
	resp.Diagnostics.Append(req.State.GetAttribute(ctx, at, &old)...)
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, at, &now)...)
	switch {
	case now.Equal(old):
	case r.sameDevice(ctx, old.ValueString(), now.ValueString()):
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("id"), now)...)
	default:
		resp.RequiresReplace.Append(at)
	}
}

// sameDevice reports whether both are IDs of one device, as far as is known.
func (r *devicePart[M, P]) sameDevice(ctx context.Context, x, y string) bool {
	api, err := r.api()
	if err != nil {
		return false
	}
	device, err := api.Device(ctx, x)
	return err == nil && y != "" && (device.ID == y || device.NodeID == y)
}

func (r *devicePart[M, P]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.Plan.Get(ctx, m)...)
	api := r.need(&resp.Diagnostics, r.writing)
	if resp.Diagnostics.HasError() {
		return
	}
	defer r.change(m.part().device())()
	if err := r.write(ctx, api, nil, m); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.part().ID = m.part().DeviceID
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *devicePart[M, P]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	m := P(new(M))
	resp.Diagnostics.Append(req.State.Get(ctx, m)...)
	if resp.Diagnostics.HasError() || r.unread(&resp.Diagnostics, "the device "+m.part().device()) {
		return
	}
	api := r.need(&resp.Diagnostics, r.reading)
	if resp.Diagnostics.HasError() {
		return
	}
	switch err := r.read(ctx, api, m); {
	case client.IsNotFound(err):
		resp.State.RemoveResource(ctx)
	case err != nil:
		resp.Diagnostics.Append(apiError(err, ""))
	default:
		resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	}
}

func (r *devicePart[M, P]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	old, m := P(new(M)), P(new(M))
	resp.Diagnostics.Append(req.State.Get(ctx, old)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, m)...)
	api := r.need(&resp.Diagnostics, r.writing)
	if resp.Diagnostics.HasError() {
		return
	}
	defer r.change(m.part().device())()
	if err := r.write(ctx, api, old, m); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func (r *devicePart[M, P]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	if r.remove == nil {
		return
	}
	m := P(new(M))
	resp.Diagnostics.Append(req.State.Get(ctx, m)...)
	api := r.need(&resp.Diagnostics, r.writing)
	if resp.Diagnostics.HasError() {
		return
	}
	defer r.change(m.part().device())()
	if err := r.remove(ctx, api, m); err != nil && !client.IsNotFound(err) {
		resp.Diagnostics.Append(apiError(err, ""))
	}
}

// ImportState takes a node ID.
func (r *devicePart[M, P]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("device_id"), req, resp)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), req.ID)...)
}

// MoveState takes over the resource of the provider tailscale/tailscale, by a moved block.
func (r *devicePart[M, P]) MoveState(ctx context.Context) []resource.StateMover {
	var own resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &own)
	return []resource.StateMover{{SourceSchema: &own.Schema, StateMover: func(
		ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse,
	) {
		if req.SourceTypeName != r.official || req.SourceState == nil {
			return
		}
		m := P(new(M))
		resp.Diagnostics.Append(req.SourceState.Get(ctx, m)...)
		m.part().ID = m.part().DeviceID
		resp.Diagnostics.Append(resp.TargetState.Set(ctx, m)...)
	}}}
}
