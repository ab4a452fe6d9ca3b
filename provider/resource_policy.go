package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

// Ways of taking over a policy file that is there already.
const (
	adoptIfDefault = "if_default"
	adoptIfEqual   = "if_equal"
	adoptAlways    = "always"
	adoptNever     = "never"
)

func adoptions() []string { return []string{adoptIfDefault, adoptIfEqual, adoptAlways, adoptNever} }

// What becomes of the policy file when the resource is destroyed.
const (
	destroyKeep  = "keep"
	destroyReset = "reset"
)

// ownTailnet names the tailnet that the credential belongs to, whichever that is.
const ownTailnet = "-"

// unseenTag is the tag of no file.
const unseenTag = "0000000000000000000000000000000000000000000000000000000000000000"

// policyResource is the tailnet's policy file. There is one in each tailnet, so it cannot be created, only adopted.
type policyResource struct{ session }

var (
	_ resource.ResourceWithConfigure   = (*policyResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*policyResource)(nil)
	_ resource.ResourceWithImportState = (*policyResource)(nil)
	_ resource.ResourceWithMoveState   = (*policyResource)(nil)
)

func newPolicyResource() resource.Resource { return &policyResource{} }

type policyModel struct {
	ID            types.String `tfsdk:"id"`
	Content       types.String `tfsdk:"content"`
	Inventory     types.String `tfsdk:"inventory"`
	Requirements  types.List   `tfsdk:"requirements"`
	UnknownGroups types.Set    `tfsdk:"unknown_groups"`
	Validation    types.String `tfsdk:"validation"`
	Adopt         types.String `tfsdk:"adopt"`
	OnDestroy     types.String `tfsdk:"on_destroy"`
	ConsoleLock   types.Bool   `tfsdk:"console_lock"`
	ExternalLink  types.String `tfsdk:"external_link"`
	ETag          types.String `tfsdk:"etag"`
	AccessGained  types.List   `tfsdk:"access_gained"`
	AccessLost    types.List   `tfsdk:"access_lost"`
	TestResults   types.List   `tfsdk:"test_results"`
	LiveContent   types.String `tfsdk:"live_content"`
}

func (r *policyResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_policy"
}

func (r *policyResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.use(req.ProviderData)
}

