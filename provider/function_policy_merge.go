package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/provider/fragment"
)

// policyMerge is the function policy_merge.
type policyMerge struct{}

func newPolicyMerge() function.Function { return policyMerge{} }

func (policyMerge) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "policy_merge"
}

func (policyMerge) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Joins fragments of a policy file",
		MarkdownDescription: "Joins fragments into one policy file, in their order. Lists such as `grants` and `tests` are joined end to end, " +
			"objects such as `groups` and `tagOwners` key by key. What two fragments give differently is an error that names both. " +
			"Comments are kept, and so are sections that this provider does not know.",
		Parameters: []function.Parameter{
			function.ListParameter{
				Name: "fragments", ElementType: types.StringType, Validators: []function.ListParameterValidator{noNulls{}},
				MarkdownDescription: "Pieces of a policy file, each an object in HuJSON or JSON.",
			},
		},
		Return: function.StringReturn{},
	}
}

func (policyMerge) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var texts []string
	if resp.Error = req.Arguments.Get(ctx, &texts); resp.Error != nil {
		return
	}
	list := make([]fragment.Fragment, len(texts))
	for i, t := range texts {
		list[i] = fragment.Fragment{Name: fmt.Sprintf("fragment %d", i+1), Text: t}
	}
	out, err := fragment.Merge(list)
	if err != nil {
		resp.Error = function.NewArgumentFuncError(0, err.Error())
		return
	}
	resp.Error = resp.Result.Set(ctx, out)
}
