package doctor

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// registers are the kernel's sixteen of four bytes each, with the bits in them that are not known.
type registers struct {
	data, unknown [80]byte
	port          [80]bool // loaded from where TCP and UDP have ports
}

func registerAt(n uint32) int {
	if n >= 8 {
		return min(int(n-8)*4, 64)
	}
	return min(max(int(n)-1, 0)*16, 64)
}

func (g *registers) load(n uint32, data []byte) { g.loadPartly(n, data, nil) }

func (g *registers) loadPartly(n uint32, data, unknown []byte) {
	at := registerAt(n)
	for i := range 16 { // the rest of a register is zero
		if at+i >= len(g.data) {
			return
		}
		if i >= len(data) && i%4 == 0 && i > 0 {
			return
		}
		g.data[at+i], g.unknown[at+i], g.port[at+i] = 0, 0, false
		if i < len(data) {
			g.data[at+i] = data[i]
		}
		if i < len(unknown) {
			g.unknown[at+i] = unknown[i]
		}
	}
}

func (g *registers) obscure(n uint32, length int) {
	g.loadPartly(n, make([]byte, length), bytes.Repeat([]byte{0xff}, length))
}

// ofPort says whether the register holds a port of the packet.
func (g *registers) ofPort(n uint32) bool { return g.port[registerAt(n)] }

func (g *registers) read(n uint32, length int) (data, unknown []byte) {
	at := registerAt(n)
	end := min(at+length, len(g.data))
	return g.data[at:end], g.unknown[at:end]
}

// match is a comparison's answer.
type match int

const (
	no match = iota
	perhaps
	yes
)

func (m match) not() match { return yes - m }

func matches(ok bool) match {
	if ok {
		return yes
	}
	return no
}

func compare(e *expr.Cmp, g *registers) match {
	data, unknown := g.read(e.Register, len(e.Data))
	differs := false // in a bit that is known
	for i := range data {
		if (data[i]^e.Data[i])&^unknown[i] != 0 {
			differs = true
		}
	}
	switch e.Op {
	case expr.CmpOpEq, expr.CmpOpNeq:
		m := perhaps
		if differs {
			m = no
		} else if zero(unknown) {
			m = yes
		}
		if e.Op == expr.CmpOpNeq {
			return m.not()
		}
		return m
	}
	if !zero(unknown) {
		return perhaps
	}
	order := bytes.Compare(data, e.Data)
	switch e.Op {
	case expr.CmpOpLt:
		return matches(order < 0)
	case expr.CmpOpLte:
		return matches(order <= 0)
	case expr.CmpOpGt:
		return matches(order > 0)
	case expr.CmpOpGte:
		return matches(order >= 0)
	}
	return perhaps
}

func inRange(e *expr.Range, g *registers) match {
	data, unknown := g.read(e.Register, len(e.FromData))
	if !zero(unknown) {
		return perhaps
	}
	in := bytes.Compare(data, e.FromData) >= 0 && bytes.Compare(data, e.ToData) <= 0
	return matches(in == (e.Op == expr.CmpOpEq))
}

// few says whether a range has less than half of all ports.
func few(from, to []byte) bool {
	return len(from) == 2 && len(to) == 2 && binary.BigEndian.Uint16(to)-binary.BigEndian.Uint16(from) < 1<<15
}

func bitwise(e *expr.Bitwise, g *registers) {
	data, unknown := g.read(e.SourceRegister, int(e.Len))
	if len(e.Mask) != len(data) || len(e.Xor) != len(data) { // a shift, or two registers
		g.obscure(e.DestRegister, int(e.Len))
		return
	}
	d, u := make([]byte, len(data)), make([]byte, len(data))
	for i := range data {
		d[i] = data[i]&e.Mask[i] ^ e.Xor[i]
		u[i] = unknown[i] & e.Mask[i]
	}
	g.loadPartly(e.DestRegister, d, u)
}

func (w *walk) loadMeta(e *expr.Meta, g *registers) {
	p := w.out.Packet
	name := func(n string) {
		if n == "" {
			g.obscure(e.Register, 16)
			return
		}
		padded := make([]byte, 16)
		copy(padded, n)
		g.load(e.Register, padded)
	}
	switch e.Key {
	case expr.MetaKeyIIFNAME:
		name(p.Iif)
	case expr.MetaKeyOIFNAME:
		name(p.Oif)
	case expr.MetaKeyMARK:
		g.loadPartly(e.Register, native(p.Mark), native(p.Unknown))
	case expr.MetaKeyNFPROTO:
		if p.family() == desired.IPv4 {
			g.load(e.Register, []byte{unix.NFPROTO_IPV4})
		} else {
			g.load(e.Register, []byte{unix.NFPROTO_IPV6})
		}
	case expr.MetaKeyPROTOCOL:
		if p.family() == desired.IPv4 {
			g.load(e.Register, []byte{0x08, 0x00})
		} else {
			g.load(e.Register, []byte{0x86, 0xdd})
		}
	case expr.MetaKeyL4PROTO:
		if p.Protocol == 0 {
			g.obscure(e.Register, 1)
		} else {
			g.load(e.Register, []byte{p.Protocol})
		}
	case expr.MetaKeyPKTTYPE:
		g.load(e.Register, []byte{unix.PACKET_HOST})
	default:
		g.obscure(e.Register, 16)
	}
}