func (r *policyResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	selectors := schema.ListAttribute{
		Required: true, ElementType: types.StringType, Validators: []validator.List{noNulls{}},
		MarkdownDescription: "Selectors as in a grant: tags, users, groups, hosts, addresses.",
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The tailnet's policy file, the whole of it: acls, grants, groups, tests and all else.\n\n" +
			"The plan judges the policy offline, as the control plane would: syntax, names, the file's own `tests` and `sshTests`, and " +
			"the `requirements`. Each failure is an error of the plan with its line, and nothing is written. A write carries the ETag " +
			"that the plan knew, so that a change made by somebody else in between is reported and never overwritten.\n\n" +
			"The text stays yours: comments are kept, and a difference in formatting alone is no difference.\n\n" +
			"A `tailscale_acl` of the provider `tailscale/tailscale` becomes this resource by a `moved` block.\n\n" +
			"Needs the scopes `policy_file`, `devices:core:read`, `devices:posture_attributes` and `users:read`.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The tailnet, as the provider is configured.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"content": schema.StringAttribute{
				Required: true, MarkdownDescription: "The policy file, as HuJSON or JSON.",
				PlanModifiers: []planmodifier.String{keepFormatting{}}, Validators: []validator.String{policyText{}},
			},
			"inventory": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The devices and users that the policy is judged with, as JSON: `{\"devices\": […], \"users\": […]}`, each " +
					"element as in the API's device and user lists (`?fields=all`). By default they are read from the API.",
			},
			"requirements": schema.ListNestedAttribute{
				Optional: true,
				MarkdownDescription: "Flows that the policy must admit between every ordered pair of devices that `src` and `dst` expand to. " +
					"`tailmesh_mesh` gives the list that a mesh needs.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name": schema.StringAttribute{Optional: true, MarkdownDescription: "What to call it in messages."},
					"src":  selectors,
					"dst":  selectors,
					"proto": schema.StringAttribute{
						Required:            true,
						MarkdownDescription: "Protocol by name or number, as in an acl: `tcp`, `udp`, `icmp`, `ip-in-ip`, `4`.",
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
			"validation": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(validateBoth),
				Validators: []validator.String{stringvalidator.OneOf(validations()...)},
				MarkdownDescription: "Who judges the policy at plan time: `offline` (the provider itself, without the API where `inventory` is " +
					"given), `server` (the control plane's own validation, which knows no requirements), `both`, or `off`. Default `both`.",
			},
			"adopt": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(adoptIfDefault),
				Validators: []validator.String{stringvalidator.OneOf(adoptions()...)},
				MarkdownDescription: "Whether to take over the policy file that is there when this resource is created: `if_default` (only one that " +
					"nobody has ever written, or that says the same already), `if_equal` (another name for it), `always` (whatever is there is replaced), " +
					"or `never` (it must be imported). Default `if_default`.",
			},
			"on_destroy": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(destroyKeep),
				Validators: []validator.String{stringvalidator.OneOf(destroyKeep, destroyReset)},
				MarkdownDescription: "What becomes of the policy file when this resource is destroyed: `keep` leaves it in force, `reset` restores " +
					"the tailnet's default file, which allows everything. Default `keep`.",
			},
			"console_lock": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether the admin console's editor of the policy file is locked, so that nobody changes there what is managed " +
					"here. Unset, the tailnet's setting is left as it is and not looked at. What this resource locked it unlocks when it is destroyed. " +
					"Needs the scope `policy_file`.",
			},
			"external_link": schema.StringAttribute{
				Optional: true,
				Validators: []validator.String{
					stringvalidator.AlsoRequires(path.MatchRoot("console_lock")),
					stringvalidator.RegexMatches(regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/\s]+\S*$`), "want a URL, such as https://example.com/policy"),
				},
				MarkdownDescription: "Where the locked editor sends people to make their change, such as a repository's URL. Unset, the tailnet's " +
					"setting is left as it is.",
			},
			"etag": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The tag of the file as it was last seen. A write replaces this version of the file and no other.",
			},
			"access_gained": schema.ListAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "What the change of `content` that is planned, or was applied last, lets through that was not let through before: " +
					"a line for each rule that gives it, as in `group:eng -> tag:db: tcp 5432 (grants[3] added)`. It is worked out for the " +
					"devices of `inventory`, else for those that the refresh before the plan saw, and of a new resource by the apply, of which " +
					"the plan warns; null where they are not known, or `validation` is `server` or `off`.",
			},
			"access_lost": schema.ListAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "What it lets through no longer.",
			},
			"test_results": policyResultsAttribute(),
			"live_content": schema.StringAttribute{
				Computed: true, MarkdownDescription: "The policy file as the control plane stores it, which formats what it is given.",
			},
		},
	}
}

// policyText wants what can be a policy file at all, whoever validates it. It asks nobody, so that the program's own
// validation of a configuration finds the line that is wrong.
type policyText struct{}

func (policyText) Description(context.Context) string { return "want a policy file, as HuJSON or JSON" }

func (v policyText) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (policyText) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	src := []byte(req.ConfigValue.ValueString())
	if len(bytes.TrimSpace(src)) == 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "the policy file is empty",
			"The control plane takes an empty file for a wish to restore the tailnet's default, which allows everything. "+
				"A policy that allows nothing is `{\"grants\":[]}`.")
		return
	}
	if _, err := policy.Format(src); err != nil {
		resp.Diagnostics.Append(findings(req.Path, policy.Check("", src, nil, nil).Diagnostics, src)...)
	}
}

// keepFormatting plans no change where only the formatting differs. The planned value of an attribute that users set may
// be the configured one or that of the state, nothing else, so it keeps that of the state.
type keepFormatting struct{}

func (keepFormatting) Description(context.Context) string {
	return "A difference in formatting alone is no difference."
}

