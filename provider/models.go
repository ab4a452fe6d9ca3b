package provider

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// requirementModel is a requirement in configurations and state.
type requirementModel struct {
	Name  types.String `tfsdk:"name"`
	Src   types.List   `tfsdk:"src"`
	Dst   types.List   `tfsdk:"dst"`
	Proto types.String `tfsdk:"proto"`
	Ports types.String `tfsdk:"ports"`
	Why   types.String `tfsdk:"why"`
}

func requirementType() types.ObjectType {
	list := types.ListType{ElemType: types.StringType}
	return types.ObjectType{AttrTypes: map[string]attr.Type{
		"name": types.StringType, "src": list, "dst": list, "proto": types.StringType, "ports": types.StringType, "why": types.StringType,
	}}
}

// requirementsOf reads a list of requirements that is known in full. One without a name is called by its place.
func requirementsOf(ctx context.Context, list types.List) ([]policy.Requirement, diag.Diagnostics) {
	var models []requirementModel
	diags := list.ElementsAs(ctx, &models, false)
	var out []policy.Requirement
	for i, m := range models {
		r := policy.Requirement{
			Name: cmp.Or(m.Name.ValueString(), fmt.Sprintf("requirements[%d]", i)), Proto: m.Proto.ValueString(), Ports: m.Ports.ValueString(), Why: m.Why.ValueString(),
		}
		diags.Append(m.Src.ElementsAs(ctx, &r.Src, false)...)
		diags.Append(m.Dst.ElementsAs(ctx, &r.Dst, false)...)
		out = append(out, r)
	}
	return out, diags
}

// requirementsValue is the list as configurations have it.
func requirementsValue(ctx context.Context, reqs []policy.Requirement) (types.List, diag.Diagnostics) {
	models := make([]requirementModel, len(reqs))
	var diags diag.Diagnostics
	for i, r := range reqs {
		src, d := types.ListValueFrom(ctx, types.StringType, r.Src)
		diags.Append(d...)
		dst, d := types.ListValueFrom(ctx, types.StringType, r.Dst)
		diags.Append(d...)
		models[i] = requirementModel{
			Name: types.StringValue(r.Name), Src: src, Dst: dst, Proto: types.StringValue(r.Proto),
			Ports: optional(r.Ports), Why: optional(r.Why),
		}
	}
	list, d := types.ListValueFrom(ctx, requirementType(), models)
	diags.Append(d...)
	return list, diags
}

// optional is null for the empty string.
func optional(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}

// known reports whether nothing in the value is unknown.
func known(ctx context.Context, v attr.Value) bool {
	tf, err := v.ToTerraformValue(ctx)
	return err == nil && tf.IsFullyKnown()
}
