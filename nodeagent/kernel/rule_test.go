//go:build linux

package kernel_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Rules with the agent's protocol that it would not add, whatever they select and do, go at once, wherever they stand, and
// those that it wants stay.
func TestOwnRulesOfAnotherShape(t *testing.T) {
	n := nstest.New(t)
	wanted := desired.Rule{
		Family: desired.IPv4, Mark: 0x2000, Mask: 0x2000, Action: desired.Lookup, Table: 52, Protocol: desired.RouteProtocol,
	}
	k := kernel.NewLinux()
	pass := func() desired.Changes {
		t.Helper()
		facts, err := k.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		changes := desired.Diff(facts, desired.State{Rules: []desired.Rule{wanted}})
		if err := k.Apply(t.Context(), changes); err != nil {
			t.Fatalf("%q: %v", changes.Lines(), err)
		}
		return changes
	}
	pass()
	healthy := n.Run("ip rule")
	const same = "pref 0 fwmark 0x2000/0x2000 "
	for _, odd := range []string{
		same + "iif lo lookup 52", same + "oif lo lookup 52", same + "from 10.0.0.0/8 lookup 52", same + "to 100.64.0.12 lookup 52",
		same + "tos 0x10 lookup 52", same + "ipproto tcp dport 80-90 lookup 52", same + "sport 7 lookup 52", same + "uidrange 5-9 lookup 52",
		same + "tun_id 9 lookup 52", same + "lookup 52 realms 5", same + "suppress_prefixlength 0 lookup 52", same + "l3mdev",
		same + "lookup 53", same + "blackhole", same + "unreachable", same + "prohibit", same + "nop", same + "goto 32766",
		"pref 0 lookup 52", "pref 0 fwmark 0x2000 lookup 52", "pref 0 not fwmark 0x1000/0x1000 lookup 52",
		"pref 5 not from 10.0.0.0/8 lookup 52", "pref 6 goto 32766", "pref 7 goto 4711", "pref 32765 unreachable",
	} {
		for _, place := range []string{"behind", "in front"} {
			n.Run("ip rule add " + odd + " proto 116")
			if place == "in front" { // the one that is wanted goes behind it
				n.Run("ip rule del " + same + "lookup 52 proto 116")
				pass()
			}
			changes := pass()
			if again := pass(); place == "behind" && changes.Empty() || !again.Empty() {
				t.Errorf("%s %s: %q, and then %q", odd, place, changes.Lines(), again.Lines())
			}
			if got := n.Run("ip rule"); got != healthy {
				t.Fatalf("%s %s:\n%s", odd, place, got)
			}
		}
	}
}

// Rules that stand there twice, as `ip rule restore` leaves them, are there once again afterwards, unless somebody's rule would
// come first then.
func TestTwins(t *testing.T) {
	n := nstest.New(t)
	rule := desired.Rule{Family: desired.IPv4, Mark: 0x2000, Mask: 0x2000, Action: desired.Lookup, Table: 52, Protocol: desired.RouteProtocol}
	peer := rule
	peer.Dst = netip.MustParsePrefix("100.64.0.12/32")
	six := rule
	six.Family = desired.IPv6
	want := desired.State{Rules: []desired.Rule{rule, peer, six}}
	k := kernel.NewLinux()
	pass := func() desired.Changes {
		t.Helper()
		facts, err := k.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		changes := desired.Diff(facts, want)
		if err := k.Apply(t.Context(), changes); err != nil {
			t.Fatalf("%q: %v", changes.Lines(), err)
		}
		return changes
	}
	list := func() string { return n.Run("ip rule | grep 116\nip -6 rule | grep 116") }
	pass()
	healthy := list()
	file := filepath.Join(t.TempDir(), "rules")
	for range 2 {
		n.Run("ip rule save >" + file + "\nip rule restore <" + file)
	}
	if list() == healthy {
		t.Fatal("there are no twins: this test proves nothing")
	}
	if pass(); list() != healthy || !pass().Empty() {
		t.Errorf("there are\n%swant\n%s", list(), healthy)
	}
	n.Run("ip rule save >" + file + "\nip rule add pref 0 from 10.0.0.0/8 lookup 77\nip rule restore <" + file)
	if changes := pass(); !changes.Empty() {
		t.Errorf("with somebody's rule in between: %q", changes.Lines())
	}
}
