package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/tailscale"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func link(name string, addresses ...string) desired.Link {
	l := desired.Link{Name: name, Up: true}
	for _, a := range addresses {
		l.Addresses = append(l.Addresses, prefix(a))
	}
	return l
}

// newNode is a node as tailscaled and kube-router leave it, with the peers 100.64.0.12 to 100.64.0.16.
func newNode() *kernel.Fake {
	f := kernel.NewFake()
	f.Links = append(f.Links,
		link("kube-bridge", "10.244.1.1/24", "fd00:10:244:1::1/64"),
		link("tun-fra1"),
		link("tailscale0", "100.64.0.11/32", "fd7a:115c:a1e0::b/128"),
	)
	for _, family := range desired.Families() {
		f.AddRule(desired.Rule{Family: family, Priority: 5250, Mark: 0x80000, Mask: 0xff0000, Action: desired.Unreachable})
		f.AddRule(desired.Rule{Family: family, Priority: 5270, Action: desired.Lookup, Table: 52})
	}
	f.AddRule(desired.Rule{Family: desired.IPv4, Priority: 5209, Src: prefix("10.244.1.0/24"), Action: desired.Lookup, Table: 77})
	f.AddRule(desired.Rule{Family: desired.IPv6, Priority: 5209, Src: prefix("fd00:10:244:1::/64"), Action: desired.Lookup, Table: 77})
	f.Routes = append(f.Routes,
		kernel.FakeRoute{Table: 254, Dst: prefix("10.244.1.0/24"), Dev: "kube-bridge"},
		kernel.FakeRoute{Table: 254, Dst: prefix("fd00:10:244:1::/64"), Dev: "kube-bridge"})
	for i := 12; i <= 16; i++ {
		for table, dev := range map[uint32]string{52: "tailscale0", 77: "tun-fra1"} {
			f.Routes = append(f.Routes,
				kernel.FakeRoute{Table: table, Dst: prefix(fmt.Sprintf("100.64.0.%d/32", i)), Dev: dev},
				kernel.FakeRoute{Table: table, Dst: prefix(fmt.Sprintf("fd7a:115c:a1e0::%x/128", i)), Dev: dev})
		}
	}
	return f
}

func node(name string, last int) config.Node {
	return config.Node{Name: name, Addresses: []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf("100.64.0.%d", last)), netip.MustParseAddr(fmt.Sprintf("fd7a:115c:a1e0::%x", last)),
	}}
}

func document(peers ...int) config.Document {
	doc := config.New()
	doc.Mesh, doc.Node = "futhark", node("ams1", 11)
	doc.PodCIDRs = []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd00:10:244:1::/64")}
	for _, last := range peers {
		doc.Peers = append(doc.Peers, node(fmt.Sprintf("peer%d", last), last))
	}
	return doc
}

func apply(ctx context.Context, k kernel.Interface, doc config.Document) (reconcile.Report, error) {
	n := &reconcile.Node{Kernel: k}
	p, err := n.Prepare(ctx, doc)
	if err != nil {
		return reconcile.Report{}, err
	}
	return n.Apply(ctx, p)
}