func (k keepFormatting) MarkdownDescription(ctx context.Context) string { return k.Description(ctx) }

func (keepFormatting) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}
	if textdiff.Same(req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}

func (r *policyResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan, state policyModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	created := req.State.Raw.IsNull()
	if !created {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	written := created || !plan.Content.Equal(state.Content)
	if created && plan.Adopt.ValueString() == adoptNever {
		resp.Diagnostics.AddAttributeError(path.Root("adopt"), "the policy file must be imported",
			fmt.Sprintf("Every tailnet has a policy file, and adopt = %q says not to take it over. Import it: any ID will do, "+
				"as a tailnet has one policy file.", adoptNever))
		return
	}
	check := policyCheck{
		session: &r.session, content: plan.Content, inventory: plan.Inventory, requirements: plan.Requirements,
		groups: plan.UnknownGroups, validation: plan.Validation.ValueString(), written: written,
	}
	resp.Diagnostics.Append(check.run(ctx)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if created && check.report != nil && check.inv != nil {
		resp.Diagnostics.Append(r.replaced(ctx, plan, check.inv)...)
	}
	unchecked := check.report == nil && known(ctx, plan.Content) && known(ctx, plan.Inventory) && known(ctx, plan.Requirements)
	seen := check.inv
	if plan.Inventory.IsNull() {
		var d diag.Diagnostics
		seen, d = seenInventory(ctx, req.Private)
		resp.Diagnostics.Append(d...)
	}
	switch {
	case !written:
		plan.ETag, plan.AccessGained, plan.AccessLost, plan.LiveContent = state.ETag, state.AccessGained, state.AccessLost, state.LiveContent
	case unchecked:
		plan.setAccess(nil, nil, false)
	case !created && check.report != nil && seen != nil:
		plan.setAccess(accessChange(state.Content.ValueString(), plan.Content.ValueString(), seen))
	}
	if written && !created && known(ctx, plan.Content) {
		// Foretold, a change of a line shows as that; unknown, it would show the whole text that goes.
		if text, err := policy.Format([]byte(plan.Content.ValueString())); err == nil {
			plan.LiveContent = types.StringValue(string(text))
		}
	}
	switch {
	case !written && plan.Inventory.Equal(state.Inventory) && plan.Requirements.Equal(state.Requirements) && plan.Validation.Equal(state.Validation):
		plan.TestResults = state.TestResults
	case unchecked:
		plan.TestResults = types.ListNull(policyResultType())
	case check.report != nil:
		resp.Diagnostics.Append(plan.planResults(ctx, seen, created)...)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, plan)...)
}

func (r *policyResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan policyModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	api := r.need(&resp.Diagnostics, "write the policy file")
	if api == nil {
		return
	}
	live, err := api.GetPolicy(ctx)
	if err != nil {
		resp.Diagnostics.Append(apiError(err, "Nothing was written."))
		return
	}
	resp.Diagnostics.Append(r.settle(ctx, &plan, live.HuJSON)...)
	ours, match := plan.Content.ValueString(), client.MatchDefault
	if plan.Adopt.ValueString() == adoptAlways {
		match = live.ETag
	}
	unlock, err := plan.lockConsole(ctx, api, policyModel{})
	if err != nil {
		resp.Diagnostics.Append(apiError(err, "Nothing was written."))
		return
	}
	saved := live
	if !textdiff.Same(live.HuJSON, ours) {
		if saved, err = setPolicy(ctx, api, ours, match); err != nil {
			resp.Diagnostics.Append(unlock()...)
		}
	}
	switch {
	case client.IsPreconditionFailed(err) && match == client.MatchDefault:
		resp.Diagnostics.AddError("the tailnet has a policy file of its own already", foreignFile(ctx, api, ours, plan.Adopt.ValueString()))
	case client.IsPreconditionFailed(err):
		resp.Diagnostics.AddError("the policy file was changed by somebody else just now",
			"Nothing was written. Plan again to see what would be replaced.")
	case err != nil:
		resp.Diagnostics.Append(apiError(err, afterWrite(err)))
	}
	if resp.Diagnostics.HasError() {
		return
	}
	plan.ID = types.StringValue(api.Tailnet())
	plan.stored(saved)
	resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
}

// stored takes over what the control plane says of the file that it stores.
func (m *policyModel) stored(p client.Policy) {
	m.ETag, m.LiveContent = types.StringValue(p.ETag), types.StringValue(p.HuJSON)
}

// setPolicy writes the file where the one in force has the tag. A write whose answer was lost on the way is repeated by
// the client and then finds itself: a file in force that is ours already is not a conflict.
func setPolicy(ctx context.Context, api *client.Client, ours, match string) (client.Policy, error) {
	saved, err := api.SetPolicy(ctx, ours, match)
	if client.IsPreconditionFailed(err) {
		if live, readErr := api.GetPolicy(ctx); readErr == nil && textdiff.Same(live.HuJSON, ours) {
			return live, nil
		}
	}
	return saved, err
}

// afterWrite says what a write that failed has done. Only where it was refused, or never sent, is that sure to be nothing.
func afterWrite(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok && (e.Status >= 300 && e.Status < 500 || e.Status == 0 && e.Err == nil) {
		return "Nothing was written."
	}
	return "Whether it was written cannot be told; plan again to see."
}

// foreignFile says what stands in the way of adopting the file, and how it differs from ours.
func foreignFile(ctx context.Context, api *client.Client, ours, adopt string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Somebody has written it, and adopt = %q does not replace such a file. Nothing was written.\n\n", adopt)
	fmt.Fprintf(&b, "Import the file to manage it from here on (any ID will do), or set adopt to %q to replace it.\n", adoptAlways)
	if live, err := api.GetPolicy(ctx); err == nil {
		b.WriteString("\nFrom the file in force to yours:\n\n" + textdiff.Lines("in force", live.HuJSON, "yours", ours))
	}
	return b.String()
}

func (r *policyResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state policyModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if r.unread(&resp.Diagnostics, "the policy file") {
		return
	}
	api := r.need(&resp.Diagnostics, "read the policy file")
	if api == nil {
		return
	}
	live, err := api.GetPolicy(ctx)
	if err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	if state.Content.IsNull() || !textdiff.Same(state.Content.ValueString(), live.HuJSON) {
		state.Content = types.StringValue(live.HuJSON)
	}
	if was, is := state.ID.ValueString(), api.Tailnet(); was != is && was != ownTailnet && is != ownTailnet {
		resp.Diagnostics.AddWarning("the provider is of another tailnet than the state",
			fmt.Sprintf("The state is of the tailnet %q, the provider of %q. Unless both are names of one tailnet, what is planned "+
				"replaces the policy of the second by that of the first: give each a resource, and a provider, of its own.", was, is))
	}
	state.ID = types.StringValue(api.Tailnet())
	state.stored(live)
	if err := state.readLock(ctx, api); err != nil {
		resp.Diagnostics.Append(apiError(err, ""))
		return
	}
	var inv *policy.Inventory
	if state.checksOffline() {
		inv = r.refreshInventory(ctx, api, state.Inventory)
	}
	resp.Diagnostics.Append(state.refreshResults(ctx, inv)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, state)...)
	if !state.Inventory.IsNull() {
		inv = nil
	}
	resp.Diagnostics.Append(rememberInventory(ctx, inv, resp.Private)...)
}

