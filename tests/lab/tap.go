//go:build linux

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// sighting is a packet of a flow where it was seen.
type sighting struct {
	ns, device string
	out        bool // on its way out of the device
	reply      bool
	carried    bool // as payload of a tunnel's packet
	src, dst   netip.Addr
}

// taps listen on every device of every namespace and keep what belongs to a flow that is being watched. Outgoing packets
// are seen as they are handed to the device: after all translation.
type taps struct {
	mu    sync.Mutex
	files []*os.File
	flows map[flowKey][]sighting
}

func newTaps() *taps { return &taps{flows: map[flowKey][]sighting{}} }

// watch begins to keep a flow's packets.
func (t *taps) watch(key flowKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flows[key] = []sighting{}
}

// seen returns a flow's packets so far, in order.
func (t *taps) seen(key flowKey) []sighting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]sighting(nil), t.flows[key]...)
}

func (t *taps) forget(key flowKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.flows, key)
}

func (t *taps) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.files {
		f.Close()
	}
	t.files = nil
}

// add listens in one more namespace.
func (t *taps) add(ns string) error {
	file, err := within(ns, func() (*os.File, error) {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		// Bound last, so that nothing is queued before there is room for it.
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all}),
		)
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
		return os.NewFile(uintptr(fd), "tap of "+ns), nil
	})
	if err != nil {
		return fmt.Errorf("tap in %s: %w", ns, err)
	}
	t.mu.Lock()
	t.files = append(t.files, file)
	t.mu.Unlock()
	go t.listen(ns, file)
	return nil
}

func (t *taps) listen(ns string, file *os.File) {
	conn, err := file.SyscallConn()
	if err != nil {
		return // closed
	}
	devices := map[int]string{}
	buf := make([]byte, 256)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if failed != nil || !ok {
			continue // a device went down
		}
		h, ok := parse(buf[:n])
		if !ok {
			continue
		}
		t.mu.Lock()
		_, watched := t.flows[h.key]
		t.mu.Unlock()
		if !watched {
			continue
		}
		device, known := devices[link.Ifindex]
		if !known {
			device = deviceName(ns, link.Ifindex)
			devices[link.Ifindex] = device
		}
		t.mu.Lock()
		if list, ok := t.flows[h.key]; ok {
			t.flows[h.key] = append(list, sighting{
				ns: ns, device: device, out: link.Pkttype == unix.PACKET_OUTGOING, reply: h.reply, carried: h.inner,
				src: h.src, dst: h.dst,
			})
		}
		t.mu.Unlock()
	}
}

// deviceName names a device, and a tunnel of the overlay just "tunnel".
func deviceName(ns string, index int) string {
	name, err := within(ns, func() (string, error) {
		device, err := net.InterfaceByIndex(index)
		if err != nil {
			return "", err
		}
		return device.Name, nil
	})
	switch {
	case err != nil:
		return fmt.Sprintf("device %d", index)
	case strings.HasPrefix(name, tunnelPrefix):
		return "tunnel"
	}
	return name
}
