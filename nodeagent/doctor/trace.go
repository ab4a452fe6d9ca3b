package doctor

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Traced is a packet that is followed through the firewall's rules on paper. What is not known of it stays unknown, and a
// rule that asks for it then may or may not take the packet.
type Traced struct {
	Src, Dst  netip.Addr
	Iif, Oif  string
	Mark      uint32
	Unknown   uint32 // bits of Mark that are not known
	Protocol  uint8  // of the transport layer; 0 is not known
	ICMPType  int    // -1 is not known
	Reply     bool   // it is a reply of a connection that exists; else it begins one
	Untracked bool
}

func (p Traced) family() desired.Family { return desired.FamilyOf(p.Dst) }

// MarkChange is a rule that changed the mark of a packet on its way.
type MarkChange struct {
	Rule     *Rule
	From, To uint32
}

// Outcome is what the chains of a hook make of a packet.
type Outcome struct {
	Packet  Traced
	Dropped bool
	By      *Rule  // the rule that drops it; nil: the policy of Chain
	Chain   *Chain // of the rule or of the policy
	Rejects bool   // its sender is told
	// Maybe are the rules of which it cannot be said here whether they take the packet, and that would change whether it
	// is dropped.
	Maybe   []*Rule
	Marks   []MarkChange
	NoTrack *Rule // the rule that keeps the packet from being tracked
}

// Certain says whether the outcome does not depend on what is not known.
func (o Outcome) Certain() bool { return len(o.Maybe) == 0 }

// Culprit names what drops the packet.
func (o Outcome) Culprit() string {
	switch {
	case o.By != nil:
		return o.By.String()
	case o.Chain != nil:
		return o.Chain.Family + " " + o.Chain.Table + " " + o.Chain.Name + ": policy drop"
	}
	return ""
}

// Translation is what the firewall makes of the source of a connection's first packet.
type Translation struct {
	By         *Rule      // nil: the source stays
	To         netip.Addr // zero with Masquerade: the address of the interface that the packet leaves by
	Masquerade bool
	Unread     bool // By translates, but it cannot be read to what
	// Maybe are rules in front of By, of which it cannot be said here whether they take the packet.
	Maybe []*Rule
}

// Filter follows the packet through the chains of type filter (and route) at the hook.
func (s *Ruleset) Filter(hook Hook, p Traced) Outcome {
	out := Outcome{Packet: p}
	for _, c := range s.base(p.family(), hook, "filter", "route") {
		w := walk{set: s, out: &out}
		end := w.chain(c, 0, false)
		if end == dropped || end == fell && c.Drop {
			if end == fell {
				out.By = nil
			}
			out.Dropped, out.Chain = true, c
			if out.By != nil {
				out.Chain = out.By.Chain
			}
			out.Maybe = w.mayAccept
			return out
		}
		out.Maybe = append(out.Maybe, w.mayDrop...)
	}
	return out
}

// Source follows the packet through the chains that translate sources.
func (s *Ruleset) Source(p Traced) Translation {
	out := Outcome{Packet: p}
	var t Translation
	for _, c := range s.base(p.family(), Postrouting, "nat") {
		w := walk{set: s, out: &out}
		end := w.chain(c, 0, false)
		t.Maybe = append(t.Maybe, w.mayTranslate...)
		if end == translated {
			t.By, t.To, t.Masquerade, t.Unread = w.nat.By, w.nat.To, w.nat.Masquerade, w.nat.Unread
			return t
		}
	}
	return t
}

// How the walk through a chain ends.
type ending int

const (
	fell ending = iota // nothing decided
	accepted
	dropped
	returned
	mayReturn // it may have returned: what comes behind in the chain may not be met
	translated
)

// maxDepth is how deep chains call each other at most; the kernel allows 16.
const maxDepth = 20

type walk struct {
	set *Ruleset
	out *Outcome
	nat Translation

	mayDrop, mayAccept, mayTranslate []*Rule
}

// chain runs a chain. With maybe, the packet may not come here at all: what decides is only remembered.
func (w *walk) chain(c *Chain, depth int, maybe bool) ending {
	if c == nil || depth > maxDepth {
		return fell
	}
	for _, r := range c.Rules {
		switch end := w.rule(r, depth, maybe); end {
		case fell:
		case returned:
			return fell
		case mayReturn:
			maybe = true
		default:
			return end
		}
	}
	return fell
}