// refreshInventory is the inventory to refresh the results with, or nil; what is wrong with it, the plan says.
func (r *policyResource) refreshInventory(ctx context.Context, api *client.Client, text types.String) *policy.Inventory {
	if !text.IsNull() {
		inv, _ := inventoryOf(text)
		return inv
	}
	inv, err := r.recently(ctx, api)
	if err != nil {
		return nil
	}
	return inv
}

func (r *policyResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state policyModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(r.settle(ctx, &plan, state.Content.ValueString())...)
	written := !plan.Content.Equal(state.Content)
	if !written && plan.ConsoleLock.Equal(state.ConsoleLock) && plan.ExternalLink.Equal(state.ExternalLink) {
		resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
		return
	}
	api := r.need(&resp.Diagnostics, "write the policy file")
	if api == nil {
		return
	}
	unlock, err := plan.lockConsole(ctx, api, state)
	if err != nil {
		resp.Diagnostics.Append(apiError(err, "Nothing was written."))
		return
	}
	if written {
		ours := plan.Content.ValueString()
		match := state.ETag.ValueString()
		if match == "" { // moved from another provider and not refreshed; without a tag a write would overwrite anything
			match = unseenTag
		}
		saved, err := setPolicy(ctx, api, ours, match)
		if err != nil {
			resp.Diagnostics.Append(unlock()...)
		}
		switch {
		case client.IsPreconditionFailed(err):
			resp.Diagnostics.AddError("the policy file was changed by somebody else since the plan",
				rivalReport(ctx, api, state.Content.ValueString(), ours, plan.Inventory))
		case err != nil:
			resp.Diagnostics.Append(apiError(err, afterWrite(err)))
		}
		if resp.Diagnostics.HasError() {
			return
		}
		foretold := plan.LiveContent
		plan.stored(saved)
		if known(ctx, foretold) { // an apply must come to what the plan said; the next refresh says what is there
			plan.LiveContent = foretold
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, plan)...)
}

