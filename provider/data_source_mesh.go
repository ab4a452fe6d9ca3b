package provider

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/datasource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	policydiag "github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/provider/mesh"
)

// meshDataSource works out a mesh from the tailnet's devices.
type meshDataSource struct{ session }

var _ datasource.DataSourceWithConfigure = (*meshDataSource)(nil)

func newMeshDataSource() datasource.DataSource { return &meshDataSource{} }

type meshModel struct {
	Name         types.String        `tfsdk:"name"`
	Selector     *selectorModel      `tfsdk:"selector"`
	MinNodes     types.Int64         `tfsdk:"min_nodes"`
	Timeouts     timeouts.Value      `tfsdk:"timeouts"`
	PodCIDRs     map[string][]string `tfsdk:"pod_cidrs"`
	ClusterCIDRs []string            `tfsdk:"cluster_cidrs"`
	Locations    map[string]string   `tfsdk:"locations"`
	LocalCIDRs   map[string][]string `tfsdk:"local_cidrs"`
	Granularity  types.String        `tfsdk:"granularity"`
	Discover     types.Bool          `tfsdk:"discover"`
	Peers        types.String        `tfsdk:"peers"`
	Overlay      *overlayModel       `tfsdk:"overlay"`
	Routing      *routingModel       `tfsdk:"routing"`
	Firewall     *firewallModel      `tfsdk:"firewall"`
	Syntax       types.String        `tfsdk:"syntax"`
	Inventory    types.String        `tfsdk:"inventory"`

	NodeConfigs    map[string]string    `tfsdk:"node_configs"`
	Nodes          map[string]nodeModel `tfsdk:"nodes"`
	Requirements   types.List           `tfsdk:"requirements"`
	PolicyFragment types.String         `tfsdk:"policy_fragment"`
	Graph          *graphModel          `tfsdk:"graph"`
	Notes          []string             `tfsdk:"notes"`
}

type selectorModel struct {
	Tags  []string `tfsdk:"tags"`
	Names []string `tfsdk:"names"`
}

type overlayModel struct {
	Protocol types.String `tfsdk:"protocol"`
	Port     types.Int64  `tfsdk:"port"`
}

type routingModel struct {
	Mode       types.String `tfsdk:"mode"`
	Mark       types.String `tfsdk:"mark"`
	Priority   types.String `tfsdk:"priority"`
	Table      types.Int64  `tfsdk:"table"`
	FailClosed types.Bool   `tfsdk:"fail_closed"`
}

type firewallModel struct {
	Backend types.String `tfsdk:"backend"`
	SNAT    types.Bool   `tfsdk:"snat"`
}

type nodeModel struct {
	ID        string   `tfsdk:"id"`
	Hostname  string   `tfsdk:"hostname"`
	FullName  string   `tfsdk:"full_name"`
	Addresses []string `tfsdk:"addresses"`
	Location  *string  `tfsdk:"location"`
	PodCIDRs  []string `tfsdk:"pod_cidrs"`
	Peers     []string `tfsdk:"peers"`
}

type graphModel struct {
	DOT     string `tfsdk:"dot"`
	Mermaid string `tfsdk:"mermaid"`
}

func (d *meshDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_mesh"
}

func (d *meshDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.use(req.ProviderData)
}

