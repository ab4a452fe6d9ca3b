package client

import (
	"context"
	"encoding/json"
	"net/http"

	tailscale "tailscale.com/client/tailscale/v2"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Device is one device of the tailnet, all fields.
type Device = tailscale.Device

// DeviceRoutes are the subnet routes of one device: those it offers and those the tailnet lets it have.
type DeviceRoutes = tailscale.DeviceRoutes

func deviceOperation(name string, replay replay) operation {
	scope := "devices:core"
	if replay == reading {
		scope += ":read"
	}
	return operation{name: name, scopes: []string{scope}, replay: replay}
}

// Inventory reads devices and users in the form that the policy engine takes, so that the engine sees what the service
// sent and not what a client's struct kept of it.
func (c *Client) Inventory(ctx context.Context) (*policy.Inventory, error) {
	devices, err := c.listRaw(ctx, deviceOperation("list the devices", reading), "devices", "fields=all")
	if err != nil {
		return nil, err
	}
	users, err := c.listRaw(ctx, operation{name: "list the users", scopes: []string{"users:read"}, replay: reading}, "users", "")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]json.RawMessage{"devices": devices, "users": users})
	if err != nil {
		return nil, &Error{Op: "read the inventory", Message: err.Error(), Err: err}
	}
	inv, err := policy.ParseInventory(text)
	if err != nil {
		return nil, &Error{Op: "read the inventory", Message: c.secrets.redact(err.Error()), Err: err}
	}
	return inv, nil
}

// Devices lists the tailnet's devices with all fields.
func (c *Client) Devices(ctx context.Context) ([]Device, error) {
	text, err := c.listRaw(ctx, deviceOperation("list the devices", reading), "devices", "fields=all")
	if err != nil {
		return nil, err
	}
	var devices []Device
	if err := json.Unmarshal(text, &devices); err != nil {
		return nil, &Error{Op: "list the devices", Message: "unexpected answer: " + c.secrets.redact(err.Error()), Err: err}
	}
	return devices, nil
}

// listRaw reads a list that the API wraps in an object under its own name. An answer without the list is a fault: the
// official client takes it for an empty tailnet.
func (c *Client) listRaw(ctx context.Context, op operation, name, query string) (json.RawMessage, error) {
	u := c.tailnetURL(name)
	u.RawQuery = query
	res, body, err := c.request(ctx, op, http.MethodGet, u, http.Header{"Accept": {"application/json"}}, "")
	if err != nil {
		return nil, err
	}
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, &Error{Op: op.name, Status: res.StatusCode, Message: c.notJSON(res.Header, body), Err: err}
	}
	list, ok := answer[name]
	if !ok {
		return nil, &Error{Op: op.name, Status: res.StatusCode, Message: "the service answered without the list of " + name}
	}
	if string(list) == "null" {
		return json.RawMessage("[]"), nil
	}
	return list, nil
}

// Device reads one device with all fields. id is a node ID ("n292kg92CNTRL") or the legacy number. IsNotFound tells
// that there is none.
func (c *Client) Device(ctx context.Context, id string) (Device, error) {
	op := deviceOperation("read the device", reading)
	device, err := value(c, ctx, op, func(ctx context.Context) (*Device, error) {
		return c.official.Devices().GetWithAllFields(ctx, id)
	})
	if err == nil && device.ID == "" && device.NodeID == "" {
		return device, &Error{Op: op.name, Status: http.StatusOK, Message: "the service answered without a device"}
	}
	return device, err
}

// SetDeviceAuthorized admits the device to the tailnet, or takes that back.
func (c *Client) SetDeviceAuthorized(ctx context.Context, id string, authorized bool) error {
	return c.call(ctx, deviceOperation("authorize the device", writing), func(ctx context.Context) error {
		return c.official.Devices().SetAuthorized(ctx, id, authorized)
	})
}

// SetDeviceTags replaces the device's tags. Tagging takes a device away from its user.
func (c *Client) SetDeviceTags(ctx context.Context, id string, tags []string) error {
	return c.call(ctx, deviceOperation("tag the device", writing), func(ctx context.Context) error {
		return c.official.Devices().SetTags(ctx, id, notNil(tags))
	})
}

// SetDeviceKeyExpiry says whether the device's key expires. Turning expiry on again restores the original date, which
// may have passed.
func (c *Client) SetDeviceKeyExpiry(ctx context.Context, id string, disabled bool) error {
	return c.call(ctx, deviceOperation("change the device's key expiry", writing), func(ctx context.Context) error {
		return c.official.Devices().SetKey(ctx, id, tailscale.DeviceKey{KeyExpiryDisabled: disabled})
	})
}

// DeviceRoutes reads the device's subnet routes.
func (c *Client) DeviceRoutes(ctx context.Context, id string) (DeviceRoutes, error) {
	op := operation{name: "read the device's routes", scopes: []string{"devices:routes:read"}, replay: reading}
	return value(c, ctx, op, func(ctx context.Context) (*DeviceRoutes, error) {
		return c.official.Devices().SubnetRoutes(ctx, id)
	})
}

// SetDeviceRoutes replaces the set of enabled routes and returns what is then in force, which the policy's autoApprovers
// may have added to.
func (c *Client) SetDeviceRoutes(ctx context.Context, id string, routes []string) (DeviceRoutes, error) {
	op := operation{name: "set the device's routes", scopes: []string{"devices:routes"}, replay: writing}
	err := c.call(ctx, op, func(ctx context.Context) error {
		return c.official.Devices().SetSubnetRoutes(ctx, id, notNil(routes))
	})
	if err != nil {
		return DeviceRoutes{}, err
	}
	return c.DeviceRoutes(ctx, id)
}

// DeleteDevice removes the device from the tailnet. IsNotFound tells that there is none, any more.
func (c *Client) DeleteDevice(ctx context.Context, id string) error {
	return c.call(ctx, deviceOperation("delete the device", writing), func(ctx context.Context) error {
		return c.official.Devices().Delete(ctx, id)
	})
}

// value is call for a method of the official client that answers something.
func value[T any](c *Client, ctx context.Context, op operation, get func(context.Context) (*T, error)) (T, error) {
	var v T
	err := c.call(ctx, op, func(ctx context.Context) error {
		p, err := get(ctx)
		if err == nil {
			v = *p
		}
		return err
	})
	return v, err
}

// notNil makes a missing list an empty one: the official client would send null.
func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
