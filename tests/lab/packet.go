//go:build linux

package lab

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// flowKey tells the packets of one flow from all others, wherever they are seen and whatever was translated on the way:
// the port that is answered on, or a token in the payload of a ping.
type flowKey struct {
	proto uint8 // ICMPv6 counts as ICMP
	id    uint64
}

// header is what a tap reads of a packet.
type header struct {
	src, dst netip.Addr
	inner    bool // it is the payload of a tunnel's packet
	reply    bool
	key      flowKey
}

// parse reads an IP packet, or the one inside it where it is a tunnel's. ok is false for what belongs to no flow: other
// protocols, fragments after the first, ICMP errors.
func parse(b []byte) (h header, ok bool) {
	for {
		proto, n, ok := parseIP(b, &h)
		if !ok {
			return h, false
		}
		b = b[n:]
		switch proto {
		case unix.IPPROTO_IPIP, unix.IPPROTO_IPV6:
			if h.inner {
				return h, false
			}
			h.inner = true
			continue
		case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
			if len(b) < 8 {
				return h, false
			}
			from, to := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
			h.reply = isFlowPort(from)
			h.key = flowKey{proto: proto, id: uint64(to)}
			if h.reply {
				h.key.id = uint64(from)
			}
			return h, h.reply || isFlowPort(to)
		case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
			if len(b) < echoHeader+tokenSize {
				return h, false
			}
			kind := b[0]
			h.reply = kind == echoReply4 || kind == echoReply6
			h.key = flowKey{proto: unix.IPPROTO_ICMP, id: binary.BigEndian.Uint64(b[echoHeader:])}
			return h, h.reply || kind == echoRequest4 || kind == echoRequest6
		}
		return h, false
	}
}

func parseIP(b []byte, h *header) (proto uint8, size int, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return 0, 0, false
		}
		h.src, h.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		size = int(b[0]&0xf) * 4
		return b[9], size, len(b) >= size
	case len(b) >= 40 && b[0]>>4 == 6:
		h.src, h.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		return b[6], 40, true
	}
	return 0, 0, false
}

// ICMP echo messages.
const (
	echoRequest4 = 8
	echoReply4   = 0
	echoRequest6 = 128
	echoReply6   = 129
	echoHeader   = 8
	tokenSize    = 8
)

// echo makes an echo request of size bytes with a token in front of its payload.
func echo(f Family, token uint64, sequence uint16, size int) []byte {
	b := make([]byte, max(size, echoHeader+tokenSize))
	b[0] = echoRequest4
	if f == 6 {
		b[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(b[4:], uint16(token))
	binary.BigEndian.PutUint16(b[6:], sequence)
	binary.BigEndian.PutUint64(b[echoHeader:], token)
	if f == 4 { // the kernel fills in ICMPv6's
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
