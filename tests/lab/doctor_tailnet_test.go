//go:build linux

package lab

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"tailscale.com/ipn/ipnstate"
	"tailscale.com/tailcfg"
)

// told has the control server tell ams1 something else, and waits until its tailscaled has taken it over. Afterwards all is
// as before.
func told(edit func(l *Lab, res *tailcfg.MapResponse), ready func(l *Lab, s *ipnstate.Status) bool) func(t *testing.T, l *Lab) {
	return func(t *testing.T, l *Lab) {
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			l.Control.Tell(nil)
			l.await(t, ctx, func(s *ipnstate.Status) bool {
				p := peerStatus(s, l.Fra)
				return s.BackendState == "Running" && p != nil && p.Online && !p.Expired && slices.Equal(p.TailscaleIPs, l.Fra.Addrs)
			})
			l.revive(t, ctx, l.Ams)
		})
		l.Control.Tell(func(res *tailcfg.MapResponse) {
			if string(res.Node.StableID) == l.Ams.ID {
				edit(l, res)
			}
		})
		l.await(t, t.Context(), func(s *ipnstate.Status) bool { return ready(l, s) })
	}
}

// toldOfFra is told, about the peer alone.
func toldOfFra(edit func(p *tailcfg.Node), ready func(p *ipnstate.PeerStatus) bool) func(t *testing.T, l *Lab) {
	return told(func(l *Lab, res *tailcfg.MapResponse) {
		for _, p := range res.Peers {
			if string(p.StableID) == l.Fra.ID {
				edit(p)
			}
		}
	}, func(l *Lab, s *ipnstate.Status) bool { return ready(peerStatus(s, l.Fra)) })
}

func (l *Lab) await(t *testing.T, ctx context.Context, ready func(*ipnstate.Status) bool) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		s, err := l.Ams.api().Status(ctx)
		if err == nil && ready(s) {
			return
		}
		if time.Since(begin) > 2*soon {
			t.Fatalf("tailscaled does not take over what it was told: %+v (%v)", s, err)
		}
	}
}

// peerStatus returns what tailscaled says of a peer, nil where it does not know of it.
func peerStatus(s *ipnstate.Status, n *Node) *ipnstate.PeerStatus {
	for _, p := range s.Peer {
		if string(p.ID) == n.ID {
			return p
		}
	}
	return nil
}

