//go:build linux

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/pods"
)

// Options say how to look.
type Options struct {
	Kernel      kernel.Interface
	Files       fs.FS // the node's files from its root; nil: none
	Socket      string
	Document    *config.Document
	DocumentErr string
	Admissions  Admissions    // what the service has put away of this node's packet filter, if anything
	Pod         netip.Addr    // whose packets to judge; zero: an address that no pod has
	Probe       bool          // send packets from a namespace of their own at the pods' bridge
	ProbeWait   time.Duration // for how long to wait for answers; 0: as long as a distant peer needs
	Watch       time.Duration // for how long to watch policy rules
}

// Gather reads everything about the node that the program runs on, in the network namespace of the calling thread. What
// cannot be read is missing in the evidence, with the reason; an error means that there is nothing to judge by. Nothing is
// changed but by the probe, which takes away what it adds.
func Gather(ctx context.Context, o Options) (*Evidence, error) {
	e := &Evidence{Now: time.Now(), Document: o.Document, DocumentErr: o.DocumentErr, Admissions: o.Admissions, Pod: o.Pod}
	e.Tailscaled = readTailscaled(ctx, o.Socket)
	facts, err := o.Kernel.Facts(ctx)
	if err != nil && !errors.Is(err, os.ErrPermission) {
		return nil, err
	}
	e.Facts = facts // without permission, without the firewall's part
	if len(facts.Links) == 0 || len(facts.Rules) == 0 {
		return nil, fmt.Errorf("interfaces and policy rules are not readable: %w", err)
	}
	if e.Devices, err = kernel.Again(devices); err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	if e.Routes, err = kernel.Again(func() ([]Route, error) { return routes(e.Devices) }); err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	if e.Rules, err = kernel.AgainNFT(readRuleset); err != nil {
		e.Rules, e.RulesErr = nil, reason(err)
	}
	e.Legacy, err = legacyTables()
	if err != nil {
		e.LegacyErr = reason(err)
	}
	e.Sysctls = sysctls(e.Devices)
	e.Pods = pods.Find(o.Files, e.Facts)
	if err := e.checkPod(); err != nil {
		return nil, err
	}
	e.Agents, err = agents()
	if err != nil {
		e.AgentsErr = reason(err)
	}
	if e.Flows, err = flows(e); err != nil {
		e.FlowsErr = reason(err)
	}
	answer(ctx, o.Kernel, e)
	if o.Watch > 0 {
		if e.Events, err = watchRules(ctx, o.Watch); err != nil {
			return nil, fmt.Errorf("watch policy rules: %w", err)
		}
		e.Watched = o.Watch
	}
	if o.Probe {
		if e.Probe, err = probe(ctx, e, cmp.Or(o.ProbeWait, probeWait)); err != nil {
			e.ProbeErr = reason(err)
		} else if after, err := kernel.AgainNFT(readRuleset); err == nil {
			e.CountersAfter = map[string]uint64{}
			for _, c := range after.Chains {
				for _, r := range c.Rules {
					if n, ok := r.Counter(); ok {
						e.CountersAfter[r.String()] = n
					}
				}
			}
		}
	}
	if e.Tailscaled.Err == "" {
		after, cancel := context.WithTimeout(ctx, localTimeout)
		e.Tailscaled.DropsAfter = newLocalAPI(o.Socket).drops(after)
		cancel()
	}
	return e, nil
}

// answer asks the kernel for the ways of packets until the judgement wants no more.
func answer(ctx context.Context, k kernel.Interface, e *Evidence) {
	e.Answers = map[desired.Packet]desired.Answer{}
	const rounds = 5
	for range rounds {
		wanted := e.Wanted()
		if len(wanted) == 0 {
			return
		}
		answers, err := k.Ways(ctx, wanted)
		if err == nil {
			for i, p := range wanted {
				e.Answers[p] = answers[i]
			}
			continue
		}
		for _, p := range wanted { // one that cannot be asked leaves the others
			a, err := k.Ways(ctx, []desired.Packet{p})
			if err != nil {
				a = []desired.Answer{{Reason: unasked + err.Error()}}
			}
			e.Answers[p] = a[0]
		}
	}
}

func reason(err error) string {
	if errors.Is(err, os.ErrPermission) {
		return "not permitted: needs root, or CAP_NET_ADMIN"
	}
	return err.Error()
}

