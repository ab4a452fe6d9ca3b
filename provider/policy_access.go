package provider

import (
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/accessdiff"
)

// access is accessChange from the old text to the one that was checked.
func (c *policyCheck) access(old string) (gained, lost []string, ok bool) {
	if c.report == nil || c.inv == nil {
		return nil, nil, false
	}
	return accessChange(old, c.report, c.inv)
}

// accessChange lists the access that a policy gives beyond the old text, and that which it gives no longer. ok is false
// where that cannot be told, as for a text that no control plane accepts.
//
// Lines hold no counts of devices. An apply works the list out anew, and must come to what the plan showed although
// devices may have joined in between.
func accessChange(old string, current *policy.Report, inv *policy.Inventory) (gained, lost []string, ok bool) {
	if current.Compiled == nil {
		return nil, nil, false
	}
	result, err := accessdiff.Compare(policy.Check("", []byte(old), inv, nil), current)
	if err != nil {
		return nil, nil, false
	}
	for _, c := range slices.Concat(result.Gained, result.Lost, result.Undecided) {
		line := c.Parties() + ": " + c.What()
		if c.Cause.Text != "" {
			line += " (" + c.Cause.Text + ")"
		}
		if c.Needs != "" {
			line += "; undecided without " + c.Needs
		}
		if c.Effect == "lost" {
			lost = append(lost, line)
		} else {
			gained = append(gained, line)
		}
	}
	return gained, lost, true
}

func stringList(list []string) types.List {
	values := make([]attr.Value, len(list))
	for i, s := range list {
		values[i] = types.StringValue(s)
	}
	return types.ListValueMust(types.StringType, values)
}
