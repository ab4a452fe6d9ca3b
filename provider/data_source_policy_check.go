package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	policydiag "github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// policyCheckDataSource judges a policy that this configuration does not own.
type policyCheckDataSource struct{ session }

var _ datasource.DataSourceWithConfigure = (*policyCheckDataSource)(nil)

func newPolicyCheckDataSource() datasource.DataSource { return &policyCheckDataSource{} }

type policyCheckModel struct {
	Content       types.String             `tfsdk:"content"`
	Inventory     types.String             `tfsdk:"inventory"`
	Requirements  types.List               `tfsdk:"requirements"`
	UnknownGroups types.Set                `tfsdk:"unknown_groups"`
	FindingsAs    types.String             `tfsdk:"findings_as"`
	Accepted      types.Bool               `tfsdk:"accepted"`
	Message       types.String             `tfsdk:"message"`
	OK            types.Bool               `tfsdk:"ok"`
	Findings      []findingModel           `tfsdk:"findings"`
	TestResults   []testResultModel        `tfsdk:"test_results"`
	Results       []requirementResultModel `tfsdk:"requirement_results"`
}

// What becomes of findings.
const (
	findingsAsValues   = "values"
	findingsAsWarnings = "warnings"
	findingsAsErrors   = "errors"
)

type findingModel struct {
	Severity string  `tfsdk:"severity"`
	Code     string  `tfsdk:"code"`
	Message  string  `tfsdk:"message"`
	Path     *string `tfsdk:"path"`
	Line     *int64  `tfsdk:"line"`
	Column   *int64  `tfsdk:"column"`
	Detail   string  `tfsdk:"detail"`
}

type requirementResultModel struct {
	Name    string   `tfsdk:"name"`
	Verdict string   `tfsdk:"verdict"`
	Pairs   int64    `tfsdk:"pairs"`
	Failed  int64    `tfsdk:"failed"`
	Missing []string `tfsdk:"missing"`
}

func (d *policyCheckDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_policy_check"
}

func (d *policyCheckDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.use(req.ProviderData)
}

func (d *policyCheckDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	str := func(doc string) schema.Attribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: doc}
	}
	number := func(doc string) schema.Attribute {
		return schema.Int64Attribute{Computed: true, MarkdownDescription: doc}
	}
	selectors := schema.ListAttribute{
		Required: true, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
		MarkdownDescription: "Selectors as in a grant: tags, users, groups, hosts, addresses.",
	}
	list := func(doc string, attributes map[string]schema.Attribute) schema.Attribute {
		return schema.ListNestedAttribute{
			Computed: true, MarkdownDescription: doc, NestedObject: schema.NestedAttributeObject{Attributes: attributes},
		}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Judges a policy file offline, as `tailmesh_policy` does at plan time, and returns what it finds in place of failing. " +
			"It is for policies that this configuration does not own, such as that of `tailscale_acl` of the provider `tailscale/tailscale`: for " +
			"`check` blocks, preconditions and pull requests. With `findings_as` it fails the plan, or warns, by itself.",
		Attributes: map[string]schema.Attribute{
			"content": schema.StringAttribute{
				Optional: true, MarkdownDescription: "The policy file, as HuJSON or JSON. By default the one that is in force, read from the API.",
			},
			"inventory": schema.StringAttribute{
				Optional: true, MarkdownDescription: "The devices and users to judge with, as for `tailmesh_policy`. By default those of the API.",
			},
			"requirements": schema.ListNestedAttribute{
				Optional: true, MarkdownDescription: "Flows that the policy must admit, as for `tailmesh_policy`.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name": schema.StringAttribute{Optional: true, MarkdownDescription: "What to call it in messages."},
					"src":  selectors,
					"dst":  selectors,
					"proto": schema.StringAttribute{
						Required: true, MarkdownDescription: "Protocol by name or number, as in an acl: `tcp`, `udp`, `icmp`, `ip-in-ip`, `4`.",
					},
					"ports": schema.StringAttribute{
						Optional: true, MarkdownDescription: "Ports, such as `443` or `80-443`. All by default, as protocols without ports need it.",
					},
					"why": schema.StringAttribute{Optional: true, MarkdownDescription: "The reason, shown where the requirement is not met."},
				}},
			},
			"unknown_groups": schema.SetAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.Set{noNulls{}},
				MarkdownDescription: unknownGroupsDoc,
			},
			"findings_as": schema.StringAttribute{
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(findingsAsValues, findingsAsWarnings, findingsAsErrors)},
				MarkdownDescription: "What becomes of findings besides the attribute: nothing with `values`; with `errors` each one is a diagnostic of " +
					"the plan or apply as `tailmesh_policy` gives it, so that an error of the policy fails the plan; with `warnings` none fails it. " +
					"Default `values`.",
			},
			"ok":       schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the policy would be accepted and no finding is an error."},
			"accepted": schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether the control plane would accept the policy."},
			"message":  str("What the control plane would say to the policy; empty where it would accept it."),
			"findings": list("What was found in the policy: why the control plane would refuse it, requirements that are not met, and what is "+
				"probably not meant.", map[string]schema.Attribute{
				"severity": str("`error`, `warning` or `note`."),
				"code":     str("What kind of finding it is; `tailmesh-policy explain CODE` tells about it."),
				"message":  str("The finding in one line."),
				"path":     str("Where in the policy, as in `grants[3].src[0]`."),
				"line":     number("Line of the text, from 1."),
				"column":   number("Column in characters, from 1."),
				"detail":   str("The source lines, what else is known, and the way out."),
			}),
			"test_results": list("The policy's own `tests` and `sshTests`, line by line.", map[string]schema.Attribute{
				"path": str("Where the line of the test is, as in `tests[0].accept[1]`."), "line": number("Line of the text, from 1."),
				"src": str("Where the flow starts, as the test names it."), "dst": str("Where it ends, as the test names it."),
				"proto": str("Protocol; null where the test names none."), "user": str("Account that an SSH test logs in to."),
				"want": str("What the test asks for: `accept`, `drop` or, of `sshTests`, `check`."),
				"got":  str("What the policy does, in the same words."), "verdict": str("`pass`, `fail` or `undecided`."),
				"rule": str("The rule that decides, as in `grants[3]`; null where none does."),
			}),
			"requirement_results": list("The requirements, in their order.", map[string]schema.Attribute{
				"name": str("What the requirement is called."), "verdict": str("`pass`, `fail` or `undecided`."),
				"pairs": number("Ordered pairs of devices that were judged."), "failed": number("Pairs between which the flow is not admitted."),
				"missing": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "What would have to be known to decide."},
			}),
		},
	}
}

