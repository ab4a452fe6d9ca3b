package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// service is a loop at work on a node in memory.
type service struct {
	node    *kernel.Fake
	doc     config.Document
	docErr  error
	changed chan string
	passes  []reconcile.Pass
	log     bytes.Buffer
	kept    []config.Document
	keepErr error

	order sync.Mutex // what the test did before a pause happened before what the loop does in it
}

// start runs the loop in the background of a synctest bubble, until the test ends.
func start(t *testing.T, s *service, good *config.Document) {
	t.Helper()
	s.changed = make(chan string)
	if s.node == nil {
		s.node = newNode()
	}
	loop := &reconcile.Loop{
		Node: &reconcile.Node{Kernel: s.node},
		Load: func() (config.Document, error) {
			s.order.Lock()
			defer s.order.Unlock()
			return s.doc, s.docErr
		},
		Good: good,
		Keep: func(doc config.Document) error {
			if s.keepErr != nil {
				return fmt.Errorf("write a temporary file of another name each time, %d: %w", rand.Int(), s.keepErr)
			}
			s.kept = append(s.kept, doc)
			return nil
		},
		Changed: s.changed,
		Observe: func(p reconcile.Pass) { s.passes = append(s.passes, p) },
		Log:     slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ended with %v", err)
		}
	})
	synctest.Wait()
}

func (s *service) last() reconcile.Pass { return s.passes[len(s.passes)-1] }

func (s *service) after(d time.Duration) {
	s.order.Lock()
	s.order.Unlock() //nolint:staticcheck // for the order alone
	time.Sleep(d)
	synctest.Wait()
}

func TestLoopRestsWhenNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12, 13)}
		start(t, s, nil)
		if len(s.passes) != 1 || s.last().Report.Verdict() != reconcile.OK || s.node.Applied != 1 {
			t.Fatalf("at the start: %+v", s.passes)
		}
		s.after(4 * time.Minute)
		if len(s.passes) != 1 {
			t.Errorf("%d passes in four quiet minutes, want none after the first", len(s.passes)-1)
		}
		s.after(90 * time.Second)
		if len(s.passes) != 2 || s.last().Cause != "resync" || s.node.Applied != 1 {
			t.Errorf("the backstop: %d passes, the last by %q; %d changes", len(s.passes), s.last().Cause, s.node.Applied)
		}
		if strings.Count(s.log.String(), "verdict=ok") != 4 {
			t.Errorf("each address of a peer is logged once, when its verdict changes:\n%s", &s.log)
		}
	})
}

func TestLoopDebounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12)}
		start(t, s, nil)
		for range 10 {
			s.changed <- "rule"
			s.after(20 * time.Millisecond)
		}
		s.changed <- "link"
		s.after(time.Second)
		if len(s.passes) != 2 || s.last().Cause != "rule,link" {
			t.Errorf("a burst: %d passes, the last by %q; want one, by both", len(s.passes)-1, s.last().Cause)
		}
		begin := len(s.passes)
		for range 100 { // five seconds without a quiet moment
			s.changed <- "route"
			s.after(50 * time.Millisecond)
		}
		if n := len(s.passes) - begin; n < 4 || n > 6 {
			t.Errorf("%d passes in five busy seconds, want one a second", n)
		}
	})
}

func TestLoopRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12)}
		start(t, s, nil)
		whole := s.node.Dump()
		for range 6 {
			s.node.Rules, s.node.Tables = newNode().Rules, nil
			s.changed <- "rule"
			s.after(time.Second)
			if diff := cmp.Diff(whole, s.node.Dump()); diff != "" {
				t.Fatalf("not repaired:\n%s", diff)
			}
		}
		if log := s.log.String(); !strings.Contains(log, `msg=repaired command="ip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116"`) ||
			!strings.Contains(log, `msg=repaired command="nft add table inet tailmesh"`) {
			t.Errorf("the log does not say what was repaired:\n%s", log)
		}
		if n := strings.Count(s.log.String(), "somebody keeps undoing"); n != 1 {
			t.Errorf("a fight is named once, not %d times:\n%s", n, &s.log)
		}
	})
}

