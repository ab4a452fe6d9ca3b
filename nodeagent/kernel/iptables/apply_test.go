//go:build linux

package iptables_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Steps in one table are made all at once or not at all, and the error names the one that could not be made.
func TestApplyAllOrNothing(t *testing.T) {
	n := nstest.New(t)
	for _, b := range []desired.Backend{desired.IPTablesNFT, desired.IPTablesLegacy} {
		chain := desired.Chain{Name: "TAILMESH-POSTROUTING", Type: "nat", Hook: "POSTROUTING", Family: desired.IPv4}
		step := func(op string, position int, comment string) desired.FirewallChange {
			return desired.FirewallChange{
				Backend: b, Op: op, Chain: chain, Position: position,
				Rule: desired.FirewallRule{Family: desired.IPv4, Src: "10.0.0.0/8", Verdict: desired.Return, Comment: comment},
			}
		}
		good := []desired.FirewallChange{
			step(desired.AddChain, 0, ""), step(desired.InsertRule, 1, "a, b"), step(desired.InsertRule, 2, "c"), step(desired.InsertJump, 0, ""),
		}
		absent := step(desired.AddChain, 0, "")
		absent.Chain.Type, absent.Chain.Name = "mangle", "TAILMESH-PREROUTING"
		tests := []struct {
			name  string
			steps []desired.FirewallChange
			fails int // the place of the step that does, or -1
		}{
			{"good", good, -1},
			{"one more, behind what moves the jump", []desired.FirewallChange{
				step(desired.MoveJump, 0, ""), step(desired.InsertRule, 1, "d"), step(desired.DeleteRule, 9, ""), step(desired.InsertRule, 1, "e"),
			}, 2},
			{"what is there", []desired.FirewallChange{step(desired.InsertRule, 1, "d"), step(desired.AddChain, 0, "")}, 1},
			{"two lines of one step", []desired.FirewallChange{step(desired.DeleteJump, 0, ""), step(desired.DeleteJump, 0, "")}, 1},
			{"what somebody uses", []desired.FirewallChange{step(desired.InsertRule, 1, "d"), step(desired.DeleteChain, 0, "")}, 1},
			{"another table is another matter", []desired.FirewallChange{absent, step(desired.DeleteRule, 9, "")}, 1},
		}
		tool := string(b)
		for _, tt := range tests {
			before := n.Run(tool + " -t nat -S")
			err := iptables.New().Apply(tt.steps)
			if (err != nil) != (tt.fails >= 0) {
				t.Errorf("%s, %s: %v", b, tt.name, err)
				continue
			}
			if err == nil {
				continue
			}
			step := tt.steps[tt.fails]
			used := strings.Contains(err.Error(), "a rule that is not the agent's may use it: find that with `"+tool+"-save | grep TAILMESH-")
			if used != (step.Op == desired.DeleteChain) {
				t.Errorf("%s, %s: got %q", b, tt.name, err)
			}
			if want := step.String(); !strings.HasPrefix(err.Error(), want+": ") {
				t.Errorf("%s, %s: got %q, want what went wrong with %q", b, tt.name, err, want)
			}
			if now := n.Run(tool + " -t nat -S"); now != before {
				t.Errorf("%s, %s: something was done: before\n%snow\n%s", b, tt.name, before, now)
			}
		}
		if out := n.Run(tool + " -t mangle -S"); !strings.Contains(out, "-N TAILMESH-PREROUTING") {
			t.Errorf("%s: what was whole was not done:\n%s", b, out)
		}
	}
}

// A program that is not there, or may not, is named; what to do is said.
func TestApplyWithout(t *testing.T) {
	nstest.New(t)
	steps := []desired.FirewallChange{{
		Backend: desired.IPTablesNFT, Op: desired.AddChain, Chain: desired.Chain{Name: "TAILMESH-FORWARD", Type: "filter", Family: desired.IPv6},
	}}
	t.Setenv("PATH", t.TempDir())
	err := iptables.New().Apply(steps)
	if err == nil || !strings.Contains(err.Error(), "there is no ip6tables-nft-restore on the PATH: install") {
		t.Errorf("got %v", err)
	}
}

