package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// parseRequirements reads a JSON list of requirements, or an object that has one under "requirements", such as the
// provider's tailmesh_mesh as an output. A key of a requirement that does not exist is refused: a requirement that is
// read wrongly could be met by anything.
func parseRequirements(src []byte) ([]policy.Requirement, error) {
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
		if len(trimmed) == 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("want a JSON list of requirements: %w", err)
	}
	out := make([]policy.Requirement, len(items))
	for i, item := range items {
		dec := json.NewDecoder(bytes.NewReader(item))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&out[i]); err != nil {
			// The offsets in err count from the item's own start and would mislead.
			return nil, fmt.Errorf("requirements[%d]: %s", i, err) //nolint:errorlint
		}
		if err := out[i].Validate(); err != nil {
			return nil, fmt.Errorf("requirements[%d]: %w", i, err)
		}
	}
	return out, nil
}
