package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"
	"tailscale.com/net/packet"
	"tailscale.com/types/logger"
	"tailscale.com/wgengine/filter"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/tests/lab/wire"
)

// seedEnv repeats a run.
const seedEnv = "ORACLE_SEED"

const (
	cases   = 1000
	packets = 200 // of each case
)

// tailnet is a case with the filters of its devices.
type tailnet struct {
	compiled *policy.Compiled
	nodes    []node
	via      bool // some rules open a network by some of its routers only
}

// node is a device as one that receives.
type node struct {
	name   string
	own    []netip.Addr
	routes []netip.Prefix
	filter *filter.Filter
}

// build compiles a case; message is the control plane's where the policy would be refused.
func build(c Case) (tn *tailnet, message string, err error) {
	report := policy.Check("policy.hujson", c.Text(), c.Inventory, nil)
	if report.Compiled == nil || !report.Accepted {
		return nil, report.Message, nil
	}
	tn = &tailnet{compiled: report.Compiled, via: c.via()}
	for _, d := range c.Inventory.Devices {
		n := node{name: d.Hostname}
		var local netipx.IPSetBuilder
		for _, a := range d.Addresses {
			addr := netip.MustParseAddr(a)
			n.own = append(n.own, addr)
			local.Add(addr)
		}
		for _, r := range d.EnabledRoutes {
			prefix := netip.MustParsePrefix(r)
			n.routes = append(n.routes, prefix)
			local.AddPrefix(prefix)
		}
		set, err := local.IPSet()
		if err != nil {
			return nil, "", err
		}
		rules, err := report.Compiled.Filter(d.Hostname)
		if err != nil {
			return nil, "", err
		}
		decoded, err := wire.Decode(rules)
		if err != nil {
			return nil, "", err
		}
		matches, err := filter.MatchesFromFilterRules(decoded)
		if err != nil {
			return nil, "", fmt.Errorf("the node does not understand its rules: %w", err)
		}
		n.filter = filter.New(matches, nil, set, &netipx.IPSet{}, nil, logger.Discard)
		tn.nodes = append(tn.nodes, n)
	}
	return tn, "", nil
}

// receivers returns the nodes that may get a packet: the one whose address it is for, else every router of a route to it.
// Exit nodes forward what is public.
func (tn *tailnet) receivers(dst netip.Addr) []node {
	var routers []node
	for _, n := range tn.nodes {
		if slices.Contains(n.own, dst) {
			return []node{n}
		}
		if slices.ContainsFunc(n.routes, func(r netip.Prefix) bool {
			return r.Contains(dst) && (r.Bits() > 0 || !dst.IsPrivate())
		}) {
			routers = append(routers, n)
		}
	}
	return routers
}

// disagreement says how the engine and the filters judge a packet, "" where they agree. pass is what the filters say.
func (tn *tailnet) disagreement(p Packet, receivers []node) (text string, pass bool) {
	decision, err := tn.compiled.Can(p.Src.String(), p.Dst.String(), strconv.Itoa(p.Proto), int(p.Port))
	if err != nil {
		return fmt.Sprintf("%+v: the engine: %v", p, err), false
	}
	raw := p.Encode()
	var admitting []string
	for _, n := range receivers {
		var parsed packet.Parsed
		parsed.Decode(raw)
		if n.filter.RunIn(&parsed, 0) == filter.Accept {
			admitting = append(admitting, n.name)
		}
	}
	want := policy.Fail
	if len(admitting) > 0 {
		want = policy.Pass
	}
	switch {
	case decision.Verdict != want:
		return fmt.Sprintf("%+v: admitted by the filters of %v, the engine says %v (by %q)", p, admitting, decision.Verdict, decision.Rule), pass
	case want == policy.Pass && len(admitting) < len(receivers) && !tn.via:
		return fmt.Sprintf("%+v: admitted by the filters of %v alone", p, admitting), pass
	}
	return "", want == policy.Pass
}

func TestEngineAgreesWithNodes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d repeats this run", seedEnv, seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}

	type count struct{ passed, dropped int }
	counts := map[string]*count{}
	judged, refused := 0, map[string]int{}
	for range cases {
		c := g.newCase()
		tn, message, err := build(c)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.Text())
		}
		if tn == nil {
			refused[message]++
			continue
		}
		for range packets {
			p := g.packet(c)
			receivers := tn.receivers(p.Dst)
			if len(receivers) == 0 {
				continue
			}
			text, pass := tn.disagreement(p, receivers)
			if text != "" {
				c = shrink(c, p)
				tn, _, _ := build(c)
				text, _ = tn.disagreement(p, tn.receivers(p.Dst))
				t.Fatalf("%s\n%s", text, report(c, tn, p))
			}
			judged++
			key := fmt.Sprintf("protocol %3d over IPv%d", p.Proto, map[bool]int{true: 4, false: 6}[p.Dst.Is4()])
			if counts[key] == nil {
				counts[key] = &count{}
			}
			if pass {
				counts[key].passed++
			} else {
				counts[key].dropped++
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %5d admitted, %5d refused", key, counts[key].passed, counts[key].dropped)
		if counts[key].passed == 0 || counts[key].dropped == 0 {
			t.Errorf("%s: no packet tells a filter that admits from one that refuses", key)
		}
	}
	t.Logf("%d packets judged alike", judged)
	if judged < 100_000 {
		t.Errorf("only %d packets were judged; policies refused: %v", judged, refused)
	}
}

// shrink takes rules out of a case for as long as the packet is judged differently.
func shrink(c Case, p Packet) Case {
	fails := func(c Case) bool {
		tn, _, err := build(c)
		if err != nil || tn == nil {
			return false
		}
		text, _ := tn.disagreement(p, tn.receivers(p.Dst))
		return text != ""
	}
	for again := true; again; {
		again = false
		for i := range c.Grants {
			smaller := c
			smaller.Grants = slices.Delete(slices.Clone(c.Grants), i, i+1)
			if fails(smaller) {
				c, again = smaller, true
				break
			}
		}
		for i := range c.ACLs {
			smaller := c
			smaller.ACLs = slices.Delete(slices.Clone(c.ACLs), i, i+1)
			if fails(smaller) {
				c, again = smaller, true
				break
			}
		}
	}
	return c
}

// report prints what one needs to look at a disagreement.
func report(c Case, tn *tailnet, p Packet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "grants: %v\nacls: %v\n", c.Grants, c.ACLs)
	for _, d := range c.Inventory.Devices {
		fmt.Fprintf(&b, "%s %v user %q tags %v routes %v\n", d.Hostname, d.Addresses, d.User, d.Tags, d.EnabledRoutes)
	}
	for _, n := range tn.receivers(p.Dst) {
		rules, err := tn.compiled.Filter(n.name)
		fmt.Fprintf(&b, "filter of %s: %+v %v\n", n.name, rules, err)
	}
	return b.String()
}
