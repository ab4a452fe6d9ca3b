//go:build linux

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

const nodeDocument = `{
  "version": 1,
  "mesh": "futhark",
  "node": {"name": "ams1", "addresses": ["100.64.0.11", "fd7a:115c:a1e0::b"]},
  "pod_cidrs": ["10.244.1.0/24", "fd00:10:244:1::/64"],
  "peers": [{"name": "fra1", "addresses": ["100.64.0.12", "fd7a:115c:a1e0::c"]}]
}`

// agent runs the program in the namespace that the thread is in, with a document.
type agent struct {
	t      *testing.T
	path   string
	kernel kernel.Interface
}

func newAgent(t *testing.T, document string) *agent {
	t.Helper()
	a := &agent{t: t, path: filepath.Join(t.TempDir(), "node.json"), kernel: kernel.NewLinux()}
	a.write(document)
	return a
}

// another returns a kernel of the same kind for an agent that works at the same time.
func (a *agent) another() kernel.Interface {
	if _, without := a.kernel.(withoutSets); without {
		return withoutSets{kernel.NewLinux()}
	}
	return kernel.NewLinux()
}

func (a *agent) write(document string) {
	a.t.Helper()
	if err := os.WriteFile(a.path, []byte(document), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) run(args ...string) (stdout, stderr string, code int) {
	a.t.Helper()
	var out, errs strings.Builder
	env := Env{Kernel: a.kernel, Stdout: &out, Stderr: &errs}
	code = Run(a.t.Context(), env, append([]string{args[0], "--config", a.path, "--socket", a.path + ".no-socket", "--lock", a.path + ".lock"}, args[1:]...))
	return out.String(), errs.String(), code
}

// want runs the program and compares the exit code.
func (a *agent) want(code int, args ...string) string {
	a.t.Helper()
	stdout, stderr, got := a.run(args...)
	if got != code {
		a.t.Fatalf("tailmesh-agent %v: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	return stdout
}

// The tunnel to the peer carries nothing, as when the tailnet's policy does not admit the overlay: what still arrives has
// gone through tailscale0.
func closeTunnel(n *nstest.Node) {
	n.InPeer(func() { n.Run(`nft add rule inet wireguard input iifname tun-ams1 counter drop`) })
}

func TestApplyAndCleanup(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(""))
		pristine := node.Dump()
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			if node.PodReaches(address) {
				t.Fatalf("the pod reaches %s before the agent did anything: this lab proves nothing", address)
			}
		}

		plan := a.want(exitNo, "plan")
		if diff := cmp.Diff(pristine, node.Dump()); diff != "" {
			t.Fatalf("plan changed the node (-before +after):\n%s", diff)
		}

		got := a.want(exitYes, "apply")
		// The pings above are two connections that began too early.
		want := plan + `connections of pods to peers that had kept their own source, made to begin anew: 2
peer fra1 100.64.0.12        before dev tun-fra1 table 77  after dev tailscale0 table 52  ok
peer fra1 fd7a:115c:a1e0::c  before dev tun-fra1 table 77  after dev tailscale0 table 52  ok
`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("apply (-want +got):\n%s", diff)
		}

		applied := node.Dump()
		if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
			t.Errorf("second apply: %s", got)
		}
		if got := a.want(exitYes, "plan"); got != "nothing to do\n" {
			t.Errorf("plan after apply: %s", got)
		}
		if diff := cmp.Diff(applied, node.Dump()); diff != "" {
			t.Errorf("second apply changed the node (-before +after):\n%s", diff)
		}

		a.want(exitYes, "cleanup")
		if diff := cmp.Diff(pristine, node.Dump()); diff != "" {
			t.Errorf("cleanup left something (-before +after):\n%s", diff)
		}
		if got := a.want(exitYes, "cleanup"); got != "nothing to do\n" {
			t.Errorf("second cleanup: %s", got)
		}
	})
}

// What plan and apply print are commands: run by a shell they give the same node, and the agent then finds nothing to do.
func TestPrintedCommandsDoTheSame(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(`"local_cidrs": ["192.168.10.0/24", "10.7.0.0/16"], "routing": {"fail_closed": true}, `))
		node.Run(a.want(exitNo, "plan"))
		byHand := node.Dump()
		if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
			t.Errorf("apply after the commands by hand: %s", got)
		}
		a.want(exitYes, "cleanup")
		a.want(exitYes, "apply")
		// The tool makes sets of a newer revision, which show one more setting.
		byHand = strings.ReplaceAll(byHand, " bucketsize 12", "")
		if diff := cmp.Diff(byHand, node.Dump()); diff != "" {
			t.Errorf("(-by hand +by the agent):\n%s", diff)
		}
	})
}

