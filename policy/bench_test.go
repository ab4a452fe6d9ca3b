package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// bigTailnet makes a policy and an inventory of a given size, the same for the same arguments.
func bigTailnet(tb testing.TB, devices, rules, tests int) (policy, inventory []byte) {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(7, 7))
	tags, users, hosts := max(4, devices/100), max(4, devices/20), max(4, rules/10)
	var p strings.Builder
	p.WriteString("{\n\t\"groups\": {\n")
	for g := range max(2, users/10) {
		fmt.Fprintf(&p, "\t\t\"group:g%d\": [", g)
		for m := range 8 {
			fmt.Fprintf(&p, "\"u%d@example.com\",", (g*7+m*3)%users)
		}
		p.WriteString("],\n")
	}
	p.WriteString("\t},\n\t\"tagOwners\": {\n")
	for t := range tags {
		fmt.Fprintf(&p, "\t\t\"tag:t%d\": [\"autogroup:admin\"],\n", t)
	}
	p.WriteString("\t},\n\t\"hosts\": {\n")
	for h := range hosts {
		fmt.Fprintf(&p, "\t\t\"h%d\": \"10.%d.%d.0/24\",\n", h, h/256, h%256)
	}
	src := func() string {
		if rnd.IntN(2) == 0 {
			return fmt.Sprintf("group:g%d", rnd.IntN(max(2, users/10)))
		}
		return fmt.Sprintf("tag:t%d", rnd.IntN(tags))
	}
	p.WriteString("\t},\n\t\"acls\": [\n")
	for range rules / 2 {
		fmt.Fprintf(&p, "\t\t{\"action\": \"accept\", \"src\": [%q, %q], \"dst\": [\"tag:t%d:%d\", \"h%d:443\"]}, // why\n",
			src(), src(), rnd.IntN(tags), 1+rnd.IntN(65000), rnd.IntN(hosts))
	}
	p.WriteString("\t],\n\t\"grants\": [\n\t\t{\"src\": [\"tag:t0\"], \"dst\": [\"tag:t0\"], \"ip\": [\"ip-in-ip:*\"]},\n")
	for range rules - rules/2 {
		fmt.Fprintf(&p, "\t\t{\"src\": [%q], \"dst\": [\"tag:t%d\"], \"ip\": [\"tcp:%d\", \"udp:53\"]},\n", src(), rnd.IntN(tags), 1+rnd.IntN(65000))
	}
	p.WriteString("\t],\n\t\"tests\": [\n")
	for range tests {
		fmt.Fprintf(&p, "\t\t{\"src\": \"tag:t0\", \"proto\": \"ip-in-ip\", \"accept\": [\"tag:t0:0\"], \"deny\": [\"tag:t%d:0\"]},\n", 1+rnd.IntN(tags-1))
	}
	p.WriteString("\t],\n}\n")
	inv := Inventory{}
	for u := range users {
		inv.Users = append(inv.Users, User{ID: fmt.Sprint(u), LoginName: fmt.Sprintf("u%d@example.com", u), Role: "member"})
	}
	for d := range devices {
		dev := Device{
			NodeID: fmt.Sprintf("n%d", d), Hostname: fmt.Sprintf("d%d", d), Name: fmt.Sprintf("d%d.example.ts.net", d), Authorized: true,
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d", 64+d>>16, d>>8&255, d&255), fmt.Sprintf("fd7a:115c:a1e0::%x:%x", 1+d>>16, d&65535)},
		}
		if d%2 == 0 {
			dev.Tags = []string{fmt.Sprintf("tag:t%d", d/2%tags)}
		} else {
			dev.User = fmt.Sprintf("u%d@example.com", d/2%users)
		}
		if d%100 == 0 {
			dev.EnabledRoutes = []string{fmt.Sprintf("10.0.%d.0/24", d/100%hosts)}
		}
		inv.Devices = append(inv.Devices, dev)
	}
	inventory, err := json.Marshal(inv)
	if err != nil {
		tb.Fatal(err)
	}
	return []byte(p.String()), inventory
}

// BenchmarkCheck reads a policy and an inventory, checks it with all its tests and compiles every device's filter.
func BenchmarkCheck(b *testing.B) {
	for _, size := range []struct{ devices, rules, tests int }{{100, 20, 10}, {1000, 200, 100}, {10000, 1000, 1000}} {
		b.Run(fmt.Sprintf("devices=%d,rules=%d,tests=%d", size.devices, size.rules, size.tests), func(b *testing.B) {
			policy, inventory := bigTailnet(b, size.devices, size.rules, size.tests)
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
	policy, inventory := bigTailnet(b, 10000, 1000, 0)
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
	policy, inventory := bigTailnet(t, 1000, 200, 100)
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