func (d *meshDataSource) Schema(ctx context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	listOfStrings := types.ListType{ElemType: types.StringType}
	strs := func(doc string) schema.ListAttribute {
		return schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: doc}
	}
	str := func(doc string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: doc}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "A mesh of nodes, worked out from the tailnet's devices: one document per node for `tailmesh-agent`, what the " +
			"tailnet policy must admit, and a drawing.\n\n" +
			"A node is named by the first label of its machine name (`ams1` of `ams1.tail1234.ts.net`), which the control plane keeps " +
			"unique in a tailnet; two nodes of one name are an error. Keys of `pod_cidrs` and `locations` are such names, or full machine names, " +
			"node IDs, or host names that only one node has.\n\nNeeds the scopes `devices:core:read` and `users:read`, unless `inventory` is given.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{Required: true, MarkdownDescription: "Name of the mesh, for messages and documents."},
			"selector": schema.SingleNestedAttribute{
				Required: true, MarkdownDescription: "Which devices are nodes: those that carry one of the tags or have one of the names.",
				Attributes: map[string]schema.Attribute{
					"tags": schema.SetAttribute{
						Optional: true, ElementType: types.StringType, Validators: []validator.Set{noNulls{}},
						MarkdownDescription: "Tags, as in `tag:node`.",
					},
					"names": schema.SetAttribute{
						Optional: true, ElementType: types.StringType, Validators: []validator.Set{noNulls{}},
						MarkdownDescription: "Machine names, short or full, host names or node IDs.",
					},
				},
			},
			"min_nodes": schema.Int64Attribute{
				Optional: true, Validators: []validator.Int64{int64validator.AtLeast(1)},
				MarkdownDescription: "How many nodes there must be. Fewer are an error, so that a list of devices that is not complete yet is not " +
					"taken for the mesh. With `timeouts.read`, they are waited for.",
			},
			"timeouts": readTimeout(ctx, "How long to wait for `min_nodes` nodes, as in `5m`. Not at all by default."),
			"pod_cidrs": schema.MapAttribute{
				Optional: true, ElementType: listOfStrings, Validators: []validator.Map{noNulls{}},
				MarkdownDescription: "Pod networks of each node. Where a node has none, here or in `cluster_cidrs`, the agent finds them on the node.",
			},
			"cluster_cidrs": schema.ListAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
				MarkdownDescription: "Networks of all pods of the cluster, given to each node that is not in `pod_cidrs`.",
			},
			"locations": schema.MapAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.Map{noNulls{}},
				MarkdownDescription: "Location of each node, by a name of your own such as a site's.",
			},
			"local_cidrs": schema.MapAttribute{
				Optional: true, ElementType: listOfStrings, Validators: []validator.Map{noNulls{}},
				MarkdownDescription: "Networks of each location, floating addresses included. What starts and ends within them is never translated.",
			},
			"granularity": schema.StringAttribute{
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(texts(mesh.Granularities())...)},
				MarkdownDescription: "Which nodes reach each other through the mesh. `full`: every node every other. `location`: nodes of different " +
					"locations; `cross` is another name for it. `subnet`: as `location`, with locations found from the nodes' private networks " +
					"where `locations` does not give them. Default `full`.",
			},
			"discover": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether agents add peers that join later with one of the selector's tags, without a new document. Only with " +
					"granularity `full`. Default `true`.",
			},
			"peers": schema.StringAttribute{
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(texts(mesh.PeerSources())...)},
				MarkdownDescription: "Where agents have their peers from: " + code(texts(mesh.PeerSources())) + ". `listed`: each document names " +
					"them all, so that an agent needs nobody else; all documents together grow with the square of the nodes. `discovered`: documents " +
					"name the selector's tags alone, and agents find the peers as soon as `tailscaled` answers, which keeps a mesh of hundreds of " +
					"nodes small; only with granularity `full` and a selector of tags. Default `listed`.",
			},
			"overlay": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "What carries pod-to-pod packets between nodes, and so must be admitted by the policy.",
				Attributes: map[string]schema.Attribute{
					"protocol": schema.StringAttribute{
						Optional: true, Validators: []validator.String{stringvalidator.OneOf(mesh.OverlayProtocols()...)},
						MarkdownDescription: "One of " + code(mesh.OverlayProtocols()) + ". Default `" + config.DefaultProtocol +
							"`, as kube-router, Calico and others use it; with pods that have IPv6 it takes protocol 41 as well, which is then required too.",
					},
					"port": schema.Int64Attribute{
						Optional: true, Validators: []validator.Int64{int64validator.Between(1, 65535)},
						MarkdownDescription: "UDP port of `vxlan` (default 8472, as Linux, Flannel and Cilium use; Calico uses 4789) and of `udp`.",
					},
				},
			},
			"routing": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "How nodes route packets to peers; handed to the documents.",
				Attributes: map[string]schema.Attribute{
					"mode": schema.StringAttribute{
						Optional: true, Validators: []validator.String{stringvalidator.OneOf(config.ModeMark, config.ModeRules)},
						MarkdownDescription: "`mark`: one rule for all peers. `rules`: one rule for each, to read them in `ip rule`. Default `mark`.",
					},
					"mark": schema.StringAttribute{
						Optional:            true,
						MarkdownDescription: "The one bit of the packet mark to use. Default `" + config.DefaultMark.String() + "`.",
					},
					"priority": schema.StringAttribute{
						Optional: true,
						MarkdownDescription: "Priority of the rule: `auto`, which stays in front of every rule that would capture the packets, or a " +
							"number. Default `auto`.",
					},
					"table": schema.Int64Attribute{
						Optional:            true,
						MarkdownDescription: fmt.Sprintf("The table that tailscaled fills. Default %d.", config.DefaultTable),
					},
					"fail_closed": schema.BoolAttribute{
						Optional:            true,
						MarkdownDescription: "Refuse packets to peers while tailscaled is down, rather than let them leave in clear. Default `false`.",
					},
				},
			},
			"firewall": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "How nodes translate sources; handed to the documents.",
				Attributes: map[string]schema.Attribute{
					"backend": schema.StringAttribute{
						Optional: true, Validators: []validator.String{stringvalidator.OneOf(config.BackendAuto, config.BackendNFTables, config.BackendIPTables)},
						MarkdownDescription: "`auto` (nftables where the kernel has it), `nftables` or `iptables`. Default `auto`.",
					},
					"snat": schema.BoolAttribute{
						Optional: true,
						MarkdownDescription: "Give packets from pods to peers the node's own mesh address, without which Tailscale drops them. " +
							"Default `true`.",
					},
				},
			},
			"syntax": schema.StringAttribute{
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(texts(mesh.Syntaxes())...)},
				MarkdownDescription: "Syntax of `policy_fragment`: one of " + code(texts(mesh.Syntaxes())) + ". Default `grants`.",
			},
			"inventory": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The tailnet's devices as JSON, `{\"devices\": […], \"users\": […]}`, each element as in the API's lists " +
					"(`?fields=all`). By default they are read from the API.",
			},

			"node_configs": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "The document of each node as JSON, by node name. It holds no secret.",
			},
			"nodes": schema.MapNestedAttribute{
				Computed: true, MarkdownDescription: "The nodes, by name.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"id":        str("ID of the device in the API: its node ID."),
					"hostname":  str("Host name that the device reports."),
					"full_name": str("Machine name as MagicDNS has it, such as `ams1.tail1234.ts.net`."),
					"addresses": strs("Addresses in the tailnet, IPv4 first."),
					"location":  str("Location, given or found; null where none is known."),
					"pod_cidrs": strs("Pod networks; empty where the agent is to find them."),
					"peers":     strs("Names of the nodes that this one's document lists as peers; none where agents discover them."),
				}},
			},
			"requirements": schema.ListNestedAttribute{
				Computed: true, MarkdownDescription: "What the tailnet policy must admit, for `requirements` of `tailmesh_policy`.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name":  str("What to call the requirement in messages."),
					"src":   strs("Selectors of the sources."),
					"dst":   strs("Selectors of the destinations."),
					"proto": str("Protocol that carries the overlay, by name or number."),
					"ports": str("Ports that must be admitted; null for all, as for protocols without ports."),
					"why":   str("Why the mesh needs it, shown where the policy does not admit it."),
				}},
			},
			"policy_fragment": str("A piece of policy file (HuJSON) that meets the requirements, with tests that keep it so."),
			"graph": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "A drawing of the mesh: its nodes by location, and what connects them.",
				Attributes: map[string]schema.Attribute{
					"dot":     str("The drawing in the language of Graphviz."),
					"mermaid": str("The drawing as Mermaid, which Markdown on GitHub and GitLab renders."),
				},
			},
			"notes": strs("What is worth knowing about the mesh and no reason to warn, such as a location with one node."),
		},
	}
}

