//go:build linux

package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// A rule that is heard of is the rule that is listed.
func TestWatchRules(t *testing.T) {
	n := nstest.New(t)
	n.Run("ip link add d0 type veth peer name d1")
	added := `
		ip rule add pref 11 not from 10.244.1.0/24 to 100.64.0.0/10 fwmark 0x80000/0xff0000 lookup 52
		ip rule add pref 12 iif d0 oif d1 unreachable protocol 116
		ip rule add pref 13 goto 32766
		ip rule add pref 14 lookup main suppress_prefixlength 0
		ip rule add pref 15 ipproto tcp dport 80-90 lookup 1000
		ip -6 rule add pref 16 to fd7a:115c:a1e0::/48 prohibit`
	wait := n.Go(func() {
		time.Sleep(100 * time.Millisecond) // until it is watched
		n.Run(added)
	})
	events, err := watchRules(t.Context(), 1500*time.Millisecond)
	wait()
	if err != nil {
		t.Fatal(err)
	}
	facts, err := kernel.Linux{}.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(added, "rule add"); len(events) != want {
		t.Errorf("heard of %d rules, want %d", len(events), want)
	}
	for _, event := range events {
		if !event.Added || !slices.Contains(facts.Rules, event.Rule) {
			t.Errorf("heard of `%s` (added: %v), which is not listed: %v", event.Rule, event.Added, facts.Rules)
		}
	}
}
