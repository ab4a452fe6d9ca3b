package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/datasource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// deviceDataSource finds one device.
type deviceDataSource struct{ session }

var _ datasource.DataSourceWithConfigure = (*deviceDataSource)(nil)

func newDeviceDataSource() datasource.DataSource { return &deviceDataSource{} }

// deviceDataModel is what is stored: the device, and how long it was waited for.
type deviceDataModel struct {
	deviceModel
	Timeouts timeouts.Value `tfsdk:"timeouts"`
}

// deviceKeys are the attributes of which one says which device is meant.
func deviceKeys() []string { return []string{"id", "name", "full_name", "hostname"} }

func (d *deviceDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_device"
}

func (d *deviceDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.use(req.ProviderData)
}

func (d *deviceDataSource) Schema(ctx context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	attributes := deviceAttributes()
	var paths []path.Expression
	for _, key := range deviceKeys() {
		paths = append(paths, path.MatchRoot(key))
	}
	for i, key := range deviceKeys() {
		validators := []validator.String{stringvalidator.LengthAtLeast(1)}
		if i == 0 { // for all of them, so that a mistake is one message
			validators = append(validators, stringvalidator.ExactlyOneOf(paths...))
		}
		attributes[key] = schema.StringAttribute{
			Optional: true, Computed: true, MarkdownDescription: attributes[key].GetMarkdownDescription(), Validators: validators,
		}
	}
	attributes["timeouts"] = readTimeout(ctx, "How long to wait for a device that is not there yet, as in `5m`. Not at all by default.")
	resp.Schema = schema.Schema{
		MarkdownDescription: "One device of the tailnet, by its `id`, `name`, `full_name` or `hostname`: exactly one of them. A device that is not " +
			"there, or a host name that several devices report, is an error.\n\n" +
			"For many devices, `tailmesh_devices` asks the API once. Needs the scope `devices:core:read`.",
		Attributes: attributes,
	}
}

// readTimeout is the attribute "timeouts" of a data source that waits.
func readTimeout(ctx context.Context, doc string) schema.Attribute {
	a := timeouts.AttributesWithOpts(ctx, timeouts.Opts{ReadDescription: doc})
	if nested, ok := a.(schema.SingleNestedAttribute); ok {
		nested.MarkdownDescription = "How long to wait for devices that have not joined yet."
		return nested
	}
	return a
}

func (d *deviceDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m deviceDataModel
	var key, value string
	for _, k := range deviceKeys() {
		var v types.String
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(k), &v)...)
		if v.ValueString() != "" {
			key, value = k, v.ValueString()
		}
	}
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("timeouts"), &m.Timeouts)...)
	wait, diags := m.Timeouts.Read(ctx, 0)
	resp.Diagnostics.Append(diags...)
	api := d.need(&resp.Diagnostics, "read the tailnet's devices")
	if resp.Diagnostics.HasError() {
		return
	}
	const pause = 2 * time.Second
	found, all, err := waitForDevice(ctx, api, key, value, wait, pause)
	switch {
	case err != nil:
		resp.Diagnostics.Append(apiError(err, ""))
	case len(found) == 0:
		resp.Diagnostics.AddAttributeError(path.Root(key), fmt.Sprintf("no device has the %s %q", key, value), unknownDevice(key, value, all, wait))
	case len(found) > 1:
		resp.Diagnostics.AddAttributeError(path.Root(key), fmt.Sprintf("%d devices have the %s %q", len(found), key, value), severalDevices(found))
	}
	if resp.Diagnostics.HasError() {
		return
	}
	m.deviceModel = found[0]
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// waitForDevice returns the devices of which the attribute has the value, and all there are, as soon as there is one or
// the time is over. A device appears some time after its machine was made.
func waitForDevice(ctx context.Context, api *client.Client, key, value string, wait, pause time.Duration) (found, all []deviceModel, err error) {
	for deadline := time.Now().Add(wait); ; {
		devices, err := api.Devices(ctx)
		if err != nil {
			return nil, nil, err
		}
		found, all = nil, nil
		for i := range devices {
			m := newDeviceModel(&devices[i])
			all = append(all, m)
			if m.key(key) == value || key == "id" && devices[i].ID == value {
				found = append(found, m)
			}
		}
		left := time.Until(deadline)
		if len(found) > 0 || left <= 0 {
			return found, all, nil
		}
		select {
		case <-ctx.Done():
			return nil, all, nil
		case <-time.After(min(pause, left)):
		}
	}
}

// key is the value of one of deviceKeys.
func (m *deviceModel) key(name string) string {
	switch name {
	case "name":
		return m.Name
	case "full_name":
		return m.FullName
	case "hostname":
		return m.Hostname
	}
	return m.ID
}

// unknownDevice says which devices there are instead.
func unknownDevice(key, value string, all []deviceModel, wait time.Duration) string {
	const most = 20
	var b strings.Builder
	if wait > 0 {
		fmt.Fprintf(&b, "It was waited for %s. ", wait)
	}
	if len(all) == 0 {
		return b.String() + "The tailnet has no device."
	}
	for _, other := range deviceKeys() { // such as the whole name, which the official provider calls name
		if slices.ContainsFunc(all, func(m deviceModel) bool { return m.key(other) == value }) {
			return fmt.Sprintf("%sIt is the %s of a device: ask for it by %s.", b.String(), other, other)
		}
	}
	var have []string
	for i := range all {
		have = append(have, fmt.Sprintf("%q", all[i].key(key)))
	}
	slices.Sort(have)
	have = slices.Compact(have)
	rest := ""
	if len(have) > most {
		rest = fmt.Sprintf(" and %d more", len(have)-most)
		have = have[:most]
	}
	fmt.Fprintf(&b, "The tailnet's devices have %s%s.", strings.Join(have, ", "), rest)
	return b.String()
}

// severalDevices tells the candidates apart, and how to choose one.
func severalDevices(found []deviceModel) string {
	var b strings.Builder
	b.WriteString("Say which one is meant by its id:\n\n")
	for _, m := range found {
		state := "offline"
		if m.Connected {
			state = "connected"
		}
		fmt.Fprintf(&b, "  %s  %s  %s  %s\n", m.ID, m.FullName, strings.Join(m.Addresses, ", "), state)
	}
	b.WriteString("\nA machine that registered twice leaves its old device behind; if so, remove that in the admin console.")
	return b.String()
}