func devices() ([]Device, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	out := make([]Device, len(list))
	for i, l := range list {
		a := l.Attrs()
		d := Device{
			Name: a.Name, Index: a.Index, MTU: a.MTU, Kind: l.Type(), Up: a.Flags&net.FlagUp != 0, Master: names[a.MasterIndex],
		}
		if a.Statistics != nil {
			d.Received, d.Sent = a.Statistics.RxPackets, a.Statistics.TxPackets
		}
		switch t := l.(type) {
		case *netlink.Iptun:
			d.Local, d.Remote, d.FragmentInner = addr(t.Local), addr(t.Remote), t.PMtuDisc == 0
		case *netlink.Vxlan:
			d.Local, d.Remote, d.Lower = addr(t.SrcAddr), addr(t.Group), names[t.VtepDevIndex]
		case *netlink.Gretun:
			d.Local, d.Remote, d.FragmentInner = addr(t.Local), addr(t.Remote), t.PMtuDisc == 0
		}
		out[i] = d
	}
	return out, nil
}

func addr(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if !ok || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a.Unmap()
}

func routes(devices []Device) ([]Route, error) {
	names := map[int]string{}
	for _, d := range devices {
		names[d.Index] = d.Name
	}
	var out []Route
	for _, f := range desired.Families() {
		number := netlink.FAMILY_V4
		if f == desired.IPv6 {
			number = netlink.FAMILY_V6
		}
		// Without a table among the filter's masks the library lists the main table alone; table 0 is every one.
		list, err := netlink.RouteListFiltered(number, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			route := Route{Family: f, Table: uint32(r.Table), Dev: names[r.LinkIndex], Type: routeType(r.Type)}
			if r.Dst != nil {
				ones, _ := r.Dst.Mask.Size()
				a, _ := netip.AddrFromSlice(r.Dst.IP)
				route.Dst = netip.PrefixFrom(a.Unmap(), ones)
			}
			if !route.Dst.IsValid() {
				route.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				if f == desired.IPv6 {
					route.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
			}
			out = append(out, route)
		}
	}
	return out, nil
}

func routeType(n int) string {
	switch n {
	case unix.RTN_UNICAST:
		return "unicast"
	case unix.RTN_LOCAL:
		return "local"
	case unix.RTN_THROW:
		return "throw"
	case unix.RTN_UNREACHABLE:
		return "unreachable"
	case unix.RTN_BLACKHOLE:
		return "blackhole"
	case unix.RTN_PROHIBIT:
		return "prohibit"
	}
	return fmt.Sprint(n)
}

// sysctls reads the settings that the way of a packet depends on.
func sysctls(devices []Device) map[string]string {
	keys := []string{
		"ipv4.ip_forward", "ipv6.conf.all.forwarding", "ipv4.conf.all.rp_filter", "ipv4.conf.all.src_valid_mark",
	}
	for _, d := range devices {
		keys = append(keys, "ipv4.conf."+d.Name+".forwarding", "ipv4.conf."+d.Name+".rp_filter", "ipv4.conf."+d.Name+".src_valid_mark")
	}
	out := map[string]string{}
	for _, key := range keys {
		if strings.Contains(key, "/") {
			continue
		}
		parts := strings.SplitN(key, ".conf.", 2)
		path := strings.ReplaceAll(key, ".", "/")
		if len(parts) == 2 { // an interface's name may have dots
			at := strings.LastIndex(parts[1], ".")
			path = parts[0] + "/conf/" + parts[1][:at] + "/" + parts[1][at+1:]
		}
		if text, err := os.ReadFile("/proc/sys/net/" + path); err == nil {
			out[key] = strings.TrimSpace(string(text))
		}
	}
	return out
}

// flows lists the tracked connections that pods began with somebody's mesh address.
func flows(e *Evidence) ([]Flow, error) {
	j := newJudgement(e)
	var out []Flow
	for _, f := range desired.Families() {
		number := netlink.InetFamily(unix.AF_INET)
		if f == desired.IPv6 {
			number = unix.AF_INET6
		}
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, number)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			if f == desired.IPv6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
				continue
			}
			return nil, err
		}
		for _, c := range list {
			flow := Flow{
				Src: addr(c.Forward.SrcIP), Dst: addr(c.Forward.DstIP), Answers: addr(c.Reverse.SrcIP), To: addr(c.Reverse.DstIP),
				Protocol: c.Forward.Protocol,
			}
			if flow.Src.IsValid() && j.isPod(flow.Src) && config.IsMesh(flow.Answers) {
				out = append(out, flow)
			}
		}
	}
	return out, nil
}

// agents finds the processes that run the agent as a service in this network namespace.
func agents() ([]int, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscanf(entry.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if filepath.Base(words[0]) != "tailmesh-agent" || !slices.Contains(words[1:], "run") {
			continue
		}
		if there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && there == here {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out, nil
}
