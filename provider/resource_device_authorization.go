package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

type deviceAuthorizationModel struct {
	devicePartModel
	Authorized types.Bool `tfsdk:"authorized"`
}

// newDeviceAuthorization is the resource tailmesh_device_authorization. Destroyed, it leaves the device as it is: to lock
// it out is a decision of its own.
func newDeviceAuthorization() resource.Resource {
	return &devicePart[deviceAuthorizationModel, *deviceAuthorizationModel]{
		typeName: "_device_authorization", official: "tailscale_device_authorization",
		doc: "Whether a device is admitted to the tailnet, where devices need approval. Destroying this resource leaves that as it is. " +
			"Needs the scope `devices:core`.",
		attributes: map[string]schema.Attribute{
			"authorized": schema.BoolAttribute{
				Required: true, MarkdownDescription: "Whether the device is admitted to the tailnet.",
			},
		},
		reading: "read the device", writing: "authorize the device",
		read: func(ctx context.Context, api *client.Client, m *deviceAuthorizationModel) error {
			device, err := api.Device(ctx, m.device())
			m.Authorized = types.BoolValue(device.Authorized)
			return err
		},
		write: func(ctx context.Context, api *client.Client, _, m *deviceAuthorizationModel) error {
			return api.SetDeviceAuthorized(ctx, m.device(), m.Authorized.ValueBool())
		},
	}
}
