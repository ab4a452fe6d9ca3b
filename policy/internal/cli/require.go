package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// parseRequirements reads a JSON list of requirements, or an object that has one under "requirements", such as the
// provider's tailmesh_mesh as an output; comments and trailing commas may stand in it, as in a policy. A key of a
// requirement that does not exist is refused: a requirement that is read wrongly could be met by anything.
func parseRequirements(src []byte) ([]policy.Requirement, error) {
	if _, err := policy.Format(src); err != nil { // which bounds how deep a text is nested
		return nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	src, err := hujson.Standardize(src) // each byte stays where it is
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if trimmed := bytes.TrimLeft(src, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		var object struct{ Requirements *[]json.RawMessage }
		if err := json.Unmarshal(src, &object); err != nil {
			return nil, err
		}
		if object.Requirements == nil {
			return nil, errors.New(`no "requirements" in the object`)
		}
		items = *object.Requirements
	} else if err := json.Unmarshal(src, &items); err != nil {
		return nil, err
	}
	if items == nil {
		return nil, errors.New("null is no list of requirements; for none, write []")
	}
	out := make([]policy.Requirement, len(items))
	for i, item := range items {
		dec := json.NewDecoder(bytes.NewReader(item))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&out[i]); err != nil {
			return nil, fmt.Errorf("requirements[%d]: %w", i, describeItem(err))
		}
		if err := out[i].Validate(); err != nil {
			return nil, fmt.Errorf("requirements[%d]: %w", i, err)
		}
	}
	return out, nil
}

// describeItem words what can be wrong with one requirement that is JSON. The offsets in the error count from its own
// start and would mislead.
func describeItem(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return describeType(wrong)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		return fmt.Errorf("unknown key %q: a requirement has name, src, dst, proto, ports and why", name)
	}
	return err
}
