package policy

import (
	"fmt"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

// BenchmarkCheck reads a policy and an inventory, checks it with all its tests and compiles every device's filter.
func BenchmarkCheck(b *testing.B) {
	for _, size := range []struct{ devices, rules, tests int }{{100, 20, 10}, {1000, 200, 100}, {10000, 1000, 1000}, {50000, 1000, 1000}} {
		b.Run(fmt.Sprintf("devices=%d,rules=%d,tests=%d", size.devices, size.rules, size.tests), func(b *testing.B) {
			policy, inventory := bigtailnet.Make(size.devices, size.rules, size.tests, 7)
			b.ReportAllocs()
			for b.Loop() {
				inv, err := ParseInventory(inventory)
				if err != nil {
					b.Fatal(err)
				}
				r := Check("policy.hujson", policy, inv, []Requirement{{Src: []string{"tag:t0"}, Dst: []string{"tag:t0"}, Proto: "ip-in-ip"}})
				if !r.Accepted || r.Requirements[0].Verdict != Pass {
					b.Fatal(r.Message, r.Requirements)
				}
				for _, d := range r.Compiled.Devices() {
					if _, err := r.Compiled.Filter(d); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkRequirement judges a full mesh: every ordered pair of a thousand nodes.
func BenchmarkRequirement(b *testing.B) {
	inv := fleetOf(b, 1000)
	r := Check("p", []byte(`{"tagOwners": {"tag:node": []}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "4:*"]}]}`), inv, nil)
	b.ReportAllocs()
	for b.Loop() {
		if res := r.Compiled.require(meshRequirement()); res.Verdict != Pass || res.Pairs != 999000 {
			b.Fatal(res.Verdict, res.Pairs)
		}
	}
}

// BenchmarkCan judges one flow of a large tailnet.
func BenchmarkCan(b *testing.B) {
	policy, inventory := bigtailnet.Make(10000, 1000, 0, 7)
	inv, err := ParseInventory(inventory)
	if err != nil {
		b.Fatal(err)
	}
	r := Check("p", policy, inv, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Compiled.Can("d0", "d200", "tcp", 443); err != nil {
			b.Fatal(err)
		}
	}
}

func fleetOf(tb testing.TB, n int) *Inventory {
	tb.Helper()
	inv := &Inventory{}
	for i := range n {
		inv.Devices = append(inv.Devices, Device{
			NodeID: fmt.Sprintf("n%d", i), Hostname: fmt.Sprintf("node%d", i), Name: fmt.Sprintf("node%d.example.ts.net", i), Tags: []string{"tag:node"},
			Addresses: []string{fmt.Sprintf("100.65.%d.%d", i>>8, i&255), fmt.Sprintf("fd7a:115c:a1e0::2:%x", i)}, Authorized: true,
		})
	}
	return inv
}

// TestManyDevices bounds what a large tailnet may cost in allocations, which unlike time are the same on every machine.
func TestManyDevices(t *testing.T) {
	policy, inventory := bigtailnet.Make(1000, 200, 100, 7)
	inv, err := ParseInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(1, func() {
		r := Check("p", policy, inv, nil)
		for _, d := range r.Compiled.Devices() {
			if _, err := r.Compiled.Filter(d); err != nil {
				t.Fatal(err)
			}
		}
	})
	if limit := 500_000.0; allocs > limit {
		t.Errorf("%.0f allocations, want at most %.0f: is something compared with everything again?", allocs, limit)
	}
}
