//go:build linux

package kernel_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// What others did to the agent's own table is seen as what is to change, and the changes mend it.
func TestOwnTableChangedByOthers(t *testing.T) {
	n := nstest.New(t)
	want := desired.State{Tables: map[desired.Backend]*desired.Table{desired.NFTables: {
		Sets: []desired.Set{{Name: "peers4", Family: desired.IPv4, Elements: []netip.Prefix{netip.MustParsePrefix("100.64.0.12/32")}}},
		Chains: []desired.Chain{{
			Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -90,
			Rules: []desired.FirewallRule{{
				Family: desired.IPv4, In: "cni0", Dst: "peers4", Src: "10.244.1.0/24", Direction: desired.Original,
				Verdict: desired.SetMark, Bit: 0x2000, Comment: "mark",
			}},
		}},
	}}}
	packet := desired.Packet{Src: netip.MustParseAddr("10.244.1.2"), Dst: netip.MustParseAddr("100.64.0.12"), Iif: "cni0"}
	k := kernel.NewLinux() // which does not list elements again that cannot have changed
	pending := func() (desired.Changes, desired.Facts) {
		t.Helper()
		facts, err := k.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return desired.Diff(facts, want), facts
	}
	mend := func(name string) {
		t.Helper()
		changes, _ := pending()
		if err := k.Apply(t.Context(), changes); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, facts := pending()
		if !again.Empty() || facts.MarkOf(packet, desired.Original) != 0x2000 {
			t.Fatalf("%s: still to do: %q, mark %#x", name, again.Lines(), facts.MarkOf(packet, desired.Original))
		}
	}
	mend("a fresh table")
	healthy := n.Run("nft list table inet tailmesh")
	replaced := func(set string) string { // by a table whose set is another, and whose rule nft compiles in its own way
		file := filepath.Join(t.TempDir(), "table.nft")
		text := "delete table inet tailmesh\n" + strings.Replace(healthy, "type ipv4_addr\n", set+"\n", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "nft -f " + file
	}
	for _, tt := range []struct {
		name, do string
		unmarked bool
	}{
		{name: "dormant", do: "nft add table inet tailmesh '{ flags dormant; }'", unmarked: true},
		{name: "policy", do: "nft chain inet tailmesh prerouting '{ policy drop; }'"},
		{name: "a chain at no hook", do: "nft add chain inet tailmesh other"},
		{name: "a set of others", do: "nft add set inet tailmesh other '{ type inet_service; }'"},
		{name: "a rule in front", do: "nft insert rule inet tailmesh prerouting drop"},
		{name: "an element", do: "nft add element inet tailmesh peers4 '{ 192.0.2.1 }'"},
		{name: "a set whose elements expire", do: replaced("type ipv4_addr; timeout 1h"), unmarked: true},
		{name: "a set of packets' making", do: replaced("type ipv4_addr; size 10; flags dynamic"), unmarked: true},
		{name: "a set that cannot change", do: replaced("type ipv4_addr; flags constant"), unmarked: true},
		{name: "a set whose elements limit what they match", do: replaced("type ipv4_addr; limit rate 1/hour"), unmarked: true},
		{name: "a set whose elements count", do: replaced("type ipv4_addr; counter"), unmarked: true},
		{name: "an element that limits what it matches", do: replaced("type ipv4_addr; elements = { 100.64.0.12 limit rate 1/hour }"), unmarked: true},
		{name: "an element for every address", do: "nft add element inet tailmesh peers4 '{ * }'"},
		{name: "a quota", do: "nft add quota inet tailmesh other '{ over 1 mbytes }'"},
		{name: "a counter", do: "nft add counter inet tailmesh other"},
		{name: "emptied", do: "nft flush table inet tailmesh", unmarked: true},
	} {
		pending()
		pending()
		n.Run(tt.do)
		changes, facts := pending()
		if changes.Empty() {
			t.Errorf("%s: nothing is to do", tt.name)
		}
		if got := facts.MarkOf(packet, desired.Original) == 0; got != tt.unmarked {
			t.Errorf("%s: the packet is unmarked: %v", tt.name, got)
		}
		mend(tt.name)
		if now := n.Run("nft list table inet tailmesh"); strings.TrimSpace(now) != strings.TrimSpace(healthy) {
			t.Errorf("%s: the table is\n%s", tt.name, now)
		}
	}
}
