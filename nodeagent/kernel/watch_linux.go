package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/attr"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
)

// Watcher hears of changes to what [Linux.Facts] reads and to the ways of packets to mesh addresses. The library has no
// subscription to policy rules, so the groups are joined here.
type Watcher struct {
	route, firewall *nl.NetlinkSocket
}

// NewWatcher subscribes, in the network namespace that the calling thread is in.
func NewWatcher() (*Watcher, error) {
	route, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of interfaces, routes and rules: %w", err)
	}
	firewall, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) {
		route.Close()
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	return &Watcher{route: route, firewall: firewall}, nil
}

// Run calls changed with what has changed until the context ends. Notices that were lost because too many came at once
// count as one change.
func (w *Watcher) Run(ctx context.Context, changed func(what string)) error {
	g, ctx := errgroup.WithContext(ctx)
	for socket, judge := range map[*nl.NetlinkSocket]func(syscall.NetlinkMessage) string{
		w.route: routeNotice, w.firewall: firewallNotice,
	} {
		if socket == nil {
			continue
		}
		stop := context.AfterFunc(ctx, socket.Close)
		g.Go(func() error {
			defer stop()
			for {
				messages, _, err := socket.Receive()
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case errors.Is(err, unix.ENOBUFS):
					changed("overflow")
				case errors.Is(err, unix.EINTR):
				case err != nil:
					return fmt.Errorf("watch the kernel: %w", err)
				}
				for _, m := range messages {
					if what := judge(m); what != "" {
						changed(what)
					}
				}
			}
		})
	}
	return g.Wait()
}

// routeNotice says what of the node's networking a message is about, or "" where it does not matter. Pods come and go
// all the time: their interfaces are ports of a bridge, and their link-local addresses are nobody's business.
func routeNotice(m syscall.NetlinkMessage) string {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg || has(m.Data[unix.SizeofIfInfomsg:], unix.IFLA_MASTER) {
			return ""
		}
		return "link"
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg || m.Data[3] == unix.RT_SCOPE_LINK {
			return ""
		}
		return "address"
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return "rule"
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return "route"
	case unix.RTM_NEWNETCONF:
		return settingNotice(m.Data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return wayNotice(m.Data)
	}
	return ""
}

// wayNotice judges a notice of a route: to a network of whomever, which may be a part of the pods' or contain it, or to a
// mesh address. Routes to single pods come and go with these, and some of the kernel's with interfaces.
func wayNotice(message []byte) string {
	if len(message) < unix.SizeofRtMsg {
		return ""
	}
	header := nl.DeserializeRtMsg(message)
	switch header.Type {
	case unix.RTN_UNICAST, unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
	default:
		return ""
	}
	attrs, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type != unix.RTA_DST {
			continue
		}
		dst, ok := netip.AddrFromSlice(a.Value)
		network := netip.PrefixFrom(dst, int(header.Dst_len))
		switch {
		case !ok, dst.IsMulticast(), dst.IsLinkLocalUnicast():
			return ""
		case network.IsSingleIP() && !network.Overlaps(desired.FamilyOf(dst).MeshRange()):
			return ""
		}
	}
	return "route"
}

// settingNotice judges a notice of what net.ipv4.conf or net.ipv6.conf say of an interface: struct netconfmsg of
// linux/netconf.h and attributes. Of an interface that appears all settings are told at once.
func settingNotice(message []byte) string {
	const family, ifindex, forwarding, rpFilter = 4, 1, 2, 3 // the first with what makes its length a multiple of 4
	what := ""
	for kind := range attr.Each(message[min(family, len(message)):]) {
		switch kind {
		case ifindex:
		case forwarding, rpFilter:
			if what != "" {
				return ""
			}
			what = "setting"
		default:
			return ""
		}
	}
	return what
}

func has(attributes []byte, kind uint16) bool {
	attrs, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == kind {
			return true
		}
	}
	return false
}

// firewallNotice hears of the agent's own table, and of the chains of iptables-nft that are the agent's, jump to them or
// show which variant kubelet uses. In every message about a table or something in it, the first kind of attribute names
// the table. iptables-legacy and ipset give no notice.
func firewallNotice(m syscall.NetlinkMessage) string {
	const tableAttribute = 1
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nl.SizeofNfgenmsg {
		return ""
	}
	attrs, err := nl.ParseRouteAttr(m.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return ""
	}
	chainAttribute := uint16(0)
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chainAttribute = unix.NFTA_RULE_CHAIN
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		chainAttribute = unix.NFTA_CHAIN_NAME
	}
	var table, chain string
	for _, a := range attrs {
		switch a.Attr.Type {
		case tableAttribute:
			table = text(a.Value)
		case chainAttribute:
			chain = text(a.Value)
		}
	}
	if table == desired.TableName || chain != "" && iptables.Concerns(table, chain) {
		return "firewall"
	}
	return ""
}
