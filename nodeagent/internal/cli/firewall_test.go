//go:build linux

package cli

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// backend is a firewall that a test runs over.
type backend struct {
	name   desired.Backend
	noSets bool
}

// overBackends runs a test over every firewall. Each has a namespace of its own.
func overBackends(t *testing.T, f func(t *testing.T, b backend)) {
	for _, b := range []backend{
		{name: desired.NFTables},
		{name: desired.IPTablesNFT}, {name: desired.IPTablesLegacy},
		{name: desired.IPTablesNFT, noSets: true}, {name: desired.IPTablesLegacy, noSets: true},
	} {
		name := string(b.name)
		if b.noSets {
			name += " without sets"
		}
		t.Run(name, func(t *testing.T) {
			for _, tool := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy", "ipset"} {
				if _, err := exec.LookPath(tool); err != nil && b.name != desired.NFTables {
					t.Skipf("needs %s", tool)
				}
			}
			f(t, b)
		})
	}
}

// document returns the node's document with the firewall and more keys in it.
func (b backend) document(more string) string {
	name := "nftables"
	if b.name != desired.NFTables {
		name = "iptables"
	}
	return strings.Replace(nodeDocument, `"peers"`, more+`"firewall": {"backend": "`+name+`"}, "peers"`, 1)
}

func (b backend) agent(t *testing.T, document string) *agent {
	a := newAgent(t, document)
	if b.noSets {
		a.kernel = withoutSets{a.kernel}
	}
	return a
}

// withoutSets is a kernel without ipset.
type withoutSets struct{ kernel.Interface }

func (k withoutSets) Facts(ctx context.Context) (desired.Facts, error) {
	facts, err := k.Interface.Facts(ctx)
	facts.NoSets = true
	return facts, err
}

// node makes a node whose kubelet uses the firewall.
func (b backend) node(t *testing.T) *nstest.Node {
	node := nstest.NewNode(t)
	b.kubelet(node)
	return node
}

// kubelet does what kubelet does to be found out by others, and makes the tables and chains that iptables makes by itself
// as soon as it is used.
func (b backend) kubelet(node *nstest.Node) {
	if b.name == desired.NFTables {
		return
	}
	for _, tool := range []string{string(b.name), strings.Replace(string(b.name), "ip", "ip6", 1)} {
		for _, chain := range []string{"mangle PREROUTING", "filter FORWARD", "nat POSTROUTING"} {
			table, hook, _ := strings.Cut(chain, " ")
			node.Run(tool + " -w -t " + table + " -A " + hook + " -j ACCEPT\n" + tool + " -w -t " + table + " -D " + hook + " 1")
		}
		node.Run(tool + " -w -t mangle -N KUBE-IPTABLES-HINT")
	}
}

// iptablesOnly runs a test over both variants of iptables, with sets.
func iptablesOnly(t *testing.T, f func(t *testing.T, b backend)) {
	overBackends(t, func(t *testing.T, b backend) {
		if b.name != desired.NFTables && !b.noSets {
			f(t, b)
		}
	})
}

// withoutOwn takes the agent's lines out of a dump. The rest must be as it was, in the same order.
func withoutOwn(dump string) string {
	var out strings.Builder
	for line := range strings.Lines(dump) {
		own := strings.Contains(line, "TAILMESH-") || strings.Contains(line, "tailmesh-nft-") || strings.Contains(line, "tailmesh-legacy-") ||
			strings.HasSuffix(strings.TrimSpace(line), "lookup 52 proto 116")
		if !own {
			out.WriteString(line)
		}
	}
	return out.String()
}

// saved leaves the tables of nft out of a dump, which shows those of iptables-nft once more, with less in them.
func saved(dump string) string { return dump[strings.Index(dump, "# iptables-nft\n"):] }

// On a node that others use as well, everything of theirs stays, in its order, and cleanup leaves exactly that.
func TestOthersAreLeftAlone(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Crowd()
		before := node.Dump()
		a := b.agent(t, b.document(`"local_cidrs": ["10.7.0.0/16"], "routing": {"fail_closed": true}, `))
		a.want(exitYes, "apply")
		if diff := cmp.Diff(saved(before), withoutOwn(saved(node.Dump()))); diff != "" {
			t.Errorf("apply touched what is not the agent's (-before +after):\n%s", diff)
		}
		a.want(exitYes, "cleanup")
		if diff := cmp.Diff(before, node.Dump()); diff != "" {
			t.Errorf("cleanup did not leave what was there (-before +after):\n%s", diff)
		}
	})
}