func (d *meshDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m meshModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	spec, diags := m.spec()
	resp.Diagnostics.Append(diags...)
	wait, diags := m.Timeouts.Read(ctx, 0)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	plan, diags := d.plan(ctx, m.Inventory, spec, wait, 5*time.Second)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	for _, p := range plan.Problems {
		at, nested := attributePath(p.Attribute, p.Key)
		detail := sentence(p.Message)
		if nested {
			detail = p.Attribute + ": " + p.Message + "."
		}
		switch p.Severity {
		case policydiag.Note:
			m.Notes = append(m.Notes, p.Message)
		case policydiag.Warning:
			resp.Diagnostics.AddAttributeWarning(at, fmt.Sprintf("mesh %q", spec.Name), detail)
		default:
			resp.Diagnostics.AddAttributeError(at, fmt.Sprintf("mesh %q cannot be worked out", spec.Name), detail)
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(m.fill(ctx, plan)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// plan works the mesh out. Where nodes are missing it waits for them, because a device appears some time after its
// machine was made.
func (d *meshDataSource) plan(ctx context.Context, inventory types.String, spec mesh.Spec, wait, pause time.Duration) (
	*mesh.Plan, diag.Diagnostics,
) {
	for deadline := time.Now().Add(wait); ; {
		inv, diags := d.inventory(ctx, inventory)
		if diags.HasError() {
			return nil, diags
		}
		plan := mesh.Build(inv.Devices, spec)
		if len(plan.Nodes) >= spec.MinNodes || !inventory.IsNull() || time.Now().Add(pause).After(deadline) {
			return plan, nil
		}
		select {
		case <-ctx.Done():
			return plan, nil
		case <-time.After(pause):
		}
	}
}

// attributePath is the place in the configuration of a part of the planner's input. OpenTofu finds no line for an
// attribute within an object, so that the object has to do, and nested says so.
func attributePath(attribute, key string) (at path.Path, nested bool) {
	if attribute == "" {
		return path.Empty(), false
	}
	first, _, nested := strings.Cut(attribute, ".")
	at = path.Root(first)
	if key != "" {
		at = at.AtMapKey(key)
	}
	return at, nested
}

// spec is what is asked of the planner.
func (m *meshModel) spec() (s mesh.Spec, diags diag.Diagnostics) {
	s = mesh.New(m.Name.ValueString())
	s.Selector = mesh.Selector{Tags: m.Selector.Tags, Names: m.Selector.Names}
	s.MinNodes = int(m.MinNodes.ValueInt64())
	s.Locations = m.Locations
	s.PodCIDRs = prefixMap(path.Root("pod_cidrs"), m.PodCIDRs, &diags)
	s.LocalCIDRs = prefixMap(path.Root("local_cidrs"), m.LocalCIDRs, &diags)
	s.ClusterCIDRs = prefixes(path.Root("cluster_cidrs"), m.ClusterCIDRs, &diags)
	if v := m.Granularity.ValueString(); v != "" {
		s.Granularity = mesh.Granularity(v)
	}
	if v := m.Syntax.ValueString(); v != "" {
		s.Syntax = mesh.Syntax(v)
	}
	if !m.Discover.IsNull() {
		s.Discover = m.Discover.ValueBool()
	}
	if v := m.Peers.ValueString(); v != "" {
		s.Peers = mesh.PeerSource(v)
	}
	if o := m.Overlay; o != nil {
		if v := o.Protocol.ValueString(); v != "" {
			s.Overlay.Protocol = v
		}
		s.Overlay.Port = int(o.Port.ValueInt64())
	}
	m.Routing.into(&s.Routing, &diags)
	if f := m.Firewall; f != nil {
		if v := f.Backend.ValueString(); v != "" {
			s.Firewall.Backend = v
		}
		if !f.SNAT.IsNull() {
			s.Firewall.SNAT = f.SNAT.ValueBool()
		}
	}
	return s, diags
}

func (m *routingModel) into(r *config.Routing, diags *diag.Diagnostics) {
	if m == nil {
		return
	}
	at := path.Root("routing") // the object: see attributePath
	if v := m.Mode.ValueString(); v != "" {
		r.Mode = v
	}
	if v := m.Mark.ValueString(); v != "" {
		mark, err := config.ParseMark(v)
		if err != nil {
			diags.AddAttributeError(at, "routing.mark is not a mark", sentence(err.Error()))
		}
		r.Mark = mark
	}
	if v := m.Priority.ValueString(); v != "" {
		priority, err := config.ParsePriority(v)
		if err != nil {
			diags.AddAttributeError(at, "routing.priority is not a priority", sentence(err.Error()))
		}
		r.Priority = priority
	}
	if !m.Table.IsNull() {
		r.Table = int(m.Table.ValueInt64())
	}
	if !m.FailClosed.IsNull() {
		r.FailClosed = m.FailClosed.ValueBool()
	}
}

func prefixMap(at path.Path, m map[string][]string, diags *diag.Diagnostics) map[string][]netip.Prefix {
	out := make(map[string][]netip.Prefix, len(m))
	for key, list := range m {
		out[key] = prefixes(at.AtMapKey(key), list, diags)
	}
	return out
}

func prefixes(at path.Path, list []string, diags *diag.Diagnostics) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for i, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			diags.AddAttributeError(at.AtListIndex(i), "not a network", fmt.Sprintf("%q is not a network: want the form \"10.244.1.0/24\".", text))
			continue
		}
		out = append(out, p)
	}
	return out
}

// fill writes the plan into the model.
func (m *meshModel) fill(ctx context.Context, plan *mesh.Plan) (diags diag.Diagnostics) {
	m.NodeConfigs = make(map[string]string, len(plan.Documents))
	m.Nodes = make(map[string]nodeModel, len(plan.Nodes))
	if m.Notes == nil {
		m.Notes = []string{}
	}
	for _, n := range plan.Nodes {
		doc := plan.Documents[n.Name]
		text, err := doc.Marshal()
		if err != nil {
			diags.AddError("a node's document cannot be written", sentence(err.Error()))
			continue
		}
		m.NodeConfigs[n.Name] = string(text)
		model := nodeModel{
			ID: n.ID, Hostname: n.Hostname, FullName: n.FullName, Addresses: stringsOf(n.Addresses),
			PodCIDRs: stringsOf(n.PodCIDRs), Peers: []string{},
		}
		if n.Location != "" {
			model.Location = &n.Location
		}
		for _, p := range doc.Peers {
			model.Peers = append(model.Peers, p.Name)
		}
		m.Nodes[n.Name] = model
	}
	reqs, d := requirementsValue(ctx, plan.Requirements)
	diags.Append(d...)
	m.Requirements = reqs
	m.PolicyFragment = types.StringValue(plan.Fragment)
	m.Graph = &graphModel{DOT: plan.Graph.DOT, Mermaid: plan.Graph.Mermaid}
	return diags
}

func stringsOf[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// code lists values for a description.
func code(list []string) string { return "`" + strings.Join(list, "`, `") + "`" }
