//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"golang.org/x/sys/unix"
)

// listen reads from all sockets for a while, or until nothing more is expected.
func (p *prober) listen(ctx context.Context, long time.Duration, enough func() bool) {
	deadline := time.Now().Add(long)
	buffer := make([]byte, 1<<16)
	for ctx.Err() == nil {
		left := time.Until(deadline)
		if left <= 0 || enough != nil && enough() {
			break
		}
		fds := []unix.PollFd{{Fd: int32(p.watch), Events: unix.POLLIN}}
		for _, s := range p.sockets {
			fds = append(fds, unix.PollFd{Fd: int32(s), Events: unix.POLLIN})
		}
		if _, err := unix.Poll(fds, int(min(left, 50*time.Millisecond).Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		p.drain(buffer)
	}
	p.drain(buffer)
}

func (p *prober) drain(buffer []byte) {
	for {
		n, from, err := unix.Recvfrom(p.watch, buffer, 0)
		if err != nil {
			break
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			p.saw(ll, buffer[:n])
		}
	}
	for family, s := range p.sockets {
		for {
			n, from, err := unix.Recvfrom(s, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				if errors.Is(err, unix.EBADF) {
					return
				}
				continue // a refusal, which comes as a message, too
			}
			p.got(family, from, buffer[:n])
		}
	}
}

// ours finds the flow of a packet that carries the cookie, and where in the packet that is.
func (p *prober) ours(b []byte) (n int, large bool, at int) {
	at = strings.Index(string(b), string(p.cookie[:]))
	if at < 0 || at+len(p.cookie)+2 >= len(b) {
		return 0, false, -1
	}
	n = int(b[at+len(p.cookie)])<<8 | int(b[at+len(p.cookie)+1])
	if n >= len(p.out.Flows) {
		return 0, false, -1
	}
	return n, b[at+len(p.cookie)+2] == 1, at
}

// saw notes a packet at an interface of the node.
func (p *prober) saw(ll *unix.SockaddrLinklayer, b []byte) {
	n, large, at := p.ours(b)
	if at < 0 || large || p.names[ll.Ifindex] == "" {
		return
	}
	src, dst, header, ok := ends(b)
	if !ok {
		return
	}
	kind := b[at-8] // the echo's own header is in front of the cookie
	request, reply := kind == 8 || kind == 128, kind == 0 || kind == 129
	if !request && !reply {
		return
	}
	tunneled := at != header+8
	if p.quoted(b, header) {
		return
	}
	f := &p.out.Flows[n]
	outgoing := ll.Pkttype == unix.PACKET_OUTGOING
	seen := Seen{Dev: p.names[ll.Ifindex], Src: src, Dst: dst, Tunneled: tunneled}
	switch {
	case request && !outgoing && ll.Ifindex == p.bridge.Index:
		f.In++
	case p.skip[ll.Ifindex]:
	case request && outgoing:
		f.Out = count(f.Out, seen)
	case reply && !outgoing:
		f.Back = count(f.Back, seen)
	}
}

// quoted says whether the packet is an ICMP error, which quotes one of ours.
func (p *prober) quoted(b []byte, header int) bool {
	if len(b) <= header {
		return true
	}
	protocol := b[9]
	if b[0]>>4 == 6 {
		protocol = b[6]
	}
	kind := b[header]
	return protocol == unix.IPPROTO_ICMP && kind != 0 && kind != 8 || protocol == unix.IPPROTO_ICMPV6 && kind != 128 && kind != 129
}

func count(list []Seen, s Seen) []Seen {
	for i := range list {
		have := list[i]
		have.Count = 0
		if have == s {
			list[i].Count++
			return list
		}
	}
	s.Count = 1
	return append(list, s)
}

// ends reads an IP header.
func ends(b []byte) (src, dst netip.Addr, header int, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
		return src, dst, int(b[0]&0xf) * 4, true
	case len(b) >= 40 && b[0]>>4 == 6:
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		return src, dst, 40, true
	}
	return netip.Addr{}, netip.Addr{}, 0, false
}

// got notes a message that reached the sender.
func (p *prober) got(family desired.Family, from unix.Sockaddr, b []byte) {
	n, large, at := p.ours(b)
	if at < 0 {
		// A router may quote no more than the header and eight bytes, which hold the identifier.
		if n = p.quotedFlow(family, b); n < 0 {
			return
		}
	}
	header := 0
	if family == desired.IPv4 {
		header = int(b[0]&0xf) * 4
	}
	if len(b) < header+8 {
		return
	}
	f, icmp := &p.out.Flows[n], b[header:]
	sender := senderOf(from)
	switch {
	case family == desired.IPv4 && icmp[0] == 0, family == desired.IPv6 && icmp[0] == 129:
		if large {
			f.Large = "answered"
		} else {
			f.Got++
		}
	case family == desired.IPv4 && icmp[0] == 3 && icmp[1] == 4:
		f.Large, f.Limit = "too big", int(icmp[6])<<8|int(icmp[7])
	case family == desired.IPv6 && icmp[0] == 2:
		f.Large, f.Limit = "too big", int(icmp[6])<<8|int(icmp[7])
	case family == desired.IPv4 && icmp[0] == 3:
		f.Refused = fmt.Sprintf("destination unreachable, code %d%s, from %s", icmp[1], codeName(icmp[1]), sender)
	case family == desired.IPv6 && icmp[0] == 1:
		f.Refused = fmt.Sprintf("destination unreachable, code %d, from %s", icmp[1], sender)
	}
}

func (p *prober) quotedFlow(family desired.Family, b []byte) int {
	at := 0
	if family == desired.IPv4 && len(b) > 0 {
		at = int(b[0]&0xf) * 4
	}
	at += 8
	if len(b) < at {
		return -1
	}
	_, dst, header, ok := ends(b[at:])
	if !ok || len(b) < at+header+6 {
		return -1
	}
	id := uint16(b[at+header+4])<<8 | uint16(b[at+header+5])
	return slices.IndexFunc(p.out.Flows, func(f ProbeFlow) bool {
		i := slices.IndexFunc(p.out.Flows, func(g ProbeFlow) bool { return g.To == f.To })
		return f.To == dst && p.id(i) == id
	})
}

func senderOf(from unix.Sockaddr) netip.Addr {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	}
	return netip.Addr{}
}

func codeName(code byte) string {
	switch code {
	case 0:
		return " (network)"
	case 1:
		return " (host)"
	case 3:
		return " (port)"
	case 9, 10, 13:
		return " (prohibited by a filter)"
	}
	return ""
}
