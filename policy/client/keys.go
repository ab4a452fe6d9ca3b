package client

import (
	"context"
	"time"

	tailscale "tailscale.com/client/tailscale/v2"
)

// AuthKeyRequest describes a key with which devices join the tailnet.
type AuthKeyRequest struct {
	// Tags are given to the devices. OAuth clients and federated identities must ask for at least one.
	Tags          []string
	Reusable      bool
	Ephemeral     bool
	Preauthorized bool
	// Expiry is rounded up to whole seconds; zero means the service's default, 90 days.
	Expiry time.Duration
	// Description has at most 50 characters: letters, digits, "-", "_" and space.
	Description string
}

// AuthKey is a key that was made. The service shows the secret this once.
type AuthKey struct {
	ID      string
	Key     Secret
	Created time.Time
	Expires time.Time
}

// CreateAuthKey makes a key. It is repeated only where the service has surely not carried it out (429), so that a retry
// never leaves a second key behind.
func (c *Client) CreateAuthKey(ctx context.Context, req AuthKeyRequest) (AuthKey, error) {
	op := operation{name: "create the auth key", scopes: []string{"auth_keys"}, replay: refused}
	wire := tailscale.CreateKeyRequest{
		ExpirySeconds: int64((req.Expiry + time.Second - 1) / time.Second),
		Description:   req.Description,
	}
	create := &wire.Capabilities.Devices.Create
	create.Reusable, create.Ephemeral, create.Preauthorized = req.Reusable, req.Ephemeral, req.Preauthorized
	create.Tags = notNil(req.Tags)
	key, err := value(c, ctx, op, func(ctx context.Context) (*tailscale.Key, error) {
		return c.official.Keys().CreateAuthKey(ctx, wire)
	})
	if err != nil {
		return AuthKey{}, err
	}
	if key.Key == "" {
		return AuthKey{}, &Error{Op: op.name, Message: "the service answered without a key"}
	}
	c.secrets.add(Secret(key.Key))
	return AuthKey{ID: key.ID, Key: Secret(key.Key), Created: key.Created, Expires: key.Expires}, nil
}

// DeleteKey revokes a key. A key that is already gone is not an error.
func (c *Client) DeleteKey(ctx context.Context, id string) error {
	op := operation{name: "revoke the key", scopes: []string{"auth_keys"}, replay: writing}
	err := c.call(ctx, op, func(ctx context.Context) error { return c.official.Keys().Delete(ctx, id) })
	if IsNotFound(err) {
		return nil
	}
	return err
}
