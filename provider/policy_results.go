package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// policyResultModel is the judgement of one line of tests or sshTests, or of one requirement, in a plan and in state.
type policyResultModel struct {
	Name    types.String `tfsdk:"name"`
	Src     types.String `tfsdk:"src"`
	Dst     types.String `tfsdk:"dst"`
	Proto   types.String `tfsdk:"proto"`
	Want    types.String `tfsdk:"want"`
	Verdict types.String `tfsdk:"verdict"`
	Rule    types.String `tfsdk:"rule"`
	Pairs   types.String `tfsdk:"pairs"`
}

func policyResultType() types.ObjectType {
	fields := map[string]attr.Type{}
	for _, name := range []string{"name", "src", "dst", "proto", "want", "verdict", "rule", "pairs"} {
		fields[name] = types.StringType
	}
	return types.ObjectType{AttrTypes: fields}
}

func policyResultsAttribute() schema.Attribute {
	str := func(doc string) schema.Attribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: doc}
	}
	return schema.ListNestedAttribute{
		Computed: true,
		MarkdownDescription: "What the policy does for each of the `requirements`, and for each line of its own `tests` and `sshTests`, in this " +
			"order. It is worked out as `access_gained` is, and each refresh brings it up to date with the devices of the day. Where a new " +
			"resource has no `inventory`, the plan shows what holds whatever devices there are, and the apply tells the rest.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name":  str("Name of the requirement, or its place as in `requirements[0]`, or the test's place in the policy, as in `tests[0].accept[1]`."),
			"src":   str("Where the flow starts, as the requirement or the test names it."),
			"dst":   str("Where it ends, as the requirement or the test names it."),
			"proto": str("Protocol; null where a test names none."),
			"want":  str("`accept`, `drop` or, of `sshTests`, `check`."),
			"verdict": str("`pass`, `fail`, or `undecided` where it depends on what the inventory does not tell. A failure stops the plan; " +
				"one is seen here where devices made it so since."),
			"rule":  str("The rules that decide, with their lines in `content`, as in `grants[3] (line 12)`."),
			"pairs": str("How many of the ordered pairs of devices the rules admit, as in `6 of 6 pairs`. Of requirements only."),
		}},
	}
}

// policyResults are the results of a report: of requirements first, because they are why people look.
func policyResults(report *policy.Report) []policyResultModel {
	lines := ruleLines(report.Policy)
	rules := func(paths ...string) types.String {
		var texts []string
		for _, p := range paths {
			switch line, ok := lines[p]; {
			case ok:
				texts = append(texts, fmt.Sprintf("%s (line %d)", p, line))
			case p != "":
				texts = append(texts, p)
			}
		}
		return optional(strings.Join(texts, ", "))
	}
	out := []policyResultModel{}
	for _, r := range report.Requirements {
		pairs := types.StringNull()
		if r.Verdict != policy.Undecided {
			pairs = types.StringValue(fmt.Sprintf("%d of %d pairs", r.Pairs-r.FailedPairs, r.Pairs))
		}
		out = append(out, policyResultModel{
			Name: types.StringValue(r.Requirement.Name), Src: types.StringValue(strings.Join(r.Requirement.Src, ", ")),
			Dst: types.StringValue(strings.Join(r.Requirement.Dst, ", ")), Proto: optional(r.Requirement.Proto),
			Want: types.StringValue("accept"), Verdict: types.StringValue(r.Verdict.String()), Rule: rules(r.Rules...), Pairs: pairs,
		})
	}
	for _, t := range slices.Concat(report.Tests, report.SSHTests) {
		dst := t.Dst
		if t.User != "" {
			dst = t.User + "@" + t.Dst
		}
		out = append(out, policyResultModel{
			Name: types.StringValue(t.Path), Src: types.StringValue(t.Src), Dst: types.StringValue(dst), Proto: optional(t.Proto),
			Want: optional(t.Want), Verdict: types.StringValue(t.Verdict.String()), Rule: rules(t.Rule), Pairs: types.StringNull(),
		})
	}
	return out
}

// ruleLines are the lines of a policy's rules, by their paths.
func ruleLines(p *policy.Policy) map[string]int {
	out := map[string]int{}
	if p == nil {
		return out
	}
	for i := range p.Grants {
		out[p.Grants[i].Path] = p.Grants[i].Range.Start.Line
	}
	for i := range p.ACLs {
		out[p.ACLs[i].Path] = p.ACLs[i].Range.Start.Line
	}
	for i := range p.SSH {
		out[p.SSH[i].Path] = p.SSH[i].Range.Start.Line
	}
	return out
}

// judged are the results of a text, which need not have been checked before.
func judged(ctx context.Context, m *policyModel, inv *policy.Inventory) ([]policyResultModel, diag.Diagnostics) {
	reqs, diags := requirementsOf(ctx, m.Requirements)
	if diags.HasError() {
		return nil, diags
	}
	return policyResults(policy.Check("", []byte(m.Content.ValueString()), inv, reqs)), diags
}

// planResults sets what the plan can promise of the results. An apply plans anew and must come to the same, although
// devices may have come and gone. A resource that is there has the devices that its refresh saw. One that is created has
// none: what is judged by names alone holds, and the rest is left open.
func (m *policyModel) planResults(ctx context.Context, seen *policy.Inventory, created bool) (diags diag.Diagnostics) {
	if !created && seen == nil {
		return nil
	}
	results, diags := judged(ctx, m, seen)
	if seen == nil {
		for i := range results {
			r := &results[i]
			if r.Verdict.ValueString() != policy.Pass.String() {
				r.Verdict, r.Rule = types.StringUnknown(), types.StringUnknown()
			}
			if i < len(m.Requirements.Elements()) {
				r.Pairs = types.StringUnknown()
			}
		}
	}
	diags.Append(m.setResults(ctx, results)...)
	return diags
}

// settleResults works out what the plan left open, and leaves alone what it promised.
func (m *policyModel) settleResults(ctx context.Context, inv *policy.Inventory) (diags diag.Diagnostics) {
	if known(ctx, m.TestResults) {
		return nil
	}
	if !m.checksOffline() {
		m.TestResults = types.ListNull(policyResultType())
		return nil
	}
	var planned []policyResultModel
	if !m.TestResults.IsUnknown() {
		diags.Append(m.TestResults.ElementsAs(ctx, &planned, false)...)
	}
	results, d := judged(ctx, m, inv)
	diags.Append(d...)
	if len(planned) == len(results) {
		for i, p := range planned {
			if !p.Verdict.IsUnknown() {
				results[i].Verdict, results[i].Rule = p.Verdict, p.Rule
			}
		}
	}
	diags.Append(m.setResults(ctx, results)...)
	return diags
}

// refreshResults brings the results of the state up to date.
func (m *policyModel) refreshResults(ctx context.Context, inv *policy.Inventory) (diags diag.Diagnostics) {
	m.TestResults = types.ListNull(policyResultType())
	if inv == nil || !m.checksOffline() {
		return nil
	}
	results, diags := judged(ctx, m, inv)
	diags.Append(m.setResults(ctx, results)...)
	return diags
}

func (m *policyModel) setResults(ctx context.Context, results []policyResultModel) (diags diag.Diagnostics) {
	m.TestResults, diags = types.ListValueFrom(ctx, policyResultType(), results)
	return diags
}
