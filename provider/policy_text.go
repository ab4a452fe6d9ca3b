package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

// rivalReport tells three versions apart: the one that the plan saw, the one in force, which somebody else wrote, and
// ours, which was not written.
func rivalReport(ctx context.Context, api *client.Client, base, ours string, inventory types.String) string {
	var b strings.Builder
	b.WriteString("Nothing was written: the write was for the version that the plan saw, and that is no longer in force.\n")
	live, err := api.GetPolicy(ctx)
	if err != nil {
		b.WriteString("\nThe version in force could not be read: " + apiDetail(err, "") + "\n")
		return b.String()
	}
	theirs, mine := textdiff.Sections(base, live.HuJSON), textdiff.Sections(base, ours)
	fmt.Fprintf(&b, "\nThey changed: %s.\nYour change is in: %s.\n", sections(theirs), sections(mine))
	both := slices.DeleteFunc(slices.Clone(mine), func(s string) bool { return !slices.Contains(theirs, s) })
	if len(both) > 0 {
		fmt.Fprintf(&b, "Both changed: %s.\n", sections(both))
	}
	b.WriteString(theirAccess(ctx, api, base, live.HuJSON, inventory))
	b.WriteString("\nWhat they changed:\n\n" + textdiff.Lines("planned", base, "in force", live.HuJSON))
	b.WriteString("\nTake what you want of it into your file and plan again; the next plan starts from the version in force.")
	return b.String()
}

// theirAccess says what the version in force lets through that the one before did not, and the other way round.
func theirAccess(ctx context.Context, api *client.Client, base, live string, inventory types.String) string {
	s := &session{client: api}
	inv, diags := s.inventory(ctx, inventory)
	if diags.HasError() {
		return ""
	}
	gained, lost, ok := accessChange(base, live, inv)
	if !ok || len(gained)+len(lost) == 0 {
		return ""
	}
	var b strings.Builder
	for _, change := range []struct {
		what  string
		lines []string
	}{{"let through", gained}, {"no longer let through", lost}} {
		if len(change.lines) > 0 {
			fmt.Fprintf(&b, "\nSince their change this is %s:\n\n  %s\n", change.what, strings.Join(change.lines, "\n  "))
		}
	}
	return b.String()
}

func sections(names []string) string {
	if len(names) == 0 {
		return "comments or formatting only"
	}
	return list(names)
}
