//go:build linux

package kernel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Whatever can change the way of a packet of pods is noticed at once, and pods that come and go are not.
func TestNotices(t *testing.T) {
	n := nstest.NewNode(t)
	n.Run("ip nexthop add id 7 dev tailscale0")
	watcher, err := kernel.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	notices := make(chan string, 1000)
	done := make(chan error)
	go func() { done <- watcher.Run(ctx, func(what string) { notices <- what }) }()
	// A rule comes and goes: what was noticed before it has arrived when it has.
	heard := func(commands string) (list []string) {
		t.Helper()
		n.Run(commands + "\nip rule add pref 4711 nop\nip rule del pref 4711")
		for rules := 0; rules < 2; {
			select {
			case what := <-notices:
				if what == "rule" {
					rules++
				} else {
					list = append(list, what)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%s: no notice even of rules", commands)
			}
		}
		return list
	}
	for _, commands := range []string{
		"ip link add br7 type bridge",
		"ip addr add 192.0.2.1/24 dev kube-bridge",
		"ip route add 100.64.0.13 dev tailscale0 table 52",
		"ip route replace blackhole 100.64.0.12 table 52",
		"ip -6 route add unreachable fd7a:115c:a1e0::c table 52",
		"ip route add throw 100.64.0.0/10 table 52",
		"ip route add 10.244.0.0/16 dev tailscale0 table 52",
		"ip route add blackhole 10.244.1.0/25",
		"ip route del 10.244.1.0/24 dev kube-bridge",
		"ip -6 route add prohibit default table 77",
		"ip nexthop replace id 7 blackhole",
		"echo 0 >/proc/sys/net/ipv4/conf/tun-fra1/forwarding",
		"echo 0 >/proc/sys/net/ipv4/ip_forward",
		"echo 0 >/proc/sys/net/ipv6/conf/all/forwarding",
		"echo 1 >/proc/sys/net/ipv4/conf/tailscale0/rp_filter",
	} {
		if len(heard(commands)) == 0 {
			t.Errorf("%s: not noticed", commands)
		}
	}
	for _, commands := range []string{
		"ip route add 10.244.1.7 dev kube-bridge",
		"ip -6 route add fd00:10:244:1::7 dev kube-bridge",
	} {
		if list := heard(commands); len(list) > 0 {
			t.Errorf("%s: noticed as %q", commands, list)
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
