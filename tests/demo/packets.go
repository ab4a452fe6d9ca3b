//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// echoPort is the UDP port on which a packet is answered.
const echoPort = 7

// patience is how long an answer is waited for, and nudge how often the packet is sent meanwhile: a device that has just
// come up may lose the first one.
const (
	patience = 3 * time.Second
	nudge    = 200 * time.Millisecond
)

// packet is one UDP packet as it was seen where it arrived, and its answer where that arrived.
type packet struct {
	To       netip.Addr `json:"to"`
	Source   netip.Addr `json:"source,omitzero"` // as the receiver saw it
	Via      string     `json:"via,omitempty"`   // the receiver's device
	Answered bool       `json:"answered"`
	Back     string     `json:"back,omitempty"` // the sender's device, of the answer
}

// inNamespace runs f on a thread that is in a network namespace. A socket made there stays there.
func inNamespace(ns string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			handle, err := os.Open("/run/netns/" + ns)
			if err != nil {
				return err
			}
			defer handle.Close()
			if err := unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network namespace %q: %w", ns, err)
			}
			return f()
		}()
	}()
	return <-done
}

// socket is a UDP socket in a network namespace that tells by which device a packet came.
type socket struct {
	*ipv4.PacketConn
	devices map[int]string
}

func listen(ns string, at netip.AddrPort) (*socket, error) {
	s := &socket{devices: map[int]string{}}
	err := inNamespace(ns, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, l := range links {
			s.devices[l.Index] = l.Name
		}
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		s.PacketConn = ipv4.NewPacketConn(conn)
		return s.SetControlMessage(ipv4.FlagInterface, true)
	})
	if err != nil {
		return nil, fmt.Errorf("listen in namespace %q: %w", ns, err)
	}
	return s, nil
}

// receive waits for a packet.
func (s *socket) receive(until time.Time) (from netip.AddrPort, dev string, err error) {
	if err := s.SetReadDeadline(until); err != nil {
		return netip.AddrPort{}, "", err
	}
	_, cm, addr, err := s.ReadFrom(make([]byte, 64))
	if err != nil {
		return netip.AddrPort{}, "", err
	}
	udp, ok := addr.(*net.UDPAddr)
	if !ok || cm == nil {
		return netip.AddrPort{}, "", fmt.Errorf("a packet from %v without its device", addr)
	}
	return udp.AddrPort(), s.devices[cm.IfIndex], nil
}

func (s *socket) send(to netip.AddrPort) error {
	_, err := s.WriteTo([]byte("tailmesh"), nil, net.UDPAddrFromAddrPort(to))
	return err
}

// exchange sends a packet from an address in one namespace to an address in another, where it is answered. The sender's
// port should be a new one: connection tracking keeps for a flow what was decided at its first packet.
func exchange(ctx context.Context, from string, source netip.AddrPort, to string, target netip.Addr) (packet, error) {
	p := packet{To: target}
	there, err := listen(to, netip.AddrPortFrom(target, echoPort))
	if err != nil {
		return p, err
	}
	defer there.Close()
	here, err := listen(from, source)
	if err != nil {
		return p, err
	}
	defer here.Close()

	end := time.Now().Add(patience)
	for !p.Answered && time.Now().Before(end) && ctx.Err() == nil {
		// An error is one of those that the last packet came back with.
		_ = here.send(netip.AddrPortFrom(target, echoPort))
		until := time.Now().Add(nudge)
		sender, dev, err := there.receive(until)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return p, err
		}
		p.Source, p.Via = sender.Addr(), dev
		_ = there.send(sender)
		if _, dev, err = here.receive(until); err == nil {
			p.Answered, p.Back = true, dev
		}
	}
	return p, ctx.Err()
}
