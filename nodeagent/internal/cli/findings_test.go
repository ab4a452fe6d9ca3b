//go:build linux

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// What others' firewall rules do to packets of pods is found, though the kernel's way for them is right. Rules of
// iptables-legacy are not read.
func TestStatusFindsOthersRules(t *testing.T) {
	overFirewalls(t, func(t *testing.T, b backend) {
		if b.name == desired.IPTablesLegacy {
			return
		}
		for _, tt := range []struct {
			name, rules string
			code        int
			want        string
		}{
			{"nothing", "", exitYes, ""},
			{
				"the policy of FORWARD is DROP", "iptables-nft -P FORWARD DROP", exitNo,
				"firewall.drops",
			},
			{
				"stateful filtering of tailscaled", `iptables-nft -N ts-forward
					iptables-nft -A FORWARD -j ts-forward
					iptables-nft -A ts-forward -o tailscale0 -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP
					iptables-nft -A ts-forward -o tailscale0 -j ACCEPT`, exitNo,
				"firewall.stateful",
			},
			{
				"somebody else translates first", `nft add table ip early
					nft add chain ip early postrouting '{ type nat hook postrouting priority 10; }'
					nft add rule ip early postrouting ip saddr 10.244.1.0/24 oifname tailscale0 snat to 10.9.9.9`, exitNo,
				"source.",
			},
			{
				"somebody clears marks", `nft add table ip other
					nft add chain ip other prerouting '{ type filter hook prerouting priority -50; }'
					nft add rule ip other prerouting iifname kube-bridge meta mark set 0`, exitNo,
				"route.",
			},
			{"packets of pods are not tracked", "iptables-nft -t raw -A PREROUTING -i kube-bridge -j CT --notrack", exitNo, "route.untracked"},
			{"dropped before anything else", "iptables-nft -t raw -A PREROUTING -i kube-bridge -d 100.64.0.12 -j DROP", exitNo, "firewall.drops"},
			{
				"a rule that takes every packet to a peer, answers included", "ip rule add pref 4 to 100.64.0.12 lookup 52", exitNo,
				"peer-connections.captured",
			},
		} {
			t.Run(tt.name, func(t *testing.T) {
				node := b.node(t)
				a := b.agent(t, b.document(""))
				a.want(exitYes, "apply")
				node.Run(tt.rules)
				stdout, stderr, code := a.run("status", "--json")
				if code != tt.code || tt.want != "" && !strings.Contains(stdout, `"code": "`+tt.want) {
					t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
				}
				if tt.want == "" && b.name == desired.NFTables && strings.Contains(stdout, `"notes"`) {
					t.Errorf("all is well, but:\n%s", stdout)
				}
				goes := func() bool { return node.PeerReaches(nstest.Peer, nstest.Pod) }
				if !strings.HasPrefix(tt.want, "peer-connections") {
					closeTunnel(node)
					goes = func() bool { return node.PodReaches(nstest.Peer) }
				}
				if works := goes(); works != (tt.code == exitYes) {
					t.Errorf("packets go their way: %v", works)
				}
			})
		}
	})
}