// From any document to any other, the node ends as if the last had been the only one, and a second run does nothing.
func TestTransitions(t *testing.T) {
	pristine := newNode().Dump()
	documents := rapid.Custom(func(t *rapid.T) config.Document {
		doc := document(rapid.SliceOfDistinct(rapid.IntRange(12, 16), rapid.ID).Draw(t, "peers")...)
		doc.Routing.Mode = rapid.SampledFrom([]string{config.ModeMark, config.ModeRules}).Draw(t, "mode")
		doc.Routing.Mark = rapid.SampledFrom([]config.Mark{0x2000, 0x1000, 0x1}).Draw(t, "mark")
		doc.Routing.Priority = rapid.SampledFrom([]config.Priority{config.PriorityAuto(), config.PriorityOf(5), config.PriorityOf(100)}).Draw(t, "priority")
		doc.Routing.FailClosed = rapid.Bool().Draw(t, "fail closed")
		doc.Firewall.SNAT = rapid.Bool().Draw(t, "snat")
		families := rapid.SampledFrom([]int{1, 2}).Draw(t, "families")
		doc.PodCIDRs = doc.PodCIDRs[:families]
		for _, local := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"10.7.0.0/16", "10.6.0.0/16", "192.168.0.0/24"}), rapid.ID).Draw(t, "local") {
			doc.LocalCIDRs = append(doc.LocalCIDRs, prefix(local))
		}
		return doc
	})
	rapid.Check(t, func(rt *rapid.T) {
		travelled := newNode()
		for _, doc := range rapid.SliceOfN(documents, 1, 4).Draw(rt, "documents") {
			report, err := apply(t.Context(), travelled, doc)
			if err != nil {
				rt.Fatal(err)
			}
			if len(report.Pending) > 0 || report.Verdict() != reconcile.OK {
				rt.Fatalf("verdict %s, pending %q, peers %+v", report.Verdict(), report.Pending, report.Peers)
			}
			fresh := newNode()
			if _, err := apply(t.Context(), fresh, doc); err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(canonical(fresh), canonical(travelled)); diff != "" {
				rt.Fatalf("(-fresh +travelled):\n%s", diff)
			}
			before := travelled.Applied
			if report, err := apply(t.Context(), travelled, doc); err != nil || len(report.Changes) > 0 || travelled.Applied != before {
				rt.Fatalf("the second run did %q, %v", report.Changes, err)
			}
		}
		if _, err := (&reconcile.Node{Kernel: travelled}).Cleanup(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(pristine, travelled.Dump()); diff != "" {
			rt.Fatalf("cleanup left something:\n%s", diff)
		}
	})
}

// canonical is a dump without the order of rules of one priority, which does not matter among the agent's own.
func canonical(f *kernel.Fake) map[string]int {
	lines := map[string]int{}
	for line := range strings.Lines(f.Dump()) {
		lines[line]++
	}
	return lines
}

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name   string
		damage func(f *kernel.Fake)
		want   reconcile.Verdict
		why    string
	}{
		{"healthy", func(*kernel.Fake) {}, reconcile.OK, ""},
		{
			"peer not in tailscale's table", func(f *kernel.Fake) {
				f.Routes = slices.DeleteFunc(f.Routes, func(r kernel.FakeRoute) bool { return r.Table == 52 })
			}, reconcile.Wrong,
			"table 52 has no route to it: tailscaled does not know this address",
		},
		{"tailscale0 gone", func(f *kernel.Fake) { f.Links = f.Links[:3]; f.Routes = nil }, reconcile.Unknown, "tailscale0 does not exist"},
		{"tailscale0 down", func(f *kernel.Fake) { f.Links[3].Up = false; f.Routes = nil }, reconcile.Wrong, "tailscale0 is down"},
		{
			"tailscale0 without address", func(f *kernel.Fake) { f.Links[3].Addresses = nil; f.Routes = nil }, reconcile.Unknown,
			"tailscale0 has no IPv4 mesh address",
		},
		{"overtaken", func(f *kernel.Fake) {
			var others []desired.Rule
			for _, r := range f.Rules {
				if !r.Own() {
					others = append(others, r)
				}
			}
			own := desired.Facts{Rules: f.Rules}.OwnRules()
			f.Rules = others
			f.AddRule(desired.Rule{Family: desired.IPv4, Src: prefix("10.244.1.0/24"), Action: desired.Lookup, Table: 77})
			for _, r := range own {
				f.AddRule(r)
			}
		}, reconcile.Wrong, "the rule `0: from 10.244.1.0/24 lookup 77` comes first; move it: ip rule add pref 5249 from " +
			"10.244.1.0/24 lookup 77, then ip rule del pref 0 from 10.244.1.0/24 lookup 77"},
		{"rule gone", func(f *kernel.Fake) {
			f.Rules = newNode().Rules
		}, reconcile.Wrong, "the rule `0: from all fwmark 0x2000/0x2000 lookup 52 proto 116` is missing"},
		{"firewall gone", func(f *kernel.Fake) { f.Tables = nil }, reconcile.Wrong, "packets to it get no mark"},
		{"tailscale's table has the pods' network", func(f *kernel.Fake) {
			f.Routes = append(f.Routes, kernel.FakeRoute{Table: 52, Dst: prefix("10.244.0.0/16"), Dev: "tailscale0"})
		}, reconcile.Wrong, "its replies to pods leave by dev tailscale0 table 52"},
		{
			"bridge gone", func(f *kernel.Fake) { f.Links[1].Name, f.Links[1].Addresses = "eth0", nil }, reconcile.Unknown,
			"the interface of the pods is not known",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newNode()
			doc := document(12)
			if _, err := apply(t.Context(), f, doc); err != nil {
				t.Fatal(err)
			}
			tt.damage(f)
			n := &reconcile.Node{Kernel: f}
			p, err := n.Prepare(t.Context(), doc)
			if err != nil {
				t.Fatal(err)
			}
			report, err := n.Look(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got := report.Peers[0]; got.Verdict != tt.want || got.Why != tt.why {
				t.Errorf("got  %s: %s\nwant %s: %s", got.Verdict, got.Why, tt.want, tt.why)
			}
			if report.Verdict() != tt.want {
				t.Errorf("the whole: %s, want %s", report.Verdict(), tt.want)
			}
		})
	}
}

