package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// invert is FIB_RULE_INVERT of the flags of a rule.
const invert = 0x2

// addRule adds a rule of the agent's. It does not ask the kernel to refuse one that exists (NLM_F_EXCL, as the library's
// call does): selectors that a rule leaves out match any in that test, so that a rule for a mark would count as existing
// where there is one for the mark and a destination.
func addRule(r desired.Rule) error {
	return changeRule(unix.RTM_NEWRULE, unix.NLM_F_CREATE, r)
}

// deleteRule deletes a rule of the agent's; that it is gone already is no error. The kernel deletes the first rule that
// has all that is named, so those of the agent's in front that have it, and more, are first put behind. What is not of the
// form in which the agent adds rules is named to the kernel in the kernel's own words.
func deleteRule(r desired.Rule) error {
	plain := desired.Rule{
		Family: r.Family, Priority: r.Priority, Src: r.Src, Dst: r.Dst, Mark: r.Mark, Mask: r.Mask,
		Action: desired.Lookup, Table: r.Table, Protocol: r.Protocol,
	}
	if r == plain && r.Dst.IsValid() { // one of thousands, perhaps, and none of another shape is in front
		return present(changeRule(unix.RTM_DELRULE, 0, r))
	}
	messages, err := Again(func() ([][]byte, error) { return ruleMessages(r.Family) })
	if err != nil {
		return err
	}
	for _, m := range messages {
		other, err := DecodeRule(m)
		if err != nil {
			return err
		}
		if other == r {
			return present(sendRule(unix.RTM_DELRULE, 0, m))
		}
		if !namedBy(r, other) {
			continue
		}
		// The kernel appends a rule to those of its priority: there is no moment without it.
		if err := sendRule(unix.RTM_NEWRULE, unix.NLM_F_CREATE, m); err != nil {
			return err
		}
		if err := sendRule(unix.RTM_DELRULE, 0, m); err != nil {
			return err
		}
	}
	return nil
}

func present(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// namedBy says whether the kernel, asked to delete a rule, takes another for it (rule_find in net/core/fib_rules.c): one that
// has all that is named. Whether a rule is inverted it does not look at.
func namedBy(r, other desired.Rule) bool {
	return other.Family == r.Family && other.Priority == r.Priority && other.Protocol == r.Protocol && other.Action == r.Action &&
		unnamedOrSame(r.Table, other.Table) && unnamedOrSame(r.Mark, other.Mark) && unnamedOrSame(r.Mask, other.Mask) &&
		unnamedOrSame(r.Src, other.Src) && unnamedOrSame(r.Dst, other.Dst) && unnamedOrSame(r.Iif, other.Iif) &&
		unnamedOrSame(r.Oif, other.Oif) && unnamedOrSame(r.Target, other.Target) && unnamedOrSame(r.Other, other.Other)
}

func unnamedOrSame[T comparable](named, other T) bool {
	var unnamed T
	return named == unnamed || named == other
}

// ruleMessages lists the policy rules of a family as the kernel tells them.
func ruleMessages(f desired.Family) ([][]byte, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(int(familyNumber(f))))
	return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
}

