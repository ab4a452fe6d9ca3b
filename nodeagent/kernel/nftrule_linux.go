package kernel

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"reflect"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// register is the one register that the expressions of a rule use, each in its turn.
const register = 1

// compile writes a rule as the expressions that the kernel runs.
func compile(r desired.FirewallRule) []expr.Any {
	var out []expr.Any
	add := func(e ...expr.Any) { out = append(out, e...) }
	compare := func(op expr.CmpOp, data []byte) expr.Any {
		return &expr.Cmp{Op: op, Register: register, Data: data}
	}
	add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register}, compare(expr.CmpOpEq, []byte{nfproto(r.Family)}))
	for _, c := range []struct {
		name string
		key  expr.MetaKey
		op   expr.CmpOp
	}{
		{r.In, expr.MetaKeyIIFNAME, expr.CmpOpEq},
		{r.Out, expr.MetaKeyOIFNAME, expr.CmpOpEq},
		{r.NotOut, expr.MetaKeyOIFNAME, expr.CmpOpNeq},
	} {
		if c.name != "" {
			add(&expr.Meta{Key: c.key, Register: register}, compare(c.op, interfaceName(c.name)))
		}
	}
	for _, c := range []struct {
		name   string
		source bool
	}{{r.Dst, false}, {r.Src, true}} {
		if c.name == "" {
			continue
		}
		add(payload(r.Family, c.source))
		network, err := netip.ParsePrefix(c.name)
		if err != nil {
			add(&expr.Lookup{SourceRegister: register, SetName: c.name})
			continue
		}
		if !network.IsSingleIP() {
			add(bitwise(desired.Mask(network).AsSlice(), make([]byte, network.Addr().BitLen()/8)))
		}
		add(compare(expr.CmpOpEq, network.Addr().AsSlice()))
	}
	if r.Direction != "" {
		direction := byte(0)
		if r.Direction == desired.Reply {
			direction = 1
		}
		add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register}, compare(expr.CmpOpEq, []byte{direction}))
	}
	if r.Marked != 0 {
		add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register}, bitwise(native(r.Marked), native(0)),
			compare(expr.CmpOpNeq, native(0)))
	}
	add(&expr.Counter{})
	switch r.Verdict {
	case desired.SetMark:
		add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register}, bitwise(native(^r.Bit), native(r.Bit)),
			&expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true}, &expr.Verdict{Kind: expr.VerdictAccept})
	case desired.SNAT:
		add(&expr.Immediate{Register: register, Data: r.To.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(nfproto(r.Family)), RegAddrMin: register})
	case desired.Return:
		add(&expr.Verdict{Kind: expr.VerdictReturn})
	case desired.Reject:
		add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
	}
	return out
}

// decompile reads a rule back, and what it has counted. A rule that would not compile to the same expressions says
// something else, and is Foreign.
func decompile(exprs []expr.Any) (desired.FirewallRule, desired.Counter) {
	var r desired.FirewallRule
	var counter desired.Counter
	plain := make([]expr.Any, len(exprs))
	// last is what was loaded into the register last, and mask what was left of an address there.
	var last expr.Any
	var mask []byte
	for i, e := range exprs {
		plain[i] = e
		switch e := e.(type) {
		case *expr.Meta:
			if !e.SourceRegister {
				last = e
			}
		case *expr.Payload, *expr.Ct, *expr.Immediate:
			last, mask = e, nil
		case *expr.Bitwise:
			_, ofAddress := last.(*expr.Payload)
			switch {
			case ofAddress:
				mask = e.Mask
			case bytes.Equal(e.Xor, native(0)):
				r.Marked = fromNative(e.Mask)
			default:
				r.Verdict, r.Bit = desired.SetMark, fromNative(e.Xor)
			}
		case *expr.Cmp:
			if p, ok := last.(*expr.Payload); ok {
				*addressOf(&r, p) = writtenNetwork(e.Data, mask)
			}
			readCompare(&r, last, e)
		case *expr.Lookup:
			if p, ok := last.(*expr.Payload); ok {
				*addressOf(&r, p) = e.SetName
			}
			plain[i] = &expr.Lookup{SourceRegister: e.SourceRegister, SetName: e.SetName, Invert: e.Invert}
		case *expr.Counter:
			counter = desired.Counter{Packets: e.Packets, Bytes: e.Bytes}
			plain[i] = &expr.Counter{}
		case *expr.NAT:
			if v, ok := last.(*expr.Immediate); ok {
				r.Verdict = desired.SNAT
				r.To, _ = netip.AddrFromSlice(v.Data)
			}
			if e.RegAddrMax == e.RegAddrMin { // the kernel fills it in
				nat := *e
				nat.RegAddrMax = 0
				plain[i] = &nat
			}
		case *expr.Verdict:
			if e.Kind == expr.VerdictReturn {
				r.Verdict = desired.Return
			}
		case *expr.Reject:
			r.Verdict = desired.Reject
		}
	}
	if !reflect.DeepEqual(compile(r), plain) {
		return desired.FirewallRule{Foreign: true}, counter
	}
	return r, counter
}

// addressOf returns what the rule says of the address that is loaded.
func addressOf(r *desired.FirewallRule, p *expr.Payload) *string {
	if source := payload(r.Family, true).(*expr.Payload); p.Offset == source.Offset {
		return &r.Src
	}
	return &r.Dst
}

// writtenNetwork returns the network of an address and of a mask, or of one host without one.
func writtenNetwork(address, mask []byte) string {
	a, _ := netip.AddrFromSlice(address)
	bits := a.BitLen()
	if mask != nil {
		bits, _ = net.IPMask(mask).Size()
	}
	return netip.PrefixFrom(a, bits).String()
}

func readCompare(r *desired.FirewallRule, last expr.Any, e *expr.Cmp) {
	switch key := last.(type) {
	case *expr.Meta:
		name := text(e.Data)
		equal := e.Op == expr.CmpOpEq
		switch {
		case key.Key == expr.MetaKeyIIFNAME && equal:
			r.In = name
		case key.Key == expr.MetaKeyOIFNAME && equal:
			r.Out = name
		case key.Key == expr.MetaKeyOIFNAME:
			r.NotOut = name
		case key.Key == expr.MetaKeyNFPROTO && bytes.Equal(e.Data, []byte{unix.NFPROTO_IPV4}):
			r.Family = desired.IPv4
		case key.Key == expr.MetaKeyNFPROTO:
			r.Family = desired.IPv6
		}
	case *expr.Ct:
		r.Direction = desired.Original
		if bytes.Equal(e.Data, []byte{1}) {
			r.Direction = desired.Reply
		}
	}
}

func nfproto(f desired.Family) byte {
	if f == desired.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// payload loads the source or the destination from the header of the family.
func payload(f desired.Family, source bool) expr.Any {
	p := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
	if f == desired.IPv6 {
		p.Offset, p.Len = 24, 16
	}
	if source {
		p.Offset -= p.Len
	}
	return p
}

func bitwise(mask, xor []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: xor}
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func fromNative(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// interfaceName pads a name to what the kernel compares.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