// Hundreds of peers that fare alike are a line of the log, and one of them that fares otherwise is another.
func TestLoopLogsManyPeersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last []int
		for i := range 200 {
			last = append(last, 12+i)
		}
		s := &service{doc: document(last...), node: newNode()}
		mesh := kernel.FakeRoute{Table: 52, Dst: prefix("100.64.0.0/24"), Dev: "tailscale0"}
		mesh6 := kernel.FakeRoute{Table: 52, Dst: prefix("fd7a:115c:a1e0::/48"), Dev: "tailscale0"}
		s.node.Routes = append(s.node.Routes, mesh, mesh6)
		start(t, s, nil)
		s.after(time.Second)
		lines := func(want ...string) {
			t.Helper()
			log := s.log.String()
			s.log.Reset()
			if strings.Count(log, "msg=peer") != len(want) {
				t.Errorf("%d lines about peers, want %d:\n%s", strings.Count(log, "msg=peer"), len(want), log)
			}
			for _, text := range want {
				if !strings.Contains(log, text) {
					t.Errorf("the log has no %q:\n%s", text, log)
				}
			}
		}
		lines(`msg=peers addresses=400 first=peer12 last=peer211 verdict=ok way="dev tailscale0 table 52" why=""`)
		s.node.Routes = slices.DeleteFunc(s.node.Routes, func(r kernel.FakeRoute) bool { return r == mesh6 })
		s.changed <- "route"
		s.after(time.Second)
		lines("level=WARN msg=peers addresses=195 first=peer17 last=peer211 verdict=wrong ")
		s.node.Routes = append(s.node.Routes, kernel.FakeRoute{Table: 52, Dst: prefix("fd7a:115c:a1e0::11/128"), Dev: "tailscale0"})
		s.changed <- "route"
		s.after(time.Second)
		lines("level=INFO msg=peer name=peer17 address=fd7a:115c:a1e0::11 verdict=ok ")
	})
}

func TestLoopKeepsTheLastGoodDocument(t *testing.T) {
	foreign := document(12)
	foreign.Node = node("other", 99)
	backend := document(12)
	backend.Firewall.Backend = config.BackendIPTables
	shadowed := document(12)
	shadowed.Routing.Priority = config.PriorityOf(6000)
	tests := []struct {
		name string
		doc  config.Document
		err  error
	}{
		{"bad", config.Document{}, &reconcile.BadDocumentError{Err: errors.New("colour: unknown key")}},
		{"another node's", foreign, nil},
		{"without effect", shadowed, nil},
		{"of another backend", backend, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{doc: document(12, 13)}
				good := new(s.doc)
				start(t, s, nil)
				whole := s.node.Dump()
				s.doc, s.docErr = tt.doc, tt.err
				s.changed <- "document"
				s.after(time.Second)
				s.node.Rules = newNode().Rules // and what it says is still looked after
				s.changed <- "rule"
				s.after(5 * time.Minute)
				if diff := cmp.Diff(whole, s.node.Dump()); diff != "" {
					t.Errorf("the last good document is not in force:\n%s", diff)
				}
				if s.last().BadReason == "" {
					t.Error("nobody is told that the document cannot be used")
				}
				for _, p := range s.passes {
					if !reflect.DeepEqual(p.Document, good) {
						t.Errorf("said to be in force: %+v", p.Document)
					}
				}
				if n := strings.Count(s.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("%d errors logged, want one:\n%s", n, &s.log)
				}
				s.doc, s.docErr = document(13), nil
				s.changed <- "document"
				s.after(time.Second)
				if s.last().BadReason != "" || len(s.last().Report.Peers) != 2 || len(s.kept) != 2 {
					t.Errorf("a good document again: %+v, %d kept", s.last(), len(s.kept))
				}
			})
		})
	}
}

