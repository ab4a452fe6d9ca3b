//go:build linux

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Protocols of a flow.
const (
	TCP  = "tcp"
	UDP  = "udp"
	Ping = "ping"
)

// Flow is a connection to try: a request and its answer.
type Flow struct {
	From  *Machine
	Src   netip.Addr // source to send from; invalid: the kernel chooses
	To    *Machine   // who answers
	Dst   netip.Addr // destination to send to
	At    netip.Addr // where To listens, if not on Dst
	Proto string
	Size  int // of the data (TCP) or of the whole packet, which then must not be fragmented (UDP, Ping); 0: small
}

// Seen is what became of a flow: which way its packets went, under which source.
type Seen struct {
	OK      bool
	Device  string     // by which From's node sent the request on; "" where it did not
	Source  netip.Addr // of the request on that device
	Carrier string     // by which From's node sent the tunnel's packet with the request on; "" where it did not
	Arrived netip.Addr // source of the request as To got it; invalid where it did not
	Back    string     // device by which To's node sent the answer on; "" where it did not
	Err     error      // why it is not OK
}

// Ports of flows: each has its own, which nothing else in the lab uses.
const (
	firstFlowPort = 20000
	lastFlowPort  = 31999
)

func isFlowPort(p uint16) bool { return p >= firstFlowPort && p <= lastFlowPort }

// Send tries a flow once.
func (l *Lab) Send(ctx context.Context, f Flow, limit time.Duration) Seen {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	number := int(l.flows.Add(1))
	var key flowKey
	var err error
	switch f.Proto {
	case Ping:
		key = flowKey{proto: unix.IPPROTO_ICMP, id: 0x7461696c<<32 | uint64(number)}
		l.taps.watch(key)
		err = f.ping(ctx, key.id)
	case TCP:
		key = flowKey{proto: unix.IPPROTO_TCP, id: uint64(firstFlowPort + number%(lastFlowPort-firstFlowPort+1))}
		l.taps.watch(key)
		err = f.tcp(ctx, uint16(key.id))
	case UDP:
		key = flowKey{proto: unix.IPPROTO_UDP, id: uint64(firstFlowPort + number%(lastFlowPort-firstFlowPort+1))}
		l.taps.watch(key)
		err = f.udp(ctx, uint16(key.id))
	default:
		err = fmt.Errorf("unknown protocol %q", f.Proto)
	}
	l.taps.catchUp()
	defer l.taps.forget(key)
	return f.seen(l.taps.seen(key), err)
}

func (f Flow) seen(list []sighting, err error) Seen {
	s := Seen{OK: err == nil, Err: err}
	left := func(reply, carried bool, node *Node) sighting {
		i := slices.IndexFunc(list, func(p sighting) bool {
			return p.ns == node.Name && p.out && p.reply == reply && p.carried == carried && !towardsPods(p.device)
		})
		if i < 0 {
			return sighting{}
		}
		return list[i]
	}
	request := left(false, false, f.From.Node)
	s.Carrier = left(false, true, f.From.Node).device
	s.Device, s.Source = request.device, request.src
	s.Back = left(true, false, f.To.Node).device
	for _, p := range list {
		// A node delivers to itself from any device, also from the one by which a pod's packet comes to it.
		if p.ns == f.To.Name && !p.out && !p.reply && !p.carried && p.dst == f.listener() {
			s.Arrived = p.src
			break
		}
	}
	return s
}

func towardsPods(device string) bool {
	return device == PodBridge || strings.HasPrefix(device, "veth-")
}

func (f Flow) listener() netip.Addr {
	if f.At.IsValid() {
		return f.At
	}
	return f.Dst
}

