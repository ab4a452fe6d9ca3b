//go:build linux

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// probeDevice is the name of the probe's end at the pods' bridge, while the probe runs.
const probeDevice = "tmprobe0"

const (
	probeRequests = 2                       // per address, of one connection
	probeEvery    = 150 * time.Millisecond  // between them
	probeWait     = 900 * time.Millisecond  // for answers, after the last
	probeEntry    = 2500 * time.Millisecond // for them to come in by the pods' interface
	maxProbed     = 256                     // addresses
	maxLarge      = 4                       // to how many addresses a large packet is sent
)

// probe sends echo requests to each peer as a pod does: from a network namespace of its own at the pods' bridge, so that
// they are forwarded. Both are gone when it returns; the kernel removes an interface with its namespace even if the
// program is killed.
func probe(ctx context.Context, e *Evidence, wait time.Duration) (*Probe, error) {
	j := newJudgement(e)
	if len(j.flows) == 0 || j.iif == "" {
		return nil, errors.New("there is no peer to send to, or the pods' interface is not known")
	}
	bridge, ok := j.device(j.iif)
	if !ok || bridge.Kind != "bridge" {
		return nil, fmt.Errorf("the pods' interface %s is not a bridge (%s), so that nothing can be attached to it", j.iif, bridge.Kind)
	}
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	p := &prober{wait: wait, e: e, j: j, bridge: bridge, home: home, out: &Probe{Device: bridge.Name, Filtered: -1}}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread has another namespace and ends with the goroutine
		done <- p.run(ctx)
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return p.out, nil
}

type prober struct {
	wait   time.Duration
	e      *Evidence
	j      *judgement
	bridge Device
	home   netns.NsHandle
	out    *Probe

	cookie  [12]byte
	skip    map[int]bool // interfaces on the pods' side
	names   map[int]string
	sockets map[desired.Family]int // in the namespace
	watch   int                    // in the node
	indices []desired.Family       // of out.Flows
}

func (p *prober) run(ctx context.Context) error {
	if err := netns.Set(p.home); err != nil {
		return err
	}
	if err := p.addresses(); err != nil {
		return err
	}
	if _, err := rand.Read(p.cookie[:]); err != nil {
		return err
	}
	inside, err := netns.New() // the thread is in it now
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	defer inside.Close()
	p.sockets = map[desired.Family]int{}
	defer func() {
		for _, s := range p.sockets {
			unix.Close(s)
		}
	}()
	if err := p.openSockets(); err != nil {
		return err
	}
	if err := netns.Set(p.home); err != nil {
		return err
	}
	if err := p.attach(inside); err != nil {
		return err
	}
	defer func() { // deleting one end deletes both
		if link, err := netlink.LinkByName(probeDevice); err == nil {
			_ = netlink.LinkDel(link)
		}
	}()
	if p.watch, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
		return fmt.Errorf("watch the interfaces: %w", err)
	}
	defer unix.Close(p.watch)
	// After the socket is there: nothing of before is in its queue.
	p.flows()
	before := filtered()
	if err := p.exchange(ctx); err != nil {
		return err
	}
	if after := filtered(); before >= 0 && after >= 0 {
		p.out.Filtered = after - before
	}
	return nil
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// addresses chooses unused addresses of the pods' network, from its end, where address management comes last.
func (p *prober) addresses() error {
	link, _ := p.e.Facts.Link(p.bridge.Name)
	for _, prefix := range link.Addresses {
		if !p.j.isPod(prefix.Addr()) {
			continue
		}
		near := prefix.Masked()
		for _, c := range p.j.doc.PodCIDRs {
			if c.Contains(prefix.Addr()) && c.Bits() > near.Bits() {
				near = c
			}
		}
		a := netipx.PrefixLastIP(near)
		if prefix.Addr().Is4() {
			a = a.Prev() // the last is for everybody
		} else if near.Bits() < 112 {
			b := near.Addr().As16()
			b[14], b[15] = 0xfe, 0xfe
			a = netip.AddrFrom16(b)
		}
		const attempts = 5
		for range attempts {
			if !p.j.local(a) && !p.used(a) {
				break
			}
			a = a.Prev()
		}
		if p.j.local(a) || p.used(a) {
			return fmt.Errorf("no unused address was found in %s", near)
		}
		if prefix.Addr().Is4() {
			p.out.Source = a
		} else {
			p.out.Source6 = a
		}
	}
	if !p.out.Source.IsValid() && !p.out.Source6.IsValid() {
		return fmt.Errorf("%s has no address in the pods' networks", p.bridge.Name)
	}
	return nil
}