func TestPackets(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")

		// A peer's own connection to a pod came in by the overlay, and its replies go back there.
		for peer, pod := range map[string]string{nstest.Peer: nstest.Pod, nstest.Peer6: nstest.Pod6} {
			if !node.PeerReaches(peer, pod) {
				t.Errorf("%s does not reach the pod %s", peer, pod)
			}
		}
		closeTunnel(node)
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			if !node.PodReaches(address) {
				t.Errorf("the pod does not reach %s", address)
			}
		}
		facts, err := kernel.Linux{}.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, comment := range []string{"sources of pods to peers, IPv4", "sources of pods to peers, IPv6"} {
			if got := facts.Counters[comment].Packets; got != 1 {
				t.Errorf("%s: counted %d, want 1 for one connection", comment, got)
			}
		}
		var foreign string
		node.InPeer(func() { foreign = node.Run("nft list chain inet wireguard input | grep p0") })
		if strings.Count(foreign, "packets 0 bytes 0") != 2 {
			t.Errorf("packets with a foreign source arrived:\n%s", foreign)
		}
	})
}

// A service's address is translated to a peer's before the agent's chain looks. In iptables it looks before, and says so.
func TestServiceOfPeer(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		node.Run(`
			nft add table ip services
			nft add chain ip services prerouting '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip services prerouting ip daddr 10.96.0.1 dnat to 100.64.0.12
		`)
		if node.PodReaches("10.96.0.1") {
			t.Fatal("the service is reached before the agent did anything")
		}
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		_, notes, _ := a.run("status")
		works := b.name == desired.NFTables
		if got := node.PodReaches("10.96.0.1"); got != works {
			t.Errorf("the pod reaches the service behind the peer's address: %v, want %v", got, works)
		}
		if said := strings.Contains(notes, "marks packets before services translate them"); said == works {
			t.Errorf("status says that it does not: %v, want %v\n%s", said, !works, notes)
		}
	})
}

// With strict reverse path filtering, the way back is looked up with the reply's mark.
func TestStrictReversePathFilter(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		for _, key := range []string{"all", "tailscale0", "tun-fra1", "kube-bridge"} {
			node.Sysctl("ipv4.conf."+key+".rp_filter", "1")
		}
		node.Sysctl("ipv4.conf.all.src_valid_mark", "1") // as tailscaled does
		b.agent(t, b.document("")).want(exitYes, "apply")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer")
		}

		node.Sysctl("ipv4.conf.all.src_valid_mark", "0")
		if got := b.agent(t, b.document("")).want(exitNo, "status"); !strings.Contains(got, "wrong: its replies are dropped by reverse path filtering") {
			t.Errorf("status without src_valid_mark:\n%s", got)
		}
		if node.PodReaches(nstest.Peer) {
			t.Error("the replies arrive without src_valid_mark: this lab proves nothing")
		}
		node.Sysctl("ipv4.conf.all.rp_filter", "2")
		node.Sysctl("ipv4.conf.tailscale0.rp_filter", "2")
		b.agent(t, b.document("")).want(exitYes, "status")
	})
}

func TestForwardingOff(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	a.want(exitYes, "apply")
	node.Sysctl("ipv4.conf.kube-bridge.forwarding", "0")
	if got := a.want(exitNo, "status"); !strings.Contains(got, "wrong: no route to host: is forwarding off") {
		t.Errorf("status with forwarding off:\n%s", got)
	}
	node.Sysctl("ipv4.conf.kube-bridge.forwarding", "1")
	node.Sysctl("ipv6.conf.all.forwarding", "0")
	if node.PodReaches(nstest.Peer6) {
		t.Error("packets are forwarded all the same: this lab proves nothing")
	}
	if got := a.want(exitNo, "status"); strings.Count(got, "wrong: IPv6 forwarding is off") != 1 {
		t.Errorf("status with IPv6 forwarding off:\n%s", got)
	}
}

