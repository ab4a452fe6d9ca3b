package provider

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

type deviceRoutesModel struct {
	devicePartModel
	Routes []string `tfsdk:"routes"`
}

// newDeviceRoutes is the resource tailmesh_device_routes. The set of enabled routes has several owners (the policy's
// autoApprovers, the admin console), of which this is one: it adds and removes its own routes and no others.
func newDeviceRoutes() resource.Resource {
	return &devicePart[deviceRoutesModel, *deviceRoutesModel]{
		typeName: "_device_routes", official: "tailscale_device_subnet_routes",
		doc: "Subnet routes that a device may have. A route carries traffic when the device offers it too " +
			"(`tailscale set --advertise-routes`), before or after.\n\n" +
			"Only the routes named here are added and removed; those that the policy's `autoApprovers` or the admin console enable stay. Needs the scope " +
			"`devices:routes`.",
		attributes: map[string]schema.Attribute{
			"routes": schema.SetAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Networks, as in `10.7.0.0/16`; `0.0.0.0/0` and `::/0` make the device an exit node.",
				Validators:          []validator.Set{noNulls{}, setvalidator.ValueStringsAre(networkValidator{})},
			},
		},
		reading: "read the device's routes", writing: "set the device's routes",
		read: func(ctx context.Context, api *client.Client, m *deviceRoutesModel) error {
			is, err := api.DeviceRoutes(ctx, m.device())
			if m.Routes == nil { // imported: whose they are is not known
				m.Routes = sorted(is.Enabled)
			}
			m.Routes = slices.DeleteFunc(m.Routes, func(p string) bool { return !slices.Contains(is.Enabled, p) })
			return err
		},
		write: func(ctx context.Context, api *client.Client, old, m *deviceRoutesModel) error {
			if old == nil {
				old = &deviceRoutesModel{}
			}
			return replaceRoutes(ctx, api, m.device(), old.Routes, m.Routes)
		},
		remove: func(ctx context.Context, api *client.Client, m *deviceRoutesModel) error {
			return replaceRoutes(ctx, api, m.device(), m.Routes, nil)
		},
	}
}

// replaceRoutes takes some routes away and adds others, and leaves those alone that are neither.
func replaceRoutes(ctx context.Context, api *client.Client, device string, old, now []string) error {
	is, err := api.DeviceRoutes(ctx, device)
	if err != nil {
		return err
	}
	want := slices.DeleteFunc(slices.Clone(is.Enabled), func(p string) bool { return slices.Contains(old, p) })
	want = slices.Compact(sorted(append(want, now...)))
	if slices.Equal(want, sorted(is.Enabled)) {
		return nil
	}
	_, err = api.SetDeviceRoutes(ctx, device, want)
	return err
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
		resp.Diagnostics.AddAttributeError(req.Path, "not a network", fmt.Sprintf("Got %q: %s.", text, v.Description(ctx)))
	case p.Masked().String() != text:
		resp.Diagnostics.AddAttributeError(req.Path, "not a network", fmt.Sprintf("Got %q: write %q.", text, p.Masked()))
	}
}
