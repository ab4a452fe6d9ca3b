package nodefilter

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

func TestLanes(t *testing.T) {
	all := []policy.PortRange{{First: 0, Last: 65535}}
	one := []spans.Span{{First: 1, Last: 65535}}
	for _, tt := range []struct {
		name string
		in   policy.Admission
		want []Lane
	}{
		{"default protocols", policy.Admission{Ports: all}, []Lane{{TCP, one}, {UDP, one}, {Proto: ICMP}}},
		{"some ports", policy.Admission{Ports: []policy.PortRange{{First: 80, Last: 90}, {First: 22, Last: 22}, {First: 91, Last: 91}}}, []Lane{
			{TCP, []spans.Span{{First: 22, Last: 22}, {First: 80, Last: 91}}}, {UDP, []spans.Span{{First: 22, Last: 22}, {First: 80, Last: 91}}}, {Proto: ICMP},
		}},
		{"one protocol, twice", policy.Admission{Proto: []int{SCTP, TCP, SCTP}, Ports: all}, []Lane{{TCP, one}, {SCTP, one}, {Proto: ICMP}}},
		{"without ports", policy.Admission{Proto: []int{4, 47}, Ports: all}, []Lane{{Proto: 4}, {Proto: 47}, {Proto: ICMP}}},
		{"without ports, and not all named", policy.Admission{Proto: []int{4, TCP}, Ports: []policy.PortRange{{First: 1, Last: 65535}}}, []Lane{{TCP, one}, {Proto: ICMP}}},
		{"pings", policy.Admission{Proto: []int{ICMP, ICMPv6}, Ports: all}, []Lane{{Proto: ICMP}}},
		{"port 0 alone", policy.Admission{Proto: []int{TCP}, Ports: []policy.PortRange{{}}}, []Lane{{Proto: ICMP}}},
		{"capabilities", policy.Admission{Caps: map[string][]json.RawMessage{"example.com/cap/x": nil}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Lanes(&tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRanges(t *testing.T) {
	for text, want := range map[string][]string{
		"*":                     {"0.0.0.0-255.255.255.255", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"100.64.0.1":            {"100.64.0.1-100.64.0.1"},
		"fd7a:115c:a1e0::1":     {"fd7a:115c:a1e0::1-fd7a:115c:a1e0::1"},
		"10.1.0.0/16":           {"10.1.0.0-10.1.255.255"},
		"10.1.0.7/16":           {"10.1.0.0-10.1.255.255"},
		"100.64.0.0-100.64.0.9": {"100.64.0.0-100.64.0.9"},
		"10.0.0.9-10.0.0.1":     nil,
		"tag:db":                nil,
		"":                      nil,
	} {
		var got []string
		for _, r := range Ranges(text) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestSet(t *testing.T) {
	var got []string
	for _, r := range Set("10.0.0.0/9", "10.128.0.0-10.255.255.255", "tag:db", "10.0.0.1", "fd7a::1").Ranges() {
		got = append(got, r.String())
	}
	if diff := cmp.Diff([]string{"10.0.0.0-10.255.255.255", "fd7a::1-fd7a::1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
