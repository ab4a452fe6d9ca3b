package desired_test

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

var update = flag.Bool("update", false, "write the golden files")

func document(t *testing.T, parts string) config.Document {
	t.Helper()
	text := `{"version":1,"mesh":"futhark",
		"node":{"name":"ams1","addresses":["100.64.0.11","fd7a:115c:a1e0::b"]},
		"peers":[
			{"name":"par1","addresses":["100.64.0.13"]},
			{"name":"fra1","addresses":["100.64.0.12","fd7a:115c:a1e0::c"]}]` + parts + `}`
	doc, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// link makes an interface that is up.
func link(name string, addresses ...string) desired.Link {
	l := desired.Link{Name: name, Up: true}
	for _, a := range addresses {
		l.Addresses = append(l.Addresses, netip.MustParsePrefix(a))
	}
	return l
}

func nodeFacts() desired.Facts {
	return desired.Facts{Links: []desired.Link{
		link("lo", "127.0.0.1/8", "::1/128"),
		link("eth0", "192.168.10.5/24"),
		link("kube-bridge", "10.244.1.1/24", "fd00:10:244:1::1/64"),
		link("tailscale0", "100.64.0.11/32", "fd7a:115c:a1e0::b/128"),
	}}
}

func TestBuild(t *testing.T) {
	const pods = `,"pod_cidrs":["10.244.1.0/24"]`
	tests := []struct {
		name, parts string
		facts       func(*desired.Facts)
	}{
		{name: "ipv4", parts: pods},
		{name: "both-families", parts: `,"pod_cidrs":["10.244.1.0/24","fd00:10:244:1::/64"]`},
		{name: "mode-rules", parts: pods + `,"routing":{"mode":"rules","mark":"0x10","priority":100,"table":53}`},
		{name: "local-networks", parts: pods + `,"local_cidrs":["192.168.11.0/24","192.168.10.0/24","10.7.0.0/16","10.7.3.0/24"]`},
		{name: "fail-closed", parts: pods + `,"routing":{"fail_closed":true}`},
		{name: "no-snat", parts: pods + `,"firewall":{"snat":false}`},
		{name: "several-pod-networks", parts: `,"pod_cidrs":["10.9.0.0/26","10.244.1.0/24","10.244.0.0/24"]`},
		{name: "no-pod-networks"},
		{name: "no-bridge", parts: `,"pod_cidrs":["10.99.0.0/24"]`},
		{name: "peer-is-this-host", parts: pods, facts: func(f *desired.Facts) {
			f.Links = append(f.Links, link("dummy0", "100.64.0.13/32"))
		}},
		{name: "no-tailscale", parts: pods, facts: func(f *desired.Facts) { f.Links = f.Links[:3] }},
		{name: "tailscale-down", parts: pods, facts: func(f *desired.Facts) { f.Links[3].Addresses = nil }},
		{name: "tailscale-without-ipv6", parts: `,"pod_cidrs":["10.244.1.0/24","fd00:10:244:1::/64"]`, facts: func(f *desired.Facts) {
			f.Links[3].Addresses = f.Links[3].Addresses[:1]
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := nodeFacts()
			if tt.facts != nil {
				tt.facts(&facts)
			}
			state, err := desired.Build(document(t, tt.parts), facts)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name, print(state))
		})
	}
}

