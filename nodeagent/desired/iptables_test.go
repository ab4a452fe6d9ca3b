package desired_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// The same states as those of nftables, as the commands that make them.
func TestBuildIPTables(t *testing.T) {
	const both = `,"pod_cidrs":["10.244.1.0/24","fd00:10:244:1::/64"],"firewall":{"backend":"iptables"}`
	tests := []struct {
		name, parts string
		facts       func(*desired.Facts)
	}{
		{"iptables", both + `,"local_cidrs":["192.168.10.0/24","10.7.0.0/16"]`, func(*desired.Facts) {}},
		{"iptables-legacy", both, func(f *desired.Facts) { f.IPTables = desired.IPTablesLegacy }},
		{"iptables-fail-closed", both + `,"routing":{"fail_closed":true}`, func(*desired.Facts) {}},
		{"iptables-no-sets", both + `,"local_cidrs":["0.0.0.0/0"],"routing":{"fail_closed":true}`, func(f *desired.Facts) { f.NoSets = true }},
		{"iptables-everywhere-local", both + `,"local_cidrs":["0.0.0.0/0","::/0"]`, func(*desired.Facts) {}},
		{"iptables-several-pod-networks", strings.Replace(both, `"10.244.1.0/24"`, `"10.244.1.0/24","10.9.0.0/26"`, 1), func(*desired.Facts) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := nodeFacts()
			facts.IPTables = desired.IPTablesNFT
			tt.facts(&facts)
			state, err := desired.Build(document(t, tt.parts), facts)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(desired.Diff(facts, state).Lines(), "\n") + "\n"
			for _, n := range state.Notes {
				text += "note " + n.Code + ": " + n.Message + "\n"
			}
			golden(t, tt.name, text)
		})
	}
}

