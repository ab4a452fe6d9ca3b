package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// noNulls wants every element of a list, set or map to have a value, and every element of such elements. A configuration
// makes one that has none by a condition, as in [var.more ? "tag:node" : null]; to leave it out would be a guess.
type noNulls struct{}

var (
	_ validator.List                  = noNulls{}
	_ validator.Set                   = noNulls{}
	_ validator.Map                   = noNulls{}
	_ function.ListParameterValidator = noNulls{}
)

func (noNulls) Description(context.Context) string { return "No element may be null." }

func (v noNulls) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (noNulls) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	refuseNulls(req.Path, req.ConfigValue, &resp.Diagnostics)
}

func (noNulls) ValidateSet(_ context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	refuseNulls(req.Path, req.ConfigValue, &resp.Diagnostics)
}

func (noNulls) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	refuseNulls(req.Path, req.ConfigValue, &resp.Diagnostics)
}

func (noNulls) ValidateParameterList(_ context.Context, req function.ListParameterValidatorRequest, resp *function.ListParameterValidatorResponse) {
	if where, ok := nullElement("element ", req.Value); ok {
		resp.Error = function.NewArgumentFuncError(req.ArgumentPosition, where+" is null; "+nullHelp)
	}
}

const nullHelp = "leave it out, as compact() or a for expression with an if does"

func refuseNulls(at path.Path, v attr.Value, diags *diag.Diagnostics) {
	if where, ok := nullElement(at.String(), v); ok {
		diags.AddAttributeError(at, where+" is null", sentence(nullHelp))
	}
}

// nullElement is the first element that is null, named with what it is in, as in `locations["ams1"]`.
func nullElement(in string, v attr.Value) (where string, ok bool) {
	look := func(where string, element attr.Value) (string, bool) {
		if element.IsNull() {
			return where, true
		}
		return nullElement(where, element)
	}
	switch v := v.(type) {
	case basetypes.ListValuable:
		list, _ := v.ToListValue(context.Background())
		for i, element := range list.Elements() {
			if where, ok := look(fmt.Sprintf("%s[%d]", in, i), element); ok {
				return where, true
			}
		}
	case basetypes.SetValuable:
		set, _ := v.ToSetValue(context.Background())
		if slices.ContainsFunc(set.Elements(), attr.Value.IsNull) { // elements of sets have no names
			return "an element of " + in, true
		}
	case basetypes.MapValuable:
		m, _ := v.ToMapValue(context.Background())
		elements := m.Elements()
		for _, key := range slices.Sorted(maps.Keys(elements)) {
			if where, ok := look(fmt.Sprintf("%s[%q]", in, key), elements[key]); ok {
				return where, true
			}
		}
	}
	return "", false
}