// A router that adds its rule without a priority comes to stand behind the agent's, in whatever order they start.
func TestRuleAddedLater(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		node.Run(`
			ip rule del from 10.244.1.0/24 lookup 77
			ip rule add from 10.244.1.0/24 lookup 77
		`)
		if rules := node.Run("ip rule"); !strings.Contains(rules, "0:\tfrom 10.244.1.0/24 lookup 77") {
			t.Fatalf("the kernel placed the rule elsewhere than this test assumes:\n%s", rules)
		}
		a.want(exitYes, "status")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer any more")
		}
	})
}

// A change of the agent's own rule that would put it behind the router's is not made: what is in force stays, until the
// router's rule is out of the way.
func TestChangeBehindRouter(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"another mark", `{}`, `{"mark": "0x1000"}`},
		{"another table", `{}`, `{"table": 53}`},
		{"mode rules", `{}`, `{"mode": "rules"}`},
		{"mode mark", `{"mode": "rules"}`, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := nstest.NewNode(t)
			node.Run("ip route add 100.64.0.12 dev tailscale0 table 53")
			closeTunnel(node)
			with := func(routing string) string {
				return strings.Replace(nodeDocument, `"peers"`, `"routing": `+routing+`, "peers"`, 1)
			}
			a := newAgent(t, with(c.before))
			a.want(exitYes, "apply")
			node.Run("ip rule del from 10.244.1.0/24 lookup 77\nip rule add from 10.244.1.0/24 lookup 77")
			applied := node.Dump()
			a.write(with(c.after))
			_, stderr, code := a.run("apply")
			const move = "nothing is changed until then; move it: ip rule add pref 5209 from 10.244.1.0/24 lookup 77, then ip rule del pref 0 from 10.244.1.0/24 lookup 77\n"
			if code != exitNo || !strings.HasSuffix(stderr, move) {
				t.Errorf("exit code %d, %s", code, stderr)
			}
			if diff := cmp.Diff(applied, node.Dump()); diff != "" {
				t.Errorf("the node was changed (-before +after):\n%s", diff)
			}
			if !node.PodReaches(nstest.Peer) {
				t.Error("the pod does not reach the peer any more")
			}
			node.Run("ip rule add pref 5209 from 10.244.1.0/24 lookup 77\nip rule del pref 0 from 10.244.1.0/24 lookup 77")
			a.run("apply")
			if !node.PodReaches(nstest.Peer) {
				t.Errorf("the pod does not reach the peer:\n%s", node.Run("ip rule"))
			}
		})
	}
}

// A peer that comes later, in mode rules, has its rule behind the router's, and is told what takes its packets.
func TestPeerBehindRouter(t *testing.T) {
	node := nstest.NewNode(t)
	const rules = `"routing": {"mode": "rules"}, "peers"`
	a := newAgent(t, strings.Replace(nodeDocument, `"peers"`, rules, 1))
	a.want(exitYes, "apply")
	node.Run(`
		ip rule del from 10.244.1.0/24 lookup 77
		ip rule add from 10.244.1.0/24 lookup 77
		ip route add 100.64.0.14 dev tailscale0 table 52
		ip route add 100.64.0.14 dev tun-fra1 table 77
	`)
	a.write(strings.Replace(strings.Replace(nodeDocument, `"peers"`, rules, 1), `"peers": [`, `"peers": [{"name": "par1", "addresses": ["100.64.0.14"]}, `, 1))
	if got := a.want(exitNo, "apply"); !strings.Contains(got, "wrong: the rule `0: from 10.244.1.0/24 lookup 77` comes first; move it") || strings.Contains(got, "has no route") {
		t.Error(got)
	}

	// One whose address has changed is no worse off, and does not keep the others from being looked after.
	node.Run("nft flush chain inet tailmesh postrouting")
	a.write(strings.Replace(strings.Replace(nodeDocument, `"peers"`, rules, 1), "100.64.0.12", "100.64.0.14", 1))
	if got := a.want(exitNo, "apply"); !strings.Contains(got, "nft add rule inet tailmesh postrouting") || !strings.Contains(got, "comes first; move it") {
		t.Error(got)
	}
}