// sendRule sends a rule that the kernel has listed, without those flags that say how it fares.
func sendRule(message, flags int, listed []byte) error {
	header := *nl.DeserializeRtMsg(listed)
	header.Flags &= invert
	req := nl.NewNetlinkRequest(message, flags|unix.NLM_F_ACK)
	req.AddRawData(slices.Concat(header.Serialize(), listed[header.Len():]))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// changeRule sends a rule with the selectors that the agent's have: networks and a mark.
func changeRule(message, flags int, r desired.Rule) error {
	req := nl.NewNetlinkRequest(message, flags|unix.NLM_F_ACK)
	header := nl.NewRtMsg()
	*header = nl.RtMsg{}
	header.Family = familyNumber(r.Family)
	header.Type = nl.FR_ACT_TO_TBL
	header.Src_len, header.Dst_len = uint8(max(r.Src.Bits(), 0)), uint8(max(r.Dst.Bits(), 0))
	req.AddData(header)
	if r.Src.IsValid() {
		req.AddData(nl.NewRtAttr(nl.FRA_SRC, r.Src.Addr().AsSlice()))
	}
	if r.Dst.IsValid() {
		req.AddData(nl.NewRtAttr(nl.FRA_DST, r.Dst.Addr().AsSlice()))
	}
	for _, a := range []struct {
		key   int
		value uint32
	}{{nl.FRA_PRIORITY, r.Priority}, {nl.FRA_FWMARK, r.Mark}, {nl.FRA_FWMASK, r.Mask}, {nl.FRA_TABLE, r.Table}} {
		req.AddData(nl.NewRtAttr(a.key, nl.Uint32Attr(a.value)))
	}
	req.AddData(nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(r.Protocol)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func familyNumber(f desired.Family) uint8 {
	if f == desired.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// DecodeRule decodes the message of a policy rule, from a list or a notice: struct fib_rule_hdr and attributes, of
// linux/fib_rules.h.
func DecodeRule(m []byte) (desired.Rule, error) {
	if len(m) < unix.SizeofRtMsg {
		return desired.Rule{}, errors.New("decode a policy rule: the message is too short")
	}
	header := nl.DeserializeRtMsg(m)
	attrs, err := nl.ParseRouteAttr(m[header.Len():])
	if err != nil {
		return desired.Rule{}, fmt.Errorf("decode a policy rule: %w", err)
	}
	r := desired.Rule{Family: desired.IPv4, Invert: header.Flags&invert != 0, Action: action(header.Type), Table: uint32(header.Table)}
	if header.Family == unix.AF_INET6 {
		r.Family = desired.IPv6
	}
	var other []string
	if header.Tos != 0 {
		other = append(other, fmt.Sprintf("tos %#x", header.Tos))
	}
	for _, a := range attrs {
		v := a.Value
		switch a.Attr.Type {
		case nl.FRA_SRC:
			r.Src = network(v, header.Src_len)
		case nl.FRA_DST:
			r.Dst = network(v, header.Dst_len)
		case nl.FRA_PRIORITY:
			r.Priority = number(v)
		case nl.FRA_TABLE:
			r.Table = number(v)
		case nl.FRA_FWMARK:
			r.Mark = number(v)
		case nl.FRA_FWMASK:
			r.Mask = number(v)
		case nl.FRA_GOTO:
			r.Target = number(v)
		case nl.FRA_IIFNAME:
			r.Iif = text(v)
		case nl.FRA_OIFNAME:
			r.Oif = text(v)
		case nl.FRA_PROTOCOL:
			if len(v) > 0 {
				r.Protocol = v[0]
			}
		case nl.FRA_SUPPRESS_PREFIXLEN:
			if n := number(v); n != ^uint32(0) {
				other = append(other, fmt.Sprintf("suppress_prefixlength %d", n))
			}
		case nl.FRA_SUPPRESS_IFGROUP:
			if n := number(v); n != ^uint32(0) {
				other = append(other, fmt.Sprintf("suppress_ifgroup %d", n))
			}
		case nl.FRA_L3MDEV:
			if len(v) > 0 && v[0] != 0 {
				other = append(other, "l3mdev")
			}
		case nl.FRA_IP_PROTO:
			if len(v) > 0 {
				other = append(other, fmt.Sprintf("ipproto %d", v[0]))
			}
		case nl.FRA_SPORT_RANGE:
			other = append(other, ports("sport", v))
		case nl.FRA_DPORT_RANGE:
			other = append(other, ports("dport", v))
		case nl.FRA_TUN_ID:
			if len(v) >= 8 {
				other = append(other, fmt.Sprintf("tun_id %d", binary.BigEndian.Uint64(v)))
			}
		case nl.FRA_UID_RANGE:
			if len(v) >= 8 {
				first, last := binary.NativeEndian.Uint32(v), binary.NativeEndian.Uint32(v[4:])
				if first != 0 || last != ^uint32(0) {
					other = append(other, fmt.Sprintf("uidrange %d-%d", first, last))
				}
			}
		case nl.FRA_FLOW:
			other = append(other, realms(number(v)))
		default:
			if name, newer := newerSelectors()[a.Attr.Type&^0xc000]; newer {
				other = append(other, fmt.Sprintf("%s %#x", name, v))
			}
		}
	}
	r.Other = strings.Join(other, " ")
	if r.Action != desired.Lookup {
		r.Table = 0
	}
	return r, nil
}

// newerSelectors are the attributes by which newer kernels select packets, and which the library does not know. A later
// kernel may tell more of every rule, which need not make it another one.
func newerSelectors() map[uint16]string {
	return map[uint16]string{24: "dscp", 25: "flowlabel", 26: "flowlabel-mask", 27: "sport-mask", 28: "dport-mask", 29: "dscp-mask"}
}

func action(number uint8) string {
	switch number {
	case nl.FR_ACT_GOTO:
		return desired.Goto
	case nl.FR_ACT_NOP:
		return desired.Nop
	case nl.FR_ACT_BLACKHOLE:
		return desired.Blackhole
	case nl.FR_ACT_UNREACHABLE:
		return desired.Unreachable
	case nl.FR_ACT_PROHIBIT:
		return desired.Prohibit
	}
	return desired.Lookup
}

func number(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func network(v []byte, bits uint8) netip.Prefix {
	addr, ok := netip.AddrFromSlice(v)
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, int(bits))
}

// realms writes what a rule says of routing realms, as `ip rule` does.
func realms(n uint32) string {
	if from := n >> 16; from != 0 {
		return fmt.Sprintf("realms %d/%d", from, n&0xffff)
	}
	return fmt.Sprintf("realms %d", n)
}

func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

func ports(key string, v []byte) string {
	if len(v) < 4 {
		return key
	}
	first, last := binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:])
	if first == last {
		return fmt.Sprintf("%s %d", key, first)
	}
	return fmt.Sprintf("%s %d-%d", key, first, last)
}