// decide is the end of a rule that may or must take the packet.
func (w *walk) decide(r *Rule, end ending, maybe bool) ending {
	if !maybe {
		if end == dropped {
			w.out.By = r
		}
		return end
	}
	switch end {
	case dropped:
		w.mayDrop = append(w.mayDrop, r)
	case accepted:
		w.mayAccept = append(w.mayAccept, r)
	case returned:
		return mayReturn
	case translated:
		w.mayTranslate = append(w.mayTranslate, r)
	}
	return fell
}

// registers are the kernel's sixteen of four bytes each, with the bits in them that are not known.
type registers struct {
	data, unknown [80]byte
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
		g.data[at+i], g.unknown[at+i] = 0, 0
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

// rule runs a rule on the packet.
func (w *walk) rule(r *Rule, depth int, maybe bool) ending {
	var g registers
	maybe = maybe || r.Opaque
	for _, e := range r.Exprs {
		m := yes
		switch e := e.(type) {
		case *expr.Meta:
			if e.SourceRegister {
				w.setMark(r, e, &g, maybe)
			} else {
				w.loadMeta(e, &g)
			}
		case *expr.Payload:
			if e.OperationType == expr.PayloadLoad {
				w.loadPayload(e, &g)
			}
		case *expr.Ct:
			if !e.SourceRegister {
				if w.out.Packet.Untracked && e.Key != expr.CtKeySTATE {
					return fell // there is no connection to ask about
				}
				w.loadCt(e, &g)
			}
		case *expr.Immediate:
			g.load(e.Register, e.Data)
		case *expr.Bitwise:
			bitwise(e, &g)
		case *expr.Byteorder:
			g.obscure(e.DestRegister, int(e.Len))
		case *expr.Cmp:
			m = compare(e, &g)
		case *expr.Range:
			m = inRange(e, &g)
		case *expr.Lookup:
			var end ending
			var decided bool
			if m, end, decided = w.lookup(r, e, &g, depth, maybe); decided {
				return end
			}
		case *expr.Fib:
			w.loadFib(e, &g)
		case *expr.Match:
			m = w.matchXT(e)
		case *expr.Limit, *expr.Quota, *expr.Connlimit, *expr.Dynset:
			m = perhaps
		case *expr.Exthdr:
			g.obscure(e.DestRegister, 16)
		case *expr.Hash:
			g.obscure(e.DestRegister, 4)
		case *expr.Numgen:
			g.obscure(e.Register, 4)
		case *expr.Notrack:
			if !maybe {
				w.out.NoTrack, w.out.Packet.Untracked = r, true
			}
		case *expr.Verdict:
			return w.verdict(r, e, depth, maybe)
		case *expr.Reject:
			if !maybe {
				w.out.Rejects = true
			}
			return w.decide(r, dropped, maybe)
		case *expr.Queue:
			return w.decide(r, dropped, true)
		case *expr.NAT:
			if e.Type == expr.NATTypeSourceNAT {
				return w.translate(r, natTo(e, &g), maybe)
			}
			return w.decide(r, accepted, maybe)
		case *expr.Masq:
			return w.translate(r, Translation{Masquerade: true}, maybe)
		case *expr.Redir:
			return w.decide(r, accepted, maybe)
		case *expr.Target:
			if end, decided := w.target(r, e, maybe); decided {
				return end
			}
		}
		switch m {
		case no:
			return fell
		case perhaps:
			maybe = true
		}
	}
	return fell
}

func (w *walk) verdict(r *Rule, e *expr.Verdict, depth int, maybe bool) ending {
	switch e.Kind {
	case expr.VerdictAccept:
		return w.decide(r, accepted, maybe)
	case expr.VerdictDrop:
		return w.decide(r, dropped, maybe)
	case expr.VerdictReturn:
		return w.decide(r, returned, maybe)
	case expr.VerdictJump:
		return w.chain(w.set.chain(r.Chain.Family, r.Chain.Table, e.Chain), depth+1, maybe)
	case expr.VerdictGoto:
		if end := w.chain(w.set.chain(r.Chain.Family, r.Chain.Table, e.Chain), depth+1, maybe); end != fell {
			return end
		}
		return w.decide(r, returned, maybe)
	case expr.VerdictQueue, expr.VerdictStolen:
		return w.decide(r, dropped, true)
	}
	return fell
}

func (w *walk) translate(r *Rule, t Translation, maybe bool) ending {
	if !maybe {
		w.nat = t
		w.nat.By = r
	}
	return w.decide(r, translated, maybe)
}

func natTo(e *expr.NAT, g *registers) Translation {
	if e.RegAddrMin == 0 || e.Prefix {
		return Translation{Unread: true}
	}
	length := 4
	if e.Family == unix.NFPROTO_IPV6 {
		length = 16
	}
	data, unknown := g.read(e.RegAddrMin, length)
	addr, ok := netip.AddrFromSlice(data)
	if e.RegAddrMax != 0 && e.RegAddrMax != e.RegAddrMin {
		last, _ := g.read(e.RegAddrMax, length)
		ok = ok && bytes.Equal(data, last)
	}
	return Translation{To: addr, Unread: !ok || !zero(unknown)}
}

// lookup asks a set, or takes the verdict of a map.
func (w *walk) lookup(r *Rule, e *expr.Lookup, g *registers, depth int, maybe bool) (m match, end ending, decided bool) {
	set := w.set.set(r.Chain, e.SetName)
	isVerdictMap := e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	if set == nil || set.Opaque || set.Length == 0 {
		if e.IsDestRegSet && !isVerdictMap {
			g.obscure(e.DestRegister, 16)
		}
		return perhaps, fell, false
	}
	key, unknown := g.read(e.SourceRegister, set.Length)
	if !zero(unknown) {
		if !isVerdictMap {
			if e.IsDestRegSet {
				g.obscure(e.DestRegister, 16)
			}
			if len(set.Elements) == 0 {
				return matches(e.Invert), fell, false
			}
			return perhaps, fell, false
		}
		for _, element := range set.Elements {
			if element.Verdict != nil {
				w.verdict(r, element.Verdict, depth, true)
			}
		}
		return perhaps, fell, false
	}
	element, found := set.find(key)
	if isVerdictMap && found && element.Verdict != nil {
		end := w.verdict(r, element.Verdict, depth, maybe)
		return yes, end, end != fell
	}
	if e.IsDestRegSet && found {
		g.load(e.DestRegister, element.Value)
	}
	return matches(found != e.Invert), fell, false
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
	header, unknown := p.header(e.Base)
	end := int(e.Offset + e.Len)
	if header == nil || end > len(header) {
		g.obscure(e.DestRegister, int(e.Len))
		return
	}
	g.loadPartly(e.DestRegister, header[e.Offset:end], unknown[e.Offset:end])
}

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
	default:
		g.obscure(e.Register, 16)
	}
}

