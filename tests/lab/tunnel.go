//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tunnel is what `ip tunnel add DEV mode ipip local LOCAL remote REMOTE` makes (ip6ip6 for IPv6), in user space, because
// not every kernel has that module. It hands each packet that is routed into it to the peer as payload of an IP packet
// of its protocol, and lets the kernel route that one by its own destination.
type tunnel struct{ tun, raw *os.File }

// openTunnel makes a tunnel device in the calling thread's namespace.
func openTunnel(dev string, local, remote netip.Addr) (*tunnel, error) {
	tun, err := openTUN(dev)
	if err != nil {
		return nil, err
	}
	domain, protocol := unix.AF_INET, unix.IPPROTO_IPIP
	if local.Is6() {
		domain, protocol = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		tun.Close()
		return nil, err
	}
	raw := os.NewFile(uintptr(fd), "ip-in-ip")
	if err := errors.Join(unix.Bind(fd, sockaddr(local)), unix.Connect(fd, sockaddr(remote))); err != nil {
		tun.Close()
		raw.Close()
		return nil, fmt.Errorf("from %v to %v: %w", local, remote, err)
	}
	t := &tunnel{tun: tun, raw: raw}
	// Errors of writing, such as "message too long" or "unreachable", are loss of that packet.
	go pump(tun, func(packet []byte) { _, _ = raw.Write(packet) })
	go pump(raw, func(packet []byte) {
		if local.Is4() { // a raw socket of IPv4 delivers the header too
			if n := int(packet[0]&0xf) * 4; len(packet) > n {
				_, _ = tun.Write(packet[n:])
			}
			return
		}
		_, _ = tun.Write(packet)
	})
	return t, nil
}

func (t *tunnel) close() {
	t.tun.Close()
	t.raw.Close()
}

// pump hands over each packet until the file is closed. A connected raw socket also returns queued ICMP errors.
func pump(from *os.File, to func([]byte)) {
	buf := make([]byte, 65536)
	for {
		n, err := from.Read(buf)
		if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADFD) {
			return
		}
		if n >= 20 {
			to(buf[:n])
		}
	}
}

func openTUN(dev string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	req.flags = unix.IFF_TUN | unix.IFF_NO_PI
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); e != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", dev, e)
	}
	return os.NewFile(uintptr(fd), dev), nil
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}