func TestFixedPriorityShadowed(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, strings.Replace(nodeDocument, `"peers"`, `"routing": {"priority": 5260}, "peers"`, 1))
	pristine := node.Dump()
	for _, verb := range []string{"plan", "apply", "status"} {
		_, stderr, code := a.run(verb)
		want := "tailmesh-agent: routing.priority 5260 is behind the rule `5209: from 10.244.1.0/24 lookup 77`, which takes packets " +
			"of pods (10.244.1.2) to peer fra1 (100.64.0.12) first: use \"auto\" or a priority below 5209\n"
		if code != exitNo || stderr != want {
			t.Errorf("%s: exit code %d\ngot  %swant %s", verb, code, stderr, want)
		}
	}
	if diff := cmp.Diff(pristine, node.Dump()); diff != "" {
		t.Errorf("a refused document changed the node (-before +after):\n%s", diff)
	}
	for _, good := range []string{`100`, `5208`, `"auto"`} {
		a.write(strings.Replace(nodeDocument, `"peers"`, `"routing": {"priority": `+good+`}, "peers"`, 1))
		a.want(exitYes, "apply")
		applied := node.Dump()
		// The kernel appends a rule to those of its priority, so that it is behind the router's there, too.
		for _, bad := range []string{`5209`, `5260`, `32765`} {
			a.write(strings.Replace(nodeDocument, `"peers"`, `"routing": {"priority": `+bad+`}, "peers"`, 1))
			a.want(exitNo, "apply")
			if diff := cmp.Diff(applied, node.Dump()); diff != "" {
				t.Errorf("priority %s after %s changed the node (-before +after):\n%s", bad, good, diff)
			}
		}
	}
}

// A rule that reaches priority 0 first cannot be passed without moving it, which is its owner's to do.
func TestShadowedAtZero(t *testing.T) {
	node := nstest.NewNode(t)
	node.Run("ip rule del from 10.244.1.0/24 lookup 77\nip rule add pref 0 from 10.244.1.0/24 lookup 77")
	a := newAgent(t, nodeDocument)
	got := a.want(exitNo, "apply")
	want := "wrong: the rule `0: from 10.244.1.0/24 lookup 77` comes first; move it: " +
		"ip rule add pref 5209 from 10.244.1.0/24 lookup 77, then ip rule del pref 0 from 10.244.1.0/24 lookup 77\n"
	if !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	node.Run("ip rule add pref 5209 from 10.244.1.0/24 lookup 77\nip rule del pref 0 from 10.244.1.0/24 lookup 77")
	a.want(exitYes, "apply")
}

// Cilium moves the rule for local addresses behind its own.
func TestLocalRuleMoved(t *testing.T) {
	node := nstest.NewNode(t)
	closeTunnel(node)
	node.Run(`
		ip rule add pref 100 lookup local
		ip rule del pref 0
		ip rule add pref 9 fwmark 0x200/0xf00 lookup 2004
	`)
	newAgent(t, nodeDocument).want(exitYes, "apply")
	node.Run("ip rule add from 10.244.1.0/24 lookup 77 protocol 17")
	if !node.PodReaches(nstest.Peer) || !node.PodReaches("10.244.1.1") {
		t.Errorf("the pod does not reach the peer or the node:\n%s", node.Run("ip rule"))
	}
}

func TestTailscaleRestart(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(""))
		node.StopTailscale()
		got := a.want(exitUnknown, "apply")
		if want := "unknown: tailscale0 does not exist\n"; !strings.Contains(got, want) {
			t.Errorf("apply without tailscale0:\n%swant %s", got, want)
		}
		node.StartTailscale()
		a.want(exitYes, "status")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer after tailscaled started")
		}
		node.StopTailscale()
		node.StartTailscale()
		if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
			t.Errorf("apply after a restart of tailscaled: %s", got)
		}
	})
}

