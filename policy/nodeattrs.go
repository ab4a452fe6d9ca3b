package policy

import "encoding/json"

// nodeAttrs checks the section of that name.
func (v *validator) nodeAttrs() {}

// NodeAttrs returns the capability map that a device (named as in Devices) gets, those of the service included.
func (c *Compiled) NodeAttrs(device string) (map[string][]json.RawMessage, error) { return nil, nil }