func (w *walk) loadPayload(e *expr.Payload, g *registers) {
	p := w.out.Packet
	h, known := w.headers[e.Base]
	if !known {
		h.data, h.unknown = p.header(e.Base)
		if w.headers == nil {
			w.headers = map[expr.PayloadBase]header{}
		}
		w.headers[e.Base] = h
	}
	end := int(e.Offset + e.Len)
	if h.data == nil || end > len(h.data) {
		g.obscure(e.DestRegister, int(e.Len))
		const ports = 4 // bytes: the source's and the destination's
		if e.Base == expr.PayloadBaseTransportHeader && end <= ports {
			g.port[registerAt(e.DestRegister)] = true
		}
		return
	}
	g.loadPartly(e.DestRegister, h.data[e.Offset:end], h.unknown[e.Offset:end])
}

// header is a header of the packet, with the bits in it that are not known.
type header struct{ data, unknown []byte }

// header writes the packet's header of a layer, as far as it is known.
func (p Traced) header(base expr.PayloadBase) (data, unknown []byte) {
	put := func(at int, b ...byte) {
		copy(data[at:], b)
		clear(unknown[at : at+len(b)])
	}
	blank := func(n int) { data, unknown = make([]byte, n), bytes.Repeat([]byte{0xff}, n) }
	switch {
	case base == expr.PayloadBaseTransportHeader && p.ICMPType >= 0 && (p.Protocol == unix.IPPROTO_ICMP || p.Protocol == unix.IPPROTO_ICMPV6):
		blank(8)
		put(0, byte(p.ICMPType))
	case base != expr.PayloadBaseNetworkHeader:
	case p.family() == desired.IPv4:
		blank(20)
		if p.Protocol != 0 {
			put(9, p.Protocol)
		}
		put(12, p.Src.AsSlice()...)
		put(16, p.Dst.AsSlice()...)
	default:
		blank(40)
		if p.Protocol != 0 {
			put(6, p.Protocol)
		}
		put(8, p.Src.AsSlice()...)
		put(24, p.Dst.AsSlice()...)
	}
	return data, unknown
}

func (p Traced) state() uint32 {
	switch {
	case p.Untracked:
		return expr.CtStateBitUNTRACKED
	case p.Reply:
		return expr.CtStateBitESTABLISHED
	}
	return expr.CtStateBitNEW
}

func (w *walk) loadCt(e *expr.Ct, g *registers) {
	p := w.out.Packet
	switch {
	case e.Key == expr.CtKeySTATE:
		g.load(e.Register, native(p.state()))
	case e.Key == expr.CtKeyDIRECTION && p.Reply:
		g.load(e.Register, []byte{1})
	case e.Key == expr.CtKeyDIRECTION:
		g.load(e.Register, []byte{0})
	case e.Key == expr.CtKeyMARK && !p.Reply:
		g.load(e.Register, native(0))
	case e.Key == expr.CtKeySTATUS:
		// No packet that is followed here was sent to a translated destination (linux/nf_conntrack_common.h: IPS_DST_NAT).
		g.loadPartly(e.Register, native(0), native(^uint32(1<<5)))
	default:
		g.obscure(e.Register, 16)
	}
}

func (w *walk) loadFib(e *expr.Fib, g *registers) {
	p := w.out.Packet
	kind := func(here bool) []byte {
		if here {
			return native(unix.RTN_LOCAL)
		}
		return native(unix.RTN_UNICAST)
	}
	switch {
	case e.ResultADDRTYPE && e.FlagDADDR && !e.FlagSADDR:
		g.load(e.Register, kind(p.ToHere))
	case e.ResultADDRTYPE && e.FlagSADDR && !e.FlagDADDR:
		g.load(e.Register, kind(p.FromHere))
	case e.ResultOIF && e.FlagSADDR && !e.FlagDADDR && e.FlagIIF:
		w.loadBack(e, g)
	default:
		g.obscure(e.Register, 16)
	}
}

// loadBack loads whether there is a way back to the packet's source by the interface that it came in by.
func (w *walk) loadBack(e *expr.Fib, g *registers) {
	switch m := w.set.back(w.out.Packet, e.FlagMARK, false); {
	case m == perhaps:
		g.obscure(e.Register, 16)
	case e.FlagPRESENT:
		g.load(e.Register, []byte{byte(m / yes)})
	case m == no:
		g.load(e.Register, native(0))
	default: // the number of the interface
		g.obscure(e.Register, 4)
	}
}

// back says whether the way back to the packet's source leads out by the interface that it came in by, or (loose) by any.
func (s *Ruleset) back(p Traced, marked, loose bool) match {
	if s.Back == nil || p.Iif == "" || marked && p.Unknown != 0 {
		return perhaps
	}
	way := desired.Packet{Src: p.Dst, Dst: p.Src}
	if marked {
		way.Mark = p.Mark
	}
	dev, known := s.Back(way)
	if !known {
		return perhaps
	}
	return matches(dev == p.Iif || loose && dev != "")
}

func (w *walk) setMark(r *Rule, e *expr.Meta, g *registers, maybe bool) {
	if e.Key != expr.MetaKeyMARK {
		return
	}
	data, unknown := g.read(e.Register, 4)
	w.mark(r, binary.NativeEndian.Uint32(data), binary.NativeEndian.Uint32(unknown), maybe)
}

func (w *walk) mark(r *Rule, to, unknown uint32, maybe bool) {
	p := &w.out.Packet
	if maybe {
		p.Unknown |= unknown | (p.Mark ^ to)
		return
	}
	if to != p.Mark || p.Unknown&^unknown != 0 {
		w.out.Marks = append(w.out.Marks, MarkChange{Rule: r, From: p.Mark, To: to, Unknown: p.Unknown})
	}
	p.Mark, p.Unknown = to&^unknown, unknown
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func cString(b []byte) string { return strings.TrimRight(string(b), "\x00") }
