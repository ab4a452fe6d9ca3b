package accessdiff

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// bigPolicy writes a policy of many rules over the names of bigInventory, the same for the same seed.
func bigPolicy(devices, rules int, seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 5))
	tags, users, hosts := max(4, devices/100), max(4, devices/20), max(4, rules/10)
	groups := max(2, users/10)
	var p strings.Builder
	p.WriteString("{\n\t\"groups\": {\n")
	for g := range groups {
		fmt.Fprintf(&p, "\t\t\"group:g%d\": [", g)
		for m := range 9 {
			fmt.Fprintf(&p, "\"u%d@example.com\",", (g*11+m*5)%users)
		}
		p.WriteString("],\n")
	}
	p.WriteString("\t},\n\t\"tagOwners\": {\n")
	for t := range tags {
		fmt.Fprintf(&p, "\t\t\"tag:t%d\": [],\n", t)
	}
	p.WriteString("\t},\n\t\"hosts\": {\n")
	for h := range hosts {
		fmt.Fprintf(&p, "\t\t\"h%d\": \"10.%d.%d.0/24\",\n", h, h/256, h%256)
	}
	src := func() string {
		if rnd.IntN(2) == 0 {
			return fmt.Sprintf("group:g%d", rnd.IntN(groups))
		}
		return fmt.Sprintf("tag:t%d", rnd.IntN(tags))
	}
	p.WriteString("\t},\n\t\"acls\": [\n")
	for range rules / 2 {
		fmt.Fprintf(&p, "\t\t{\"action\": \"accept\", \"src\": [%q, %q], \"dst\": [\"tag:t%d:%d\", \"h%d:443\"]},\n",
			src(), src(), rnd.IntN(tags), 1+rnd.IntN(65000), rnd.IntN(hosts))
	}
	p.WriteString("\t],\n\t\"grants\": [\n")
	for range rules - rules/2 {
		fmt.Fprintf(&p, "\t\t{\"src\": [%q], \"dst\": [\"tag:t%d\"], \"ip\": [\"tcp:%d\", \"udp:53\"]},\n", src(), rnd.IntN(tags), 1+rnd.IntN(65000))
	}
	p.WriteString("\t],\n}\n")
	return []byte(p.String())
}

func bigInventory(devices, rules int) *policy.Inventory {
	tags, users, hosts := max(4, devices/100), max(4, devices/20), max(4, rules/10)
	inv := &policy.Inventory{}
	for u := range users {
		inv.Users = append(inv.Users, policy.User{ID: fmt.Sprint(u), LoginName: fmt.Sprintf("u%d@example.com", u), Role: "member"})
	}
	for d := range devices {
		dev := policy.Device{
			NodeID: fmt.Sprintf("n%d", d), Hostname: fmt.Sprintf("d%d", d), Name: fmt.Sprintf("d%d.example.ts.net", d), Authorized: true,
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d", 65+d>>16, d>>8&255, d&255), fmt.Sprintf("fd7a:115c:a1e0::%x:%x", 1+d>>16, d&65535)},
		}
		if d%2 == 0 {
			dev.Tags = []string{fmt.Sprintf("tag:t%d", d/2%tags)}
		} else {
			dev.User = fmt.Sprintf("u%d@example.com", d/2%users)
		}
		if d%100 == 0 {
			h := d / 100 % hosts
			dev.EnabledRoutes = []string{fmt.Sprintf("10.%d.%d.0/24", h/256, h%256)}
		}
		inv.Devices = append(inv.Devices, dev)
	}
	return inv
}

// everything is a rule that holds all others.
const everything = "\t\"acls\": [\n\t\t{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]},\n"

// BenchmarkCompare checks and compares two policies of 1,000 rules for 10,000 devices, as a run of the program does.
func BenchmarkCompare(b *testing.B) {
	const devices, rules = 10_000, 1_000
	inv := bigInventory(devices, rules)
	wide := bigInventory(devices, rules)
	for i := range wide.Devices {
		if len(wide.Devices[i].EnabledRoutes) > 0 {
			wide.Devices[i].EnabledRoutes = []string{"10.0.0.0/8", "0.0.0.0/0", "::/0"}
		}
	}
	base := string(bigPolicy(devices, rules, 1))
	other := string(bigPolicy(devices, rules, 2))
	for _, bb := range []struct {
		name, old, new string
		inv            *policy.Inventory
	}{
		{"same", base, base, inv},
		{"rule added", base, strings.Replace(base, "\"grants\": [\n", "\"grants\": [\n\t\t{\"src\": [\"group:g1\"], \"dst\": [\"tag:t2\"], \"ip\": [\"tcp:4242\"]},\n", 1), inv},
		{"member added", base, strings.Replace(base, "\"group:g1\": [", "\"group:g1\": [\"u3@example.com\", ", 1), inv},
		{"everything allowed", base, strings.Replace(base, "\t\"acls\": [\n", everything, 1), inv},
		{"unrelated", base, other, inv},
		{"unrelated, routers of everything", base, other, wide},
		{"own devices", base, strings.Replace(base, "\t\"acls\": [\n", "\t\"acls\": [\n{\"action\": \"accept\", \"src\": [\"autogroup:member\"], \"dst\": [\"autogroup:self:*\"]},\n", 1), inv},
	} {
		b.Run(bb.name, func(b *testing.B) {
			lines := 0
			for b.Loop() {
				r, err := Compare(policy.Check("old", []byte(bb.old), bb.inv, nil), policy.Check("new", []byte(bb.new), bb.inv, nil))
				if err != nil {
					b.Fatal(err)
				}
				lines = len(r.Gained) + len(r.Lost)
			}
			b.ReportMetric(float64(lines), "lines")
		})
	}
}
