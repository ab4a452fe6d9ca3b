package mesh

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

func TestSubnet(t *testing.T) {
	at := func(n int, name string, endpoints ...string) policy.Device {
		d := device(n, name, "tag:node")
		d.ClientConnectivity = &policy.ClientConnectivity{Endpoints: endpoints}
		return d
	}
	const home1, home2 = "192.168.1.0/24 behind 203.0.113.1", "192.168.1.0/24 behind 203.0.113.2"
	for _, tt := range []struct {
		name    string
		devices []policy.Device
		change  func(*Spec)
		want    map[string]string
	}{
		{
			name: "two homes with the same network",
			devices: []policy.Device{
				at(1, "a", "192.168.1.10:41641", "203.0.113.1:1024"), at(2, "b", "203.0.113.1:1025", "192.168.1.11:41641"),
				at(3, "c", "192.168.1.10:41641", "203.0.113.2:1024"), at(4, "d", "192.168.1.12:41641", "203.0.113.2:1024"),
			},
			want: map[string]string{"a": home1, "b": home1, "c": home2, "d": home2},
		},
		{
			name: "private network alone proves nothing",
			devices: []policy.Device{
				at(1, "a", "10.0.0.10:41641", "203.0.113.1:41641"), at(2, "b", "10.0.0.11:41641", "203.0.113.2:41641"),
			},
			want: map[string]string{"a": "", "b": ""},
		},
		{
			name: "public address alone proves nothing",
			devices: []policy.Device{
				at(1, "a", "192.168.1.10:41641", "203.0.113.1:1"), at(2, "b", "192.168.2.10:41641", "203.0.113.1:2"),
			},
			want: map[string]string{"a": "", "b": ""},
		},
		{
			name:    "global IPv6",
			devices: []policy.Device{at(1, "a", "[2001:db8:1::a]:41641"), at(2, "b", "[2001:db8:1::b]:41641"), at(3, "c", "[2001:db8:2::a]:41641")},
			want:    map[string]string{"a": "2001:db8:1::/64", "b": "2001:db8:1::/64", "c": ""},
		},
		{
			name:    "unique local IPv6 and mesh addresses prove nothing",
			devices: []policy.Device{at(1, "a", "[fd00::a]:41641", "100.64.0.1:1"), at(2, "b", "[fd00::b]:41641", "100.64.0.1:1")},
			want:    map[string]string{"a": "", "b": ""},
		},
		{
			name: "neighbours of neighbours",
			devices: []policy.Device{
				at(1, "a", "192.168.1.10:41641", "203.0.113.1:1"),
				at(2, "b", "192.168.1.11:41641", "203.0.113.1:2", "[2001:db8:1::b]:41641"),
				at(3, "c", "[2001:db8:1::c]:41641"),
			},
			want: map[string]string{"a": home1, "b": home1, "c": home1},
		},
		{
			name: "networks of a location",
			devices: []policy.Device{
				at(1, "a", "192.168.10.10:41641"), at(2, "b", "10.7.1.1:41641"), at(3, "c", "192.168.11.10:41641"),
			},
			want: map[string]string{"a": "ams", "b": "ams", "c": ""},
		},
		{
			name:    "networks of two locations",
			devices: []policy.Device{at(1, "a", "192.168.10.10:41641")},
			change:  func(s *Spec) { s.LocalCIDRs["fra"] = prefixList("192.168.10.0/24") },
			want:    map[string]string{"a": ""},
		},
		{
			name: "given is given",
			devices: []policy.Device{
				at(1, "a", "192.168.10.10:41641"), at(2, "b", "192.168.10.11:41641"),
			},
			change: func(s *Spec) { s.Locations = map[string]string{"a": "elsewhere"} },
			want:   map[string]string{"a": "elsewhere", "b": "ams"},
		},
		{
			name:    "no report of the network",
			devices: []policy.Device{device(1, "a", "tag:node"), at(2, "b", "nonsense")},
			want:    map[string]string{"a": "", "b": ""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := Build(tt.devices, spec(func(s *Spec) {
				s.Granularity, s.Locations, s.PodCIDRs = Subnet, nil, nil
				if tt.change != nil {
					tt.change(s)
				}
			}))
			got := map[string]string{}
			for _, n := range plan.Nodes {
				got[n.Name] = n.Location
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("locations (-want +got):\n%s\nproblems: %+v", d, plan.Problems)
			}
			for name, doc := range plan.Documents {
				if err := doc.Validate(); err != nil {
					t.Errorf("document of %s: %v", name, err)
				}
			}
		})
	}
}