// Delete leaves the file or restores the default one, and only where it is still the one that was last seen.
func (r *policyResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state policyModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	reset := state.OnDestroy.ValueString() == destroyReset
	if resp.Diagnostics.HasError() || !reset && !state.ConsoleLock.ValueBool() {
		return
	}
	api := r.need(&resp.Diagnostics, "reset the policy file")
	if api == nil {
		return
	}
	if reset {
		// The service resets the file only without If-Match, so what the tag would have said is asked before.
		live, err := api.GetPolicy(ctx)
		if err == nil && live.ETag != state.ETag.ValueString() {
			resp.Diagnostics.AddError("the policy file was changed by somebody else since the plan",
				"It was not reset. From the file that the plan saw to the one in force:\n\n"+
					textdiff.Lines("planned", state.Content.ValueString(), "in force", live.HuJSON))
			return
		}
		if err == nil {
			_, err = api.SetPolicy(ctx, "", client.MatchAny)
		}
		if err != nil {
			resp.Diagnostics.Append(apiError(err, "The policy file was not reset."))
			return
		}
	}
	if err := state.unlockConsole(ctx, api); err != nil {
		resp.Diagnostics.Append(apiError(err, "The console's editor of the policy file is still locked."))
	}
}

// ImportState takes any ID, because a tailnet has one policy file. What only configurations know gets its default, so
// that importing alone plans no change.
func (r *policyResource) ImportState(ctx context.Context, _ resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resp.Diagnostics.Append(foundState(ctx, &resp.State)...)
}

// foundState is the state of a policy file that is there without this resource having written it.
func foundState(ctx context.Context, state *tfsdk.State) (diags diag.Diagnostics) {
	for name, value := range map[string]string{
		"id": ownTailnet, "validation": validateBoth, "adopt": adoptIfDefault, "on_destroy": destroyKeep,
	} {
		diags.Append(state.SetAttribute(ctx, path.Root(name), value)...)
	}
	return diags
}

// MoveState takes over tailscale_acl of the provider tailscale/tailscale, by a moved block.
func (r *policyResource) MoveState(context.Context) []resource.StateMover {
	return []resource.StateMover{{StateMover: func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
		if req.SourceTypeName != "tailscale_acl" || req.SourceRawState == nil {
			return
		}
		var old struct {
			ACL   string `json:"acl"`
			Reset bool   `json:"reset_acl_on_destroy"`
		}
		if err := json.Unmarshal(req.SourceRawState.JSON, &old); err != nil {
			resp.Diagnostics.AddError("the state of tailscale_acl cannot be read", sentence(err.Error()))
			return
		}
		resp.Diagnostics.Append(foundState(ctx, &resp.TargetState)...)
		resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root("content"), old.ACL)...)
		if old.Reset {
			resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root("on_destroy"), destroyReset)...)
		}
	}}}
}