// tailnetAilments are those that the control server, or a peer, is the cause of.
func tailnetAilments(l *Lab) []ailment {
	past := time.Now().Add(-time.Hour)
	moved := netip.MustParsePrefix("100.64.0.77/32")
	move := told(func(l *Lab, res *tailcfg.MapResponse) {
		for _, p := range res.Peers {
			if string(p.StableID) == l.Fra.ID {
				p.Addresses[0], p.AllowedIPs[0] = moved, moved
			}
		}
		rules := slices.Clone(res.PacketFilters["base"]) // of the policy, as it is compiled for the new address
		for i := range rules {
			if slices.Contains(rules[i].SrcIPs, l.Fra.Addr(4).String()) {
				rules[i].SrcIPs = append(slices.Clone(rules[i].SrcIPs), moved.Addr().String())
			}
		}
		res.PacketFilters["base"] = rules
	}, func(l *Lab, s *ipnstate.Status) bool {
		p := peerStatus(s, l.Fra)
		return p != nil && slices.Contains(p.TailscaleIPs, moved.Addr())
	})
	return []ailment{
		{name: "a peer's tailscaled is stopped", do: func(t *testing.T, l *Lab) {
			t.Cleanup(func() { // before the control server is asked to say again that it is online
				if err := l.Fra.StartDaemon(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
				l.revive(t, context.WithoutCancel(t.Context()), l.Fra)
			})
			l.Fra.StopDaemon()
			toldOfFra(func(p *tailcfg.Node) { p.Online = new(bool) }, func(p *ipnstate.PeerStatus) bool { return p != nil && !p.Online })(t, l)
		}, ams: []string{"peers.offline"}, fra: []string{"tailscaled.down"}},
		{
			name: "a peer's key has expired", ams: []string{"peers.expired"},
			do: toldOfFra(func(p *tailcfg.Node) { p.KeyExpiry = past }, func(p *ipnstate.PeerStatus) bool { return p != nil && p.Expired }),
		},
		{
			name: "a peer is hidden, or removed", ams: []string{"peers.unknown"},
			do: told(func(l *Lab, res *tailcfg.MapResponse) {
				res.Peers = slices.DeleteFunc(res.Peers, func(p *tailcfg.Node) bool { return string(p.StableID) == l.Fra.ID })
			}, func(l *Lab, s *ipnstate.Status) bool { return peerStatus(s, l.Fra) == nil }),
		},
		{
			name: "a peer's address is another node's", ams: []string{"agent.pending(warn)", "peers.replaced"}, // the address is in the set still

			do: toldOfFra(func(p *tailcfg.Node) { p.ID, p.StableID = 4711, "nOther" }, func(p *ipnstate.PeerStatus) bool { return p == nil }),
		},
		{name: "a peer has another address, and no agent follows", do: move, ams: []string{"document.stale(warn)", "peers.moved", "source.untranslated+"}},
		{name: "look-alike: a peer has another address, and an agent follows", do: func(t *testing.T, l *Lab) {
			move(t, l)
			if out, err := l.Ams.ApplyDocument(t.Context(), l.Document(l.Ams)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}, ams: []string{"document.stale(warn)"}},
		{
			name: "this node's key has expired", ams: []string{"tailscaled.key-expired"},
			do: told(func(_ *Lab, res *tailcfg.MapResponse) { res.Node.KeyExpiry = past },
				func(_ *Lab, s *ipnstate.Status) bool { return s.BackendState == "NeedsLogin" }),
		},
		{name: "an accepted route swallows a network of the location", do: func(t *testing.T, l *Lab) {
			accept(t, l, netip.MustParsePrefix("192.168.10.0/24"))
		}, ams: []string{"local.swallowed"}},
		{name: "an accepted route swallows all pods", do: func(t *testing.T, l *Lab) {
			accept(t, l, netip.MustParsePrefix("10.42.0.0/16"))
		}, ams: []string{"local.swallowed"}},
		{name: "look-alike: an accepted route to somewhere else", do: func(t *testing.T, l *Lab) {
			accept(t, l, netip.MustParsePrefix("192.168.99.0/24"))
		}},
		{name: "the control server is cut off", do: func(t *testing.T, l *Lab) {
			rule := func(ctx context.Context, what string) {
				if _, err := Run(ctx, l.Ams.Name, "iptables", what, "OUTPUT", "-p", "tcp", "-d", underlayRouter, "-j", "REJECT", "--reject-with", "tcp-reset"); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				rule(ctx, "-D")
				l.await(t, ctx, func(s *ipnstate.Status) bool { return s.Self.Online })
			})
			rule(t.Context(), "-I")
			l.Control.Tell(nil) // what is sent now is answered, which the rule turns into the end of the connection
			l.await(t, t.Context(), func(s *ipnstate.Status) bool { return !s.Self.Online })
		}, ams: []string{"tailscaled.offline(warn)"}},
		{name: "look-alike: Tailscale's rule was deleted, and it puts it back", inject: `
			ip rule del pref 5270
			for i in $(seq 50); do ip rule | grep -q ^5270: && exit; sleep 0.1; done
			exit 1`},
		{name: "stateful filtering", do: set("--stateful-filtering=true", "--stateful-filtering=false"), ams: []string{"firewall.stateful"}},
		{
			name: "stateful filtering, and no rule", inject: "ip rule del pref 0 fwmark 0x2000/0x2000\nip -6 rule del pref 0 fwmark 0x2000/0x2000",
			do: set("--stateful-filtering=true", "--stateful-filtering=false"), ams: []string{"firewall.stateful+", "route.rule-missing"},
		},
		{
			name: "two at once: stateful filtering, no translation", inject: "nft flush chain inet tailmesh postrouting",
			do: set("--stateful-filtering=true", "--stateful-filtering=false"), ams: []string{"firewall.stateful", "source.untranslated+"},
		},
		{
			name: "two at once: this node's key has expired, no rule", inject: "ip rule del pref 0 fwmark 0x2000/0x2000",
			do: told(func(_ *Lab, res *tailcfg.MapResponse) { res.Node.KeyExpiry = past },
				func(_ *Lab, s *ipnstate.Status) bool { return s.BackendState == "NeedsLogin" }), ams: []string{"agent.pending(warn)", "tailscaled.key-expired"},
		},
		{
			name: "two at once: a peer is hidden, and an accepted route swallows a network", do: told(func(l *Lab, res *tailcfg.MapResponse) {
				res.Peers = slices.DeleteFunc(res.Peers, func(p *tailcfg.Node) bool { return string(p.StableID) == l.Fra.ID })
			}, func(l *Lab, s *ipnstate.Status) bool { return peerStatus(s, l.Fra) == nil }),
			inject: "ip route add 192.168.10.0/24 dev tailscale0 table 52", undo: "ip route del 192.168.10.0/24 table 52 || true",
			ams: []string{"local.swallowed", "peers.unknown"},
		},
		{
			name: "two at once: a peer's key has expired, no translation", inject: "nft flush chain inet tailmesh postrouting",
			do:  toldOfFra(func(p *tailcfg.Node) { p.KeyExpiry = past }, func(p *ipnstate.PeerStatus) bool { return p != nil && p.Expired }),
			ams: []string{"peers.expired", "source.untranslated+"},
		},
	}
}

// set changes a setting of ams1's tailscaled, and changes it back.
func set(to, back string) func(t *testing.T, l *Lab) {
	return func(t *testing.T, l *Lab) {
		t.Cleanup(func() {
			if out, err := l.Ams.Tailscale(context.WithoutCancel(t.Context()), "set", back); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		if out, err := l.Ams.Tailscale(t.Context(), "set", to); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// accept has ams1 accept a route to a network that the peer is said to serve.
func accept(t *testing.T, l *Lab, network netip.Prefix) {
	t.Helper()
	set("--accept-routes=true", "--accept-routes=false")(t, l)
	toldOfFra(func(p *tailcfg.Node) {
		p.AllowedIPs, p.PrimaryRoutes = append(p.AllowedIPs, network), []netip.Prefix{network}
	}, func(p *ipnstate.PeerStatus) bool {
		return p != nil && p.AllowedIPs != nil && slices.Contains(p.AllowedIPs.AsSlice(), network)
	})(t, l)
	if err := wait(t.Context(), soon, "the route", func() error {
		_, err := Sh(t.Context(), l.Ams.Name, "ip route show table 52 | grep -q "+network.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// testRegisteredAnew logs fra1 out and in again, which makes it another node with another address, as a reinstalled machine
// is. The control server forgets no node, so the old one is taken out of what ams1 is told. It comes last: the tunnels and
// documents of the lab are those of the old node.
func testRegisteredAnew(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	named := func(n *Node, want ...string) {
		t.Helper()
		got, said, err := n.examined(t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: named %q, want %q (%v)\n%s", n.Name, got, want, err, said)
		}
	}
	if out, err := l.Fra.Tailscale(t.Context(), "logout"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	named(l.Fra, "tailscaled.logged-out")
	old := *l.Fra
	if err := l.Fra.login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Fra.ID == old.ID || l.Fra.Addr(4) == old.Addr(4) {
		t.Fatalf("fra1 is %s at %v still", l.Fra.ID, l.Fra.Addrs)
	}
	l.Control.Tell(func(res *tailcfg.MapResponse) {
		res.Peers = slices.DeleteFunc(res.Peers, func(p *tailcfg.Node) bool { return string(p.StableID) == old.ID })
	})
	t.Cleanup(func() { l.Control.Tell(nil) })
	l.await(t, t.Context(), func(s *ipnstate.Status) bool { return peerStatus(s, &old) == nil && peerStatus(s, l.Fra) != nil })
	named(l.Ams, "peers.unknown")
	named(l.Fra, "document.foreign")
}
