// Package oracle holds the policy engine against the packet filter that Tailscale's nodes run
// (tailscale.com/wgengine/filter): for a policy, an inventory and a packet, what the engine says of the flow must be what
// the receiving node's filter does with the packet, given the rules that the engine compiled for it. What is compiled
// from which policy is not proved here: recordings of the control plane do that.
package oracle

import (
	"encoding/binary"
	"net/netip"
)

// Packet is the first packet of a flow.
type Packet struct {
	Src, Dst netip.Addr
	Proto    int
	Port     uint16 // 0 for protocols without
}

// Protocols that a packet of the tests may have.
const (
	icmp4 = 1
	tcp   = 6
	udp   = 17
	icmp6 = 58
	sctp  = 132
)

// HasPorts reports whether the protocol has ports.
func HasPorts(proto int) bool { return proto == tcp || proto == udp || proto == sctp }

// Encode returns the packet as it comes out of the tunnel: a TCP SYN, an ICMP echo request, or some bytes.
func (p Packet) Encode() []byte {
	const body = 40
	var b []byte
	if p.Dst.Is4() {
		b = make([]byte, 20+body)
		b[0] = 0x45
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		b[8], b[9] = 64, byte(p.Proto)
		copy(b[12:], p.Src.AsSlice())
		copy(b[16:], p.Dst.AsSlice())
	} else {
		b = make([]byte, 40+body)
		b[0] = 0x60
		binary.BigEndian.PutUint16(b[4:], body)
		b[6], b[7] = byte(p.Proto), 64
		copy(b[8:], p.Src.AsSlice())
		copy(b[24:], p.Dst.AsSlice())
	}
	data := b[len(b)-body:]
	switch p.Proto {
	case tcp:
		data[12], data[13] = 5<<4, 0x02 // header of 20 bytes, SYN
	case icmp4:
		data[0] = 8
	case icmp6:
		data[0] = 128
	}
	if HasPorts(p.Proto) {
		binary.BigEndian.PutUint16(data, 40000)
		binary.BigEndian.PutUint16(data[2:], p.Port)
	}
	return b
}