func readTable(t *testing.T) *desired.Table {
	t.Helper()
	facts := desired.Facts{Tables: map[desired.Backend]*desired.Table{}, Counters: map[string]desired.Counter{}}
	if err := iptables.New().Read(&facts); err != nil {
		t.Fatal(err)
	}
	return facts.Tables[desired.IPTablesNFT]
}

// Sets that the agent would not make are foreign, whatever their name, and so are those with exceptions in them.
func TestForeignSets(t *testing.T) {
	n := nstest.New(t)
	tests := []struct {
		kind    string
		foreign bool
	}{
		{"hash:ip", false},
		{"hash:net", false},
		{"hash:ip family inet6", false},
		{"hash:ip hashsize 4096 maxelem 1000000", false},
		{"hash:ip timeout 60", true},
		{"hash:ip netmask 24", true},
		{"hash:ip maxelem 1", true},
		{"hash:net counters", true},
		{"hash:net forceadd", true},
		{"hash:ip,port", true},
		{"bitmap:ip range 100.64.0.0/24", true},
		{"list:set", true},
	}
	for _, tt := range tests {
		n.Run("ipset create tailmesh-nft-peers4 " + tt.kind)
		got := readTable(t).Set("peers4")
		if got.Foreign != tt.foreign {
			t.Errorf("%s: %+v", tt.kind, got)
		}
		n.Run("ipset destroy tailmesh-nft-peers4")
	}
	n.Run("ipset create tailmesh-nft-pods4 hash:net\nipset add tailmesh-nft-pods4 10.0.0.0/8\nipset add tailmesh-nft-pods4 10.1.0.0/16 nomatch")
	if got := readTable(t).Set("pods4"); !got.Foreign {
		t.Errorf("with an exception: %+v", got)
	}
}

// A set whose entries do not fit into one message is read whole.
func TestLongSets(t *testing.T) {
	nstest.New(t)
	for _, want := range []desired.Set{
		{Name: "peers4", Family: desired.IPv4},
		{Name: "local4", Family: desired.IPv4, Interval: true},
		{Name: "peers6", Family: desired.IPv6},
		{Name: "local6", Family: desired.IPv6, Interval: true},
	} {
		create := desired.FirewallChange{Backend: desired.IPTablesNFT, Op: desired.AddSet, Set: want}
		fill := desired.FirewallChange{Backend: desired.IPTablesNFT, Op: desired.AddElement, Set: want}
		base, bits := netip.MustParseAddr("10.0.0.0"), 32
		if want.Family == desired.IPv6 {
			base, bits = netip.MustParseAddr("fd00::"), 128
		}
		if want.Interval {
			bits -= 8
		}
		for i := range 3000 {
			a := base.AsSlice()
			a[1], a[2] = byte(i>>7), byte(i<<1) // every other network, so that none are merged
			addr, _ := netip.AddrFromSlice(a)
			want.Elements = append(want.Elements, netip.PrefixFrom(addr, bits))
		}
		fill.Elements = want.Elements
		if err := iptables.New().Apply([]desired.FirewallChange{create, fill}); err != nil {
			t.Fatal(err)
		}
		got := readTable(t).Set(want.Name)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
			t.Errorf("%s (-want +got):\n%.500s", want.Name, diff)
		}
	}
}

