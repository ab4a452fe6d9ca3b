package doctor

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// matchXT reads the matches of iptables that have no form of their own in nftables.
func (w *walk) matchXT(e *expr.Match) match {
	p := w.out.Packet
	switch e.Name {
	case "comment":
		return yes
	case "conntrack", "state":
		return conntrack(e.Info, p)
	case "addrtype":
		return addrType(e.Info, p)
	case "physdev":
		// A packet that is routed is not one that is bridged (linux/netfilter/xt_physdev.h: XT_PHYSDEV_OP_BRIDGED).
		const bridged = 1 << 2
		if info, ok := e.Info.(*xt.Unknown); ok && len(*info) >= 66 && (*info)[65] == bridged {
			return matches((*info)[64]&bridged != 0)
		}
	case "rpfilter":
		const loose, validMark, acceptLocal, invert = 1, 2, 4, 8 // linux/netfilter/xt_rpfilter.h
		if info, ok := e.Info.(*xt.Unknown); ok && len(*info) >= 1 && (*info)[0]&acceptLocal == 0 {
			m := w.set.back(p, (*info)[0]&validMark != 0, (*info)[0]&loose != 0)
			if (*info)[0]&invert != 0 {
				return m.not()
			}
			return m
		}
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

// addrType reads a match on whose the addresses are.
func addrType(info xt.InfoAny, p Traced) match {
	var source, dest uint16
	var not [2]bool
	switch a := info.(type) {
	case *xt.AddrType:
		source, dest, not = a.Source, a.Dest, [2]bool{a.InvertSource, a.InvertDest}
	case *xt.AddrTypeV1:
		const invertSource, invertDest = 1, 2
		flags := uint32(a.Flags)
		if flags&^(invertSource|invertDest) != 0 { // of one interface's addresses
			return perhaps
		}
		source, dest, not = a.Source, a.Dest, [2]bool{flags&invertSource != 0, flags&invertDest != 0}
	default:
		return perhaps
	}
	is := func(mask uint16, here, not bool) bool {
		kind := uint16(1) << unix.RTN_UNICAST
		if here {
			kind = 1 << unix.RTN_LOCAL
		}
		return mask == 0 || (mask&kind != 0) != not
	}
	return matches(is(source, p.FromHere, not[0]) && is(dest, p.ToHere, not[1]))
}

// portsXT says whether a match that is not decided asks for particular ports.
func portsXT(e *expr.Match) bool {
	raw, _ := e.Info.(*xt.Unknown)
	const inverted = 47 // the place of the flag in struct xt_multiport_v1
	switch t := e.Info.(type) {
	case *xt.Tcp:
		return t.InvFlags == 0 && (t.SrcPorts != [2]uint16{0, 65535} || t.DstPorts != [2]uint16{0, 65535})
	case *xt.Udp:
		return t.InvFlags == 0
	}
	return e.Name == "multiport" && raw != nil && len(*raw) > inverted && (*raw)[inverted] == 0
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
		return w.redirect(r, maybe), true
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
