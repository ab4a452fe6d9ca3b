package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// policyTests is the function policy_test.
type policyTests struct{}

func newPolicyTests() function.Function { return policyTests{} }

// testResultModel is the judgement of one entry line of tests or sshTests, in functions and in state.
type testResultModel struct {
	Path    string  `tfsdk:"path"`
	Line    *int64  `tfsdk:"line"`
	Src     string  `tfsdk:"src"`
	Dst     string  `tfsdk:"dst"`
	Proto   *string `tfsdk:"proto"`
	User    *string `tfsdk:"user"`
	Want    string  `tfsdk:"want"`
	Got     string  `tfsdk:"got"`
	Verdict string  `tfsdk:"verdict"`
	Rule    *string `tfsdk:"rule"`
}

func testResultType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{
		"path": types.StringType, "line": types.Int64Type, "src": types.StringType, "dst": types.StringType, "proto": types.StringType,
		"user": types.StringType, "want": types.StringType, "got": types.StringType, "verdict": types.StringType, "rule": types.StringType,
	}}
}

const testResultDoc = "`path` and `line` say where it is in the text, `src`, `dst`, `proto` and (of sshTests) `user` what it is about, `want` and " +
	"`got` what it asks for and what the policy does, `rule` which rule decides, and `verdict` is `pass`, `fail` or `undecided`"

// testResults are the results of a report, tests before sshTests.
func testResults(report *policy.Report) []testResultModel {
	out := []testResultModel{}
	for _, r := range slices.Concat(report.Tests, report.SSHTests) {
		out = append(out, testResultModel{
			Path: r.Path, Line: lineOrNil(r.Range.Start.Line), Src: r.Src, Dst: r.Dst, Proto: textOrNil(r.Proto), User: textOrNil(r.User),
			Want: r.Want, Got: r.Got, Verdict: r.Verdict.String(), Rule: textOrNil(r.Rule),
		})
	}
	return out
}

func (policyTests) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "policy_test"
}

func (policyTests) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Runs the tests of a policy file",
		MarkdownDescription: "Runs the `tests` and `sshTests` of a policy file offline. The answer is a list with an object for each line of them: " +
			testResultDoc + ".",
		Parameters: []function.Parameter{
			function.StringParameter{Name: "policy", MarkdownDescription: "The policy file, as HuJSON or JSON."},
			inventoryParameter(),
		},
		Return: function.ListReturn{ElementType: testResultType()},
	}
}

func (policyTests) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text, inventory string
	if resp.Error = req.Arguments.Get(ctx, &text, &inventory); resp.Error != nil {
		return
	}
	report, failed := judge(text, inventory)
	if failed != nil {
		resp.Error = failed
		return
	}
	resp.Error = resp.Result.Set(ctx, testResults(report))
}