// Peers come and go by single elements, for which no process is started: the rules, and so their counters and the
// connections, stay as they are.
func TestPeersChange(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		if b.noSets {
			return
		}
		node := b.node(t)
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		node.PodReaches(nstest.Peer)
		node.Run("ip route add 100.64.0.13 dev tailscale0 table 52")
		set := b.name.SetName("peers4")
		add := `printf 'add ` + set + ` %s\n' 100.64.0.13 | ipset restore`
		del := `printf 'del ` + set + ` %s\n' 100.64.0.13 | ipset restore`
		if b.name == desired.NFTables {
			add, del = `nft add element inet tailmesh peers4 '{ 100.64.0.13 }'`, `nft delete element inet tailmesh peers4 '{ 100.64.0.13 }'`
		}
		before := children(t)
		a.write(strings.Replace(b.document(""), `"peers": [`, `"peers": [{"name": "par1", "addresses": ["100.64.0.13"]}, `, 1))
		if got := a.want(exitYes, "apply"); !strings.HasPrefix(got, add+"\npeer fra1 ") {
			t.Errorf("one more peer:\n%swant %s", got, add)
		}
		a.write(b.document(""))
		if got := a.want(exitYes, "apply"); !strings.HasPrefix(got, del+"\npeer fra1 ") {
			t.Errorf("one peer less:\n%swant %s", got, del)
		}
		facts, err := a.kernel.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if children(t) != before {
			t.Error("a process was started")
		}
		if facts.Counters["sources of pods to peers, IPv4"].Packets != 1 {
			t.Errorf("the counters did not survive: %v", facts.Counters)
		}
	})
}

// Whatever somebody does to the agent's objects is noticed and mended.
func TestRepair(t *testing.T) {
	tests := []struct{ name, damage string }{
		{"policy rule deleted", "ip rule del pref 0 fwmark 0x2000/0x2000"},
		{"IPv6 policy rule deleted", "ip -6 rule del pref 0 fwmark 0x2000/0x2000"},
		{"own rule with another table", "ip rule add pref 7 fwmark 0x2000/0x2000 lookup 53 protocol 116"},
		{"ruleset flushed", "nft flush ruleset"},
		{"table deleted", "nft delete table inet tailmesh"},
		{"chain flushed", "nft flush chain inet tailmesh postrouting"},
		{"chain deleted", "nft flush chain inet tailmesh postrouting && nft delete chain inet tailmesh postrouting"},
		{"foreign rule in front", "nft insert rule inet tailmesh prerouting accept"},
		{"foreign rule behind", "nft add rule inet tailmesh postrouting ip daddr 10.0.0.1 counter"},
		{"foreign chain", "nft add chain inet tailmesh other"},
		{"foreign set", "nft add set inet tailmesh other '{ type inet_service; }'"},
		{"peer deleted", "nft delete element inet tailmesh peers4 '{ 100.64.0.12 }'"},
		{"peer added", "nft add element inet tailmesh peers4 '{ 100.64.0.99 }'"},
		{"pods flushed", "nft flush set inet tailmesh pods4"},
		{"pods widened", "nft flush set inet tailmesh pods4 && nft add element inet tailmesh pods4 '{ 10.0.0.0/8 }'"},
		{"rule replaced", `nft replace rule inet tailmesh postrouting handle $(nft -a list chain inet tailmesh postrouting | ` +
			`sed -n 's/.*IPv4.*handle //p') ip daddr @peers4 counter masquerade comment '"sources of pods to peers, IPv4"'`},
		{"counter removed", `nft replace rule inet tailmesh postrouting handle $(nft -a list chain inet tailmesh postrouting | ` +
			`sed -n 's/.*IPv4.*handle //p') oifname tailscale0 ip saddr @pods4 ip daddr @peers4 snat ip to 100.64.0.11`},
	}
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	a.want(exitYes, "apply")
	whole := node.Dump()
	for _, tt := range tests {
		node.Run(tt.damage)
		if tt.damage == "nft flush ruleset" {
			whole = strings.Replace(whole, whole[strings.Index(whole, "table inet lab {"):strings.Index(whole, "table inet tailmesh {")], "", 1)
		}
		if stdout, _, code := a.run("status"); code != exitNo {
			t.Errorf("%s: status says %d\n%s", tt.name, code, stdout)
		}
		stdout, stderr, code := a.run("apply")
		if diff := cmp.Diff(whole, node.Dump()); diff != "" || code != exitYes {
			t.Errorf("%s: apply: exit code %d\n%s%s(-want +got):\n%s", tt.name, code, stdout, stderr, diff)
		}
	}
}

