package report

import (
	"fmt"
	"io"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

// bigInput is a large tailnet, without what lint finds.
func bigInput(t testing.TB, devices, rules int) Input {
	t.Helper()
	text, inventory := bigtailnet.Make(devices, rules, 100, 1)
	inv, err := policy.ParseInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Check("policy.hujson", text, inv, nil)
	if r.Compiled == nil {
		t.Fatal(r.Message)
	}
	return Input{File: "policy.hujson", Source: text, Inventory: inv, Report: r, Findings: r.Diagnostics, Tool: "tailmesh-policy"}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range [][2]int{{1000, 200}, {10000, 1000}} {
		b.Run(fmt.Sprintf("%d devices, %d rules", size[0], size[1]), func(b *testing.B) {
			in := bigInput(b, size[0], size[1])
			for b.Loop() {
				if err := Write(io.Discard, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
