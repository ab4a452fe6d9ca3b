package lint

import (
	"fmt"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

func BenchmarkLint(b *testing.B) {
	for _, size := range [][2]int{{1000, 200}, {10000, 1000}} {
		b.Run(fmt.Sprintf("%d devices, %d rules", size[0], size[1]), func(b *testing.B) {
			text, saved := bigtailnet.Make(size[0], size[1], 100, 1)
			inv, err := policy.ParseInventory(saved)
			if err != nil {
				b.Fatal(err)
			}
			report := policy.Check("policy.hujson", text, inv, nil)
			for b.Loop() {
				Lint("policy.hujson", report, inv)
			}
		})
	}
}