// Others translate sources too: the first translation of a connection is the one that holds, whatever their backend.
// iptables is only in front of what is in the same variant.
func TestOtherSourceTranslation(t *testing.T) {
	others := map[desired.Backend]string{
		desired.NFTables: `nft add table ip cni
			nft add chain ip cni postrouting '{ type nat hook postrouting priority srcnat; }'
			nft add rule ip cni postrouting ip saddr 10.244.0.0/16 snat to 10.9.9.9
			iptables-legacy -w -t nat -A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.9.9.9`,
		desired.IPTablesNFT:    `iptables-nft -t nat -A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.9.9.9`,
		desired.IPTablesLegacy: `iptables-legacy -w -t nat -A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 10.9.9.9`,
	}
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		node.Run("ip addr add 10.9.9.9/32 dev lo\n" + others[b.name])
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer: another translation came first")
		}
		if b.name == desired.NFTables {
			return
		}
		// Others put their rules in front, too.
		node.Run(strings.Replace(others[b.name], "-A POSTROUTING", "-I POSTROUTING 1", 1))
		a.want(exitNo, "plan")
		a.want(exitYes, "apply")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer: another translation was put in front")
		}
	})
}

func TestModeRules(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(`"routing": {"mode": "rules"}, `))
		pristine := node.Dump()
		a.want(exitYes, "apply")
		if rules := node.Run("ip rule"); !strings.Contains(rules, "0:\tfrom all to 100.64.0.12 fwmark 0x2000/0x2000 lookup 52 proto 116") {
			t.Errorf("no rule for the peer:\n%s", rules)
		}
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			if !node.PodReaches(address) {
				t.Errorf("the pod does not reach %s", address)
			}
		}
		if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
			t.Errorf("second apply: %s", got)
		}
		// The kernel takes a selector that is left out for any, when it adds and when it deletes.
		rules := b.document(`"routing": {"mode": "rules"}, `)
		for _, document := range []string{nodeDocument, rules, nodeDocument} {
			a.write(document)
			a.want(exitYes, "apply")
		}
		a.write(rules)
		a.want(exitYes, "apply")
		behind := desired.Rule{
			Family: desired.IPv4, Mark: 0x2000, Mask: 0x2000, Action: desired.Lookup, Table: 52, Protocol: desired.RouteProtocol,
		}
		if err := (kernel.Linux{}).Apply(t.Context(), desired.Changes{AddRules: []desired.Rule{behind}}); err != nil {
			t.Fatal(err)
		}
		a.want(exitYes, "apply")
		a.want(exitYes, "cleanup")
		if diff := cmp.Diff(pristine, node.Dump()); diff != "" {
			t.Errorf("cleanup left something (-before +after):\n%s", diff)
		}
	})
}

// While tailscaled is down, a packet to a peer goes into the tunnel, or is refused with fail_closed; a peer's own
// connection to a pod is not touched either way.
func TestFailClosed(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		node.StopTailscale()
		if !node.PodReaches(nstest.Peer) {
			t.Error("open: the pod does not reach the peer through the tunnel")
		}
		a.write(b.document(`"routing": {"fail_closed": true}, `))
		a.want(exitUnknown, "apply")
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			var out string
			node.InPod(func() { out, _ = node.Try("ping -n -c 1 -W 1 " + address) })
			if !strings.Contains(out, "Packet filtered") && !strings.Contains(out, "prohibited") {
				t.Errorf("closed: the packet to %s was not refused:\n%s", address, out)
			}
		}
		if !node.PeerReaches(nstest.Peer, nstest.Pod) {
			t.Error("closed: the peer does not reach the pod")
		}
		node.StartTailscale()
		closeTunnel(node)
		a.want(exitYes, "status")
		if !node.PodReaches(nstest.Peer) {
			t.Error("closed: the pod does not reach the peer after tailscaled started")
		}
	})
}

// Several networks of pods that touch each other are one interval in the kernel, and stay what they were when read back.
func TestIntervalSets(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		for _, networks := range []string{
			`["10.244.0.0/24", "10.244.1.0/24"]`, `["10.244.1.0/24", "10.244.3.0/24"]`, `["10.244.1.0/25", "10.244.1.128/25", "10.0.0.0/25"]`,
			`["240.0.0.0/4", "10.244.1.0/24"]`, `["10.244.1.0/24", "fd00:10:244:1::/64", "fd00:10:244:2::/64", "fd00:10:244:2:1::/80"]`,
		} {
			a := newAgent(t, strings.Replace(b.document(""), `["10.244.1.0/24", "fd00:10:244:1::/64"]`, networks, 1))
			a.want(exitYes, "apply")
			if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
				t.Errorf("%s: second apply: %s", networks, got)
			}
			if !node.PodReaches(nstest.Peer) {
				t.Errorf("%s: the pod does not reach the peer", networks)
			}
		}
	})
}

