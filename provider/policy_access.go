package provider

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/accessdiff"
)

// accessChange lists the access that a policy gives beyond an old one, and that which it gives no longer. ok is false
// where that cannot be told, as for a text that no control plane accepts.
func accessChange(old, current string, inv *policy.Inventory) (gained, lost []string, ok bool) {
	result, err := accessdiff.Compare(policy.Check("", []byte(old), inv, nil), policy.Check("", []byte(current), inv, nil))
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

// setAccess takes what accessChange returns.
func (m *policyModel) setAccess(gained, lost []string, ok bool) {
	m.AccessGained, m.AccessLost = types.ListNull(types.StringType), types.ListNull(types.StringType)
	if ok {
		m.AccessGained, m.AccessLost = stringList(gained), stringList(lost)
	}
}

// replaced warns of what the first write of a new resource changes for people, which the values of its plan cannot tell: the
// policy in force and the devices may be others by the apply.
func (r *policyResource) replaced(ctx context.Context, m policyModel, inv *policy.Inventory) (diags diag.Diagnostics) {
	api, err := r.api()
	if err != nil {
		return nil
	}
	live, err := api.GetPolicy(ctx)
	if err != nil {
		return nil // as the apply will say
	}
	gained, lost, ok := accessChange(live.HuJSON, m.Content.ValueString(), inv)
	if !ok || len(gained)+len(lost) == 0 {
		return nil
	}
	var b strings.Builder
	if m.Adopt.ValueString() != adoptAlways {
		b.WriteString("Where somebody has written that one, the apply refuses to; import it then.\n")
	}
	for _, change := range []struct {
		what  string
		lines []string
	}{{"This is no longer let through", lost}, {"This is let through that was not", gained}} {
		if len(change.lines) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n  %s\n", change.what, strings.Join(change.lines, "\n  "))
		}
	}
	diags.AddAttributeWarning(path.Root("content"), "the policy that is in force will be replaced", b.String())
	return diags
}

// settle works out what the plan left open, which an apply must not.
func (r *policyResource) settle(ctx context.Context, m *policyModel, old string) diag.Diagnostics {
	accessOpen := m.AccessGained.IsUnknown() || m.AccessLost.IsUnknown()
	if !accessOpen && known(ctx, m.TestResults) {
		return nil
	}
	var inv *policy.Inventory
	if m.checksOffline() {
		inv, _ = r.inventory(ctx, m.Inventory)
	}
	if accessOpen {
		m.setAccess(nil, nil, false)
		if inv != nil {
			m.setAccess(accessChange(old, m.Content.ValueString(), inv))
		}
	}
	return m.settleResults(ctx, inv)
}

func (m *policyModel) checksOffline() bool {
	v := m.Validation.ValueString()
	return v == validateOffline || v == validateBoth
}

// An apply plans anew and must come to what the plan showed, although devices may have joined in between. So the access
// that a change gives is worked out for the devices that the refresh before the plan saw, which it leaves in the
// resource's private state. (That policies are checked with the devices of the day is another thing.)

// privateInventory is the key of the devices that a refresh saw.
const privateInventory = "inventory"

type privateReader interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

type privateWriter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// rememberInventory keeps the devices of the API for the plan that follows; none where they cannot be had.
func rememberInventory(ctx context.Context, inv *policy.Inventory, private privateWriter) diag.Diagnostics {
	var packed bytes.Buffer
	if inv != nil {
		w := gzip.NewWriter(&packed)
		_, err := io.WriteString(w, inventoryText(inv))
		if closeErr := w.Close(); err != nil || closeErr != nil {
			packed.Reset()
		}
	}
	value, err := json.Marshal(packed.Bytes())
	if err != nil {
		return nil
	}
	return private.SetKey(ctx, privateInventory, value)
}

// seenInventory is what rememberInventory kept, or nil.
func seenInventory(ctx context.Context, private privateReader) (*policy.Inventory, diag.Diagnostics) {
	value, diags := private.GetKey(ctx, privateInventory)
	var packed []byte
	if diags.HasError() || json.Unmarshal(value, &packed) != nil {
		return nil, diags
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, diags
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, diags
	}
	inv, err := policy.ParseInventory(text)
	if err != nil {
		return nil, diags
	}
	return inv, diags
}

func stringList(list []string) types.List {
	values := make([]attr.Value, len(list))
	for i, s := range list {
		values[i] = types.StringValue(s)
	}
	return types.ListValueMust(types.StringType, values)
}
