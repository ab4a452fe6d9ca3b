//go:build linux

package doctor

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// watchRules listens for a while to what happens to policy rules.
func watchRules(ctx context.Context, long time.Duration) ([]RuleEvent, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	tick := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
	if err := socket.SetReceiveTimeout(&tick); err != nil {
		return nil, err
	}
	var out []RuleEvent
	for ctx.Err() == nil {
		messages, _, err := socket.Receive()
		if err != nil {
			continue // nothing came, or too much at once: what is lost is not counted
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWRULE || m.Header.Type == unix.RTM_DELRULE {
				out = append(out, RuleEvent{At: time.Now(), Added: m.Header.Type == unix.RTM_NEWRULE, Rule: decodeRule(m.Data)})
			}
		}
	}
	return out, nil
}

// decodeRule reads the selectors that most rules have (linux/fib_rules.h).
func decodeRule(m []byte) desired.Rule {
	r := desired.Rule{Family: desired.IPv4, Action: desired.Lookup}
	if len(m) < unix.SizeofRtMsg {
		return r
	}
	if m[0] == unix.AF_INET6 {
		r.Family = desired.IPv6
	}
	r.Table = uint32(m[4])
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil {
		return r
	}
	for _, a := range attrs {
		word := uint32(0)
		if len(a.Value) >= 4 {
			word = binary.NativeEndian.Uint32(a.Value)
		}
		network := func(bits byte) netip.Prefix {
			addr, _ := netip.AddrFromSlice(a.Value)
			return netip.PrefixFrom(addr, int(bits))
		}
		switch a.Attr.Type {
		case nl.FRA_SRC:
			r.Src = network(m[2])
		case nl.FRA_DST:
			r.Dst = network(m[1])
		case nl.FRA_PRIORITY:
			r.Priority = word
		case nl.FRA_TABLE:
			r.Table = word
		case nl.FRA_FWMARK:
			r.Mark = word
		case nl.FRA_FWMASK:
			r.Mask = word
		case nl.FRA_IIFNAME:
			r.Iif = strings.TrimRight(string(a.Value), "\x00")
		case nl.FRA_PROTOCOL:
			if len(a.Value) > 0 {
				r.Protocol = a.Value[0]
			}
		}
	}
	return r
}
