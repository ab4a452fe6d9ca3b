package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// questionsAtOnce is how many questions go out before their answers are read. The answers wait in the socket's buffer,
// whose usual size holds half as many again.
const questionsAtOnce = 32

// answerTimeout is how long the kernel may take for one answer. It answers before the question's system call returns.
const answerTimeout = 10 // seconds

// Ways implements [Interface] by RTM_GETROUTE for packets that come in, which sees rules, tables, forwarding and
// reverse path filtering, but neither the firewall nor the peer. Many questions share one socket and few system calls:
// a node may have a thousand peers.
func (Linux) Ways(_ context.Context, packets []desired.Packet) ([]desired.Answer, error) {
	answers := make([]desired.Answer, len(packets))
	if len(packets) == 0 {
		return answers, nil
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil {
		defer unix.Close(socket)
		err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout})
	}
	if err != nil {
		return nil, fmt.Errorf("ask for routes: %w", os.NewSyscallError("socket", err))
	}
	a := asker{socket: socket, buffer: make([]byte, 1<<16), index: map[string]int{}, name: map[int]string{}, forwards: map[string]bool{}}
	for first := 0; first < len(packets); first += questionsAtOnce {
		last := min(first+questionsAtOnce, len(packets))
		if err := a.ask(packets[first:last], answers[first:last]); err != nil {
			return nil, fmt.Errorf("ask for routes: %w", err)
		}
	}
	return answers, nil
}

// asker asks several questions on one socket. What it learns of interfaces it remembers for as long.
type asker struct {
	socket int
	buffer []byte
	index  map[string]int
	name   map[int]string

	forwards map[string]bool // IPv6, by the interface that a packet comes in by
}

func (a *asker) ask(packets []desired.Packet, answers []desired.Answer) error {
	// A question's place is its sequence number, which begins at 1.
	var questions []byte
	waiting := 0
	for i, p := range packets {
		iif, err := a.indexOf(p.Iif)
		if err != nil {
			return err
		}
		if iif == 0 && p.Iif != "" {
			answers[i] = desired.Answer{Reason: p.Iif + " does not exist any more"}
			continue
		}
		questions = appendQuestion(questions, p, uint32(iif), uint32(i+1))
		waiting++
	}
	if waiting == 0 {
		return nil
	}
	if err := unix.Sendto(a.socket, questions, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for waiting > 0 {
		n, _, err := unix.Recvfrom(a.socket, a.buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(a.buffer[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			i := int(m.Header.Seq) - 1
			if i < 0 || i >= len(packets) {
				continue
			}
			waiting--
			if answers[i], err = a.answer(m); err != nil {
				return fmt.Errorf("to %s: %w", packets[i].Dst, err)
			}
			if p := packets[i]; p.Iif != "" && p.Dst.Is6() && answers[i].Reason == "" && answers[i].Table != unix.RT_TABLE_LOCAL &&
				!a.forwardsIPv6(p.Iif) {
				answers[i] = desired.Answer{Reason: "IPv6 forwarding is off: set net.ipv6.conf.all.forwarding=1"}
			}
		}
	}
	return nil
}

// appendQuestion appends the message that asks `ip route get DST from SRC iif IIF mark MARK`: struct nlmsghdr, struct
// rtmsg, attributes. It is written by hand, for there may be thousands.
func appendQuestion(b []byte, p desired.Packet, iif, sequence uint32) []byte {
	native := binary.NativeEndian
	begin := len(b)
	attribute := func(kind uint16, value []byte) {
		b = native.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
		b = native.AppendUint16(b, kind)
		b = append(b, value...) // all of them are multiples of four bytes long
	}
	b = append(b, make([]byte, unix.SizeofNlMsghdr)...)
	sourceBits := 0
	if p.Src.IsValid() {
		sourceBits = p.Src.BitLen()
	}
	b = append(b, familyNumber(desired.FamilyOf(p.Dst)), uint8(p.Dst.BitLen()), uint8(sourceBits), 0, 0, 0, 0, 0)
	b = native.AppendUint32(b, unix.RTM_F_LOOKUP_TABLE)
	attribute(unix.RTA_DST, p.Dst.AsSlice())
	if p.Src.IsValid() {
		attribute(unix.RTA_SRC, p.Src.AsSlice())
	}
	if iif != 0 {
		attribute(unix.RTA_IIF, native.AppendUint32(nil, iif))
	}
	if p.Mark != 0 {
		attribute(unix.RTA_MARK, native.AppendUint32(nil, p.Mark))
	}
	header := b[begin:]
	native.PutUint32(header, uint32(len(header)))
	native.PutUint16(header[4:], unix.RTM_GETROUTE)
	native.PutUint16(header[6:], unix.NLM_F_REQUEST)
	native.PutUint32(header[8:], sequence)
	return b
}

func (a *asker) answer(m syscall.NetlinkMessage) (desired.Answer, error) {
	if m.Header.Type == unix.NLMSG_ERROR {
		if len(m.Data) < 4 {
			return desired.Answer{}, errors.New("cut answer")
		}
		return refusal(syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data))))
	}
	if len(m.Data) < unix.SizeofRtMsg {
		return desired.Answer{}, errors.New("cut answer")
	}
	header := nl.DeserializeRtMsg(m.Data)
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return desired.Answer{}, err
	}
	out := desired.Answer{Table: uint32(header.Table)}
	oif := 0
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.RTA_TABLE:
			out.Table = number(attr.Value)
		case unix.RTA_OIF:
			oif = int(number(attr.Value))
		}
	}
	if slices.Contains([]uint8{unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT}, header.Type) {
		return desired.Answer{Reason: fmt.Sprintf("refused by a route of table %d", out.Table)}, nil
	}
	if out.Dev, err = a.nameOf(oif); err == nil && out.Dev == "" {
		return desired.Answer{Reason: fmt.Sprintf("interface %d, by which it left, does not exist any more", oif)}, nil
	}
	return out, err
}