// used asks for the address's neighbor, by a packet to the discard port, and says whether there is one.
func (p *prober) used(a netip.Addr) bool {
	neighbor := func() bool {
		list, err := netlink.NeighList(p.bridge.Index, netlink.FAMILY_ALL)
		return err == nil && slices.ContainsFunc(list, func(n netlink.Neigh) bool {
			ip, _ := netip.AddrFromSlice(n.IP)
			return ip.Unmap() == a && n.State&(unix.NUD_REACHABLE|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE|unix.NUD_PERMANENT) != 0
		})
	}
	if neighbor() {
		return true
	}
	const discard = 9
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, discard)))
	if err != nil {
		return false
	}
	_, _ = conn.Write([]byte{0}) // the answer is looked for among the neighbors
	conn.Close()
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		if neighbor() {
			return true
		}
	}
	return false
}

func (p *prober) openSockets() error {
	for _, f := range desired.Families() {
		if f == desired.IPv4 && !p.out.Source.IsValid() || f == desired.IPv6 && !p.out.Source6.IsValid() {
			continue
		}
		domain, protocol := unix.AF_INET, unix.IPPROTO_ICMP
		if f == desired.IPv6 {
			domain, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		}
		s, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return fmt.Errorf("open a socket for echo requests: %w", err)
		}
		p.sockets[f] = s
		if f == desired.IPv4 {
			err = unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		} else {
			err = unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		}
		if err != nil {
			return fmt.Errorf("forbid fragments: %w", err)
		}
	}
	return nil
}

// attach puts one end of a pair of interfaces at the bridge and the other, with the addresses, into the namespace.
func (p *prober) attach(inside netns.NsHandle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = probeDevice, p.bridge.MTU, p.bridge.Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(inside))}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("attach %s to %s: %w", probeDevice, p.bridge.Name, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("set %s up: %w", probeDevice, err)
	}
	h, err := netlink.NewHandleAt(inside)
	if err != nil {
		return err
	}
	defer h.Close()
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := h.LinkSetMTU(eth, p.bridge.MTU); err != nil {
		return err
	}
	if err := h.LinkSetUp(eth); err != nil {
		return err
	}
	link, _ := p.e.Facts.Link(p.bridge.Name)
	for _, prefix := range link.Addresses {
		a := p.out.Source
		if prefix.Addr().Is6() {
			a = p.out.Source6
		}
		if !a.IsValid() || !prefix.Contains(a) {
			continue
		}
		address := &netlink.Addr{IPNet: netipx.PrefixIPNet(netip.PrefixFrom(a, prefix.Bits())), Flags: unix.IFA_F_NODAD}
		if err := h.AddrAdd(eth, address); err != nil {
			return fmt.Errorf("give the probe the address %s: %w", a, err)
		}
		route := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: prefix.Addr().AsSlice()}
		if err := h.RouteAdd(route); err != nil {
			return fmt.Errorf("give the probe a route by %s: %w", prefix.Addr(), err)
		}
	}
	// The kernel takes up to a second to make the bridge forward for a new port.
	up := func(h *netlink.Handle, index int) bool {
		link, err := h.LinkByIndex(index)
		return err == nil && link.Attrs().OperState == netlink.OperUp
	}
	node, err := netlink.NewHandleAt(p.home)
	if err != nil {
		return err
	}
	defer node.Close()
	for range 100 {
		if up(node, veth.Attrs().Index) && up(h, eth.Attrs().Index) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.names, p.skip = map[int]string{}, map[int]bool{}
	list, err := kernel.Again(netlink.LinkList)
	if err != nil {
		return err
	}
	for _, l := range list {
		p.names[l.Attrs().Index] = l.Attrs().Name
		if l.Attrs().MasterIndex == p.bridge.Index || l.Attrs().Index == p.bridge.Index || l.Attrs().Name == "lo" {
			p.skip[l.Attrs().Index] = true
		}
	}
	return nil
}