// A program that fails for a moment makes a read fail, and nothing is remembered of it: the next one finds the rules. Rules
// that it can never show are foreign, for as long as that is so.
func TestReadByAProgramThatFails(t *testing.T) {
	nstest.New(t)
	for _, b := range []desired.Backend{desired.IPTablesNFT, desired.IPTablesLegacy} {
		chain := desired.Chain{Name: "TAILMESH-POSTROUTING", Type: "nat", Hook: "POSTROUTING", Family: desired.IPv4}
		rule := desired.FirewallRule{Family: desired.IPv4, Src: "10.0.0.0/8", Verdict: desired.Return, Comment: "a"}
		if err := iptables.New().Apply([]desired.FirewallChange{
			{Backend: b, Op: desired.AddChain, Chain: chain}, {Backend: b, Op: desired.InsertRule, Chain: chain, Rule: rule, Position: 1},
		}); err != nil {
			t.Fatal(err)
		}
		real, err := exec.LookPath(string(b))
		if err != nil {
			t.Fatal(err)
		}
		dir, path := t.TempDir(), os.Getenv("PATH")
		t.Setenv("PATH", dir+":"+path)
		f := iptables.New()
		read := func(program string) ([]desired.FirewallRule, error) {
			if err := os.WriteFile(filepath.Join(dir, string(b)), []byte("#!/bin/sh\n"+program), 0o700); err != nil {
				t.Fatal(err)
			}
			facts := desired.Facts{Tables: map[desired.Backend]*desired.Table{}, Counters: map[string]desired.Counter{}}
			err := f.Read(&facts)
			if err != nil {
				return nil, err
			}
			return facts.Tables[b].Chains[0].Rules, nil
		}
		works, fails := "exec "+real+` "$@"`, "echo Resource temporarily unavailable. >&2; exit 4"
		for _, tt := range []struct {
			name, program string
			want          []desired.FirewallRule // nil: the read fails
		}{
			{"its version cannot be had", fails, nil},
			{"its list cannot be had", `[ "$1" = --version ] && ` + works + "\n" + fails, nil},
			{"it works", works, []desired.FirewallRule{rule}},
			{"nothing has changed", fails, []desired.FirewallRule{rule}},
		} {
			got, err := read(tt.program)
			if (err == nil) != (tt.want != nil) || !slices.Equal(got, tt.want) {
				t.Errorf("%s, %s: %v, %v, want %v", b, tt.name, got, err, tt.want)
			}
		}
		f = iptables.New()
		never := `[ "$1" = --version ] && ` + works + "\necho 'Table is incompatible, use nft tool.' >&2; exit 1"
		for range 2 {
			if got, err := read(never); err != nil || len(got) != 1 || !got[0].Foreign {
				t.Errorf("%s, not to be shown: %v, %v", b, got, err)
			}
		}
		t.Setenv("PATH", path)
	}
}

// Rules that iptables-nft does not understand, in one of the agent's chains, are foreign, and go like any other.
func TestRulesOfAnotherTool(t *testing.T) {
	n := nstest.New(t)
	const b = desired.IPTablesNFT
	chain := desired.Chain{Name: "TAILMESH-PREROUTING", Type: "mangle", Hook: "PREROUTING", Family: desired.IPv4, Jumps: []int{1}}
	chain.Rules = []desired.FirewallRule{{
		Family: desired.IPv4, Src: "10.0.0.0/8", Direction: desired.Original, Verdict: desired.SetMark, Bit: 0x2000, Comment: "a",
	}}
	want := desired.State{Tables: map[desired.Backend]*desired.Table{b: {Chains: []desired.Chain{chain}}}}
	f := iptables.New()
	mend := func() {
		t.Helper()
		for range 2 {
			facts := desired.Facts{Tables: map[desired.Backend]*desired.Table{}, Counters: map[string]desired.Counter{}}
			if err := f.Read(&facts); err != nil {
				t.Fatal(err)
			}
			if err := f.Apply(desired.Diff(facts, want).Firewall); err != nil {
				t.Fatal(err)
			}
		}
	}
	mend()
	healthy := n.Run("iptables-nft -t mangle -S")
	for _, rule := range []string{"meta mark set 0", "ip daddr @odd drop", "meta cgroup 1 accept", "ct mark set 1", "numgen inc mod 2 0 drop"} {
		n.Run("nft add set ip mangle odd '{ type ipv4_addr; }'\nnft add rule ip mangle TAILMESH-PREROUTING " + rule +
			"\nnft insert rule ip mangle TAILMESH-PREROUTING " + rule)
		mend()
		if got := n.Run("iptables-nft -t mangle -S"); got != healthy {
			t.Errorf("%s: got\n%swant\n%s", rule, got, healthy)
		}
	}
}
