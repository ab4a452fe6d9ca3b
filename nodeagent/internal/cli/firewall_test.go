//go:build linux

package cli

import (
	"context"
	"os/exec"
	"strings"
	"testing"

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
