package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// What pods answer to peers goes back by the CNI's tunnel, wherever the CNI's rule has come to stand. No rule of the
// agent's has the pods' network in its text.
func TestAnswersOfPods(t *testing.T) {
	rule := func(priority uint32, from string, table uint32) desired.Rule {
		r := desired.Rule{Family: desired.IPv4, Priority: priority, Action: desired.Lookup, Table: table}
		if from != "" {
			r.Src = netip.MustParsePrefix(from)
		}
		return r
	}
	tailscale, main := rule(5270, "", 52), rule(32766, "", 254)
	own := rule(5269, "10.244.1.0/25", 77)
	own.Protocol = desired.RouteProtocol
	otherFamily := desired.Rule{Family: desired.IPv6, Priority: 32765, Src: netip.MustParsePrefix("fd00:10:244:1::/64"), Action: desired.Lookup, Table: 77}
	said := []string{
		"5269: from 10.244.1.0/25 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
		"5269: from 10.244.1.128/25 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
	}
	tests := []struct {
		name  string
		rules []desired.Rule
		want  []string
	}{
		{"no CNI's rule", []desired.Rule{tailscale, main}, nil},
		{"tailscaled is down", []desired.Rule{rule(32765, "10.244.1.0/24", 77), main}, nil},
		{"in front", []desired.Rule{rule(5209, "10.244.1.0/24", 77), tailscale, main}, nil},
		{"behind", []desired.Rule{tailscale, rule(32765, "10.244.1.0/24", 77), main}, said},
		{"behind, with the agent's in place", []desired.Rule{own, tailscale, rule(32765, "10.244.1.0/24", 77), main}, said},
		{"a wider network", []desired.Rule{tailscale, rule(32765, "10.244.0.0/16", 77), main}, []string{
			"5269: from 10.244.0.0/17 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
			"5269: from 10.244.128.0/17 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
		}},
		{"two networks", []desired.Rule{tailscale, rule(32764, "10.245.1.0/24", 77), rule(32765, "10.244.1.0/24", 77), main}, append(slices.Clone(said),
			"5269: from 10.245.1.0/25 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
			"5269: from 10.245.1.128/25 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
		)},
		{"two networks, one in front", []desired.Rule{rule(5209, "10.245.1.0/24", 77), tailscale, rule(32765, "10.244.1.0/24", 77), main}, said},
		{"two networks by one rule", []desired.Rule{tailscale, rule(32765, "10.244.0.0/15", 77), main}, []string{
			"5269: from 10.244.0.0/16 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
			"5269: from 10.245.0.0/16 to 100.64.0.0/10 fwmark 0/0x2000 lookup 77 proto 116",
		}},
		{"of others than pods", []desired.Rule{tailscale, rule(32765, "10.9.0.0/16", 77), main}, nil},
		{"to the main table", []desired.Rule{tailscale, rule(32765, "10.244.1.0/24", 254), main}, nil},
		{"of another family", []desired.Rule{tailscale, otherFamily, main}, nil},
		{"Tailscale's for its own packets only", []desired.Rule{
			{Family: desired.IPv4, Priority: 5200, Mark: 0x80000, Mask: 0xff0000, Action: desired.Lookup, Table: 52},
			rule(32765, "10.244.1.0/24", 77), main,
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := nodeFacts()
			facts.Rules = tt.rules
			pods := `"10.244.1.0/24"`
			if strings.HasPrefix(tt.name, "two networks") {
				pods = `"10.244.1.0/24", "10.245.1.0/24"`
			}
			state, err := desired.Build(document(t, `,"pod_cidrs":[`+pods+`]`), facts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range state.Rules {
				if r.Priority > 0 {
					got = append(got, r.String())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
