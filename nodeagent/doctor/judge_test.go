package doctor

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/pods"
)

func mesh(last byte) netip.Addr { return netip.AddrFrom4([4]byte{100, 64, 0, last}) }

// healthyEvidence is a node of Flannel's: nobody captures packets to peers, the agent's work is done, and all is well.
func healthyEvidence(t *testing.T) *Evidence {
	t.Helper()
	doc, err := config.Parse([]byte(`{"version": 1, "mesh": "futhark",
		"node": {"name": "ams1", "id": "nAms", "addresses": ["100.64.0.11"]}, "pod_cidrs": ["10.244.1.0/24"],
		"peers": [{"name": "fra1", "id": "nFra", "addresses": ["100.64.0.12"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	drops := 0.0
	e := &Evidence{
		Now: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), Document: &doc,
		Tailscaled: Tailscaled{
			State: "Running", Self: TailscaleNode{ID: "nAms", Addresses: []netip.Addr{mesh(11)}, Online: true},
			Peers:   []TailscaleNode{{ID: "nFra", Name: "fra1", Addresses: []netip.Addr{mesh(12)}, Online: true}},
			Filters: true, FilterHow: "LocalAPI watch-ipn-bus", Drops: &drops, DropsAfter: &drops,
			Filter: []FilterRule{{
				Protocols: []int{4}, Sources: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10")},
				Destinations: []FilterDestination{{Net: netip.PrefixFrom(mesh(11), 32), Last: 65535}},
			}},
		},
		Devices: []Device{
			{Name: "tailscale0", Kind: "tun", Up: true, MTU: 1280, Index: 3},
			{Name: "cni0", Kind: "bridge", Up: true, MTU: 1230, Index: 2},
		},
		Routes:  []Route{{Family: desired.IPv4, Table: 52, Dst: netip.PrefixFrom(mesh(12), 32), Dev: "tailscale0", Type: "unicast"}},
		Sysctls: map[string]string{"ipv4.ip_forward": "1", "ipv4.conf.cni0.forwarding": "1", "ipv4.conf.tailscale0.forwarding": "1"},
		Facts: desired.Facts{
			Links: []desired.Link{
				{Name: "tailscale0", Up: true, Addresses: []netip.Prefix{netip.PrefixFrom(mesh(11), 32)}},
				{Name: "cni0", Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.1/24")}},
			},
			Rules: []desired.Rule{{Family: desired.IPv4, Priority: 5270, Action: desired.Lookup, Table: 52}},
		},
	}
	state, err := desired.Build(doc, e.Facts)
	if err != nil {
		t.Fatal(err)
	}
	e.Facts.Rules = append(slices.Clone(state.Rules), e.Facts.Rules...)
	e.Facts.Tables = state.Tables
	e.Rules = ownRuleset()
	e.answer(func(p desired.Packet) desired.Answer {
		if p.Dst == mesh(11) {
			return desired.Answer{Dev: "lo", Table: 255}
		}
		if p.Iif == desired.Interface {
			return desired.Answer{Dev: "cni0", Table: 254}
		}
		return desired.Answer{Dev: "tailscale0", Table: 52}
	})
	return e
}

// answer answers all that the judgement asks.
func (e *Evidence) answer(kernel func(desired.Packet) desired.Answer) {
	e.Answers = map[desired.Packet]desired.Answer{}
	for range 4 {
		for _, p := range e.Wanted() {
			e.Answers[p] = kernel(p)
		}
	}
}

func name16(s string) []byte {
	b := make([]byte, 16)
	copy(b, s)
	return b
}

func load(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: 1} }
func equal(b []byte) expr.Any        { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }
func verdict(k expr.VerdictKind, chain string) expr.Any {
	return &expr.Verdict{Kind: k, Chain: chain}
}

func daddr(a netip.Addr) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}, equal(a.AsSlice())}
}

func newChain(family, table, name string, hook Hook, kind string, rules ...[]expr.Any) *Chain {
	c := &Chain{Family: family, Table: table, Name: name, Hook: hook, Type: kind}
	for i, exprs := range rules {
		c.Rules = append(c.Rules, &Rule{Chain: c, Handle: uint64(i + 1), Exprs: exprs})
	}
	return c
}

// ownRuleset is what the agent's table does, written shorter.
func ownRuleset() *Ruleset {
	mark := slices.Concat(
		[]expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, equal([]byte{0})}, daddr(mesh(12)),
		[]expr.Any{
			load(expr.MetaKeyMARK), &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(^uint32(0x2000)), Xor: native(0x2000)},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
		})
	snat := []expr.Any{
		load(expr.MetaKeyOIFNAME), equal(name16("tailscale0")),
		&expr.Immediate{Register: 1, Data: mesh(11).AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}
	return &Ruleset{Chains: []*Chain{
		newChain("inet", "tailmesh", "prerouting", Prerouting, "filter", mark),
		newChain("inet", "tailmesh", "postrouting", Postrouting, "nat", snat),
	}}
}

func codes(r Report) []string {
	var out []string
	for _, f := range r.Findings() {
		out = append(out, f.Code+"/"+string(f.Level))
	}
	return out
}

func TestJudge(t *testing.T) {
	probed := func(e *Evidence, f ProbeFlow) {
		f.To, f.Sent = mesh(12), 2
		e.Probe = &Probe{Device: "cni0", Flows: []ProbeFlow{f}}
	}
	out := []Seen{{Dev: "tailscale0", Src: mesh(11), Dst: mesh(12), Count: 2}}
	tests := []struct {
		name    string
		change  func(*Evidence)
		want    []string
		verdict Verdict
	}{
		{"healthy", func(*Evidence) {}, nil, VerdictOK},
		{"without root nothing is claimed of the firewall", func(e *Evidence) {
			e.Rules, e.RulesErr, e.Facts.Tables = nil, "not permitted", nil
		}, nil, VerdictUnknown},
		{"no answer of the kernel is no answer", func(e *Evidence) { e.Answers = nil }, nil, VerdictUnknown},
		{"tailscaled is silent though its interface is there", func(e *Evidence) { e.Tailscaled = Tailscaled{Err: "no socket"} }, nil, VerdictUnknown},
		{"legacy iptables may decide", func(e *Evidence) { e.Legacy = []LegacyTable{{Name: "filter", Err: "no such program"}} }, nil, VerdictUnknown},
		{"no document", func(e *Evidence) { e.Document, e.DocumentErr = nil, "no document at X" }, []string{"document.unusable/fail"}, VerdictWrong},
		{"key expires in an hour", func(e *Evidence) { e.Tailscaled.Self.KeyExpiry = e.Now.Add(time.Hour) }, nil, VerdictOK},
		{"key expired an hour ago", func(e *Evidence) { e.Tailscaled.Self.KeyExpiry = e.Now.Add(-time.Hour) }, []string{"tailscaled.key-expired/fail"}, VerdictWrong},
		{"waits for approval", func(e *Evidence) { e.Tailscaled.State = "NeedsMachineAuth" }, []string{"tailscaled.logged-out/fail"}, VerdictWrong},
		{"two agents", func(e *Evidence) { e.Agents = []int{10, 20} }, []string{"agent.two/warn"}, VerdictOK},

		{"a capability admits no protocol without ports", func(e *Evidence) {
			e.Tailscaled.Filter[0].Sources, e.Tailscaled.Filter[0].Capabilities = nil, []string{"x"}
		}, []string{"policy.overlay-dropped/fail"}, VerdictWrong},
		{"another protocol of the overlay", func(e *Evidence) { e.Document.Overlay.Protocol = "gre" }, []string{"policy.overlay-dropped/fail"}, VerdictWrong},
		{"no overlay", func(e *Evidence) { e.Document.Overlay.Protocol, e.Tailscaled.Filter = "none", nil }, nil, VerdictOK},
		{"udp on some ports", func(e *Evidence) {
			e.Document.Overlay.Protocol = "udp"
			e.Tailscaled.Filter[0].Protocols = []int{17}
			e.Tailscaled.Filter[0].Destinations[0] = FilterDestination{Net: netip.PrefixFrom(mesh(11), 32), First: 1000, Last: 2000}
		}, nil, VerdictUnknown},
		{"the filter is not readable", func(e *Evidence) { e.Tailscaled.Filters, e.Tailscaled.FilterHow = false, "403" }, nil, VerdictUnknown},

		{"a tunnel to an address of before", func(e *Evidence) {
			e.Devices = append(e.Devices, Device{Name: "tun-1", Kind: "ipip", Up: true, MTU: 1260, Remote: mesh(99)})
		}, []string{"overlay.remote/warn"}, VerdictOK},
		{"a fallback device that is down is nobody's", func(e *Evidence) {
			e.Devices = append(e.Devices, Device{Name: "tunl0", Kind: "ipip", MTU: 1480})
		}, nil, VerdictOK},
		{"a tunnel too large, without path discovery", func(e *Evidence) {
			e.Devices = append(e.Devices, Device{Name: "tun-1", Kind: "ipip", Up: true, MTU: 1480, Remote: mesh(12), FragmentInner: true})
		}, []string{"overlay.mtu/warn"}, VerdictOK},

		{"a probe that was not forwarded proves nothing", func(e *Evidence) { probed(e, ProbeFlow{Got: 0}) }, []string{"probe.not-forwarded/unknown"}, VerdictUnknown},
		{"a probe that is not answered", func(e *Evidence) { probed(e, ProbeFlow{In: 2, Out: out}) }, []string{"probe.unanswered/unknown"}, VerdictUnknown},
		{"a probe that is answered", func(e *Evidence) { probed(e, ProbeFlow{In: 2, Out: out, Back: out, Got: 2}) }, nil, VerdictOK},
		{"a probe that is lost here, with legacy tables", func(e *Evidence) {
			e.Legacy = []LegacyTable{{Name: "filter", Err: "no such program"}}
			probed(e, ProbeFlow{In: 2})
		}, []string{"probe.lost-here/fail"}, VerdictWrong},
		{"answers that are lost here", func(e *Evidence) { probed(e, ProbeFlow{In: 2, Out: out, Back: out}) }, []string{"probe.answer-lost-here/fail"}, VerdictWrong},
		{"a probe whose source is a pod's", func(e *Evidence) {
			e.Rules.Chains = e.Rules.Chains[:1]
			pod := []Seen{{Dev: "tailscale0", Src: netip.MustParseAddr("10.244.1.254"), Dst: mesh(12), Count: 2}}
			probed(e, ProbeFlow{In: 2, Out: pod})
		}, []string{"source.untranslated/fail"}, VerdictWrong},
		{"translation is off, and the pods' network is an approved route", func(e *Evidence) {
			e.Document.Firewall.SNAT = false
			e.Rules.Chains = e.Rules.Chains[:1]
			e.Tailscaled.Self.Allowed = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
		}, []string{"agent.pending/warn"}, VerdictOK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := healthyEvidence(t)
			tt.change(e)
			r := Judge(e)
			if got := codes(r); !slices.Equal(got, tt.want) || r.Verdict != tt.verdict {
				var details []string
				for _, result := range r.Results {
					if result.Status != StatusOK {
						details = append(details, string(result.Status)+" "+result.Check+": "+result.Detail)
					}
				}
				t.Errorf("named %q, verdict %s\nwant %q, %s\n%s", got, r.Verdict, tt.want, tt.verdict, strings.Join(details, "\n"))
			}
			for _, f := range r.Findings() {
				if len(f.Evidence) == 0 || f.Evidence[0].What == "" || f.Evidence[0].How == "" {
					t.Errorf("%s has no evidence", f.Code)
				}
			}
		})
	}
}

func podsAt(network string) []pods.Found {
	return []pods.Found{{Networks: []netip.Prefix{netip.MustParsePrefix(network)}}}
}

func TestCheckPod(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     string
		change  func(*Evidence)
		refused bool
	}{
		"a pod's":                    {"10.244.1.7", func(*Evidence) {}, false},
		"another network's":          {"10.244.2.7", func(*Evidence) {}, true},
		"the node's own":             {"10.244.1.1", func(*Evidence) {}, true},
		"without a document":         {"10.244.1.7", func(e *Evidence) { e.Document, e.DocumentErr = nil, "no document at X" }, false},
		"another node's document":    {"10.244.2.7", func(e *Evidence) { e.Document.Node.ID = "nOther" }, false},
		"pods' networks are unknown": {"10.244.1.7", func(e *Evidence) { e.Document.PodCIDRs = nil }, false},
		"pods' networks are found":   {"10.244.3.7", func(e *Evidence) { e.Document.PodCIDRs, e.Pods = nil, podsAt("10.244.3.0/24") }, false},
		"another than those found":   {"10.244.1.7", func(e *Evidence) { e.Document.PodCIDRs, e.Pods = nil, podsAt("10.244.3.0/24") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthyEvidence(t)
			e.Pod = netip.MustParseAddr(tt.pod)
			tt.change(e)
			if err := e.checkPod(); (err != nil) != tt.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Who takes a packet, on paper: nobody is named where selectors decide that are not followed.
func TestDecide(t *testing.T) {
	lookup := func(priority, table uint32, other string) desired.Rule {
		return desired.Rule{Family: desired.IPv4, Priority: priority, Action: desired.Lookup, Table: table, Other: other}
	}
	ends := func(priority uint32, action, other string) desired.Rule {
		return desired.Rule{Family: desired.IPv4, Priority: priority, Action: action, Target: 200, Other: other}
	}
	tests := []struct {
		name  string
		first desired.Rule
		want  string // where the route leads
	}{
		{"the first table with a route", lookup(100, 254, ""), "eth0"},
		{"a default route that is suppressed", lookup(100, 254, "suppress_prefixlength 0"), "tun"},
		{"longer than what is suppressed", lookup(100, 52, "suppress_prefixlength 0"), "tailscale0"},
		{"as long as what is suppressed", lookup(100, 52, "suppress_prefixlength 32"), "tun"},
		{"a selector that is not followed", lookup(100, 254, "dport 80"), ""},
		{"and no route in its table", lookup(100, 99, "dport 80"), "tun"},
		{"a selector, and what is suppressed", lookup(100, 254, "suppress_prefixlength 0 dport 80"), "tun"},
		{"routes of a group of interfaces are suppressed", lookup(100, 254, "suppress_ifgroup 3"), ""},
		{"goto", ends(100, desired.Goto, ""), "tailscale0"},
		{"goto for some", ends(100, desired.Goto, "tos 0x10"), ""},
		{"unreachable for some", ends(100, desired.Unreachable, "tos 0x10"), ""},
		{"nop for some", ends(100, desired.Nop, "tos 0x10"), "tun"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &judgement{e: &Evidence{
				Facts: desired.Facts{Rules: []desired.Rule{tt.first, lookup(150, 77, ""), lookup(200, 52, "")}},
				Routes: []Route{
					{Family: desired.IPv4, Table: 254, Dst: netip.MustParsePrefix("0.0.0.0/0"), Dev: "eth0"},
					{Family: desired.IPv4, Table: 77, Dst: netip.PrefixFrom(mesh(12), 32), Dev: "tun"},
					{Family: desired.IPv4, Table: 52, Dst: netip.PrefixFrom(mesh(12), 32), Dev: "tailscale0"},
				},
			}}
			got := j.decide(desired.Packet{Src: netip.MustParseAddr("10.244.1.2"), Dst: mesh(12), Iif: "cni0"}, anyRule)
			if got.route.Dev != tt.want || got.found != (tt.want != "") {
				t.Errorf("found %v, %s; want %q", got.found, got, tt.want)
			}
		})
	}
}

// What a packet meets in chains that call each other, and where a rule may or may not take it.
func TestFilter(t *testing.T) {
	packet := Traced{
		Src: netip.MustParseAddr("10.244.1.2"), Dst: mesh(12), Iif: "cni0", Oif: "tailscale0", Protocol: unix.IPPROTO_TCP, ICMPType: -1,
	}
	in := func(name string) []expr.Any { return []expr.Any{load(expr.MetaKeyIIFNAME), equal(name16(name))} }
	port := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equal([]byte{0, 80}),
	}
	rule := func(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }
	end := func(k expr.VerdictKind, chain ...string) []expr.Any {
		return []expr.Any{verdict(k, strings.Join(chain, ""))}
	}
	tests := []struct {
		name    string
		policy  bool
		rules   [][]expr.Any
		other   [][]expr.Any // of chain "other"
		dropped bool
		certain bool
	}{
		{name: "no rules", certain: true},
		{name: "policy", policy: true, dropped: true, certain: true},
		{name: "accepted before the policy", policy: true, rules: [][]expr.Any{rule(in("cni0"), end(expr.VerdictAccept))}, certain: true},
		{name: "another interface", policy: true, rules: [][]expr.Any{rule(in("eth0"), end(expr.VerdictAccept))}, dropped: true, certain: true},
		{
			name: "dropped in a chain that is called", rules: [][]expr.Any{end(expr.VerdictJump, "other")},
			other: [][]expr.Any{end(expr.VerdictDrop)}, dropped: true, certain: true,
		},
		{
			name: "returned from it", rules: [][]expr.Any{end(expr.VerdictJump, "other"), end(expr.VerdictDrop)},
			other: [][]expr.Any{end(expr.VerdictReturn), end(expr.VerdictAccept)}, dropped: true, certain: true,
		},
		{name: "goto does not come back", rules: [][]expr.Any{end(expr.VerdictGoto, "other"), end(expr.VerdictDrop)}, certain: true},
		{name: "what drops one port is no obstacle to others", rules: [][]expr.Any{rule(port, end(expr.VerdictDrop))}, certain: true},
		{name: "or accept it", policy: true, rules: [][]expr.Any{rule(port, end(expr.VerdictAccept))}, dropped: true},
		{
			name: "or leave the chain before the verdict", policy: true, rules: [][]expr.Any{end(expr.VerdictJump, "other")},
			other: [][]expr.Any{rule(port, end(expr.VerdictReturn)), end(expr.VerdictAccept)}, dropped: true,
		},
		{name: "a port matters not to what is accepted anyway", rules: [][]expr.Any{
			rule(port, end(expr.VerdictAccept)), end(expr.VerdictAccept), end(expr.VerdictDrop),
		}, certain: true},
		{name: "a limit", rules: [][]expr.Any{rule([]expr.Any{&expr.Limit{}}, end(expr.VerdictDrop))}},
		{name: "a queue may do anything", rules: [][]expr.Any{{&expr.Queue{}}}},
		{name: "a set that is not there", rules: [][]expr.Any{rule(daddr(mesh(12))[:1], []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: "x"}}, end(expr.VerdictDrop))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := newChain("ip", "filter", "FORWARD", Forward, "filter", tt.rules...)
			base.Drop = tt.policy
			set := &Ruleset{Chains: []*Chain{base, newChain("ip", "filter", "other", "", "", tt.other...)}}
			got := set.Filter(Forward, packet)
			if got.Dropped != tt.dropped || got.Certain() != tt.certain {
				t.Errorf("dropped %v, certain %v (%q); want %v, %v", got.Dropped, got.Certain(), got.Culprit(), tt.dropped, tt.certain)
			}
		})
	}
}

// A packet is followed once, however often the judgement is made; another one is followed by itself.
func TestFilterRemembers(t *testing.T) {
	packet := Traced{Src: mesh(11), Dst: mesh(12), Iif: "cni0", Protocol: unix.IPPROTO_TCP, ICMPType: -1}
	chain := newChain("ip", "filter", "FORWARD", Forward, "filter", append(daddr(mesh(12)), verdict(expr.VerdictDrop, "")))
	set := &Ruleset{Chains: []*Chain{chain}, outcomes: map[at]Outcome{}}
	first := set.Filter(Forward, packet)
	chain.Rules = nil // nobody does this to what was read
	if second := set.Filter(Forward, packet); !first.Dropped || second.By != first.By {
		t.Errorf("first %+v, then %+v", first, second)
	}
	packet.Dst = mesh(13)
	if set.Filter(Forward, packet).Dropped || set.Filter(Prerouting, packet).Dropped {
		t.Error("another packet got the outcome of the first")
	}
}

func TestSetFind(t *testing.T) {
	border := func(end bool, last byte) Element { return Element{Key: []byte{10, 0, 0, last}, End: end} }
	set := &Set{Interval: true, Length: 4, Elements: []Element{border(true, 0), border(false, 4), border(true, 8), border(false, 8), border(true, 12)}}
	for last, want := range map[byte]bool{0: false, 3: false, 4: true, 7: true, 8: true, 11: true, 12: false, 200: false} {
		if _, got := set.find([]byte{10, 0, 0, last}); got != want {
			t.Errorf("10.0.0.%d is in the set: %v, want %v", last, got, want)
		}
	}
}