// Without knowing the pods' networks, what is in place stays.
func TestUnknownPodsKeepWhatIsThere(t *testing.T) {
	f := newNode()
	if _, err := apply(t.Context(), f, document(12)); err != nil {
		t.Fatal(err)
	}
	before := f.Dump()
	doc := document(12)
	doc.PodCIDRs = nil
	f.Links = f.Links[:1]
	report, err := apply(t.Context(), f, doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, f.Dump()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if report.Verdict() != reconcile.Unknown {
		t.Errorf("verdict %s, want unknown", report.Verdict())
	}
}

// asking counts the packets whose way is asked for.
type asking struct {
	*kernel.Fake
	asked int
}

func (a *asking) Ways(ctx context.Context, packets []desired.Packet) ([]desired.Answer, error) {
	a.asked += len(packets)
	return a.Fake.Ways(ctx, packets)
}

// In a pass the kernel is asked once about each packet and about the reply to it, whatever there is to do.
func TestQuestions(t *testing.T) {
	tests := []struct {
		name   string
		before func(f *kernel.Fake)
		doc    config.Document
		want   int
	}{
		{"nothing to do", func(*kernel.Fake) {}, document(12, 13, 14), 6 + 6},
		{"a peer more", func(*kernel.Fake) {}, document(12, 13, 14, 15), 8 + 8},
		{"a peer less", func(*kernel.Fake) {}, document(12, 13), 4 + 4},
		{"rules gone", func(f *kernel.Fake) { f.Rules = newNode().Rules }, document(12, 13, 14), 6 + 6},
		{"firewall gone", func(f *kernel.Fake) { f.Tables = nil }, document(12, 13, 14), 6 + 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &asking{Fake: newNode()}
			if _, err := apply(t.Context(), a, document(12, 13, 14)); err != nil {
				t.Fatal(err)
			}
			tt.before(a.Fake)
			a.asked = 0
			report, err := apply(t.Context(), a, tt.doc)
			if err != nil || report.Verdict() != reconcile.OK {
				t.Fatal(report.Verdict(), err)
			}
			if a.asked != tt.want {
				t.Errorf("%d questions, want %d", a.asked, tt.want)
			}
		})
	}
}

