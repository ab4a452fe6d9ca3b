package policy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProtocols holds the names and numbers that tailscale.com/types/ipproto takes. Acls and grants read them alike.
func TestProtocols(t *testing.T) {
	tests := []struct {
		text string
		want []int // nil: the default protocols
		bad  bool
	}{
		{text: "ah", want: []int{51}},
		{text: "dccp", want: []int{33}},
		{text: "egp", want: []int{8}},
		{text: "esp", want: []int{50}},
		{text: "gre", want: []int{47}},
		{text: "icmp", want: []int{1}},
		{text: "icmpv4", want: []int{1}},
		{text: "icmpv6", want: []int{58}},
		{text: "igmp", want: []int{2}},
		{text: "igp", want: []int{9}},
		{text: "ip-in-ip", want: []int{4}},
		{text: "ipv4", want: []int{4}},
		{text: "ipv6-icmp", want: []int{58}},
		{text: "sctp", want: []int{132}},
		{text: "tcp", want: []int{6}},
		{text: "tsmp", want: []int{99}},
		{text: "udp", want: []int{17}},
		{text: "TCP", want: []int{6}},
		{text: "IP-in-IP", want: []int{4}},
		{text: "0", want: nil},
		{text: "1", want: []int{1}},
		{text: "004", want: []int{4}},
		{text: "255", want: []int{255}},
		{text: "256", bad: true},
		{text: "-1", bad: true},
		{text: "+6", bad: true},
		{text: "ipip", bad: true},
		{text: "tcp ", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			for form, rule := range map[string]string{
				"acl":   `"acls": [{"action": "accept", "proto": %q, "src": ["*"], "dst": ["tag:web:*"]}]`,
				"grant": `"grants": [{"src": ["*"], "dst": ["tag:web"], "ip": ["%s:*"]}]`,
			} {
				r := Check("", []byte(`{`+smallNames+fmt.Sprintf(rule, tt.text)+`}`), smallTailnet(), nil)
				if r.Accepted == tt.bad {
					t.Fatalf("%s: accepted %t, message %q", form, r.Accepted, r.Message)
				}
				if tt.bad {
					if want := fmt.Sprintf("proto name %q not known; use protocol number 0-255", tt.text); r.Message != want {
						t.Errorf("%s: message %q, want %q", form, r.Message, want)
					}
					continue
				}
				got, err := r.Compiled.Filter("web")
				if err != nil || len(got) != 1 {
					t.Fatalf("%s: %v %v", form, got, err)
				}
				if diff := cmp.Diff(tt.want, got[0].IPProto); diff != "" {
					t.Error(form, diff)
				}
			}
		})
	}
}

// TestProtocolNamesAreStable tells one name for each number, the one that the documentation has.
func TestProtocolNamesAreStable(t *testing.T) {
	for n, want := range map[int]string{1: "icmp", 4: "ip-in-ip", 6: "tcp", 58: "ipv6-icmp", 132: "sctp", 200: "protocol 200"} {
		for range 50 { // names come out of a map
			if got := protoName(n); got != want {
				t.Fatalf("%d is called %q, want %q", n, got, want)
			}
		}
	}
}

// TestGrantEntries holds what tailscale.com/tailcfg says first of an entry of a grant's ip, which it reads in lower case.
func TestGrantEntries(t *testing.T) {
	for entry, want := range map[string]string{
		"*": "", "*:*": "", "443": "", "80-443": "", "tcp:443": "", "udp:53-54": "", "TCP:22": "", "0:80": "", "132:7": "", "icmp:*": "", "4:*": "",
		"":           "empty string",
		":80":        "empty protocol",
		":x":         `port range "x": invalid first integer`,
		"tcp:":       `invalid port list: ""`,
		"80,443":     `port range "80,443": invalid first integer`,
		"tcp:80,443": `port range "80,443": invalid first integer`,
		"tcp,udp:80": `host cannot contain a comma (",")`,
		"tcp,udp:":   `host cannot contain a comma (",")`,
		"tcp:udp:80": `proto name "tcp:udp" not known; use protocol number 0-255`,
		"ICMP":       `port range "icmp": invalid first integer`,
		"SSH:22":     `proto name "ssh" not known; use protocol number 0-255`,
		"ssh:SSH":    `port range "ssh": invalid first integer`,
		"80 - 443":   `port range "80 - 443": invalid first integer`,
		"80-":        `port range "80-": invalid last integer`,
		"-80":        `port range "-80": invalid first integer`,
		"0-65535":    `port range "0-65535": first port must be >0, or use '*' for wildcard`,
		"443-80":     `port range "443-80": first port must be >= last port`,
		"1-2-3":      `port range "1-2-3": too many dashes(-)`,
		"65536":      `port range "65536": invalid first integer`,
		"1-65536":    `port range "1-65536": invalid last integer`,
	} {
		r := Check("", []byte(`{`+smallNames+`"grants": [{"src": ["*"], "dst": ["tag:web"], "ip": [`+quote(entry)+`]}]}`), smallTailnet(), nil)
		if r.Message != want {
			t.Errorf("%q: message %q, want %q", entry, r.Message, want)
		}
	}
}
