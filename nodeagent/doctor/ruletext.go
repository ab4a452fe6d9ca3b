package doctor

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// text writes the rule much as nft lists it. It is for people: what is seldom used is named and not spelled out.
func (r *Rule) text() string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	var left string       // what is in the register
	var loaded expr.Any   // and what it was loaded from
	var immediate []byte  // or the value itself
	var mask, xor *uint32 // of a mark
	show := func(data []byte) string { return value(loaded, data) }
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Meta:
			if e.SourceRegister {
				switch {
				case e.Key == expr.MetaKeyMARK && mask != nil:
					add("meta mark set mark & %#x ^ %#x", *mask, *xor)
				case e.Key == expr.MetaKeyMARK && len(immediate) == 4:
					add("meta mark set %#x", binary.NativeEndian.Uint32(immediate))
				case e.Key == expr.MetaKeyMARK:
					add("meta mark set %s", left)
				}
				continue
			}
			left, loaded, mask, immediate = metaName(e.Key), e, nil, nil
		case *expr.Payload:
			left, loaded, mask = r.payloadName(e), e, nil
		case *expr.Ct:
			left, loaded, mask = ctName(e.Key), e, nil
		case *expr.Fib:
			left, loaded, mask = "fib", e, nil
		case *expr.Immediate:
			immediate = e.Data
			left, loaded = show(e.Data), e
		case *expr.Bitwise:
			if len(e.Mask) == 4 && len(e.Xor) == 4 {
				m, x := binary.NativeEndian.Uint32(e.Mask), binary.NativeEndian.Uint32(e.Xor)
				mask, xor = &m, &x
			}
		case *expr.Cmp:
			data := show(e.Data)
			ct, isCt := loaded.(*expr.Ct)
			switch {
			case isCt && ct.Key == expr.CtKeySTATE && mask != nil:
				not := ""
				if e.Op == expr.CmpOpEq {
					not = "! "
				}
				add("ct state %s%s", not, states(*mask))
			case mask != nil && isMark(loaded):
				add("%s & %#x %s %s", left, *mask, operator(e.Op), data)
			case mask != nil && len(e.Data) == 4:
				ones, _ := netipMask(*mask)
				add("%s %s%s/%d", left, not(e.Op), data, ones)
			default:
				add("%s %s%s", left, not(e.Op), data)
			}
			mask = nil
		case *expr.Range:
			add("%s %s%s-%s", left, not(e.Op), show(e.FromData), show(e.ToData))
		case *expr.Lookup:
			invert := ""
			if e.Invert {
				invert = "!= "
			}
			kind := ""
			if e.IsDestRegSet {
				kind = " map"
			}
			add("%s%s %s@%s", left, kind, invert, e.SetName)
		case *expr.Match:
			add("%s", matchText(e))
		case *expr.Target:
			add("%s", targetText(e))
		case *expr.Verdict:
			add("%s", verdictText(e))
		case *expr.Reject:
			add("reject")
		case *expr.NAT:
			kind := "dnat"
			if e.Type == expr.NATTypeSourceNAT {
				kind = "snat"
			}
			to := left
			if addr, ok := netip.AddrFromSlice(immediate); ok {
				to = addr.String()
			}
			add("%s to %s", kind, to)
		case *expr.Masq:
			add("masquerade")
		case *expr.Redir:
			add("redirect")
		case *expr.Queue:
			add("queue")
		case *expr.Notrack:
			add("notrack")
		case *expr.Limit:
			add("limit rate …")
		case *expr.Log:
			add("log")
		}
	}
	if r.Opaque {
		add("(and a part that is not readable here)")
	}
	if r.Comment != "" {
		add("comment %q", r.Comment)
	}
	// iptables writes such comments as a match.
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

func isMark(e expr.Any) bool {
	meta, ok := e.(*expr.Meta)
	return ok && meta.Key == expr.MetaKeyMARK
}

