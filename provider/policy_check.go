package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	policydiag "github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Ways of validating a policy before it is written.
const (
	validateOffline = "offline"
	validateServer  = "server"
	validateBoth    = "both"
	validateOff     = "off"
)

func validations() []string {
	return []string{validateBoth, validateOffline, validateServer, validateOff}
}

// policyCheck is what a policy file is judged by.
type policyCheck struct {
	session      *session
	content      types.String
	inventory    types.String
	requirements types.List
	groups       types.Set // those that an identity provider brings; null: whichever
	validation   string
	// written says that the text is about to be written, so that it is worth asking the service.
	written bool

	// What run found out: the judgement of the text, nil where there is none, and the devices it was judged with.
	report *policy.Report
	inv    *policy.Inventory
}

// run judges the policy and reports on the attributes of the caller. What cannot be known yet is one warning and blocks
// nothing.
func (c *policyCheck) run(ctx context.Context) (diags diag.Diagnostics) {
	if c.validation == validateOff {
		return nil
	}
	if unknown := c.unknown(ctx); len(unknown) > 0 {
		diags.AddAttributeWarning(path.Root(unknown[0]), "the policy cannot be checked yet",
			fmt.Sprintf("%s will be known only after apply. The policy's tests and the requirements are checked then, "+
				"before anything is written.", list(unknown)))
		return diags
	}
	if c.validation != validateServer {
		diags.Append(c.offline(ctx)...)
	}
	if c.validation != validateOffline && c.written && !diags.HasError() {
		diags.Append(c.server(ctx)...)
	}
	return diags
}

func (c *policyCheck) unknown(ctx context.Context) (names []string) {
	for _, a := range []struct {
		name  string
		value attr.Value
	}{
		{"content", c.content}, {"inventory", c.inventory}, {"requirements", c.requirements}, {"unknown_groups", c.groups},
	} {
		if !a.value.IsNull() && !known(ctx, a.value) {
			names = append(names, a.name)
		}
	}
	return names
}

// offline asks the policy engine.
func (c *policyCheck) offline(ctx context.Context) (diags diag.Diagnostics) {
	inv, d := c.devices(ctx)
	diags.Append(d...)
	reqs, d := requirementsOf(ctx, c.requirements)
	diags.Append(d...)
	if diags.HasError() {
		return diags
	}
	src := []byte(c.content.ValueString())
	c.inv, c.report = inv, policy.Check("", src, inv, reqs)
	found, d := tolerated(ctx, c.report, c.groups)
	diags.Append(d...)
	diags.Append(findings(path.Root("content"), found, src)...)
	if !c.report.Accepted && !diags.HasError() {
		diags.AddAttributeError(path.Root("content"), c.report.Message, "The control plane would refuse this policy with this message.")
	}
	return diags
}

// devices returns the inventory: the one that is configured, else that of the API. It is nil where it cannot be had.
func (c *policyCheck) devices(ctx context.Context) (inv *policy.Inventory, diags diag.Diagnostics) {
	if !c.inventory.IsNull() {
		return inventoryOf(c.inventory)
	}
	const without = "The policy is checked without devices: what depends on them, such as tests and requirements that name tags, is left undecided."
	api, err := c.session.api()
	if err != nil {
		diags.AddAttributeWarning(path.Root("inventory"), "the tailnet's devices are not known", sentence(err.Error())+" "+without)
		return nil, diags
	}
	inv, err = c.session.recently(ctx, api)
	switch {
	case client.IsUnauthorized(err):
		diags.Append(apiError(err, ""))
	case err != nil:
		diags.AddAttributeWarning(path.Root("inventory"), "the tailnet's devices are not known", apiDetail(err, without))
	}
	return inv, diags
}

// inventoryOf reads an attribute that holds an inventory.
func inventoryOf(text types.String) (inv *policy.Inventory, diags diag.Diagnostics) {
	inv, err := policy.ParseInventory([]byte(text.ValueString()))
	if err != nil {
		diags.AddAttributeError(path.Root("inventory"), "this is not an inventory", sentence(err.Error())+
			" Want {\"devices\": […], \"users\": […]} with the elements of the API's device and user lists (?fields=all).")
	}
	return inv, diags
}