// tcp sends Size bytes, or a few, and wants them back.
func (f Flow) tcp(ctx context.Context, port uint16) error {
	listener, err := within(f.To.Name, func() (net.Listener, error) {
		return net.Listen("tcp", netip.AddrPortFrom(f.listener(), port).String())
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	size := max(f.Size, 16)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		data := make([]byte, size)
		if _, err := io.ReadFull(conn, data); err == nil {
			_, _ = conn.Write(data) // the other side notices
		}
	}()
	dialer := net.Dialer{}
	if f.Src.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.Src, 0))
	}
	conn, err := within(f.From.Name, func() (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(f.Dst, port).String())
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := setDeadline(ctx, conn); err != nil {
		return err
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if _, err := conn.Write(data); err != nil {
		return err
	}
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !slices.Equal(data, got) {
		return errors.New("the answer is not what was sent")
	}
	return nil
}

// udp sends one datagram again and again until an answer comes.
func (f Flow) udp(ctx context.Context, port uint16) error {
	control := f.dontFragment()
	server, err := within(f.To.Name, func() (net.PacketConn, error) {
		lc := net.ListenConfig{Control: control}
		return lc.ListenPacket(ctx, "udp", netip.AddrPortFrom(f.listener(), port).String())
	})
	if err != nil {
		return err
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], from) // the other side notices
		}
	}()
	dialer := net.Dialer{Control: control}
	if f.Src.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.Src, 0))
	}
	conn, err := within(f.From.Name, func() (net.Conn, error) {
		return dialer.DialContext(ctx, "udp", netip.AddrPortFrom(f.Dst, port).String())
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	data := make([]byte, max(f.payload(8), 16))
	return f.exchange(ctx, conn, func(int) []byte { return data }, func(got []byte) bool { return len(got) == len(data) })
}

// ping sends echo requests until one is answered.
func (f Flow) ping(ctx context.Context, token uint64) error {
	family := familyOf(f.Dst)
	network := "ip4:icmp"
	if family == 6 {
		network = "ip6:ipv6-icmp"
	}
	dialer := net.Dialer{Control: f.dontFragment()}
	if f.Src.IsValid() {
		dialer.LocalAddr = &net.IPAddr{IP: f.Src.AsSlice()}
	}
	conn, err := within(f.From.Name, func() (net.Conn, error) { return dialer.DialContext(ctx, network, f.Dst.String()) })
	if err != nil {
		return err
	}
	defer conn.Close()
	// ReadFrom leaves out the header of IPv4, which Read returns.
	pc := conn.(*net.IPConn)
	return f.exchange(ctx, ipConn{pc}, func(n int) []byte { return echo(family, token, uint16(n), f.payload(0)) }, func(got []byte) bool {
		return len(got) >= echoHeader+tokenSize && (got[0] == echoReply4 && family == 4 || got[0] == echoReply6 && family == 6) &&
			binary.BigEndian.Uint64(got[echoHeader:]) == token
	})
}

type ipConn struct{ *net.IPConn }

func (c ipConn) Read(b []byte) (int, error) {
	n, _, err := c.ReadFrom(b)
	return n, err
}

// exchange sends what request returns five times a second until answer takes what comes back.
func (f Flow) exchange(ctx context.Context, conn net.Conn, request func(n int) []byte, answer func([]byte) bool) error {
	buf := make([]byte, 65536)
	for n := 1; ; n++ {
		_, sent := conn.Write(request(n)) // ICMP errors of earlier packets come up here: the next may pass
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		for {
			n, err := conn.Read(buf)
			if err == nil && answer(buf[:n]) {
				return nil
			}
			if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
				break
			}
			if err != nil {
				sent = err
				time.Sleep(50 * time.Millisecond)
				break
			}
		}
		if ctx.Err() != nil {
			return errors.Join(errors.New("no answer"), sent)
		}
	}
}

// payload returns how many bytes follow the IP header and another one in a packet of Size.
func (f Flow) payload(header int) int {
	if familyOf(f.Dst) == 4 {
		return f.Size - 20 - header
	}
	return f.Size - 40 - header
}

// dontFragment makes a socket send packets of a given size as they are, whatever was learned about the path before: a
// changed path may have another MTU.
func (f Flow) dontFragment() func(network, address string, conn syscall.RawConn) error {
	return func(_, _ string, conn syscall.RawConn) error {
		if f.Size == 0 {
			return nil
		}
		var err error
		failed := conn.Control(func(fd uintptr) {
			if familyOf(f.Dst) == 4 {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			}
		})
		return errors.Join(failed, err)
	}
}

func setDeadline(ctx context.Context, conn net.Conn) error {
	end, _ := ctx.Deadline()
	return conn.SetDeadline(end)
}
