//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
)

// Linux is the networking of the network namespace that the calling thread is in. The zero value works too, but reads
// what it has of nftables and iptables again each time, the latter by processes.
type Linux struct {
	iptables *iptables.Firewall
	elements *elements
}

// NewLinux returns the networking of the node. It remembers what it has read of nftables and iptables and is not safe for
// concurrent use.
func NewLinux() Linux { return Linux{iptables: iptables.New(), elements: &elements{}} }

func (l Linux) firewall() *iptables.Firewall {
	if l.iptables == nil {
		return iptables.New()
	}
	return l.iptables
}

var _ Interface = Linux{}

// Facts implements [Interface].
func (l Linux) Facts(context.Context) (desired.Facts, error) {
	f := desired.Facts{Tables: map[desired.Backend]*desired.Table{}, Counters: map[string]desired.Counter{}}
	var err error
	if f.Links, err = Again(links); err != nil {
		return f, fmt.Errorf("list interfaces: %w", err)
	}
	if f.Rules, err = Again(rules); err != nil {
		return f, fmt.Errorf("list policy rules: %w", err)
	}
	var counters map[string]desired.Counter
	table, err := AgainNFT(func(generation uint32) (table *desired.Table, err error) {
		table, counters, err = readTable(l.elements.at(generation))
		return table, err
	})
	if err != nil {
		return f, fmt.Errorf("read nftables: %w", err)
	}
	if table != nil {
		f.Tables[desired.NFTables] = table
		maps.Copy(f.Counters, counters)
	}
	f.NoNFTables = lacksNFTables()
	return f, l.firewall().Read(&f)
}

// Apply implements [Interface].
func (l Linux) Apply(_ context.Context, c desired.Changes) error {
	for _, r := range c.AddRules {
		if err := addRule(r); err != nil {
			return fmt.Errorf("%s: %w", r.Command("add"), err)
		}
	}
	// Those of one backend stand together: what comes first must be in force before the other one's goes.
	for rest := c.Firewall; len(rest) > 0; {
		b := rest[0].Backend
		end := slices.IndexFunc(rest, func(c desired.FirewallChange) bool { return c.Backend != b })
		if end < 0 {
			end = len(rest)
		}
		if err := l.applyFirewall(b, rest[:end]); err != nil {
			return err
		}
		rest = rest[end:]
	}
	for _, r := range c.DelRules {
		if err := deleteRule(r); err != nil {
			return fmt.Errorf("%s: %w", r.Command("del"), err)
		}
	}
	return nil
}

func (l Linux) applyFirewall(b desired.Backend, changes []desired.FirewallChange) error {
	if b != desired.NFTables {
		return l.firewall().Apply(changes)
	}
	if err := applyTable(changes); err != nil {
		// When a transaction fails, every message in it does, and the first says why.
		if first, ok := errors.AsType[unix.Errno](err); ok {
			err = first
		}
		return fmt.Errorf("change nftables table %q: %w", desired.TableName, err)
	}
	return nil
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
	for _, f := range desired.Families() {
		routes, err := netlink.RouteList(nil, int(familyNumber(f))) // of the main table
		switch {
		case f == desired.IPv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)):
			continue
		case err != nil:
			return nil, err
		}
		for _, r := range routes {
			i, ok := byIndex[r.LinkIndex]
			if dst := prefix(r.Dst); ok && dst.IsSingleIP() && r.Type == unix.RTN_UNICAST && r.Gw == nil && r.Via == nil {
				out[i].Hosts = append(out[i].Hosts, dst.Addr())
			}
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
		messages, err := ruleMessages(f)
		if err != nil {
			if f == desired.IPv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
				continue
			}
			return nil, err
		}
		for _, m := range messages {
			r, err := DecodeRule(m)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}