func (d *policyCheckDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m policyCheckModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	reqs, diags := requirementsOf(ctx, m.Requirements)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	inv, diags := d.inventory(ctx, m.Inventory)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	src := []byte(m.Content.ValueString())
	if m.Content.IsNull() {
		api := d.need(&resp.Diagnostics, "read the policy file")
		if api == nil {
			return
		}
		live, err := api.GetPolicy(ctx)
		if err != nil {
			resp.Diagnostics.Append(apiError(err, ""))
			return
		}
		src = []byte(live.HuJSON)
	}
	report := policy.Check("", src, inv, reqs)
	found, diags := tolerated(ctx, report, m.UnknownGroups)
	resp.Diagnostics.Append(diags...)
	m.Accepted, m.Message = types.BoolValue(report.Accepted), types.StringValue(report.Message)
	m.OK = types.BoolValue(report.Accepted && !found.HasErrors())
	m.TestResults = testResults(report)
	m.Findings = findingModels(found, src)
	m.Results = []requirementResultModel{}
	for _, r := range report.Requirements {
		m.Results = append(m.Results, requirementResultModel{
			Name: r.Requirement.Name, Verdict: r.Verdict.String(), Pairs: int64(r.Pairs), Failed: int64(r.FailedPairs), Missing: someStrings(r.Missing),
		})
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
	if as := m.FindingsAs.ValueString(); as == findingsAsWarnings || as == findingsAsErrors {
		resp.Diagnostics.Append(reported(report, found, src, as)...)
	}
}

// reported are the findings as diagnostics, with the control plane's own words where it would refuse the policy for what no
// finding says.
func reported(report *policy.Report, found policydiag.List, src []byte, as string) (diags diag.Diagnostics) {
	at := path.Root("content")
	diags = findings(at, found, src)
	if !report.Accepted && !diags.HasError() {
		diags.AddAttributeError(at, report.Message, "The control plane would refuse this policy with this message.")
	}
	if as == findingsAsErrors {
		return diags
	}
	var warnings diag.Diagnostics
	for _, d := range diags {
		warnings.AddAttributeWarning(at, d.Summary(), d.Detail())
	}
	return warnings
}

func findingModels(list policydiag.List, src []byte) []findingModel {
	out := []findingModel{}
	for _, d := range list {
		out = append(out, findingModel{
			Severity: d.Severity.String(), Code: d.Code, Message: d.Message, Path: textOrNil(d.Path),
			Line: lineOrNil(d.Range.Start.Line), Column: lineOrNil(d.Range.Start.Column), Detail: policydiag.Detail(d, src),
		})
	}
	return out
}
