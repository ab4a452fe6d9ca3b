package client

import (
	"context"
	"time"
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
	panic("not yet")
}

// DeleteKey revokes a key. A key that is already gone is not an error.
func (c *Client) DeleteKey(ctx context.Context, id string) error { panic("not yet") }
