package client

import (
	"context"

	tailscale "tailscale.com/client/tailscale/v2"
)

// TailnetSettings are the settings of the tailnet; ACLsExternallyManagedOn and ACLsExternalLink lock the policy editor
// of the admin console.
type TailnetSettings = tailscale.TailnetSettings

// TailnetSettingsChange changes settings: what is nil stays.
type TailnetSettingsChange = tailscale.UpdateTailnetSettingsRequest

// TailnetSettings reads the settings. The service leaves out, without a word, those that the credential may not see:
// policy_file:read covers the lock of the policy editor, feature_settings:read most others.
func (c *Client) TailnetSettings(ctx context.Context) (TailnetSettings, error) {
	op := operation{name: "read the tailnet's settings", scopes: []string{"policy_file:read", "feature_settings:read"}, replay: reading}
	return value(c, ctx, op, func(ctx context.Context) (*TailnetSettings, error) {
		return c.official.TailnetSettings().Get(ctx)
	})
}

// SetTailnetSettings changes the settings that are not nil. Which scope that needs depends on the setting.
func (c *Client) SetTailnetSettings(ctx context.Context, change TailnetSettingsChange) error {
	op := operation{name: "change the tailnet's settings", replay: writing}
	if change.ACLsExternallyManagedOn != nil || change.ACLsExternalLink != nil {
		op.scopes = append(op.scopes, "policy_file")
	}
	if change.NetworkFlowLoggingOn != nil {
		op.scopes = append(op.scopes, "logs:network")
	}
	if change.HTTPSEnabled != nil {
		op.scopes = append(op.scopes, "networking_settings")
	}
	rest := change
	rest.ACLsExternallyManagedOn, rest.ACLsExternalLink, rest.NetworkFlowLoggingOn, rest.HTTPSEnabled = nil, nil, nil, nil
	if rest != (TailnetSettingsChange{}) {
		op.scopes = append(op.scopes, "feature_settings")
	}
	return c.call(ctx, op, func(ctx context.Context) error {
		return c.official.TailnetSettings().Update(ctx, change)
	})
}
