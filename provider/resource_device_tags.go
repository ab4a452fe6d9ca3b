package provider

import (
	"context"
	"regexp"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

type deviceTagsModel struct {
	devicePartModel
	Tags []string `tfsdk:"tags"`
}

// newDeviceTags is the resource tailmesh_device_tags. Destroyed, it leaves the tags: a device without them would belong
// to nobody and to no rule.
func newDeviceTags() resource.Resource {
	return &devicePart[deviceTagsModel, *deviceTagsModel]{
		typeName: "_device_tags", official: "tailscale_device_tags",
		doc: "The tags of a device, all of them. A device with tags belongs to nobody; it is not given back to its user when " +
			"this resource is destroyed, which leaves the tags as they are. Needs the scope `devices:core`.",
		attributes: map[string]schema.Attribute{
			"tags": schema.SetAttribute{
				Required: true, ElementType: types.StringType, MarkdownDescription: "Tags, as in `tag:node`. The policy must define them.",
				Validators: append(tagSet(), setvalidator.SizeAtLeast(1)),
			},
		},
		reading: "read the device", writing: "set the device's tags",
		read: func(ctx context.Context, api *client.Client, m *deviceTagsModel) error {
			device, err := api.Device(ctx, m.device())
			m.Tags = sorted(device.Tags)
			return err
		},
		write: func(ctx context.Context, api *client.Client, _, m *deviceTagsModel) error {
			return api.SetDeviceTags(ctx, m.device(), slices.Clone(m.Tags))
		},
	}
}

// tagSet wants tags by their full names. A bare name would be refused late, or match nothing without a word.
func tagSet() []validator.Set {
	form := stringvalidator.RegexMatches(regexp.MustCompile(`^tag:.`), `want the form "tag:node"`)
	return []validator.Set{noNulls{}, setvalidator.ValueStringsAre(form)}
}
