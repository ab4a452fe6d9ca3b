// Package wire takes the policy engine's rules to the types of Tailscale's nodes.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"tailscale.com/tailcfg"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Decode turns rules into the type that nodes decode them into, by way of JSON as on the wire. A key that the type does
// not have is an error.
func Decode(rules []policy.FilterRule) ([]tailcfg.FilterRule, error) {
	text, err := json.Marshal(rules)
	if err != nil {
		return nil, fmt.Errorf("encode rules: %w", err)
	}
	var out []tailcfg.FilterRule
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("decode rules: %w", err)
	}
	return out, nil
}
