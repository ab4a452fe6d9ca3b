package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// policyFormat is the function policy_format.
type policyFormat struct{}

func newPolicyFormat() function.Function { return policyFormat{} }

func (policyFormat) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "policy_format"
}

func (policyFormat) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary:             "Formats a policy file",
		MarkdownDescription: "Formats a policy file as the control plane does when it stores one. Comments are kept.",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "policy", MarkdownDescription: "The policy file, as HuJSON or JSON."},
		},
		Return: function.StringReturn{},
	}
}

func (policyFormat) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	out, err := policy.Format([]byte(text))
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, "not HuJSON: "+err.Error())
		return
	}
	resp.Error = resp.Result.Set(ctx, string(out))
}