func TestBackend(t *testing.T) {
	const old = "this kernel has no nf_tables"
	const gone = "there is no iptables-nft on the PATH: install it"
	tests := []struct {
		name, asked    string
		noNFT, noIPT   string
		legacy         bool
		want           desired.Backend
		refusedBecause string
	}{
		{name: "auto", asked: "auto", want: desired.NFTables},
		{name: "auto without iptables", asked: "auto", noIPT: gone, want: desired.NFTables},
		{name: "auto on an old kernel", asked: "auto", noNFT: old, want: desired.IPTablesNFT},
		{name: "auto on an old kernel with legacy", asked: "auto", noNFT: old, legacy: true, want: desired.IPTablesLegacy},
		{name: "nothing", asked: "auto", noNFT: old, noIPT: gone, refusedBecause: `firewall.backend: "auto" cannot be had: ` + gone +
			"; nftables is no way out, because " + old},
		{name: "nftables", asked: "nftables", want: desired.NFTables},
		{name: "nftables on an old kernel", asked: "nftables", noNFT: old, refusedBecause: `firewall.backend: "nftables" cannot be had: ` + old +
			`: use "iptables"`},
		{name: "iptables", asked: "iptables", want: desired.IPTablesNFT},
		{name: "iptables in legacy", asked: "iptables", legacy: true, want: desired.IPTablesLegacy},
		{name: "iptables missing", asked: "iptables", noIPT: gone, refusedBecause: `firewall.backend: "iptables" cannot be had: ` + gone +
			`, or use "nftables"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := nodeFacts()
			facts.NoNFTables, facts.NoIPTables, facts.IPTables = tt.noNFT, tt.noIPT, desired.IPTablesNFT
			if tt.legacy {
				facts.IPTables = desired.IPTablesLegacy
			}
			state, err := desired.Build(document(t, `,"pod_cidrs":["10.244.1.0/24"],"firewall":{"backend":"`+tt.asked+`"}`), facts)
			if err != nil && err.Error() != tt.refusedBecause || err == nil && tt.refusedBecause != "" {
				t.Fatalf("got  %v\nwant %s", err, tt.refusedBecause)
			}
			if state.Backend() != tt.want {
				t.Errorf("%q, want %q", state.Backend(), tt.want)
			}
		})
	}
}

// The rules of iptables, with sets and without, mark and translate exactly what those of nftables do.
func TestBackendsAgree(t *testing.T) {
	const parts = `,"pod_cidrs":["10.244.1.0/24","10.9.0.0/26","fd00:10:244:1::/64","fd00:9::/64"],"local_cidrs":["0.0.0.0/0","fd00::/16"]`
	build := func(backend desired.Backend, noSets bool) *desired.Table {
		facts := nodeFacts()
		facts.IPTables, facts.NoSets = backend, noSets
		asked := "iptables"
		if backend == desired.NFTables {
			asked = "nftables"
		}
		state, err := desired.Build(document(t, parts+`,"firewall":{"backend":"`+asked+`"}`), facts)
		if err != nil {
			t.Fatal(err)
		}
		return state.Tables[backend]
	}
	addresses := []netip.Addr{}
	for _, a := range []string{
		"10.244.1.2", "10.9.0.5", "10.9.0.70", "100.64.0.11", "100.64.0.12", "100.64.0.13", "100.64.0.14", "192.168.10.5", "200.1.1.1",
		"fd00:10:244:1::2", "fd00:9::2", "fd00:8::2", "fd7a:115c:a1e0::b", "fd7a:115c:a1e0::c",
	} {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	// verdicts are of the rules for sources, in order, up to the first that takes the packet.
	verdict := func(table *desired.Table, src, dst netip.Addr) string {
		for _, c := range table.Chains {
			if !strings.EqualFold(c.Hook, "postrouting") {
				continue
			}
			for _, r := range c.Rules {
				if r.Family == desired.FamilyOf(dst) && table.Set(r.Src).Contains(src) && table.Set(r.Dst).Contains(dst) {
					return r.Verdict
				}
			}
		}
		return ""
	}
	want := build(desired.NFTables, false)
	marked, verdicts := 0, map[string]int{}
	for _, noSets := range []bool{false, true} {
		got := build(desired.IPTablesLegacy, noSets)
		for _, src := range addresses {
			for _, dst := range addresses {
				if src.Is4() != dst.Is4() {
					continue
				}
				for _, iif := range []string{"kube-bridge", "tailscale0"} {
					for _, direction := range []string{desired.Original, desired.Reply} {
						p := desired.Packet{Src: src, Dst: dst, Iif: iif}
						w, g := want.MarkOf(p, direction), got.MarkOf(p, direction)
						if w != g {
							t.Errorf("without sets %v: %+v, %s: mark %#x, want %#x", noSets, p, direction, g, w)
						}
						if w != 0 {
							marked++
						}
					}
				}
				w, g := verdict(want, src, dst), verdict(got, src, dst)
				if w != g {
					t.Errorf("without sets %v: from %s to %s: %q, want %q", noSets, src, dst, g, w)
				}
				verdicts[w]++
			}
		}
	}
	if marked != 2*3*(2*2+2*1) || verdicts[desired.Return] == 0 || verdicts[desired.SNAT] == 0 {
		t.Errorf("%d marked, %v: this test proves nothing", marked, verdicts)
	}
}

// A rule that iptables lists is read back as it was written, whatever the order of its parts. One with more, less or
// something else is not.
func TestParseArgs(t *testing.T) {
	for _, noSets := range []bool{false, true} {
		facts := nodeFacts()
		facts.IPTables, facts.NoSets = desired.IPTablesNFT, noSets
		state, err := desired.Build(document(t, `,"pod_cidrs":["10.244.1.0/24","fd00:10:244:1::/64"],"local_cidrs":["10.7.0.0/16"],`+
			`"firewall":{"backend":"iptables"},"routing":{"fail_closed":true}`), facts)
		if err != nil {
			t.Fatal(err)
		}
		const b = desired.IPTablesNFT
		count := 0
		for _, c := range state.Tables[b].Chains {
			for _, r := range c.Rules {
				count++
				args := r.Args(b)
				if got := desired.ParseArgs(b, c.Family, args); got != r {
					t.Errorf("%v\n(-want +got):\n%s", args, cmp.Diff(r, got))
				}
				for i := range args {
					less := slices.Delete(slices.Clone(args), i, i+1)
					if got := desired.ParseArgs(b, c.Family, less); got == r {
						t.Errorf("%v without %q is taken for the same", args, args[i])
					}
				}
				for _, more := range [][]string{
					{"-p", "tcp"},
					{"!", "-s", "10.0.0.0/8"},
					{"-m", "set", "--match-set", "others", "src"},
					{"-m", "set", "--match-set", "tailmesh-nft-pods4", "src"},
					{"-m", "mark", "--mark", "0x1/0x1"},
					{"--random"},
					{"!"},
				} {
					if got := desired.ParseArgs(b, c.Family, slices.Concat(args, more)); got == r {
						t.Errorf("%v with %q is taken for the same", args, more)
					}
				}
			}
		}
		if count == 0 {
			t.Error("no rules")
		}
	}
	args := strings.Fields("-m comment --comment x -m conntrack --ctdir REPLY --ctorigsrc 10.0.0.0/8 -i tailscale0 -s 100.64.0.0/10 " +
		"-m set --match-set tailmesh-nft-peers4 src -j MARK --set-xmark 0x2000/0x2000")
	want := desired.FirewallRule{
		Family: desired.IPv4, In: "tailscale0", Src: "peers4", Dst: "10.0.0.0/8", Direction: desired.Reply,
		Verdict: desired.SetMark, Bit: 0x2000, Comment: "x",
	}
	if got := desired.ParseArgs(desired.IPTablesNFT, desired.IPv4, args); got != want {
		t.Errorf("another order (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// Whatever is in a chain, the changes to it give what is wanted, and no rule that stays wanted is missing at any step.
func TestRuleChanges(t *testing.T) {
	rule := func(n int) desired.FirewallRule {
		if n >= 8 {
			return desired.FirewallRule{Foreign: true}
		}
		return desired.FirewallRule{Family: desired.IPv4, Verdict: desired.Return, Comment: string(rune('a' + n))}
	}
	random := rand.New(rand.NewPCG(1, 2))
	chain := desired.IPTablesChains(desired.IPv4)[0]
	for range 2000 {
		var have, want []desired.FirewallRule
		for range random.IntN(7) {
			have = append(have, rule(random.IntN(10)))
		}
		for _, n := range random.Perm(8)[:1+random.IntN(7)] {
			want = append(want, rule(n))
		}
		table := func(rules []desired.FirewallRule) map[desired.Backend]*desired.Table {
			c := chain
			c.Rules, c.Jumps = rules, []int{1}
			return map[desired.Backend]*desired.Table{desired.IPTablesNFT: {Chains: []desired.Chain{c}}}
		}
		changes := desired.Diff(desired.Facts{Tables: table(slices.Clone(have))}, desired.State{Tables: table(want)})
		now := slices.Clone(have)
		for _, c := range changes.Firewall {
			switch c.Op {
			case desired.InsertRule:
				now = slices.Insert(now, c.Position-1, c.Rule)
			case desired.DeleteRule:
				now = slices.Delete(now, c.Position-1, c.Position)
			default:
				t.Fatalf("%s", c)
			}
			for _, r := range have {
				if slices.Contains(want, r) && !slices.Contains(now, r) {
					t.Fatalf("from %v to %v: %v is missing after %s", have, want, r, c)
				}
			}
		}
		if !slices.Equal(now, want) {
			t.Fatalf("from %v to %v: came to %v", have, want, now)
		}
	}
}
