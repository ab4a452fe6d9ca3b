package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// policyCan is the function policy_can.
type policyCan struct{}

func newPolicyCan() function.Function { return policyCan{} }

// decisionModel is what policy_can returns.
type decisionModel struct {
	Allowed bool     `tfsdk:"allowed"`
	Verdict string   `tfsdk:"verdict"`
	Rule    *string  `tfsdk:"rule"`
	Line    *int64   `tfsdk:"line"`
	Missing []string `tfsdk:"missing"`
}

func (policyCan) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "policy_can"
}

func (policyCan) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Says whether a policy admits a flow",
		MarkdownDescription: "Says offline whether a policy admits a flow, and which rule decides. The answer is an object: `verdict` is `pass`, " +
			"`fail` or `undecided`; `allowed` is true where it is `pass`; `rule` and `line` say where the deciding rule is in the text, and are " +
			"null where there is none; `missing` lists what would have to be known to decide.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "policy", MarkdownDescription: "The policy file, as HuJSON or JSON."},
			inventoryParameter(),
			function.StringParameter{Name: "src", MarkdownDescription: "Where the flow starts: a selector as in a rule, or the name of a device."},
			function.StringParameter{Name: "dst", MarkdownDescription: "Where it ends, without a port."},
			function.StringParameter{Name: "proto", MarkdownDescription: "Protocol by name or number, such as `tcp` or `ip-in-ip`."},
			function.Int64Parameter{Name: "port", MarkdownDescription: "Port; 0 for protocols that have none."},
		},
		Return: function.ObjectReturn{AttributeTypes: map[string]attr.Type{
			"allowed": types.BoolType, "verdict": types.StringType, "rule": types.StringType, "line": types.Int64Type,
			"missing": types.ListType{ElemType: types.StringType},
		}},
	}
}

// inventoryParameter is the inventory of functions that judge a policy. It may not be null, because OpenTofu sends a null
// argument in a form that the plugin framework cannot read.
func inventoryParameter() function.Parameter {
	return function.StringParameter{
		Name: "inventory",
		MarkdownDescription: "The devices and users that the policy is judged with, as JSON: `{\"devices\": […], \"users\": […]}`, each element as " +
			"in the API's lists (`?fields=all`). An empty string leaves undecided what depends on them.",
	}
}

// judge checks a policy given as the first two arguments of a function.
func judge(text, inventory string) (*policy.Report, *function.FuncError) {
	var inv *policy.Inventory
	if inventory != "" {
		var err error
		if inv, err = policy.ParseInventory([]byte(inventory)); err != nil {
			return nil, function.NewArgumentFuncError(1, err.Error())
		}
	}
	report := policy.Check("", []byte(text), inv, nil)
	if report.Compiled == nil {
		return nil, function.NewArgumentFuncError(0, "the control plane would refuse this policy: "+report.Message)
	}
	return report, nil
}

func (policyCan) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text, inventory, src, dst, proto string
	var port int64
	if resp.Error = req.Arguments.Get(ctx, &text, &inventory, &src, &dst, &proto, &port); resp.Error != nil {
		return
	}
	if port < 0 || port > 65535 {
		resp.Error = function.NewArgumentFuncError(5, "not a port: want a number from 0 to 65535")
		return
	}
	report, failed := judge(text, inventory)
	if failed != nil {
		resp.Error = failed
		return
	}
	d, err := report.Compiled.Can(src, dst, proto, int(port))
	if err != nil {
		resp.Error = function.NewFuncError(err.Error())
		return
	}
	resp.Error = resp.Result.Set(ctx, decisionModel{
		Allowed: d.Verdict == policy.Pass, Verdict: d.Verdict.String(), Rule: textOrNil(d.Rule), Line: lineOrNil(d.Range.Start.Line),
		Missing: append([]string{}, d.Missing...),
	})
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func lineOrNil(n int) *int64 {
	if n == 0 {
		return nil
	}
	line := int64(n)
	return &line
}