func TestWithoutCapability(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		b.node(t)
		a := b.agent(t, b.document(""))
		var stderr string
		var code int
		nstest.WithoutCapabilities(t, func() { _, stderr, code = a.run("apply") })
		if want := "tailmesh-agent: not permitted: run as root, or with CAP_NET_ADMIN ("; code != exitUnknown || !strings.HasPrefix(stderr, want) {
			t.Errorf("exit code %d, stderr %q", code, stderr)
		}
	})
}

// Tens of thousands of peers fit into one transaction, or into sets, and are read back whole.
func TestManyPeers(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		count := 20_000
		if b.noSets {
			count = 50 // a rule for each, and for each rule a process
		}
		b.node(t)
		var peers strings.Builder
		for i := range count {
			fmt.Fprintf(&peers, `{"name": "p%d", "addresses": ["100.70.%d.%d"]}, `, i, i/250, 1+i%250)
		}
		a := b.agent(t, strings.Replace(b.document(""), `"peers": [`, `"peers": [`+peers.String(), 1))
		a.want(exitNo, "apply") // tailscaled knows only one of them
		if got := a.want(exitYes, "plan"); got != "nothing to do\n" {
			t.Errorf("second plan: %.200s", got)
		}
	})
}

// A connection that began before the source was translated would keep its own for as long as packets come.
func TestStaleConnections(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		node.Run(`
			nft add table ip services
			nft add chain ip services prerouting '{ type nat hook prerouting priority dstnat; }'
			nft add rule ip services prerouting ip daddr 10.96.0.1 dnat to 100.64.0.12
		`)
		direct := node.StartPing(nstest.Peer)
		service := node.StartPing("10.96.0.1")
		local := node.StartPing("10.244.1.1")
		b.agent(t, b.document("")).want(exitYes, "apply")
		for name, ping := range map[string]*nstest.Ping{"direct": direct, "by a service": service, "to the node": local} {
			if ping == service && b.name != desired.NFTables {
				continue // TestServiceOfPeer
			}
			if !ping.Answered() {
				t.Errorf("%s: the ping that began before is still not answered", name)
			}
		}
		if count := local.Lost(); count > 0 {
			t.Errorf("a connection that is none of the agent's lost %d packets", count)
		}
	})
}

// Calico and some clouds' CNIs give pods no bridge but each a route: how their packets go is judged all the same.
func TestPodsWithoutBridge(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		node.Run(`
			ip addr flush dev kube-bridge scope global
			ip link set veth-pod nomaster
			ip addr add 169.254.1.1/32 dev veth-pod
		`)
		node.InPod(func() { node.Run("ip route replace default via 169.254.1.1 dev eth0 onlink") })
		a := b.agent(t, b.document(""))
		if _, notes, code := a.run("apply"); code != exitUnknown || strings.Count(notes, "no pod there a route of its own") != 2 {
			t.Errorf("without pods: exit code %d\n%s", code, notes)
		}
		node.Run("ip route add 10.244.1.2 dev veth-pod\nip -6 route add fd00:10:244:1::2 dev veth-pod")
		a.want(exitYes, "status")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer")
		}
		node.Run("ip rule del pref 0 fwmark 0x2000/0x2000")
		if got := a.want(exitNo, "status"); !strings.Contains(got, "tun-fra1") {
			t.Errorf("status without the rule:\n%s", got)
		}
	})
}

// The networks of pods are found where the document does not name them, and the agent says where.
func TestPodNetworksFound(t *testing.T) {
	node := nstest.NewNode(t)
	closeTunnel(node)
	a := newAgent(t, strings.Replace(nodeDocument, `"pod_cidrs": ["10.244.1.0/24", "fd00:10:244:1::/64"],`, "", 1))
	_, stderr, code := a.run("apply")
	want := "note: networks of pods: [10.244.1.0/24], from the policy rule `5209: from 10.244.1.0/24 lookup 77`\n" +
		"note: networks of pods: [fd00:10:244:1::/64], from the policy rule `5209: from fd00:10:244:1::/64 lookup 77`\n"
	if code != exitYes || stderr != want {
		t.Errorf("exit code %d\n%s\nwant %s", code, stderr, want)
	}
	if !node.PodReaches(nstest.Peer) {
		t.Error("the pod does not reach the peer")
	}
}
