//go:build linux

package kernel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// What is read of nftables while others change it is read again, until it holds together.
func TestAgainNFT(t *testing.T) {
	gone := errors.New("the chain is gone")
	tests := []struct {
		name  string
		read  func(call int) (value string, disturbed bool, err error)
		want  string
		calls int
		err   error
	}{
		{"undisturbed", func(int) (string, bool, error) { return "a", false, nil }, "a", 1, nil},
		{"undisturbed, an error counts", func(int) (string, bool, error) { return "", false, gone }, "", 1, gone},
		{"disturbed twice", func(n int) (string, bool, error) { return fmt.Sprint(n), n < 3, nil }, "3", 3, nil},
		{"what was read was deleted meanwhile", func(n int) (string, bool, error) {
			if n == 1 {
				return "", true, gone
			}
			return "a", false, nil
		}, "a", 2, nil},
		{"others never stop, but this stays", func(int) (string, bool, error) { return "a", true, nil }, "a", 2, nil},
		{"this never stops", func(n int) (string, bool, error) { return fmt.Sprint(n), true, nil }, "", 10, netlink.ErrDumpInterrupted},
		{"each time an error", func(int) (string, bool, error) { return "", true, gone }, "", 10, netlink.ErrDumpInterrupted},
	}
	n := nstest.New(t)
	tables := 0
	for _, tt := range tests {
		calls := 0
		var last uint32
		got, err := kernel.AgainNFT(func(generation uint32) (string, error) {
			if generation <= last {
				t.Errorf("%s: generation %d after %d", tt.name, generation, last)
			}
			last = generation
			calls++
			value, disturbed, err := tt.read(calls)
			if disturbed {
				tables++
				n.Run(fmt.Sprintf("nft add table ip t%d", tables))
			}
			return value, err
		})
		if got != tt.want || calls != tt.calls || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %q, %v after %d; want %q, %v after %d", tt.name, got, err, calls, tt.want, tt.err, tt.calls)
		}
	}
}
