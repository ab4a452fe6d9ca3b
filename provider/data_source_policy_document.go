package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/provider/fragment"
)

// policyDocument composes a policy file of what this configuration says and of fragments that others own.
type policyDocument struct{}

var _ datasource.DataSource = policyDocument{}

func newPolicyDocument() datasource.DataSource { return policyDocument{} }

type policyDocumentModel struct {
	Groups    map[string][]string `tfsdk:"groups"`
	Hosts     map[string]string   `tfsdk:"hosts"`
	TagOwners map[string][]string `tfsdk:"tag_owners"`
	Grants    []grantModel        `tfsdk:"grants"`
	Tests     []testModel         `tfsdk:"tests"`
	Fragments map[string]string   `tfsdk:"fragments"`
	Content   types.String        `tfsdk:"content"`
}

type grantModel struct {
	Comment    types.String `tfsdk:"comment"`
	Src        []string     `tfsdk:"src"`
	Dst        []string     `tfsdk:"dst"`
	IP         []string     `tfsdk:"ip"`
	Via        []string     `tfsdk:"via"`
	SrcPosture []string     `tfsdk:"src_posture"`
	App        types.String `tfsdk:"app"`
}

type testModel struct {
	Comment types.String `tfsdk:"comment"`
	Src     string       `tfsdk:"src"`
	Proto   types.String `tfsdk:"proto"`
	Accept  []string     `tfsdk:"accept"`
	Deny    []string     `tfsdk:"deny"`
}

func (policyDocument) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_policy_document"
}

func (policyDocument) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	list := func(required bool, doc string) schema.Attribute {
		return schema.ListAttribute{
			Required: required, Optional: !required, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
			MarkdownDescription: doc,
		}
	}
	lists := func(doc string) schema.Attribute {
		return schema.MapAttribute{
			Optional: true, ElementType: types.ListType{ElemType: types.StringType}, Validators: []validator.Map{noNulls{}},
			MarkdownDescription: doc,
		}
	}
	comment := schema.StringAttribute{Optional: true, MarkdownDescription: "A comment for the line above it in the file."}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Composes a policy file of what is said here and of fragments that others own, such as the outputs of modules. " +
			"It needs no API. The same input gives the same text.\n\n" +
			"Lists of rules and tests are joined end to end: what is said here first, then the fragments in the order of their names. " +
			"Groups, hosts, tag owners and whatever else is an object is joined key by key; a key that two owners give different values is an " +
			"error that names both. Sections for which there is no attribute go into a fragment, for instance by `jsonencode`.",
		Attributes: map[string]schema.Attribute{
			"groups":     lists("Members of each group, by its name with `group:`, as in `{ \"group:sre\" = [\"ada@example.com\"] }`."),
			"tag_owners": lists("Who may give each tag, by the tag, as in `{ \"tag:node\" = [\"group:sre\"] }`."),
			"hosts": schema.MapAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.Map{noNulls{}},
				MarkdownDescription: "Addresses and networks by the names that rules have for them, as in `{ printer = \"192.168.1.9\" }`.",
			},
			"grants": schema.ListNestedAttribute{
				Optional: true, MarkdownDescription: "Grants, in the order in which they are written.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"comment":     comment,
					"src":         list(true, "Where flows start: users, groups, tags, hosts, addresses."),
					"dst":         list(true, "Where they end, without ports."),
					"ip":          list(false, "Protocols and ports: `*` (TCP, UDP and ICMP), `443`, `udp:53`, `ip-in-ip:*`."),
					"via":         list(false, "Tags of the nodes that traffic to a route must pass."),
					"src_posture": list(false, "Postures that a source must have."),
					"app":         schema.StringAttribute{Optional: true, MarkdownDescription: "Capabilities as JSON: `jsonencode({\"example.com/cap/x\" = [{}]})`."},
				}},
			},
			"tests": schema.ListNestedAttribute{
				Optional: true, MarkdownDescription: "Tests, in the order in which they are written. The control plane runs them before each write, the provider in each plan.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"comment": comment,
					"src":     schema.StringAttribute{Required: true, MarkdownDescription: "Where the flows start: a user, group, tag or host."},
					"proto": schema.StringAttribute{
						Optional: true, MarkdownDescription: "Protocol; TCP and UDP by default. One without ports, such as `ip-in-ip`, is tested with port 0.",
					},
					"accept": list(false, "Destinations with a port, as in `tag:node:443`, that must be reached."),
					"deny":   list(false, "Destinations with a port that must not be reached."),
				}},
			},
			"fragments": schema.MapAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.Map{noNulls{}},
				MarkdownDescription: "Pieces of a policy file, each an object in HuJSON or JSON, by the name of their owner. Comments in them are kept.",
			},
			"content": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The policy file, formatted as the control plane formats it, for `content` of `tailmesh_policy`.",
			},
		},
	}
}

