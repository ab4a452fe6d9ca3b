package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// nodeConfigDecode is the function node_config_decode.
type nodeConfigDecode struct{}

func newNodeConfigDecode() function.Function { return nodeConfigDecode{} }

func (nodeConfigDecode) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "node_config_decode"
}

func (nodeConfigDecode) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Reads a node's document",
		MarkdownDescription: "Reads a document for `tailmesh-agent` as strictly as the agent does (an unknown key, or what would be unsafe on the " +
			"node, is an error that names the place) and returns it as an object, defaults filled in.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "document", MarkdownDescription: "The document, as JSON."},
		},
		Return: function.DynamicReturn{},
	}
}

func (nodeConfigDecode) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	doc, err := config.Parse([]byte(text))
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, err.Error())
		return
	}
	full, err := doc.Marshal()
	var value any
	if err == nil {
		err = json.Unmarshal(full, &value)
	}
	if err != nil {
		resp.Error = function.NewFuncError(err.Error())
		return
	}
	dynamic, diags := dynamicValue(value)
	if resp.Error = function.FuncErrorFromDiags(ctx, diags); resp.Error != nil {
		return
	}
	resp.Error = resp.Result.Set(ctx, types.DynamicValue(dynamic))
}

// dynamicValue is a JSON value as configurations have it; lists become tuples, as jsondecode makes them.
func dynamicValue(v any) (attr.Value, diag.Diagnostics) {
	var diags diag.Diagnostics
	switch v := v.(type) {
	case bool:
		return types.BoolValue(v), nil
	case string:
		return types.StringValue(v), nil
	case float64:
		return types.NumberValue(big.NewFloat(v)), nil
	case []any:
		values, kinds := make([]attr.Value, len(v)), make([]attr.Type, len(v))
		for i, e := range v {
			value, d := dynamicValue(e)
			diags.Append(d...)
			if d.HasError() {
				return nil, diags
			}
			values[i], kinds[i] = value, value.Type(context.Background())
		}
		return types.TupleValue(kinds, values)
	case map[string]any:
		values, kinds := make(map[string]attr.Value, len(v)), make(map[string]attr.Type, len(v))
		for key, e := range v {
			value, d := dynamicValue(e)
			diags.Append(d...)
			if d.HasError() {
				return nil, diags
			}
			values[key], kinds[key] = value, value.Type(context.Background())
		}
		return types.ObjectValue(kinds, values)
	}
	diags.AddError("a document holds a value of no known kind", fmt.Sprintf("%T", v))
	return nil, diags
}