// Where the node has become one that not even the last good document fits, nothing is in force: that is said once, nothing is
// changed, and no pass counts as well done.
func TestLoopNodeIsAnother(t *testing.T) {
	other := document(12)
	other.Node = node("other", 99)
	for _, tt := range []struct {
		name  string
		doc   config.Document
		err   error
		fresh bool // a start, with the good document from an earlier life
		want  string
	}{
		{name: "registered anew", doc: document(12), want: "the document is for node"},
		{name: "registered anew before the start", doc: document(12), fresh: true, want: "the document is for node"},
		{name: "and the document is another's", doc: other, want: "; the last good one: the document is for node \"ams1\""},
		{name: "and the document is bad", err: &reconcile.BadDocumentError{Err: errors.New("colour: unknown key")}, want: "colour: unknown key; the last good one: the document is for"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{node: newNode(), doc: document(12)}
				var good *config.Document
				at := slices.IndexFunc(s.node.Links, func(l desired.Link) bool { return l.Name == desired.Interface })
				was := s.node.Links[at]
				rename := func() { s.node.Links[at] = link(desired.Interface, "100.64.0.77/32", "fd7a:115c:a1e0::4d/128") }
				if tt.fresh {
					good = new(s.doc)
					rename()
				}
				start(t, s, good)
				applied, passes := s.node.Applied, 0
				if !tt.fresh {
					passes = len(s.passes)
					rename()
					s.doc, s.docErr = tt.doc, tt.err
					s.changed <- "address"
				}
				s.after(10 * time.Minute)
				if s.node.Applied != applied {
					t.Error("the node was changed")
				}
				for _, p := range s.passes[passes:] {
					if p.Err != nil || !strings.Contains(p.BadReason, tt.want) || p.Document != nil || p.Verdict() != reconcile.Unknown {
						t.Fatalf("%s: %+v", p.Verdict(), p)
					}
				}
				if n := len(s.passes) - passes; n > 21 {
					t.Errorf("%d passes in ten minutes, want one every half minute", n)
				}
				if log := s.log.String(); strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, "level=WARN") ||
					!strings.Contains(log, "neither the document nor the last good one can be used") {
					t.Errorf("want it said once:\n%s", log)
				}
				s.node.Links[at] = was
				s.doc, s.docErr = document(12), nil
				s.changed <- "address"
				s.after(time.Second)
				if p := s.last(); p.Verdict() != reconcile.OK || p.BadReason != "" {
					t.Errorf("as it was again: %+v", p)
				}
			})
		})
	}
}

// A fixed priority that held can be overtaken later. The rest of the document is looked after all the same.
func TestLoopOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12)}
		s.doc.Routing.Priority = config.PriorityOf(100)
		start(t, s, nil)
		s.node.AddRule(desired.Rule{Family: desired.IPv4, Priority: 99, Src: prefix("10.244.1.0/24"), Action: desired.Lookup, Table: 77})
		whole := s.node.Dump()
		s.node.Tables = nil
		s.changed <- "rule"
		s.after(time.Second)
		if diff := cmp.Diff(whole, s.node.Dump()); diff != "" {
			t.Errorf("the firewall is not looked after:\n%s", diff)
		}
		const why = "the rule `99: from 10.244.1.0/24 lookup 77` comes first: let routing.priority be \"auto\""
		if got := s.last(); got.Err != nil || !strings.Contains(got.BadReason, "routing.priority 100 is behind the rule `99:") ||
			got.Report.Peers[0].Why != why || got.Report.Verdict() != reconcile.Wrong {
			t.Errorf("%+v", got)
		}
		s.after(10 * time.Minute)
		if n := strings.Count(s.log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors logged, want one:\n%s", n, &s.log)
		}
	})
}

// While the disk is full, the document is in force all the same, and it is put away as soon as there is room.
func TestLoopPutsTheDocumentAwayLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12), keepErr: syscall.ENOSPC}
		start(t, s, nil)
		s.after(20 * time.Minute)
		if s.last().Report.Verdict() != reconcile.OK || strings.Count(s.log.String(), "could not put the document away") != 1 {
			t.Errorf("verdict %s; want the trouble logged once:\n%s", s.last().Report.Verdict(), &s.log)
		}
		s.keepErr = nil
		s.after(20 * time.Minute)
		if len(s.kept) != 1 {
			t.Errorf("put away %d times, want once", len(s.kept))
		}
	})
}

