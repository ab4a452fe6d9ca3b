package client

import (
	"context"

	tailscale "tailscale.com/client/tailscale/v2"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Device is one device of the tailnet, all fields.
type Device = tailscale.Device

// DeviceRoutes are the subnet routes of one device: those it offers and those the tailnet lets it have.
type DeviceRoutes = tailscale.DeviceRoutes

// Inventory reads devices and users in the form that the policy engine takes.
func (c *Client) Inventory(ctx context.Context) (*policy.Inventory, error) { panic("not yet") }

// Devices lists the tailnet's devices with all fields.
func (c *Client) Devices(ctx context.Context) ([]Device, error) { panic("not yet") }

// Device reads one device with all fields. id is a node ID ("n292kg92CNTRL") or the legacy number.
func (c *Client) Device(ctx context.Context, id string) (Device, error) { panic("not yet") }

// SetDeviceAuthorized admits the device to the tailnet, or takes that back.
func (c *Client) SetDeviceAuthorized(ctx context.Context, id string, authorized bool) error {
	panic("not yet")
}

// SetDeviceTags replaces the device's tags. Tagging takes a device away from its user.
func (c *Client) SetDeviceTags(ctx context.Context, id string, tags []string) error {
	panic("not yet")
}

// SetDeviceKeyExpiry says whether the device's key expires. Turning expiry on again restores the original date, which
// may have passed.
func (c *Client) SetDeviceKeyExpiry(ctx context.Context, id string, disabled bool) error {
	panic("not yet")
}

// DeviceRoutes reads the device's subnet routes.
func (c *Client) DeviceRoutes(ctx context.Context, id string) (DeviceRoutes, error) {
	panic("not yet")
}

// SetDeviceRoutes replaces the set of enabled routes and returns what is then in force, which the policy's autoApprovers
// may have added to.
func (c *Client) SetDeviceRoutes(ctx context.Context, id string, routes []string) (DeviceRoutes, error) {
	panic("not yet")
}

// DeleteDevice removes the device from the tailnet.
func (c *Client) DeleteDevice(ctx context.Context, id string) error { panic("not yet") }
