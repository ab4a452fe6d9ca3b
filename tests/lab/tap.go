//go:build linux

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
	all   []*tap
	flows map[flowKey][]sighting
}

// tap listens in one namespace.
type tap struct {
	ns   string
	file *os.File
	conn syscall.RawConn
	mu   sync.Mutex // held from taking a packet out of the queue until it is dealt with
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
	for _, tap := range t.all {
		tap.file.Close()
	}
	t.all = nil
}

// catchUp waits until the taps have dealt with what had been sent before. The kernel hands packets to them as it sends
// or receives them, so what was answered is in their queues already. On a busy machine that takes some time.
func (t *taps) catchUp() {
	t.mu.Lock()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	for _, tap := range all {
		for end := time.Now().Add(2 * time.Second); !tap.idle() && time.Now().Before(end); {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// idle reports whether the tap's queue is empty.
func (t *tap) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	queued := 0
	if err := t.conn.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
		return true // closed
	}
	return queued == 0
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
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	one := &tap{ns: ns, file: file, conn: conn}
	t.mu.Lock()
	t.all = append(t.all, one)
	t.mu.Unlock()
	go t.listen(one)
	return nil
}

func (t *taps) listen(one *tap) {
	devices := map[int]string{}
	buf := make([]byte, 256)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		if err := one.conn.Read(func(fd uintptr) bool {
			one.mu.Lock()
			n, from, failed = unix.Recvfrom(int(fd), buf, 0)
			if errors.Is(failed, unix.EAGAIN) {
				one.mu.Unlock()
				return false
			}
			return true
		}); err != nil {
			return // closed
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && failed == nil { // it fails when a device goes down
			t.take(one.ns, devices, link, buf[:n])
		}
		one.mu.Unlock()
	}
}

// take keeps a packet if it is of a flow that is being watched. devices are the names of the namespace's devices so far.
func (t *taps) take(ns string, devices map[int]string, link *unix.SockaddrLinklayer, packet []byte) {
	h, ok := parse(packet)
	if !ok {
		return
	}
	t.mu.Lock()
	_, watched := t.flows[h.key]
	t.mu.Unlock()
	if !watched {
		return
	}
	device, known := devices[link.Ifindex]
	if !known {
		device = deviceName(ns, link.Ifindex)
		devices[link.Ifindex] = device
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if list, ok := t.flows[h.key]; ok {
		t.flows[h.key] = append(list, sighting{
			ns: ns, device: device, out: link.Pkttype == unix.PACKET_OUTGOING, reply: h.reply, carried: h.inner,
			src: h.src, dst: h.dst,
		})
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
