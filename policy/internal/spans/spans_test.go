package spans

import (
	"slices"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []policy.PortRange
		want []Span
	}{
		{"none", nil, nil},
		{"all", []policy.PortRange{{First: 0, Last: 65535}}, []Span{{1, 65535}}},
		{"port 0 alone", []policy.PortRange{{First: 0, Last: 0}}, nil},
		{"out of order", []policy.PortRange{{First: 80, Last: 80}, {First: 22, Last: 22}}, []Span{{22, 22}, {80, 80}}},
		{"neighbours", []policy.PortRange{{First: 1, Last: 4}, {First: 5, Last: 9}}, []Span{{1, 9}}},
		{"one in another", []policy.PortRange{{First: 1, Last: 100}, {First: 5, Last: 9}, {First: 50, Last: 200}}, []Span{{1, 200}}},
		{"apart by one", []policy.PortRange{{First: 1, Last: 4}, {First: 6, Last: 9}}, []Span{{1, 4}, {6, 9}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Of(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHold(t *testing.T) {
	joined := []Span{{1, 80}, {90, 100}}
	for _, tt := range []struct {
		others []Span
		want   bool
	}{
		{nil, true},
		{[]Span{{1, 80}}, true},
		{[]Span{{22, 22}, {95, 100}}, true},
		{[]Span{{22, 22}, {95, 101}}, false},
		{[]Span{{80, 90}}, false},
		{[]Span{{85, 86}}, false},
	} {
		if got := Hold(joined, tt.others); got != tt.want {
			t.Errorf("%v in %v: %v", tt.others, joined, got)
		}
	}
	if Hold(nil, []Span{{1, 1}}) {
		t.Error("nothing holds a port")
	}
}
