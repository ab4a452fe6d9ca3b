//go:build linux

package lab

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// logCost logs, when the test ends, how long it took and the most memory that the lab's processes had together: the test
// itself, the daemons, the agents and whatever command ran just then.
func logCost(t *testing.T) {
	t.Helper()
	begin, done, most := time.Now(), make(chan struct{}), make(chan int)
	go func() {
		peak := 0
		for tick := time.Tick(2 * time.Second); ; {
			peak = max(peak, memory())
			select {
			case <-tick:
			case <-done:
				most <- peak
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		t.Logf("the lab took %v, and at most %d MiB of memory (the sum of its processes' Pss, looked at every 2 s)",
			time.Since(begin).Round(time.Second), <-most>>10)
	})
}

// memory returns the sum of the proportional set sizes of all processes, in KiB. The lab has a PID namespace of its own:
// there are no others. One that ends meanwhile counts as nothing.
func memory() int {
	files, _ := filepath.Glob("/proc/[0-9]*/smaps_rollup") // the pattern is right
	sum := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
			if f := strings.Fields(s.Text()); len(f) == 3 && f[0] == "Pss:" {
				n, _ := strconv.Atoi(f[1]) // the kernel writes numbers
				sum += n
			}
		}
	}
	return sum
}
