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

// TailnetSettings reads the settings.
func (c *Client) TailnetSettings(ctx context.Context) (TailnetSettings, error) { panic("not yet") }

// SetTailnetSettings changes the settings that are not nil.
func (c *Client) SetTailnetSettings(ctx context.Context, change TailnetSettingsChange) error {
	panic("not yet")
}