// print writes a state as text.
func print(s desired.State) string {
	var b strings.Builder
	for _, r := range s.Rules {
		b.WriteString(r.Command("add") + "\n")
	}
	for _, backend := range desired.Backends() {
		b.WriteString(s.Tables[backend].String())
	}
	for _, p := range s.Probes {
		b.WriteString("probe " + p.Peer + ": from " + p.Packet.Src.String() + " iif " + p.Packet.Iif + " to " + p.Packet.Dst.String() + "\n")
	}
	for _, n := range s.Notes {
		b.WriteString("note " + n.Code + ": " + n.Message + "\n")
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestForeignDocument(t *testing.T) {
	tests := []struct {
		name      string
		addresses []string
		want      string // "" when the document is taken
	}{
		{"own", []string{"100.64.0.11/32", "fd7a:115c:a1e0::b/128"}, ""},
		{"only one family of two", []string{"100.64.0.11/32"}, ""},
		{"not up yet", nil, ""},
		{"another node's", []string{"100.64.0.12/32", "fd7a:115c:a1e0::c/128"}, `the document is for node "ams1" (100.64.0.11, ` +
			`fd7a:115c:a1e0::b), but tailscale0 of this host has 100.64.0.12, fd7a:115c:a1e0::c: give it this host's own document`},
		{"another node's in one family", []string{"100.64.0.11/32", "fd7a:115c:a1e0::c/128"}, `the document is for node "ams1" (100.64.0.11, ` +
			`fd7a:115c:a1e0::b), but tailscale0 of this host has 100.64.0.11, fd7a:115c:a1e0::c: give it this host's own document`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := nodeFacts()
			facts.Links[3] = link("tailscale0", tt.addresses...)
			_, err := desired.Build(document(t, ""), facts)
			foreign, is := errors.AsType[*desired.ForeignDocumentError](err)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (!is || foreign.Error() != tt.want):
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Old versions of kube-router take any rule that mentions the pods' network for their own.
func TestRulesDoNotNamePods(t *testing.T) {
	for _, mode := range []string{"mark", "rules"} {
		state, err := desired.Build(document(t, `,"pod_cidrs":["10.244.1.0/24"],"routing":{"mode":"`+mode+`"}`), nodeFacts())
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Rules) == 0 {
			t.Errorf("mode %s: no rules", mode)
		}
		for _, r := range state.Rules {
			if strings.Contains(r.String(), "10.244.1") {
				t.Errorf("mode %s: %s", mode, r)
			}
		}
	}
}

func TestRuleMatches(t *testing.T) {
	packet := desired.Packet{
		Src: netip.MustParseAddr("10.244.1.2"), Dst: netip.MustParseAddr("100.64.0.12"), Iif: "kube-bridge", Mark: 0x2000,
	}
	v4 := desired.IPv4
	tests := []struct {
		name string
		rule desired.Rule
		want bool
	}{
		{"all", desired.Rule{Family: v4}, true},
		{"other family", desired.Rule{Family: desired.IPv6}, false},
		{"source", desired.Rule{Family: v4, Src: netip.MustParsePrefix("10.244.1.0/24")}, true},
		{"other source", desired.Rule{Family: v4, Src: netip.MustParsePrefix("10.244.2.0/24")}, false},
		{"not the source", desired.Rule{Family: v4, Invert: true, Src: netip.MustParsePrefix("10.244.1.0/24")}, false},
		{"not another source", desired.Rule{Family: v4, Invert: true, Src: netip.MustParsePrefix("10.244.2.0/24")}, true},
		{"destination", desired.Rule{Family: v4, Dst: netip.MustParsePrefix("100.64.0.0/10")}, true},
		{"mark", desired.Rule{Family: v4, Mark: 0x2000, Mask: 0x2000}, true},
		{"whole mark", desired.Rule{Family: v4, Mark: 0x2001, Mask: ^uint32(0)}, false},
		{"Tailscale's mark", desired.Rule{Family: v4, Mark: 0x80000, Mask: 0xff0000}, false},
		{"a mask of other bits for zero", desired.Rule{Family: v4, Mark: 0, Mask: 0xff0000}, true},
		{"interface", desired.Rule{Family: v4, Iif: "kube-bridge"}, true},
		{"other interface", desired.Rule{Family: v4, Iif: "eth0"}, false},
		{"interface to leave by", desired.Rule{Family: v4, Oif: "kube-bridge"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rule.Matches(packet); got != tt.want {
				t.Errorf("%s matches: %v, want %v", tt.rule, got, tt.want)
			}
		})
	}
}
