package provider

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// devicesDataSource lists the tailnet's devices.
type devicesDataSource struct{ session }

var _ datasource.DataSourceWithConfigure = (*devicesDataSource)(nil)

func newDevicesDataSource() datasource.DataSource { return &devicesDataSource{} }

type devicesModel struct {
	Tags      []string      `tfsdk:"tags"`
	Inventory types.String  `tfsdk:"inventory"`
	Devices   []deviceModel `tfsdk:"devices"`
}

type deviceModel struct {
	ID               string   `tfsdk:"id"`
	Name             string   `tfsdk:"name"`
	FullName         string   `tfsdk:"full_name"`
	Hostname         string   `tfsdk:"hostname"`
	Addresses        []string `tfsdk:"addresses"`
	User             string   `tfsdk:"user"`
	Tags             []string `tfsdk:"tags"`
	Authorized       bool     `tfsdk:"authorized"`
	External         bool     `tfsdk:"external"`
	Ephemeral        bool     `tfsdk:"ephemeral"`
	Connected        bool     `tfsdk:"connected"`
	OS               string   `tfsdk:"os"`
	ClientVersion    string   `tfsdk:"client_version"`
	AdvertisedRoutes []string `tfsdk:"advertised_routes"`
	EnabledRoutes    []string `tfsdk:"enabled_routes"`
	Endpoints        []string `tfsdk:"endpoints"`
}

func (d *devicesDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_devices"
}

func (d *devicesDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.use(req.ProviderData)
}

func (d *devicesDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The tailnet's devices, sorted by name, so that the order does not depend on the API. Also gives the inventory that " +
			"functions and `tailmesh_policy_check` judge a policy with. Needs the scopes `devices:core:read` and `users:read`.",
		Attributes: map[string]schema.Attribute{
			"tags": schema.SetAttribute{
				Optional: true, ElementType: types.StringType, Validators: tagSet(),
				MarkdownDescription: "Tags of which a device must carry one to be in `devices`. All devices by default.",
			},
			"inventory": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "All devices and users as JSON, `{\"devices\": […], \"users\": […]}`, whatever `tags` says.",
			},
			"devices": schema.ListNestedAttribute{
				Computed: true, MarkdownDescription: "The devices, sorted by name.",
				NestedObject: schema.NestedAttributeObject{Attributes: deviceAttributes()},
			},
		},
	}
}

// deviceAttributes describes what is told of a device, in the order of deviceModel.
func deviceAttributes() map[string]schema.Attribute {
	str := func(doc string) schema.Attribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: doc}
	}
	flag := func(doc string) schema.Attribute {
		return schema.BoolAttribute{Computed: true, MarkdownDescription: doc}
	}
	list := func(doc string) schema.Attribute {
		return schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: doc}
	}
	return map[string]schema.Attribute{
		"id":                str("ID of the device in the API, such as `n292kg92CNTRL`: its node ID."),
		"name":              str("Name that the admin console shows: the first label of the machine name, such as `ams1`."),
		"full_name":         str("Machine name as MagicDNS has it, such as `ams1.tail1234.ts.net`."),
		"hostname":          str("Host name that the device reports. Several devices may report the same."),
		"addresses":         list("Addresses in the tailnet, IPv4 and IPv6."),
		"user":              str("Login name of the owner; empty where the device has tags in place of one."),
		"tags":              list("Tags that the device carries, sorted."),
		"authorized":        flag("Whether the device is admitted to the tailnet."),
		"external":          flag("Whether the device is shared from another tailnet, whose policy governs it."),
		"ephemeral":         flag("Whether the device is removed from the tailnet soon after it goes offline."),
		"connected":         flag("Whether the device is connected to the control plane now."),
		"os":                str("Operating system, such as `linux`."),
		"client_version":    str("Version of Tailscale that the device runs."),
		"advertised_routes": list("Subnet routes that the device offers, sorted."),
		"enabled_routes":    list("Subnet routes that were approved, offered or not, sorted."),
		"endpoints": list("UDP addresses at which the device can be reached directly, by its own account, as `address:port`, sorted. Its private " +
			"addresses are among them."),
	}
}

func (d *devicesDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m devicesModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	api := d.need(&resp.Diagnostics, "read the tailnet's devices")
	if resp.Diagnostics.HasError() {
		return
	}
	devices, err := api.Devices(ctx)
	if err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	inv, err := api.Inventory(ctx)
	if err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	m.Inventory = types.StringValue(inventoryText(inv))
	m.Devices = []deviceModel{}
	for i := range devices {
		if len(m.Tags) == 0 || slices.ContainsFunc(devices[i].Tags, func(t string) bool { return slices.Contains(m.Tags, t) }) {
			m.Devices = append(m.Devices, newDeviceModel(&devices[i]))
		}
	}
	slices.SortFunc(m.Devices, func(x, y deviceModel) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.ID, y.ID))
	})
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

func newDeviceModel(d *client.Device) deviceModel {
	name, _, _ := strings.Cut(d.Name, ".")
	out := deviceModel{
		ID: cmp.Or(d.NodeID, d.ID), Name: name, FullName: d.Name, Hostname: d.Hostname, Addresses: someStrings(d.Addresses), User: d.User,
		Tags: sorted(d.Tags), Authorized: d.Authorized, External: d.IsExternal, Ephemeral: d.IsEphemeral, Connected: d.ConnectedToControl,
		OS: d.OS, ClientVersion: d.ClientVersion, AdvertisedRoutes: sorted(d.AdvertisedRoutes), EnabledRoutes: sorted(d.EnabledRoutes),
		Endpoints: []string{},
	}
	if d.ClientConnectivity != nil {
		out.Endpoints = sorted(d.ClientConnectivity.Endpoints)
	}
	return out
}

// someStrings is the list, and an empty one for nil, which state keeps apart.
func someStrings(list []string) []string { return append([]string{}, list...) }

func sorted(list []string) []string {
	out := someStrings(list)
	slices.Sort(out)
	return out
}