// What iptables-legacy drops whatever the conditions is found, as what nf_tables drops is. That there are rules which depend on
// conditions, and are not followed, is said.
func TestStatusOfLegacyFilters(t *testing.T) {
	const unsure = "note: legacy iptables has a rule in its table filter (iptables-legacy-save -t filter), " +
		"which is not followed: whether packets of pods pass there, `tailmesh-agent doctor --probe` tells\n"
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	a.want(exitYes, "apply")
	for _, tt := range []struct {
		do, undo string
		code     int
		wrong    string // in the line of an address
		note     string
	}{
		{
			"iptables-legacy -P FORWARD DROP", "iptables-legacy -P FORWARD ACCEPT", exitNo,
			nstest.Peer + " .* wrong: iptables-legacy drops packets of pods: the policy DROP of FORWARD\n", "note: iptables-legacy drops every packet that is forwarded, by the policy DROP of FORWARD",
		},
		{
			"ip6tables-legacy -P FORWARD DROP\nip6tables-legacy -A FORWARD -p udp", "ip6tables-legacy -P FORWARD ACCEPT\nip6tables-legacy -F FORWARD", exitNo,
			nstest.Peer6 + " .* wrong: ip6tables-legacy drops packets of pods: the policy DROP of FORWARD\n", "note: ip6tables-legacy drops",
		},
		{
			"iptables-legacy -A FORWARD\niptables-legacy -A FORWARD -j DROP\niptables-legacy -A FORWARD -j ACCEPT", "iptables-legacy -F FORWARD", exitNo,
			nstest.Peer + " .* wrong: iptables-legacy drops packets of pods: rule 2 of FORWARD\n", "by rule 2 of FORWARD",
		},
		{"iptables-legacy -A FORWARD -p sctp -j DROP", "iptables-legacy -F FORWARD", exitYes, "", unsure},
		{
			"iptables-legacy -P FORWARD DROP\niptables-legacy -A FORWARD -i kube-bridge -j ACCEPT", "iptables-legacy -F FORWARD\niptables-legacy -P FORWARD ACCEPT",
			exitYes, "", "note: legacy iptables has 2 rules",
		},
	} {
		node.Run(tt.do)
		stdout, stderr, code := a.run("status")
		wrong := strings.Count(stdout, " wrong: ")
		if code != tt.code || !strings.Contains(stderr, tt.note) || (wrong == 1) != (tt.wrong != "") || wrong > 1 && tt.wrong != "" ||
			!regexp.MustCompile(tt.wrong).MatchString(stdout) {
			t.Errorf("%s: exit code %d\n%s%s", tt.do, code, stdout, stderr)
		}
		node.Run(tt.undo)
		a.want(exitYes, "status")
	}
}

// A finding makes wrong the addresses that it is about, and no other of the same peer.
func TestStatusTellsAddressesApart(t *testing.T) {
	four, six := nstest.Peer, nstest.Peer6
	drop := func(family string) string {
		return strings.ReplaceAll(`nft add table FAMILY fw
			nft add chain FAMILY fw forward '{ type filter hook forward priority 0; }'
			nft add rule FAMILY fw forward oifname tailscale0 drop`, "FAMILY", family)
	}
	translate := func(family, pods, to string) string {
		return strings.ReplaceAll(`nft add table FAMILY early
			nft add chain FAMILY early postrouting '{ type nat hook postrouting priority 10; }'
			nft add rule FAMILY early postrouting FAMILY saddr `+pods+` oifname tailscale0 snat to `+to, "FAMILY", family)
	}
	for _, tt := range []struct {
		name, rules string
		wrong       []string
	}{
		{"IPv4 is dropped", drop("ip"), []string{four}},
		{"IPv6 is dropped", drop("ip6"), []string{six}},
		{"both are dropped", drop("inet"), []string{four, six}},
		{"IPv4 is translated", translate("ip", nstest.PodNetwork, "10.9.9.9"), []string{four}},
		{"IPv6 is translated", translate("ip6", nstest.PodNetwork6, "fd00::9"), []string{six}},
		{"answers by IPv4 are taken", "ip rule add pref 4 to " + four + " lookup 52", []string{four}},
		{"answers by IPv6 are taken", "ip -6 rule add pref 4 to " + six + " lookup 52", []string{six}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := nstest.NewNode(t)
			a := newAgent(t, nodeDocument)
			a.want(exitYes, "apply")
			node.Run(tt.rules)
			var wrong []string
			got := a.want(exitNo, "status")
			for line := range strings.Lines(got) {
				if words := strings.Fields(line); len(words) > 2 && words[0] == "fra1" && strings.Contains(line, "wrong: ") {
					wrong = append(wrong, words[1])
				}
			}
			if diff := cmp.Diff(tt.wrong, wrong); diff != "" {
				t.Errorf("addresses that are wrong (-want +got):\n%s%s", diff, got)
			}
		})
	}
}

