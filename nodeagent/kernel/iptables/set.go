package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/attr"
)

// setNames are the names of all sets that the agent ever makes.
func setNames() []string {
	names := []string{"pods4", "peers4", "local4", "pods6", "peers6", "local6"}
	for _, name := range names {
		names = append(names, name+desired.Spare)
	}
	return names
}

// haveSets says whether the kernel has ipset.
func haveSets() bool {
	_, _, err := netlink.IpsetProtocol()
	return err == nil || errors.Is(err, unix.EPERM)
}

// readSets reads the agent's sets of a variant. The library's own list writes a line to the log for each attribute that it
// does not know, which sets made by newer tools have.
func readSets(b desired.Backend) ([]desired.Set, error) {
	var out []desired.Set
	for _, name := range setNames() {
		messages, err := askSet(b.SetName(name))
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return nil, fmt.Errorf("set %s: %w", b.SetName(name), err)
		}
		set := desired.Set{Name: name}
		var entries []netip.Prefix
		for _, m := range messages {
			list, exceptions := readEntriesOfSet(readShape(&set, m[nl.SizeofNfgenmsg:]))
			entries = append(entries, list...)
			set.Foreign = set.Foreign || exceptions
		}
		if set.Elements, err = elements(entries, set.Interval); err != nil {
			return nil, err
		}
		out = append(out, set)
	}
	return out, nil
}

// askSet returns the messages that list a set: its shape in the first, and a part of its entries in each.
func askSet(name string) ([][]byte, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	return req.Execute(unix.NETLINK_NETFILTER, 0)
}

// readShape reads from a message of a list what a set is, and returns its entries. It is foreign if the agent makes none
// such: of another kind, or with options by which entries go by themselves, stand for more than they say or find no place.
// Only the first message of a long list says.
func readShape(set *desired.Set, message []byte) (entries []byte) {
	const (
		bitmask    = 12      // IPSET_ATTR_BITMASK, since Linux 6.3
		maxEntries = 1 << 16 // of a set that is made without options
	)
	a := parse(message)
	kind, options := a.text(nl.IPSET_ATTR_TYPENAME), parse(a[nl.IPSET_ATTR_DATA])
	if kind == "" {
		return a[nl.IPSET_ATTR_ADT]
	}
	set.Interval = kind == "hash:net"
	set.Foreign = kind != "hash:net" && kind != "hash:ip" || options.number(nl.IPSET_ATTR_MAXELEM) < maxEntries
	for _, option := range []uint16{nl.IPSET_ATTR_TIMEOUT, nl.IPSET_ATTR_NETMASK, bitmask, nl.IPSET_ATTR_CADT_FLAGS} {
		_, there := options[option]
		set.Foreign = set.Foreign || there
	}
	switch family := a[nl.IPSET_ATTR_FAMILY]; {
	case bytes.Equal(family, []byte{unix.AF_INET}):
		set.Family = desired.IPv4
	case bytes.Equal(family, []byte{unix.AF_INET6}):
		set.Family = desired.IPv6
	}
	return a[nl.IPSET_ATTR_ADT]
}

// readEntriesOfSet reads entries, and says whether there are exceptions among them, which the agent makes none of. It makes
// no map of an entry's attributes: there may be thousands of entries.
func readEntriesOfSet(list []byte) (out []netip.Prefix, exceptions bool) {
	for _, entry := range attr.Each(list) {
		var addr netip.Addr
		bits := -1
		for kind, value := range attr.Each(entry) {
			switch {
			case kind == nl.IPSET_ATTR_IP:
				for kind, value := range attr.Each(value) {
					if kind == nl.IPSET_ATTR_IPADDR_IPV4 || kind == nl.IPSET_ATTR_IPADDR_IPV6 {
						addr, _ = netip.AddrFromSlice(value)
					}
				}
			case kind == nl.IPSET_ATTR_CIDR && len(value) == 1:
				bits = int(value[0])
			case kind == nl.IPSET_ATTR_CADT_FLAGS:
				exceptions = true
			}
		}
		if bits < 0 {
			bits = addr.BitLen()
		}
		if p := netip.PrefixFrom(addr, bits); p.IsValid() {
			out = append(out, p)
		}
	}
	return out, exceptions
}

// elements returns the entries, sorted; networks as few as say the same.
func elements(entries []netip.Prefix, interval bool) ([]netip.Prefix, error) {
	if !interval {
		slices.SortFunc(entries, netip.Prefix.Compare)
		return entries, nil
	}
	var b netipx.IPSetBuilder
	for _, p := range entries {
		b.AddPrefix(p)
	}
	all, err := b.IPSet()
	if err != nil {
		return nil, err
	}
	return all.Prefixes(), nil
}

func changeSet(c desired.FirewallChange) error {
	name := c.Backend.SetName(c.Set.Name)
	spare := name + desired.Spare
	switch c.Op {
	case desired.AddSet:
		return create(name, c.Set)
	case desired.AddElement:
		return elementwise(c.Elements, name, netlink.IpsetAdd)
	case desired.DeleteElement:
		return elementwise(c.Elements, name, netlink.IpsetDel)
	case desired.DeleteSet:
		return netlink.IpsetDestroy(name)
	}
	if err := create(spare, c.Set); err != nil {
		return err
	}
	err := elementwise(c.Elements, spare, netlink.IpsetAdd)
	if err == nil {
		err = netlink.IpsetSwap(spare, name)
	}
	return errors.Join(err, netlink.IpsetDestroy(spare))
}

func create(name string, s desired.Set) error {
	family := uint8(unix.AF_INET)
	if s.Family == desired.IPv6 {
		family = unix.AF_INET6
	}
	return netlink.IpsetCreate(name, s.IPSetType(), netlink.IpsetCreateOptions{Family: family})
}

func elementwise(list []netip.Prefix, set string, change func(string, *netlink.IPSetEntry) error) error {
	for _, p := range list {
		for _, half := range desired.Halves(p) {
			// Replace: that the set is that way already is no error.
			entry := &netlink.IPSetEntry{IP: net.IP(half.Addr().AsSlice()), Replace: true}
			if !half.IsSingleIP() {
				entry.CIDR = uint8(half.Bits())
			}
			if err := change(set, entry); err != nil {
				return err
			}
		}
	}
	return nil
}