func not(op expr.CmpOp) string {
	if op == expr.CmpOpEq {
		return ""
	}
	return operator(op) + " "
}

func operator(op expr.CmpOp) string {
	switch op {
	case expr.CmpOpNeq:
		return "!="
	case expr.CmpOpLt:
		return "<"
	case expr.CmpOpLte:
		return "<="
	case expr.CmpOpGt:
		return ">"
	case expr.CmpOpGte:
		return ">="
	}
	return "=="
}

func netipMask(native uint32) (ones int, ok bool) {
	b := binary.NativeEndian.AppendUint32(nil, native)
	n := binary.BigEndian.Uint32(b)
	for n&(1<<31) != 0 {
		ones++
		n <<= 1
	}
	return ones, n == 0
}

func metaName(k expr.MetaKey) string {
	switch k {
	case expr.MetaKeyIIFNAME:
		return "iifname"
	case expr.MetaKeyOIFNAME:
		return "oifname"
	case expr.MetaKeyIIF:
		return "iif"
	case expr.MetaKeyOIF:
		return "oif"
	case expr.MetaKeyMARK:
		return "meta mark"
	case expr.MetaKeyNFPROTO:
		return "meta nfproto"
	case expr.MetaKeyL4PROTO:
		return "meta l4proto"
	case expr.MetaKeyPROTOCOL:
		return "meta protocol"
	}
	return fmt.Sprintf("meta %d", k)
}

func ctName(k expr.CtKey) string {
	switch k {
	case expr.CtKeySTATE:
		return "ct state"
	case expr.CtKeyDIRECTION:
		return "ct direction"
	case expr.CtKeyMARK:
		return "ct mark"
	}
	return fmt.Sprintf("ct %d", k)
}

func (r *Rule) payloadName(e *expr.Payload) string {
	switch {
	case e.Base == expr.PayloadBaseNetworkHeader && (e.Offset == 12 && e.Len <= 4 || e.Offset == 8 && e.Len > 4):
		return "saddr"
	case e.Base == expr.PayloadBaseNetworkHeader && (e.Offset == 16 && e.Len <= 4 || e.Offset == 24 && e.Len > 4):
		return "daddr"
	case e.Base == expr.PayloadBaseNetworkHeader && e.Offset == 9 && e.Len == 1 && r.Chain.Family != "ip6":
		return "protocol"
	case e.Base == expr.PayloadBaseTransportHeader && e.Offset == 0 && e.Len == 2:
		return "sport"
	case e.Base == expr.PayloadBaseTransportHeader && e.Offset == 2 && e.Len == 2:
		return "dport"
	case e.Base == expr.PayloadBaseTransportHeader && e.Offset == 0 && e.Len == 1:
		return "icmp type"
	}
	return fmt.Sprintf("@%d,%d,%d", e.Base, e.Offset*8, e.Len*8)
}

