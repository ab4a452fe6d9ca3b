package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// DropFlows implements [Interface].
func (Linux) DropFlows(_ context.Context, stale desired.Flows) (int, error) {
	total := 0
	for _, f := range desired.Families() {
		if !stale.Has(f) {
			continue
		}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(familyNumber(f)), matching(stale))
		total += int(n)
		// Entries that a busy table hid from the reader are deleted at the next change or expire.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.ENOENT) {
			return total, fmt.Errorf("delete stale connections: %w", err)
		}
	}
	return total, nil
}

type matching desired.Flows

// MatchConntrackFlow implements the library's filter.
func (m matching) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	source, ok1 := netip.AddrFromSlice(flow.Forward.SrcIP)
	answers, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	to, ok3 := netip.AddrFromSlice(flow.Reverse.DstIP)
	return ok1 && ok2 && ok3 && desired.Flows(m).Stale(source.Unmap(), answers.Unmap(), to.Unmap())
}
