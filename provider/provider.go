// Package provider is the Terraform and OpenTofu provider "tailmesh": it owns a tailnet's policy file, proves at plan
// time that the policy admits what a mesh needs, and works out the mesh. What a policy means is said by package policy,
// what a mesh is by package provider/mesh, and the API is spoken by package provider/client.
package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// Address is where registries have the provider.
const Address = "registry.opentofu.org/tailmesh/tailmesh"

// New returns a constructor of the provider, as the plugin server wants it.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &tailmesh{version: version} }
}

type tailmesh struct {
	version string
}

var (
	_ provider.ProviderWithFunctions          = (*tailmesh)(nil)
	_ provider.ProviderWithEphemeralResources = (*tailmesh)(nil)
)

func (p *tailmesh) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "tailmesh"
	resp.Version = p.version
}

func (p *tailmesh) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		newPolicyResource,
		newDeviceAuthorization,
		newDeviceRoutes,
		newDeviceTags,
	}
}

func (p *tailmesh) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		newDeviceDataSource,
		newDevicesDataSource,
		newMeshDataSource,
		newNodeBootstrapDataSource,
		newPolicyCheckDataSource,
		newPolicyDocument,
	}
}

func (p *tailmesh) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		newPolicyCan,
		newPolicyFormat,
		newPolicyMerge,
		newPolicyTests,
		newNodeConfigDecode,
	}
}

func (p *tailmesh) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{
		newAuthKey,
	}
}