func (w *walk) loadFib(e *expr.Fib, g *registers) {
	// The packets that are followed here are for other machines.
	if e.ResultADDRTYPE && e.FlagDADDR && !e.FlagSADDR {
		g.load(e.Register, native(unix.RTN_UNICAST))
		return
	}
	g.obscure(e.Register, 16)
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
	if to != p.Mark {
		w.out.Marks = append(w.out.Marks, MarkChange{Rule: r, From: p.Mark, To: to})
	}
	p.Mark, p.Unknown = to&^unknown, unknown
}

// matchXT reads the matches of iptables that have no form of their own in nftables.
func (w *walk) matchXT(e *expr.Match) match {
	p := w.out.Packet
	switch e.Name {
	case "comment":
		return yes
	case "conntrack", "state":
		return conntrack(e.Info, p)
	case "mark":
		if info, ok := e.Info.(*xt.Unknown); ok && len(*info) >= 9 {
			mark, mask := binary.NativeEndian.Uint32(*info), binary.NativeEndian.Uint32((*info)[4:])
			m := perhaps
			if (p.Mark^mark)&mask&^p.Unknown != 0 {
				m = no
			} else if p.Unknown&mask == 0 {
				m = yes
			}
			if (*info)[8] != 0 {
				return m.not()
			}
			return m
		}
	}
	return perhaps
}

