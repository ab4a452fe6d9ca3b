//go:build linux

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// examined is what the doctor found on a node: codes, with the level in brackets where it is not a failure, and + where it
// stands behind another finding.
func (n *Node) examined(ctx context.Context, args ...string) (codes []string, said string, err error) {
	args = append([]string{"doctor", "--json", "--config", filepath.Join(n.dir, "node.json")}, args...)
	said, err = n.Agent(ctx, args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() > 2) {
		return nil, said, err
	}
	var report struct {
		Checks []struct {
			Findings []struct{ Code, Level, Behind string }
		}
	}
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		return nil, said, err
	}
	for _, c := range report.Checks {
		for _, f := range c.Findings {
			code := f.Code
			if f.Level != "fail" {
				code += "(" + f.Level + ")"
			}
			if f.Behind != "" {
				code += "+"
			}
			if !slices.Contains(codes, code) {
				codes = append(codes, code)
			}
		}
	}
	slices.Sort(codes)
	return codes, said, nil
}

// ailment is something done to ams1, and what the doctor must name there: that, and nothing else. fra1 is what is named on
// the other node.
type ailment struct {
	name   string
	inject string // commands on ams1
	undo   string // what takes them back, where the agent's own work does not
	do     func(t *testing.T, l *Lab)
	args   []string // of the doctor
	ams    []string
	fra    []string
}

func probed() []string { return []string{"--probe"} }

