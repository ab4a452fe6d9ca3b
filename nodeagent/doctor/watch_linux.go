//go:build linux

package doctor

import (
	"context"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
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
			if m.Header.Type != unix.RTM_NEWRULE && m.Header.Type != unix.RTM_DELRULE {
				continue
			}
			rule, err := kernel.DecodeRule(m.Data)
			if err != nil {
				return nil, err
			}
			out = append(out, RuleEvent{At: time.Now(), Added: m.Header.Type == unix.RTM_NEWRULE, Rule: rule})
		}
	}
	return out, nil
}
