//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

// BenchmarkProcess runs the built program as a whole, on one core: start, read, parse, check, every test, every device's
// filter, print. It reports the process's own CPU time and the most memory that it held.
func BenchmarkProcess(b *testing.B) {
	dir := b.TempDir()
	program := filepath.Join(dir, "tailmesh-policy")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", program, "../../cmd/tailmesh-policy").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, size := range []struct {
		command               string
		devices, rules, tests int
	}{
		{"check", 20, 150, 40}, // a policy of about 200 lines
		{"compile", 100, 1000, 1000},
		{"compile", 1000, 200, 100},
		{"compile", 1000, 1000, 1000},
		{"compile", 10000, 1000, 1000},
		{"compile", 50000, 1000, 1000},
	} {
		b.Run(fmt.Sprintf("%s/devices=%d,rules=%d,tests=%d", size.command, size.devices, size.rules, size.tests), func(b *testing.B) {
			policy, inventory := bigtailnet.Make(size.devices, size.rules, size.tests, 7)
			files := map[string][]byte{"policy.hujson": policy, "inventory.json": inventory}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					b.Fatal(err)
				}
			}
			var cpu time.Duration
			var most int64
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), program, size.command, "policy.hujson", "--inventory", "inventory.json")
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOMAXPROCS=1")
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				most = max(most, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(most)/1024, "max-MiB")
		})
	}
}
