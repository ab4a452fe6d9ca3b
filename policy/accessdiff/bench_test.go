package accessdiff

import (
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

// big returns a policy of many rules and the devices that it is for.
func big(tb testing.TB, devices, rules int, seed uint64) (string, *policy.Inventory) {
	text, saved := bigtailnet.Make(devices, rules, 0, seed)
	inv, err := policy.ParseInventory(saved)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text), inv
}

// everything is a rule that holds all others.
const everything = "\t\"acls\": [\n\t\t{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]},\n"

// BenchmarkCompare checks and compares two policies of 1,000 rules for 10,000 devices, as a run of the program does.
func BenchmarkCompare(b *testing.B) {
	const devices, rules = 10_000, 1_000
	base, inv := big(b, devices, rules, 1)
	other, wide := big(b, devices, rules, 2)
	for i := range wide.Devices {
		if len(wide.Devices[i].EnabledRoutes) > 0 {
			wide.Devices[i].EnabledRoutes = []string{"10.0.0.0/8", "0.0.0.0/0", "::/0"}
		}
	}
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