// Where the CNI has started first, its rule stands behind Tailscale's, which takes what pods answer to peers. Nobody is told
// to delete Tailscale's rule, and the agent puts it right.
func TestAnswersTakenByTailscale(t *testing.T) {
	node := nstest.NewIdleNode(t)
	node.StartRouter()
	node.StartTailscale()
	daemon := startTailscaled(t, runningTailnet)
	a := newAgent(t, nodeDocument)
	pristine := node.Dump()
	out, _, _ := a.run("doctor", "--socket", daemon.socket)
	if !strings.Contains(out, "peer-connections.captured") || strings.Contains(out, "ip rule del pref 5270") {
		t.Errorf("the doctor:\n%s", out)
	}
	if node.PeerReaches(nstest.Peer, nstest.Pod) {
		t.Error("the peer reaches the pod: this lab proves nothing")
	}
	a.want(exitYes, "apply")
	if !node.PeerReaches(nstest.Peer, nstest.Pod) || !node.PeerReaches(nstest.Peer6, nstest.Pod6) {
		t.Error("the peer does not reach the pod")
	}
	if out, _, _ := a.run("doctor", "--socket", daemon.socket); strings.Contains(out, "peer-connections.captured") {
		t.Errorf("the doctor, after apply:\n%s", out)
	}
	if got := a.want(exitYes, "apply"); got != "nothing to do\n" {
		t.Errorf("second apply: %s", got)
	}
	a.want(exitYes, "cleanup")
	if diff := cmp.Diff(pristine, node.Dump()); diff != "" {
		t.Errorf("cleanup left something (-before +after):\n%s", diff)
	}
}

// What somebody else has put into the agent's own table is no rule of the agent's, whatever it is called, and whether or not
// it is to go.
func TestCountersAreTheAgentsOwn(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	a.want(exitYes, "apply")
	node.Run("nft add rule inet tailmesh prerouting counter comment '\"mine \xff\x1b[31m\"'")
	pending := a.want(exitNo, "status")
	a.write(strings.Replace(nodeDocument, `"pod_cidrs": ["10.244.1.0/24", "fd00:10:244:1::/64"],`, "", 1))
	node.StopRouter()
	node.Run("ip addr flush dev kube-bridge")
	stays := a.want(exitUnknown, "status") // nobody knows what would be right
	for _, got := range []string{pending, stays} {
		if strings.Contains(got, "mine") || !strings.Contains(got, "sources of pods to peers, IPv4") {
			t.Error(got)
		}
	}
	if !strings.Contains(node.Run("nft list table inet tailmesh"), "mine") {
		t.Error("the rule is not there: this test proves nothing")
	}
}

// Where local_cidrs holds the pods and a peer, its packets keep their source by the document's own wish, and that is said
// wherever it is judged: no further apply mends it.
func TestPeerInLocalNetworks(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(`"local_cidrs": ["10.0.0.0/8", "100.64.0.0/10"], `))
		const why = "fra1  100.64.0.12        dev tailscale0 table 52  wrong: packets of pods keep their own source, which it does not take: " +
			"it is in local_cidrs, as the pods are; name no mesh addresses there\n"
		if got := a.want(exitNo, "apply"); !strings.Contains(got, strings.TrimPrefix(why, "fra1  100.64.0.12        ")) {
			t.Error(got)
		}
		stdout, stderr, code := a.run("status")
		if code != exitNo || !strings.Contains(stdout, why) || strings.Contains(stderr, "tailmesh-agent apply") {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		if node.PodReaches(nstest.Peer) || !node.PodReaches(nstest.Peer6) {
			t.Error("what is said is not so")
		}
		a.write(b.document(`"local_cidrs": ["10.0.0.0/8"], `))
		a.want(exitYes, "apply")
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer")
		}
	})
}
