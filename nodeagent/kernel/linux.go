//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Linux is the networking of the network namespace that the calling thread is in.
type Linux struct{}

var _ Interface = Linux{}

// Facts implements [Interface].
func (Linux) Facts(context.Context) (desired.Facts, error) {
	var f desired.Facts
	var err error
	if f.Links, err = complete(links); err != nil {
		return f, fmt.Errorf("list interfaces: %w", err)
	}
	if f.Rules, err = complete(rules); err != nil {
		return f, fmt.Errorf("list policy rules: %w", err)
	}
	if f.Table, f.Counters, err = complete2(readTable); err != nil {
		return f, fmt.Errorf("read nftables: %w", err)
	}
	return f, nil
}

// Apply implements [Interface].
func (Linux) Apply(_ context.Context, c desired.Changes) error {
	for _, r := range c.AddRules {
		if err := addRule(r); err != nil {
			return fmt.Errorf("%s: %w", r.Command("add"), err)
		}
	}
	if err := applyTable(c.Firewall); err != nil {
		return fmt.Errorf("change nftables table %q: %w", desired.TableName, err)
	}
	for _, r := range c.DelRules {
		if err := deleteRule(r); err != nil {
			return fmt.Errorf("%s: %w", r.Command("del"), err)
		}
	}
	return nil
}

// complete reads a list again until nothing changed while it was read.
func complete[T any](read func() (T, error)) (T, error) {
	const attempts = 10
	for i := 1; ; i++ {
		list, err := read()
		if i == attempts || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
}

func complete2[T, U any](read func() (T, U, error)) (T, U, error) {
	var second U
	first, err := complete(func() (first T, err error) {
		first, second, err = read()
		return first, err
	})
	return first, second, err
}

func links() ([]desired.Link, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	byIndex := make(map[int]int, len(list))
	out := make([]desired.Link, len(list))
	for i, l := range list {
		byIndex[l.Attrs().Index] = i
		out[i] = desired.Link{Name: l.Attrs().Name, Up: l.Attrs().Flags&net.FlagUp != 0}
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		i, ok := byIndex[a.LinkIndex]
		if p := prefix(a.IPNet); ok && p.IsValid() {
			out[i].Addresses = append(out[i].Addresses, p)
		}
	}
	return out, nil
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr.Unmap(), ones)
}

// rules lists the policy rules of both families in the kernel's order. The library's own list leaves out what a rule
// does when it does not look into a table.
func rules() ([]desired.Rule, error) {
	var out []desired.Rule
	for _, f := range desired.Families() {
		req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP|unix.NLM_F_REQUEST)
		req.AddData(nl.NewIfInfomsg(int(familyNumber(f))))
		messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		if err != nil {
			if f == desired.IPv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
				continue
			}
			return nil, err
		}
		for _, m := range messages {
			r, err := decodeRule(m)
			if err != nil {
				return nil, err
			}
			r.Family = f
			out = append(out, r)
		}
	}
	return out, nil
}