// A program that is told to end while it still asks changes nothing any more.
func TestStoppedBeforeTheChanges(t *testing.T) {
	reason := errors.New("terminated signal received")
	for _, tt := range []struct {
		name string
		when func(stop func()) (beforePrepare, whileAsking, beforeApply func())
	}{
		{"while tailscaled is asked", func(stop func()) (a, b, c func()) { return func() {}, stop, func() {} }},
		{"before the changes", func(stop func()) (a, b, c func()) { return func() {}, func() {}, stop }},
		{"at once", func(stop func()) (a, b, c func()) { return stop, func() {}, func() {} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			before, asking, between := tt.when(func() { cancel(reason) })
			f := newNode()
			n := &reconcile.Node{Kernel: f, Tailnet: func(ctx context.Context) (*desired.Tailnet, error) {
				asking()
				return nil, ctx.Err()
			}}
			before()
			p, err := n.Prepare(ctx, document(12))
			if err == nil {
				between()
				_, err = n.Apply(ctx, p)
			}
			if !errors.Is(err, reason) || err.Error() != "stopped before anything was changed: terminated signal received" || f.Applied != 0 {
				t.Errorf("%d changes, %v", f.Applied, err)
			}
		})
	}
}

// A tailscaled that is there and does not answer is worth a note; one that is not, or not connected, shows otherwise.
func TestTailscaledInTrouble(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("ask tailscaled: %w", syscall.ENOENT), ""},
		{fmt.Errorf("ask tailscaled: %w", syscall.ECONNREFUSED), ""},
		{fmt.Errorf("%w (state \"Stopped\")", tailscale.ErrNotRunning), ""},
		{errors.New("ask tailscaled: no answer within 2s"), "tailscaled does not say who is in the tailnet: the addresses of the document serve (ask tailscaled: no answer within 2s)"},
		{fmt.Errorf("ask tailscaled: %w", syscall.EACCES), "tailscaled does not say who is in the tailnet: the addresses of the document serve (ask tailscaled: permission denied)"},
	} {
		n := &reconcile.Node{Kernel: newNode(), Tailnet: func(context.Context) (*desired.Tailnet, error) { return nil, tt.err }}
		p, err := n.Prepare(t.Context(), document(12))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, note := range p.State.Notes {
			got = append(got, note.Message)
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%v:\ngot  %q\nwant %q", tt.err, got, tt.want)
		}
	}
}

// The networks that were found serve on when a family of them is not to be found for a while, alone or with the other.
func TestPodsNotFoundAnyMore(t *testing.T) {
	for _, c := range []struct {
		name     string
		families []desired.Family
	}{{"IPv6", []desired.Family{desired.IPv6}}, {"IPv4", []desired.Family{desired.IPv4}}, {"both", desired.Families()}} {
		t.Run(c.name, func(t *testing.T) {
			k := newNode()
			n := &reconcile.Node{Kernel: k}
			doc := document(12)
			doc.PodCIDRs = nil
			bring := func() (reconcile.Plan, reconcile.Report) {
				p, err := n.Prepare(t.Context(), doc)
				if err != nil {
					t.Fatal(err)
				}
				r, err := n.Apply(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				return p, r
			}
			bring()
			lost := func(p netip.Prefix) bool { return slices.Contains(c.families, desired.FamilyOf(p.Addr())) }
			k.Rules = slices.DeleteFunc(k.Rules, func(r desired.Rule) bool { return r.Src.IsValid() && lost(r.Src) })
			for i, l := range k.Links {
				if l.Name == "kube-bridge" {
					k.Links[i].Addresses = slices.DeleteFunc(slices.Clone(l.Addresses), lost)
				}
			}
			p, r := bring()
			if len(r.Changes) > 0 || len(p.Document.PodCIDRs) != 2 {
				t.Errorf("pods %s, changes %q", p.Document.PodCIDRs, r.Changes)
			}
			said := slices.ContainsFunc(p.State.Notes, func(n desired.Note) bool { return strings.Contains(n.Message, "as found before") })
			if !said {
				t.Errorf("nobody says so: %v", p.State.Notes)
			}
		})
	}
}
