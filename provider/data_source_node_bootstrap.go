package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/provider/bootstrap"
)

// nodeBootstrapDataSource writes what makes a new machine a node. It asks nobody.
type nodeBootstrapDataSource struct{}

func newNodeBootstrapDataSource() datasource.DataSource { return nodeBootstrapDataSource{} }

type nodeBootstrapModel struct {
	NodeConfig     types.String `tfsdk:"node_config"`
	AgentURL       types.String `tfsdk:"agent_url"`
	AgentPath      types.String `tfsdk:"agent_path"`
	AgentSHA256    types.String `tfsdk:"agent_sha256"`
	AuthKeyFile    types.String `tfsdk:"auth_key_file"`
	AuthKeyCommand types.String `tfsdk:"auth_key_command"`
	UpArgs         []string     `tfsdk:"tailscale_up_args"`
	Script         types.String `tfsdk:"script"`
	CloudInit      types.String `tfsdk:"cloud_init"`
}

func (nodeBootstrapDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_node_bootstrap"
}

func (nodeBootstrapDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	str := func(doc string) schema.Attribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: doc}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "What makes a new machine a node of the mesh: it installs the agent, its unit and the node's document, and joins the " +
			"tailnet. The machine must have systemd and Tailscale.\n\nThe key to join with is not part of it, because user data and state are read by " +
			"many. The machine takes it from the environment (`TS_AUTHKEY`), from `auth_key_file`, or from `auth_key_command`, such as one that asks a " +
			"secret store. `tailmesh_auth_key` makes a key that no state holds.",
		Attributes: map[string]schema.Attribute{
			"node_config": schema.StringAttribute{Required: true, MarkdownDescription: "The node's document, of `tailmesh_mesh`'s `node_configs`."},
			"agent_url":   str("Where the machine fetches `tailmesh-agent`. Either this or `agent_path`."),
			"agent_path":  str("Where `tailmesh-agent` is on the machine already, as in an image."),
			"agent_sha256": schema.StringAttribute{
				Required: true, MarkdownDescription: "SHA-256 of the program, in hexadecimal. Another program is not installed.",
			},
			"auth_key_file": str("File on the machine that holds the key to join with. It is removed after it was used. Default `" +
				bootstrap.DefaultAuthKeyFile + "`."),
			"auth_key_command": str("Shell command that prints the key, run on the machine where neither the environment nor the file has it."),
			"tailscale_up_args": schema.ListAttribute{
				Optional: true, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
				MarkdownDescription: "Further arguments of `tailscale up`, such as `--advertise-tags=tag:node`.",
			},
			"script": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Shell script for root on the machine. It may be run again: what is in place stays.",
			},
			"cloud_init": schema.StringAttribute{
				Computed: true, MarkdownDescription: "User data for cloud-init, which brings the script to the machine and runs it at its first boot.",
			},
		},
	}
}

func (nodeBootstrapDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m nodeBootstrapModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	script, err := bootstrap.Script(bootstrap.Node{
		Document: m.NodeConfig.ValueString(), AgentURL: m.AgentURL.ValueString(), AgentPath: m.AgentPath.ValueString(),
		AgentSHA256: m.AgentSHA256.ValueString(), AuthKeyFile: m.AuthKeyFile.ValueString(), AuthKeyCommand: m.AuthKeyCommand.ValueString(),
		UpArgs: m.UpArgs,
	})
	if e, ok := errors.AsType[*bootstrap.Error](err); ok {
		resp.Diagnostics.AddAttributeError(path.Root(e.Field), "this makes no node", sentence(e.Err.Error()))
		return
	}
	var cloudInit string
	if err == nil {
		cloudInit, err = bootstrap.CloudInit(script)
	}
	if err != nil {
		resp.Diagnostics.AddError("cannot write the script", sentence(err.Error()))
		return
	}
	m.Script, m.CloudInit = types.StringValue(script), types.StringValue(cloudInit)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}