func ailments(l *Lab) []ailment {
	fra4 := l.Fra.Addr(4).String()
	const (
		noRule = "ip rule del pref 0 fwmark 0x2000/0x2000"
		noSNAT = "nft flush chain inet tailmesh postrouting"
		other  = "nft delete table ip other"
		bridge = "iifname " + PodBridge + " "
	)
	table := func(rules ...string) string {
		return "nft add table ip other\n" + strings.Join(rules, "\n")
	}
	chain := func(name, kind, hook, priority, rule string) string {
		return fmt.Sprintf("nft add chain ip other %s '{ type %s hook %s priority %s; }'\nnft add rule ip other %s %s", name, kind, hook, priority, name, rule)
	}
	policy := func(t *testing.T, l *Lab) {
		l.policyFile(t, withoutOverlay)
		t.Cleanup(func() {
			src, err := os.ReadFile("testdata/" + withOverlay)
			if err == nil {
				err = l.SetPolicy(context.WithoutCancel(t.Context()), withOverlay, src)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	return []ailment{
		{name: "nothing"},
		{name: "nothing, with a probe", args: probed()},
		{name: "look-alike: FORWARD drops, Tailscale and the pods' rules accept", inject: `iptables -P FORWARD DROP
			iptables -A FORWARD -i ` + PodBridge + ` -j ACCEPT
			iptables -A FORWARD -o ` + PodBridge + ` -j ACCEPT`, undo: "iptables -P FORWARD ACCEPT\niptables -D FORWARD -i " + PodBridge + " -j ACCEPT\niptables -D FORWARD -o " + PodBridge + " -j ACCEPT"},
		{name: "look-alike: strict rp_filter", inject: "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$f; done", undo: "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done"},
		{
			name: "look-alike: the CNI's rule was added again", inject: "ip rule del from 10.42.1.0/24 lookup 77\nip rule add from 10.42.1.0/24 lookup 77",
			undo: "ip rule del from 10.42.1.0/24 lookup 77\nip rule add pref 5209 from 10.42.1.0/24 lookup 77",
		},

		{name: "the rule is missing", inject: noRule, ams: []string{"route.rule-missing"}},
		{name: "the rule is missing, IPv6", inject: strings.Replace(noRule, "ip ", "ip -6 ", 1), ams: []string{"route.rule-missing"}},
		{
			name: "the rule is behind the CNI's", inject: "ip rule add pref 0 from 10.42.1.0/24 lookup 77\n" + noRule + "\nip rule add pref 0 fwmark 0x2000/0x2000 lookup 52 protocol 116",
			undo: "ip rule del pref 0 from 10.42.1.0/24 lookup 77", ams: []string{"route.shadowed"},
		},
		{name: "the table is gone", inject: "nft delete table inet tailmesh", ams: []string{"route.unmarked", "source.untranslated+"}},
		{name: "a peer is in no set", inject: "nft delete element inet tailmesh peers4 '{ " + fra4 + " }'", ams: []string{"route.peer-unlisted", "source.untranslated+"}},
		{name: "another clears the mark", inject: table(chain("pre", "filter", "prerouting", "-80", "ip saddr 10.42.1.0/24 meta mark set 0x0")), undo: other, ams: []string{"route.mark-cleared"}},
		{name: "connections are not tracked", inject: table(chain("raw", "filter", "prerouting", "-300", "ip saddr 10.42.1.0/24 notrack")), undo: other, ams: []string{"route.untracked"}},
		{name: "no route in table 52", inject: "ip route del " + fra4 + " table 52", undo: "ip route add " + fra4 + " dev tailscale0 table 52", ams: []string{"route.missing"}},
		{name: "the source is not translated", inject: noSNAT, ams: []string{"source.untranslated"}},
		{name: "the source is not translated, with a probe", inject: noSNAT, args: probed(), ams: []string{"source.untranslated"}},
		{name: "another translates first", inject: table(chain("post", "nat", "postrouting", "90", "ip saddr 10.42.1.0/24 oifname tailscale0 snat to 10.9.9.9")), undo: other, ams: []string{"source.shadowed"}},
		{name: "another translates too much", inject: table(chain("post", "nat", "postrouting", "94", "ip saddr 10.42.1.0/24 snat to "+l.Ams.Addr(4).String())), undo: other, ams: []string{"source.too-wide"}},
		{name: "a rule drops pods' packets", inject: table(chain("way", "filter", "forward", "0", bridge+"oifname tailscale0 drop")), undo: other, ams: []string{"firewall.drops"}},
		{name: "a rule drops the answers", inject: table(chain("way", "filter", "forward", "0", "iifname tailscale0 oifname "+PodBridge+" drop")), undo: other, ams: []string{"return.firewall"}},
		{name: "forwarding is off", inject: "echo 0 >/proc/sys/net/ipv4/ip_forward", undo: "echo 1 >/proc/sys/net/ipv4/ip_forward", ams: []string{"forwarding.off"}},
		{
			name: "forwarding is off where pods come in", inject: "echo 0 >/proc/sys/net/ipv4/conf/" + PodBridge + "/forwarding",
			undo: "echo 1 >/proc/sys/net/ipv4/conf/" + PodBridge + "/forwarding", ams: []string{"forwarding.interface"},
		},
		{
			name:   "strict rp_filter that does not look at marks",
			inject: "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$f; done\nfor f in /proc/sys/net/ipv4/conf/*/src_valid_mark; do echo 0 >$f; done",
			undo:   "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done\nfor f in /proc/sys/net/ipv4/conf/*/src_valid_mark; do echo 1 >$f; done",
			ams:    []string{"return.src-valid-mark"},
		},
		{name: "the policy drops the overlay", do: policy, ams: []string{"policy.overlay-dropped"}, fra: []string{"policy.overlay-dropped"}},
		{name: "tailscale is down", do: func(t *testing.T, l *Lab) {
			if _, err := l.Ams.Tailscale(t.Context(), "down"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if _, err := l.Ams.Tailscale(ctx, "up"); err != nil {
					t.Error(err)
				}
				l.revive(t, ctx, l.Ams)
			})
		}, ams: []string{"tailscaled.stopped"}},
		{name: "tailscaled is gone", do: func(t *testing.T, l *Lab) {
			l.Ams.StopDaemon()
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if err := l.Ams.StartDaemon(ctx); err != nil {
					t.Fatal(err)
				}
				l.revive(t, ctx, l.Ams)
			})
		}, ams: []string{"tailscaled.down"}},
		{name: "the document is another node's", do: func(t *testing.T, l *Lab) {
			withDocument(func(l *Lab, doc *config.Document) { *doc = l.Document(l.Fra) })(t, l)
		}, ams: []string{"document.foreign"}},
		{name: "the document has an address of before", do: withDocument(func(_ *Lab, doc *config.Document) {
			doc.Peers[0].Addresses = []netip.Addr{netip.MustParseAddr("100.64.0.99")}
		}), ams: []string{"document.stale(warn)"}},
		{name: "the document names a node that is not there", do: withDocument(func(_ *Lab, doc *config.Document) {
			doc.Peers = append(doc.Peers, config.Node{Name: "par1", ID: "nNobody", Addresses: []netip.Addr{netip.MustParseAddr("100.64.0.98")}})
		}), ams: []string{"peers.unknown", "source.untranslated+"}},

		{name: "two at once: no rule, no translation", inject: noRule + "\n" + strings.Replace(noRule, "ip ", "ip -6 ", 1) + "\n" + noSNAT, ams: []string{"route.rule-missing", "source.untranslated+"}},
		{name: "two at once: no rule, and the policy", inject: noRule, do: policy, ams: []string{"policy.overlay-dropped", "route.rule-missing"}, fra: []string{"policy.overlay-dropped"}},
		{
			name: "three at once: forwarding off, no translation, and the policy", inject: noSNAT + "\necho 0 >/proc/sys/net/ipv4/ip_forward", undo: "echo 1 >/proc/sys/net/ipv4/ip_forward",
			do: policy,
			// Forwarding is off for IPv4 alone: there the source is behind it, with IPv6 it is not.
			ams: []string{"forwarding.off", "policy.overlay-dropped", "source.untranslated", "source.untranslated+"}, fra: []string{"policy.overlay-dropped"},
		},
	}
}

// withDocument gives ams1 another document, which no agent has carried out.
func withDocument(change func(l *Lab, doc *config.Document)) func(t *testing.T, l *Lab) {
	return func(t *testing.T, l *Lab) {
		doc := l.Document(l.Ams)
		change(l, &doc)
		text, err := doc.Marshal()
		if err == nil {
			err = os.WriteFile(filepath.Join(l.Ams.dir, "node.json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// revive waits for a node's tailscaled, and mends what went with its addresses.
func (l *Lab) revive(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	if err := n.WaitPeers(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.RouteOverlay(n); err != nil {
		t.Fatal(err)
	}
}

// testDoctor makes faults on a node with the real tailscaled, whose packet filter comes of a policy, and has the doctor look
// at both nodes: each fault is named, and nothing that is not there.
func testDoctor(t *testing.T, l *Lab) {
	l.policyFile(t, withOverlay)
	l.overlayRule(t, behindNobody, false)
	l.install(t, l.agent())
	var rows []string
	for _, a := range slices.Concat(ailments(l), tailnetAilments(l), nodeAilments(l)) {
		t.Run(a.name, func(t *testing.T) {
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				if a.undo != "" {
					if _, err := Sh(ctx, l.Ams.Name, a.undo); err != nil {
						t.Fatal(err)
					}
				}
				if out, err := l.Ams.ApplyDocument(ctx, l.Document(l.Ams)); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			})
			if a.inject != "" {
				if _, err := Sh(t.Context(), l.Ams.Name, a.inject); err != nil {
					t.Fatal(err)
				}
			}
			if a.do != nil {
				a.do(t, l)
			}
			row := fmt.Sprintf("%-66s", a.name)
			for _, look := range []struct {
				node *Node
				want []string
			}{{l.Ams, a.ams}, {l.Fra, a.fra}} {
				if look.node == l.Fra && slices.ContainsFunc(a.ams, func(c string) bool { return strings.HasPrefix(c, "tailscaled.") }) {
					continue // whether the peer is seen as gone is the control server's to say, in its time
				}
				got, said, err := look.node.examined(t.Context(), a.args...)
				// Where routes have just changed, tailscaled may lose packets for some seconds, and with them a probe's.
				for range 5 {
					if err != nil || slices.Equal(got, look.want) || !slices.Contains(got, "probe.unanswered(unknown)") {
						break
					}
					time.Sleep(time.Second)
					got, said, err = look.node.examined(t.Context(), a.args...)
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
				if !slices.Equal(got, look.want) {
					t.Errorf("%s: named %q, want %q\n%s", look.node.Name, got, look.want, said)
				}
				named := strings.Join(got, " ")
				if named == "" {
					named = "nothing"
				}
				row += " | " + fmt.Sprintf("%-60s", look.node.Name+": "+named)
			}
			rows = append(rows, row)
		})
	}
	t.Run("merge", func(t *testing.T) { testMerge(t, l) })
	t.Run("registered anew", func(t *testing.T) { testRegisteredAnew(t, l) })
	t.Logf("faults and what the doctor named:\n%s", strings.Join(rows, "\n"))
}

// testMerge puts the reports of both nodes together while the policy drops the overlay: each node's filter is its own to
// see, and only both together tell both directions.
func testMerge(t *testing.T, l *Lab) {
	l.policyFile(t, withoutOverlay)
	dir := t.TempDir()
	args := []string{"doctor", "merge"}
	for _, n := range l.Mesh() {
		_, said, err := n.examined(t.Context())
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		file := filepath.Join(dir, n.Name+".json")
		if err := os.WriteFile(file, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	agent, err := program(agentEnv)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), agent, args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"ams1  fra1  wrong    fra1: policy.overlay-dropped", "fra1  ams1  wrong    ams1: policy.overlay-dropped"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
	t.Logf("\n%s", out)
}