func (p *prober) flows() {
	for _, fl := range p.j.flows {
		if fl.further {
			continue
		}
		if _, ok := p.sockets[fl.family]; ok && len(p.out.Flows) < maxProbed {
			p.out.Flows = append(p.out.Flows, ProbeFlow{To: fl.packet.Dst})
			p.indices = append(p.indices, fl.family)
		}
	}
}

// exchange sends and listens: first small packets, then a large one to some of those that answered.
func (p *prober) exchange(ctx context.Context) error {
	for i := range probeRequests {
		for n := range p.out.Flows {
			p.send(n, uint16(i+1), 0)
			p.out.Flows[n].Sent++
		}
		p.listen(ctx, probeEvery, nil)
	}
	// The first packet waits for its neighbor, who is asked again after a second. From then on, peers have their time.
	p.listen(ctx, probeEntry, func() bool {
		return !slices.ContainsFunc(p.out.Flows, func(f ProbeFlow) bool { return f.In < f.Sent && f.Refused == "" })
	})
	small := func() bool {
		return !slices.ContainsFunc(p.out.Flows, func(f ProbeFlow) bool { return f.Got < f.Sent })
	}
	p.listen(ctx, p.wait, small)
	ts, ok := p.j.device(desired.Interface)
	if !ok || ts.MTU >= p.bridge.MTU {
		return ctx.Err()
	}
	large := 0
	for n := range p.out.Flows {
		if f := &p.out.Flows[n]; f.Got > 0 && large < maxLarge && seenOnMesh(f.Out) {
			f.Large = "lost"
			p.send(n, largeSequence, p.bridge.MTU)
			large++
		}
	}
	if large > 0 {
		p.listen(ctx, p.wait, func() bool {
			return !slices.ContainsFunc(p.out.Flows, func(f ProbeFlow) bool { return f.Large == "lost" })
		})
	}
	return ctx.Err()
}

const largeSequence = 0x7fff

// send sends an echo request of flow n, of a size in bytes with its headers, or a small one.
func (p *prober) send(n int, sequence uint16, size int) {
	f, family := &p.out.Flows[n], p.indices[n]
	kind, header := byte(8), 20
	if family == desired.IPv6 {
		kind, header = 128, 40
	}
	id := p.id(n)
	b := make([]byte, max(8+len(p.cookie)+3, size-header))
	b[0], b[4], b[5], b[6], b[7] = kind, byte(id>>8), byte(id), byte(sequence>>8), byte(sequence)
	copy(b[8:], p.cookie[:])
	at := 8 + len(p.cookie)
	b[at], b[at+1] = byte(n>>8), byte(n)
	if size > 0 {
		b[at+2] = 1
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: to4(f.To)}
	if family == desired.IPv6 {
		to = &unix.SockaddrInet6{Addr: f.To.As16()}
	} else {
		sum := checksum(b)
		b[2], b[3] = byte(sum>>8), byte(sum)
	}
	// A refusal comes as a message or as the next error of the socket; a size that the kernel knows to be too much, at once.
	switch err := unix.Sendto(p.sockets[family], b, 0, to); {
	case err == nil:
	case errors.Is(err, unix.EMSGSIZE) && size > 0:
		f.Large = "too big"
	default:
		f.Refused = "could not be sent: " + err.Error()
	}
}

// id is the identifier of flow n's requests: another one is another connection.
func (p *prober) id(n int) uint16 {
	return (uint16(p.cookie[0])<<8 | uint16(p.cookie[1])) + uint16(n)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// filtered reads how many packets reverse path filtering has dropped, or -1.
func filtered() int {
	text, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return -1
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		var n int
		if i := slices.Index(names, "IPReversePathFilter"); i > 0 && i < len(words) {
			if _, err := fmt.Sscan(words[i], &n); err == nil {
				return n
			}
		}
	}
	return -1
}

func to4(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}
