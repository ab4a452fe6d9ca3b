package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
)

// lockConsole brings the lock of the console's editor to what is planned, where that differs from the state. It comes
// before the write of the policy file: a new resource whose last step failed would be replaced, policy file and all.
// undo takes it back where the write then fails.
func (m *policyModel) lockConsole(ctx context.Context, api *client.Client, state policyModel) (undo func() diag.Diagnostics, err error) {
	var change client.TailnetSettingsChange
	if !m.ConsoleLock.IsNull() && !m.ConsoleLock.Equal(state.ConsoleLock) {
		change.ACLsExternallyManagedOn = m.ConsoleLock.ValueBoolPointer()
	}
	if !m.ExternalLink.IsNull() && !m.ExternalLink.Equal(state.ExternalLink) {
		change.ACLsExternalLink = m.ExternalLink.ValueStringPointer()
	}
	undo = func() diag.Diagnostics { return nil }
	if change == (client.TailnetSettingsChange{}) {
		return undo, nil
	}
	before, err := api.TailnetSettings(ctx)
	if err != nil {
		return undo, err
	}
	if err := api.SetTailnetSettings(ctx, change); err != nil {
		return undo, err
	}
	return func() (diags diag.Diagnostics) {
		if change.ACLsExternallyManagedOn != nil {
			change.ACLsExternallyManagedOn = &before.ACLsExternallyManagedOn
		}
		if change.ACLsExternalLink != nil {
			change.ACLsExternalLink = &before.ACLsExternalLink
		}
		if err := api.SetTailnetSettings(ctx, change); err != nil {
			diags.AddWarning("the lock of the console's editor was changed and could not be changed back", apiDetail(err, ""))
		}
		return diags
	}, nil
}

// readLock brings what the state holds of the lock up to date. What it does not hold is somebody else's.
func (m *policyModel) readLock(ctx context.Context, api *client.Client) error {
	if m.ConsoleLock.IsNull() && m.ExternalLink.IsNull() {
		return nil
	}
	settings, err := api.TailnetSettings(ctx)
	if err != nil {
		return err
	}
	if !m.ConsoleLock.IsNull() {
		m.ConsoleLock = types.BoolValue(settings.ACLsExternallyManagedOn)
	}
	if !m.ExternalLink.IsNull() {
		m.ExternalLink = types.StringValue(settings.ACLsExternalLink)
	}
	return nil
}

// unlockConsole takes away the lock that this resource set, and its link.
func (m *policyModel) unlockConsole(ctx context.Context, api *client.Client) error {
	if !m.ConsoleLock.ValueBool() {
		return nil
	}
	off, none := false, ""
	change := client.TailnetSettingsChange{ACLsExternallyManagedOn: &off}
	if !m.ExternalLink.IsNull() {
		change.ACLsExternalLink = &none
	}
	return api.SetTailnetSettings(ctx, change)
}
