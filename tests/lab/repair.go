//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Document returns a node's document, as the provider writes it.
func (l *Lab) Document(n *Node) config.Document {
	node := func(n *Node) config.Node { return config.Node{Name: n.Name, ID: n.ID, Addresses: n.Addrs} }
	doc := config.New()
	doc.Mesh, doc.Node, doc.PodCIDRs, doc.LocalCIDRs = "lab", node(n), n.PodCIDRs, n.LocalCIDRs
	for _, p := range l.peers(n) {
		doc.Peers = append(doc.Peers, node(p))
	}
	return doc
}

// Agent runs tailmesh-agent on a node and returns what it prints.
func (n *Node) Agent(ctx context.Context, args ...string) (string, error) {
	path, err := program(agentEnv)
	if err != nil {
		return "", err
	}
	own := []string{"--socket", n.socket, "--lock", filepath.Join(n.dir, "agent.lock")} // all nodes share one file system
	return Run(ctx, n.Name, slices.Concat([]string{path}, args, own)...)
}

// ApplyDocument writes a document for a node and has the agent carry it out.
func (n *Node) ApplyDocument(ctx context.Context, doc config.Document) (string, error) {
	text, err := doc.Marshal()
	if err != nil {
		return "", err
	}
	path := filepath.Join(n.dir, "node.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", err
	}
	return n.Agent(ctx, "apply", "--config", path)
}

// Naive is the widely copied repair: a rule at 10 that sends everything for a peer's address to
// Tailscale's table, and a translation of pods' packets to it.
type Naive struct {
	Rule, SNAT bool
}

// Apply installs the parts of the repair that are chosen.
func (v Naive) Apply(ctx context.Context, n *Node) error { return v.each(ctx, n, "add", "-A") }

// Undo takes them away.
func (v Naive) Undo(ctx context.Context, n *Node) error { return v.each(ctx, n, "del", "-D") }

func (v Naive) each(ctx context.Context, n *Node, rule, chain string) error {
	var script strings.Builder
	for _, p := range n.lab.peers(n) {
		for _, a := range p.Addrs {
			tool, family := "iptables", familyOf(a)
			if family == 6 {
				tool = "ip6tables"
			}
			one := netip.PrefixFrom(a, a.BitLen())
			if v.Rule {
				fmt.Fprintf(&script, "ip -%d rule %s pref 10 to %v lookup 52\n", family, rule, one)
			}
			if v.SNAT {
				fmt.Fprintf(&script, "%s -w -t nat %s POSTROUTING -s %v -d %v -o %s -j SNAT --to-source %v\n",
					tool, chain, n.podCIDR(family), one, MeshLink, n.Addr(family))
			}
		}
	}
	_, err := Sh(ctx, n.Name, script.String())
	return err
}