// Whatever somebody does to the agent's objects is seen and mended, and costs nothing else.
func TestRepairIPTables(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		tests := []struct{ name, damage string }{
			{"table flushed", "IPT -t nat -F"},
			{"chain flushed", "IPT -t nat -F TAILMESH-POSTROUTING"},
			{"IPv6 chain flushed", "IP6T -t mangle -F TAILMESH-PREROUTING"},
			{"all flushed and deleted", "IPT -t mangle -F\nIPT -t mangle -X TAILMESH-PREROUTING"},
			{"jump deleted", "IPT -t mangle -D PREROUTING 1"},
			{"jump twice", "IPT -t mangle -A PREROUTING -m comment --comment tailmesh -j TAILMESH-PREROUTING"},
			{"rule in front of the jump", "IPT -t mangle -I PREROUTING 1 -p sctp -j ACCEPT"},
			{"rule deleted", "IPT -t mangle -D TAILMESH-PREROUTING 1"},
			{"rule in front", "IPT -t mangle -I TAILMESH-PREROUTING 1 -j RETURN"},
			{"rule behind", "IPT -t nat -A TAILMESH-POSTROUTING -s 10.0.0.1 -j ACCEPT"},
			{"rules in another order", "IPT -t nat -D TAILMESH-POSTROUTING 1\nIPT -t nat -A TAILMESH-POSTROUTING -o tailscale0 " +
				"-m set --match-set SET-local4 src -m set --match-set SET-local4 dst -m comment --comment 'traffic within this location, IPv4' -j RETURN"},
			{"rule replaced", "IPT -t nat -R TAILMESH-POSTROUTING 2 -o tailscale0 -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m comment --comment 'sources of pods to peers, IPv4' -j SNAT --to-source 100.64.0.99"},
			{"rule with one more condition", "IPT -t nat -R TAILMESH-POSTROUTING 2 -o tailscale0 -p tcp -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m comment --comment 'sources of pods to peers, IPv4' -j SNAT --to-source 100.64.0.11"},
			{"whole mark set", "IPT -t mangle -R TAILMESH-PREROUTING 1 ! -i tailscale0 -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m conntrack --ctdir ORIGINAL -m comment --comment 'connections of pods to peers, IPv4' -j MARK --set-mark 0x2000"},
			{"peer deleted", "ipset del SET-peers4 100.64.0.12"},
			{"peer added", "ipset add SET-peers4 100.64.0.99"},
			{"pods flushed", "ipset flush SET-pods4"},
			{"pods widened", "ipset add SET-pods4 10.0.0.0/9"},
			{"sets destroyed", "IPT -t mangle -F TAILMESH-PREROUTING\nIPT -t nat -F TAILMESH-POSTROUTING\nipset destroy SET-peers4\nipset destroy SET-pods4"},
			{"set of another type", "IPT -t mangle -F TAILMESH-PREROUTING\nIPT -t nat -F TAILMESH-POSTROUTING\nipset destroy SET-peers4\nipset create SET-peers4 hash:net"},
		}
		node := b.node(t)
		a := b.agent(t, b.document(`"local_cidrs": ["10.7.0.0/16", "192.168.10.0/24"], `))
		a.want(exitYes, "apply")
		whole := saved(node.Dump())
		tools := strings.NewReplacer("IP6T", strings.Replace(string(b.name), "ip", "ip6", 1), "IPT", string(b.name), "SET-", b.name.SetName(""))
		for _, tt := range tests {
			node.Run(tools.Replace(tt.damage))
			if stdout, _, code := a.run("status"); code != exitNo {
				t.Errorf("%s: status says %d\n%s", tt.name, code, stdout)
			}
			stdout, stderr, code := a.run("apply")
			if tt.name == "rule in front of the jump" {
				node.Run(tools.Replace("IPT -t mangle -D PREROUTING 2"))
			}
			if diff := cmp.Diff(whole, saved(node.Dump())); diff != "" || code != exitYes {
				t.Errorf("%s: apply: exit code %d\n%s%s(-want +got):\n%s", tt.name, code, stdout, stderr, diff)
			}
		}
	})
}