// refusal puts the kernel's refusal to route a packet into words. Another error is one of the question's.
func refusal(errno syscall.Errno) (desired.Answer, error) {
	switch errno {
	case unix.EINVAL, unix.EXDEV:
		return desired.Answer{Reason: "refused by reverse path filtering or a blackhole route", Filtered: true}, nil
	case unix.EHOSTUNREACH:
		return desired.Answer{Reason: "no route to host: is forwarding off on the interface that it comes in by?"}, nil
	case unix.ENETUNREACH:
		return desired.Answer{Reason: "network is unreachable"}, nil
	case unix.EACCES:
		return desired.Answer{Reason: "prohibited by a rule or a route"}, nil
	case unix.ENODEV:
		return desired.Answer{Reason: "the interface that it comes in by does not exist any more"}, nil
	}
	return desired.Answer{}, errno
}

// forwardsIPv6 says whether IPv6 packets that come in by an interface are forwarded, by the settings that ip6_forward in
// net/ipv6/ip6_output.c looks at: unlike that of IPv4, the kernel's answer for a route leaves them out.
func (a *asker) forwardsIPv6(iif string) bool {
	forwards, known := a.forwards[iif]
	if !known {
		read := func(key string) string { // "" where it cannot be read, or the kernel has none such
			text, _ := os.ReadFile("/proc/sys/net/ipv6/conf/" + key)
			return strings.TrimSpace(string(text))
		}
		forwards = read("all/forwarding") != "0" || read(iif+"/force_forwarding") == "1"
		a.forwards[iif] = forwards
	}
	return forwards
}

// indexOf returns the number of an interface, or 0 where there is none of the name.
func (a *asker) indexOf(name string) (int, error) {
	index, known := a.index[name]
	if known || name == "" {
		return index, nil
	}
	link, err := netlink.LinkByName(name)
	if err != nil && !gone(err) {
		return 0, fmt.Errorf("interface %q: %w", name, err)
	}
	if err == nil {
		index = link.Attrs().Index
	}
	a.index[name] = index
	return index, nil
}

// nameOf returns the name of an interface, or "" where there is none of the number.
func (a *asker) nameOf(index int) (string, error) {
	name, known := a.name[index]
	if known {
		return name, nil
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil && !gone(err) {
		return "", fmt.Errorf("interface %d: %w", index, err)
	}
	if err == nil {
		name = link.Attrs().Name
	}
	a.name[index] = name
	return name, nil
}

func gone(err error) bool {
	_, notFound := errors.AsType[netlink.LinkNotFoundError](err)
	return notFound || errors.Is(err, unix.ENODEV)
}
