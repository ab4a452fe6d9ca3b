package kernel

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/attr"
)

// Sets are read as messages: the library leaves out by what an element can match more or less than its address.

// askTable lists something of the agent's own table. In every such question the first kind of attribute names the table,
// and the second what it is asked of.
func askTable(message int, of string) ([][]byte, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(1, nl.ZeroTerminated(desired.TableName)))
	if of != "" {
		req.AddData(nl.NewRtAttr(2, nl.ZeroTerminated(of)))
	}
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		messages[i] = m[min(nl.SizeofNfgenmsg, len(m)):]
	}
	return messages, nil
}

// readSets reads the sets of the agent's table. Elements that are known are not read; those that are read are added.
func readSets(known map[string][]netip.Prefix) ([]desired.Set, error) {
	messages, err := askTable(unix.NFT_MSG_GETSET, "")
	if err != nil {
		return nil, err
	}
	var out []desired.Set
	for _, m := range messages {
		set := readShape(m)
		elements, there := known[set.Name]
		if !there && set.Family != 0 {
			list, err := askTable(unix.NFT_MSG_GETSETELEM, set.Name)
			if err != nil {
				return nil, err
			}
			var odd bool
			if elements, odd, err = readElements(list, set.Interval); err != nil {
				return nil, err
			}
			set.Foreign = set.Foreign || odd
			if known != nil && !set.Foreign {
				known[set.Name] = elements
			}
		}
		set.Elements = elements
		out = append(out, set)
	}
	return out, nil
}

// readShape reads a set without its elements. Of the flags that a set can have, the agent's have one at most: elements that
// expire, that packets make, or that count or limit what they match are none of its.
func readShape(message []byte) desired.Set {
	const ipv4, ipv6 = 7, 8 // nft's numbers of types (TYPE_IPADDR and TYPE_IP6ADDR)
	var set desired.Set
	var flags, kind uint64
	for key, value := range attr.Each(message) {
		switch key {
		case unix.NFTA_SET_NAME:
			set.Name = text(value)
		case unix.NFTA_SET_FLAGS:
			flags = attr.Number(value)
		case unix.NFTA_SET_KEY_TYPE:
			kind = attr.Number(value)
		case unix.NFTA_SET_DESC:
			for key, value := range attr.Each(value) {
				if key == unix.NFTA_SET_DESC_SIZE {
					set.Size = int(attr.Number(value))
				}
			}
		}
	}
	set.Interval = flags&unix.NFT_SET_INTERVAL != 0
	set.Foreign = flags&^unix.NFT_SET_INTERVAL != 0
	switch {
	case flags&unix.NFT_SET_MAP != 0:
	case kind == ipv4:
		set.Family = desired.IPv4
	case kind == ipv6:
		set.Family = desired.IPv6
	}
	set.Foreign = set.Foreign || set.Family == 0
	return set
}

// element is an address in a set, or the one behind the last of a network.
type element struct {
	address netip.Addr
	end     bool
}

// readElements reads the elements from the messages of a list, and says whether there are odd ones among them: the one that
// stands for every address, or such as have more to them than an address.
func readElements(messages [][]byte, interval bool) (out []netip.Prefix, odd bool, err error) {
	var list []element
	for _, m := range messages {
		for key, elements := range attr.Each(m) {
			if key != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, b := range attr.Each(elements) {
				e, plain := readElement(b)
				odd = odd || !plain
				if e.address.IsValid() {
					list = append(list, e)
				}
			}
		}
	}
	if interval {
		out, err = networks(list)
		return out, odd, err
	}
	for _, e := range list {
		out = append(out, netip.PrefixFrom(e.address, e.address.BitLen()))
	}
	slices.SortFunc(out, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	return out, odd, nil
}

// readElement reads one element. It is plain if there is no more to it than the agent's have; a comment is no more.
func readElement(b []byte) (e element, plain bool) {
	plain = true
	for key, value := range attr.Each(b) {
		switch key {
		case unix.NFTA_SET_ELEM_KEY:
			for kind, value := range attr.Each(value) {
				if kind == unix.NFTA_DATA_VALUE {
					e.address, _ = netip.AddrFromSlice(value)
				}
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			flags := attr.Number(value)
			e.end = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
			plain = plain && flags&^unix.NFT_SET_ELEM_INTERVAL_END == 0
		case unix.NFTA_SET_ELEM_USERDATA, unix.NFTA_SET_ELEM_PAD:
		default:
			plain = false
		}
	}
	return e, plain
}

// networks puts together what the kernel keeps apart: the first address of a network, and the one behind its last.
func networks(list []element) ([]netip.Prefix, error) {
	slices.SortFunc(list, func(x, y element) int {
		// Where one network ends another may begin: the end comes first.
		return cmp.Or(x.address.Compare(y.address), boolCompare(y.end, x.end))
	})
	var b netipx.IPSetBuilder
	var first netip.Addr
	for _, e := range list {
		if !e.end {
			first = e.address
			continue
		}
		if first.IsValid() {
			b.AddRange(netipx.IPRangeFrom(first, e.address.Prev()))
		}
		first = netip.Addr{}
	}
	if first.IsValid() { // up to the end of the address space
		b.AddRange(netipx.IPRangeFrom(first, netipx.PrefixLastIP(netip.PrefixFrom(first, 0))))
	}
	all, err := b.IPSet()
	if err != nil {
		return nil, err
	}
	return all.Prefixes(), nil
}

func boolCompare(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// countInside returns how many things the kernel says that the agent's table has. The library reads it in the wrong order of
// bytes on most machines.
func countInside() (int, error) {
	messages, err := askTable(unix.NFT_MSG_GETTABLE, "") // which lists them all
	for _, m := range messages {
		name, use := "", 0
		for key, value := range attr.Each(m) {
			switch key {
			case unix.NFTA_TABLE_NAME:
				name = text(value)
			case unix.NFTA_TABLE_USE:
				use = int(attr.Number(value))
			}
		}
		if name == desired.TableName {
			return use, nil
		}
	}
	return 0, err
}