// server asks the control plane.
func (c *policyCheck) server(ctx context.Context) (diags diag.Diagnostics) {
	api, err := c.session.api()
	if err != nil {
		if c.validation == validateServer {
			diags.AddWarning("the policy cannot be validated by the control plane", sentence(err.Error()))
		}
		return diags // with "both", devices has said it
	}
	verdict, err := api.ValidatePolicy(ctx, c.content.ValueString())
	switch {
	case client.IsUnauthorized(err):
		diags.Append(apiError(err, ""))
	case err != nil:
		diags.AddWarning("the control plane could not validate the policy", apiDetail(err, ""))
	case verdict.Failed() && len(verdict.Data) == 0:
		diags.AddAttributeError(path.Root("content"), verdict.Message, "The control plane refuses this policy with this message.")
	case verdict.Failed():
		for _, f := range verdict.Data {
			for _, text := range f.Errors {
				diags.AddAttributeError(path.Root("content"), fmt.Sprintf("%s: %s", f.User, text),
					fmt.Sprintf("The control plane refuses this policy: %s.", verdict.Message))
			}
		}
	}
	var expected []string
	if !c.groups.IsNull() {
		diags.Append(c.groups.ElementsAs(ctx, &expected, false)...)
	}
	for _, f := range verdict.Warnings() {
		if slices.Contains(expected, f.User) {
			continue
		}
		for _, text := range f.Warnings {
			diags.AddAttributeWarning(path.Root("content"), fmt.Sprintf("%s: %s", f.User, text), "The control plane says so of this policy.")
		}
	}
	return diags
}

// tolerated are the findings without those that cannot be decided for want of the members of groups that are known to be
// an identity provider's. Where these are listed, a group that is neither defined nor listed is an error: it may be
// misspelt, and would then admit nobody without a word.
func tolerated(ctx context.Context, report *policy.Report, groups types.Set) (found policydiag.List, diags diag.Diagnostics) {
	if groups.IsNull() || report.Compiled == nil {
		return report.Diagnostics, nil
	}
	var names []string
	diags = groups.ElementsAs(ctx, &names, false)
	for _, g := range report.Compiled.SyncedGroups() {
		if !slices.Contains(names, g) {
			found = append(found, policydiag.Diagnostic{
				Severity: policydiag.Error, Code: "unknown-group", Message: fmt.Sprintf("group %q is neither defined nor one of unknown_groups", g),
				Notes: []string{"a group of an identity provider that is misspelt admits nobody, without a word"},
				Help:  []policydiag.Help{{Message: "correct the name, or add it to unknown_groups"}},
			})
		}
	}
	for i, g := range names {
		names[i] = policy.MembersOf(g)
	}
	for _, d := range report.Diagnostics {
		missing := slices.DeleteFunc(slices.Clone(d.Missing), func(m string) bool { return slices.Contains(names, m) })
		if d.Severity == policydiag.Note && len(d.Missing) > 0 && len(missing) == 0 {
			continue
		}
		found = append(found, d)
	}
	return found, diags
}

// unknownGroupsDoc describes the attribute.
const unknownGroupsDoc = "Groups that an identity provider brings, as in `group:eng@example.com`, of which nobody can read the members: what " +
	"depends on them alone is left undecided without a warning, also of the control plane. Where this is set, a group that is neither in the policy's `groups` nor here is an " +
	"error, since a misspelt one admits nobody. Unset, every such name is taken, with one warning for what could not be decided."

// findings turns the engine's findings into diagnostics on an attribute: one for each, the message as the summary and
// the source lines, notes and help as the detail. Notes, which say what could not be decided, become one warning.
func findings(at path.Path, list policydiag.List, src []byte) (diags diag.Diagnostics) {
	var notes []string
	for _, d := range list {
		at := at
		if d.Code == "invalid-requirement" { // no fault of the text
			at = path.Root("requirements")
		}
		switch detail := policydiag.Detail(d, src); d.Severity {
		case policydiag.Error:
			diags.AddAttributeError(at, d.Message, detail)
		case policydiag.Warning:
			diags.AddAttributeWarning(at, d.Message, detail)
		default:
			notes = append(notes, d.Text())
		}
	}
	if len(notes) > 0 {
		diags.AddAttributeWarning(at, "not all of the policy could be checked", strings.Join(notes, "\n"))
	}
	return diags
}

// list joins names as a sentence does.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