func (policyDocument) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m policyDocumentModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	own, diags := m.own()
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	pieces := []fragment.Fragment{{Name: "this document", Text: own, Generated: true}}
	for _, name := range slices.Sorted(maps.Keys(m.Fragments)) {
		pieces = append(pieces, fragment.Fragment{Name: fmt.Sprintf("fragment %q", name), Text: m.Fragments[name]})
	}
	content, err := fragment.Merge(pieces)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			resp.Diagnostics.AddAttributeError(path.Root("fragments"), "the policy cannot be composed", line+".")
		}
		return
	}
	m.Content = types.StringValue(content)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// own writes what the configuration says itself.
func (m *policyDocumentModel) own() (text string, diags diag.Diagnostics) {
	var b strings.Builder
	b.WriteString("{\n")
	section := func(name string, value any, there bool) {
		if there {
			fmt.Fprintf(&b, "%q: %s,\n", name, jsonText(value))
		}
	}
	section("groups", m.Groups, m.Groups != nil)
	section("hosts", m.Hosts, m.Hosts != nil)
	section("tagOwners", m.TagOwners, m.TagOwners != nil)
	entries := func(name string, n int, entry func(i int) (comment types.String, value any)) {
		fmt.Fprintf(&b, "%q: [\n", name)
		for i := range n {
			comment, value := entry(i)
			for line := range strings.Lines(comment.ValueString()) {
				b.WriteString("// " + strings.TrimSpace(line) + "\n")
			}
			b.WriteString(jsonText(value) + ",\n")
		}
		b.WriteString("],\n")
	}
	if m.Grants != nil {
		entries("grants", len(m.Grants), func(i int) (types.String, any) {
			g := m.Grants[i]
			if app := g.App.ValueString(); app != "" && !json.Valid([]byte(app)) {
				diags.AddAttributeError(path.Root("grants").AtListIndex(i), "app is not JSON", "Want an object, such as jsonencode({…}) gives.")
			}
			return g.Comment, struct {
				Src        []string        `json:"src"`
				Dst        []string        `json:"dst"`
				IP         []string        `json:"ip,omitempty"`
				Via        []string        `json:"via,omitempty"`
				SrcPosture []string        `json:"srcPosture,omitempty"`
				App        json.RawMessage `json:"app,omitempty"`
			}{g.Src, g.Dst, g.IP, g.Via, g.SrcPosture, json.RawMessage(g.App.ValueString())}
		})
	}
	if m.Tests != nil {
		entries("tests", len(m.Tests), func(i int) (types.String, any) {
			t := m.Tests[i]
			return t.Comment, struct {
				Src    string   `json:"src"`
				Proto  string   `json:"proto,omitempty"`
				Accept []string `json:"accept,omitempty"`
				Deny   []string `json:"deny,omitempty"`
			}{t.Src, t.Proto.ValueString(), t.Accept, t.Deny}
		})
	}
	b.WriteString("}\n")
	return b.String(), diags
}

// jsonText is JSON that leaves "<" and ">" as people write them.
func jsonText(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "null" // of an app that is no JSON, which is reported apart
	}
	return strings.TrimSuffix(b.String(), "\n")
}
