package desired

import (
	"net/netip"
	"testing"
)

func TestBehind(t *testing.T) {
	at := func(first uint32) []Rule {
		return []Rule{
			{Family: IPv4, Mark: 0x2000, Mask: 0x2000, Action: Lookup, Table: 52, Protocol: RouteProtocol},
			{Family: IPv6, Priority: 7, Action: Lookup, Table: 52},
			{Family: IPv4, Priority: first, Mark: 0x80000, Mask: 0xff0000, Action: Lookup, Table: 254},
			{Family: IPv4, Priority: first + 60, Action: Lookup, Table: 52},
		}
	}
	tests := []struct {
		name     string
		rules    []Rule
		priority uint32
		want     uint32 // 0: there is no place
	}{
		{"as most have it", at(5210), 0, 5209},
		{"as some systems have it", at(1310), 0, 1309},
		{"the last place for the agent's", at(1310), 1308, 1309},
		{"behind which there is none", at(1310), 1309, 0},
		{"the agent's is behind all", at(5210), 5300, 0},
		{"Tailscale marks no packets", []Rule{{Family: IPv4, Priority: 5270, Action: Lookup, Table: 52}}, 0, 5269},
		{"Tailscale's are lost", nil, 0, 5209},
		{"Tailscale's are first", []Rule{{Family: IPv4, Action: Lookup, Table: 52}}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Rule{Family: IPv4, Src: netip.MustParsePrefix("10.244.1.0/24"), Action: Lookup, Table: 77}
			got, ok := Behind(tt.rules, r, tt.priority, 52)
			r.Priority = tt.want
			if ok != (tt.want != 0) || ok && got != r {
				t.Errorf("got %v, %s; want %d", ok, got, tt.want)
			}
		})
	}
}