// value writes what is compared with what was loaded.
func value(loaded expr.Any, data []byte) string {
	switch e := loaded.(type) {
	case *expr.Meta:
		switch {
		case e.Key == expr.MetaKeyIIFNAME || e.Key == expr.MetaKeyOIFNAME:
			if len(data) < unix.IFNAMSIZ && !strings.Contains(string(data), "\x00") {
				return fmt.Sprintf("%q", string(data)+"*")
			}
			return fmt.Sprintf("%q", cString(data))
		case e.Key == expr.MetaKeyNFPROTO && len(data) == 1:
			if data[0] == unix.NFPROTO_IPV6 {
				return "ipv6"
			}
			return "ipv4"
		case e.Key == expr.MetaKeyL4PROTO && len(data) == 1:
			return protocolName(data[0])
		case len(data) == 4:
			return fmt.Sprintf("%#x", binary.NativeEndian.Uint32(data))
		}
	case *expr.Payload:
		if e.Base == expr.PayloadBaseNetworkHeader && e.Len == 1 && len(data) == 1 && e.Offset == 9 {
			return protocolName(data[0])
		}
		if e.Base == expr.PayloadBaseTransportHeader && len(data) == 2 {
			return fmt.Sprint(binary.BigEndian.Uint16(data))
		}
		if e.Base == expr.PayloadBaseTransportHeader && len(data) == 1 {
			return fmt.Sprint(data[0])
		}
		if addr, ok := netip.AddrFromSlice(data); ok {
			return addr.String()
		}
		if e.Base == expr.PayloadBaseNetworkHeader && len(data) < 4 { // iptables compares whole bytes of a network
			padded := make([]byte, 4)
			copy(padded, data)
			addr, _ := netip.AddrFromSlice(padded)
			return netip.PrefixFrom(addr, len(data)*8).String()
		}
	case *expr.Ct:
		if e.Key == expr.CtKeySTATE && len(data) == 4 {
			return states(binary.NativeEndian.Uint32(data))
		}
		if e.Key == expr.CtKeyDIRECTION && len(data) == 1 {
			return [...]string{"original", "reply"}[data[0]&1]
		}
	}
	if addr, ok := netip.AddrFromSlice(data); ok && len(data) > 4 {
		return addr.String()
	}
	return fmt.Sprintf("%#x", data)
}

func protocolName(n uint8) string {
	switch n {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_IPIP:
		return "ip-in-ip"
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(n)
}

func states(bits uint32) string {
	var words []string
	for _, s := range []struct {
		bit  uint32
		name string
	}{
		{expr.CtStateBitINVALID, "invalid"},
		{expr.CtStateBitESTABLISHED, "established"},
		{expr.CtStateBitRELATED, "related"},
		{expr.CtStateBitNEW, "new"},
		{expr.CtStateBitUNTRACKED, "untracked"},
	} {
		if bits&s.bit != 0 {
			words = append(words, s.name)
		}
	}
	return strings.Join(words, ",")
}

func matchText(e *expr.Match) string {
	switch info := e.Info.(type) {
	case *xt.Comment:
		return ""
	case *xt.ConntrackMtinfo3:
		not := ""
		if info.InvertFlags&uint16(xt.ConntrackState) != 0 {
			not = "! "
		}
		var bits uint32
		for xtBit, bit := range map[uint16]uint32{
			1: expr.CtStateBitINVALID, 1 << 1: expr.CtStateBitESTABLISHED, 1 << 2: expr.CtStateBitRELATED,
			1 << 3: expr.CtStateBitNEW, 1 << 6: expr.CtStateBitUNTRACKED,
		} {
			if info.StateMask&xtBit != 0 {
				bits |= bit
			}
		}
		return "ct state " + not + states(bits)
	}
	return "-m " + e.Name + " …"
}

func targetText(e *expr.Target) string {
	raw, _ := e.Info.(*xt.Unknown)
	switch {
	case e.Name == "MASQUERADE":
		return "masquerade"
	case e.Name == "REJECT":
		return "reject"
	case e.Name == "SNAT":
		if t := snatXT(e.Info, raw); !t.Unread {
			return "snat to " + t.To.String()
		}
	case e.Name == "MARK" && raw != nil && len(*raw) >= 8:
		return fmt.Sprintf("meta mark set %#x/%#x", binary.NativeEndian.Uint32(*raw), binary.NativeEndian.Uint32((*raw)[4:]))
	}
	return "-j " + e.Name
}

func verdictText(e *expr.Verdict) string {
	switch e.Kind {
	case expr.VerdictAccept:
		return "accept"
	case expr.VerdictDrop:
		return "drop"
	case expr.VerdictReturn:
		return "return"
	case expr.VerdictJump:
		return "jump " + e.Chain
	case expr.VerdictGoto:
		return "goto " + e.Chain
	}
	return fmt.Sprintf("verdict %d", e.Kind)
}