// conntrack reads a match on the state of the connection, and on nothing else.
func conntrack(info xt.InfoAny, p Traced) match {
	var flags, inverted, states uint16
	switch c := info.(type) {
	case *xt.ConntrackMtinfo1:
		flags, inverted, states = c.MatchFlags, c.InvertFlags, uint16(c.StateMask)
	case *xt.ConntrackMtinfo2:
		flags, inverted, states = c.MatchFlags, c.InvertFlags, c.StateMask
	case *xt.ConntrackMtinfo3:
		flags, inverted, states = c.MatchFlags, c.InvertFlags, c.StateMask
	default:
		return perhaps
	}
	if flags&^uint16(xt.ConntrackState|xt.ConntrackStateAlias) != 0 {
		return perhaps
	}
	// linux/netfilter/xt_conntrack.h: invalid is bit 0, then 1 << (state % 3 + 1), and untracked is bit 6.
	state := uint16(1 << 3) // new
	switch {
	case p.Untracked:
		state = 1 << 6
	case p.Reply:
		state = 1 << 1
	}
	return matches((states&state != 0) != (inverted&uint16(xt.ConntrackState) != 0))
}

// target reads the targets of iptables that have no form of their own in nftables.
func (w *walk) target(r *Rule, e *expr.Target, maybe bool) (ending, bool) {
	raw, _ := e.Info.(*xt.Unknown)
	word := func(i int) uint32 {
		if raw == nil || len(*raw) < 4*i+4 {
			return 0
		}
		return binary.NativeEndian.Uint32((*raw)[4*i:])
	}
	p := w.out.Packet
	switch {
	case e.Name == "MARK" && raw != nil && e.Rev == 2:
		w.mark(r, p.Mark&^word(1)^word(0), p.Unknown&^word(1), maybe)
	case e.Name == "CONNMARK" && raw != nil && len(*raw) >= 13:
		const restore = 2
		if mask := word(2); (*raw)[12] == restore && p.Reply {
			w.mark(r, p.Mark&^mask, p.Unknown|mask, maybe)
		} else if (*raw)[12] == restore { // a new connection has no mark
			w.mark(r, p.Mark&^mask, p.Unknown&^mask, maybe)
		}
	case e.Name == "MASQUERADE":
		return w.translate(r, Translation{Masquerade: true}, maybe), true
	case e.Name == "SNAT":
		return w.translate(r, snatXT(e.Info, raw), maybe), true
	case e.Name == "NETMAP":
		return w.translate(r, Translation{Unread: true}, maybe), true
	case e.Name == "DNAT", e.Name == "REDIRECT":
		return w.decide(r, accepted, maybe), true
	case e.Name == "REJECT":
		if !maybe {
			w.out.Rejects = true
		}
		return w.decide(r, dropped, maybe), true
	case e.Name == "DROP":
		return w.decide(r, dropped, maybe), true
	case e.Name == "NFQUEUE":
		return w.decide(r, dropped, true), true
	case e.Name == "CT" && raw != nil && len(*raw) >= 2 && binary.NativeEndian.Uint16(*raw)&1 != 0, e.Name == "NOTRACK":
		if !maybe {
			w.out.NoTrack, w.out.Packet.Untracked = r, true
		}
	}
	return fell, false
}

func snatXT(info xt.InfoAny, raw *xt.Unknown) Translation {
	if v4, ok := info.(*xt.NatIPv4MultiRangeCompat); ok && len(*v4) == 1 {
		addr, ok := netip.AddrFromSlice((*v4)[0].MinIP.To4())
		return Translation{To: addr, Unread: !ok || !(*v4)[0].MinIP.Equal((*v4)[0].MaxIP)}
	}
	// struct nf_nat_range: flags, then the first and the last address.
	if raw != nil && len(*raw) >= 36 {
		addr, _ := netip.AddrFromSlice((*raw)[4:20])
		return Translation{To: addr.Unmap(), Unread: !bytes.Equal((*raw)[4:20], (*raw)[20:36])}
	}
	return Translation{Unread: true}
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func cString(b []byte) string { return strings.TrimRight(string(b), "\x00") }