func TestLoopStartsWithABadDocument(t *testing.T) {
	bad := &reconcile.BadDocumentError{Err: errors.New("no document")}
	t.Run("none before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &service{docErr: bad}
			start(t, s, nil)
			s.after(time.Hour)
			if s.node.Applied != 0 || s.last().BadReason != "no document" || s.last().Verdict() != reconcile.Unknown {
				t.Errorf("%d changes, reason %q", s.node.Applied, s.last().BadReason)
			}
			s.doc, s.docErr = document(12), nil
			s.changed <- "document"
			s.after(time.Second)
			if s.last().Report.Verdict() != reconcile.OK {
				t.Errorf("the document came, but: %+v", s.last())
			}
		})
	})
	t.Run("one from an earlier life", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			good := document(12)
			s := &service{docErr: bad}
			start(t, s, &good)
			if s.node.Applied != 1 || s.last().BadReason != "no document" || len(s.last().Report.Peers) != 2 {
				t.Errorf("%d changes, %+v", s.node.Applied, s.last())
			}
		})
	})
}

// Being told to end is no trouble, at whatever moment it comes.
func TestLoopEndsQuietly(t *testing.T) {
	for name, load := range map[string]error{"amid a document": &reconcile.BadDocumentError{Err: context.Canceled}, "amid a pass": nil} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var log bytes.Buffer
			f := newNode()
			loop := &reconcile.Loop{
				Node:    &reconcile.Node{Kernel: f},
				Load:    func() (config.Document, error) { cancel(); return document(12), load },
				Observe: func(p reconcile.Pass) { t.Errorf("observed %+v", p) },
				Log:     slog.New(slog.NewTextHandler(&log, nil)),
			}
			if err := loop.Run(ctx); !errors.Is(err, context.Canceled) || log.Len() > 0 || f.Applied > 0 {
				t.Errorf("%v, %d changes, log:\n%s", err, f.Applied, &log)
			}
		})
	}
}

func TestLoopTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{doc: document(12), node: newNode()}
		s.node.Err = syscall.ENOBUFS
		begin := time.Now()
		start(t, s, nil)
		s.after(2 * time.Minute)
		var at []time.Duration
		for _, p := range s.passes {
			at = append(at, p.Begin.Sub(begin))
		}
		second := time.Second
		want := []time.Duration{0, second, 3 * second, 7 * second, 15 * second, 31 * second, 61 * second, 91 * second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		s.node.Err = nil
		s.after(time.Minute)
		if s.last().Err != nil || s.last().Report.Verdict() != reconcile.OK {
			t.Errorf("after the trouble: %+v", s.last())
		}
	})
}

// An answer of tailscaled serves after tailscaled has gone.
func TestLoopRemembersTheTailnet(t *testing.T) {
	// In TestResolve the answer itself is judged; here, what is left of it.
	f := newNode()
	doc := document(12)
	doc.Peers[0].ID = "nFra"
	var now *desired.Tailnet // nil: tailscaled is gone
	n := &reconcile.Node{Kernel: f, Tailnet: func(context.Context) (*desired.Tailnet, error) {
		if now == nil {
			return nil, syscall.ENOENT
		}
		return now, nil
	}}
	address := func() string {
		p, err := n.Prepare(t.Context(), doc)
		if err != nil {
			t.Fatal(err)
		}
		return p.State.Probes[0].Packet.Dst.String()
	}
	if got := address(); got != "100.64.0.12" {
		t.Errorf("before tailscaled answers: %s", got)
	}
	now = &desired.Tailnet{Peers: []desired.TailnetNode{{ID: "nFra", Addresses: node("", 14).Addresses}}}
	if got := address(); got != "100.64.0.14" {
		t.Errorf("tailscaled answers: %s", got)
	}
	now = nil
	if got := address(); got != "100.64.0.14" {
		t.Errorf("after tailscaled has gone: %s", got)
	}
}
