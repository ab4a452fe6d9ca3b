package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Node is a device that belongs to the mesh.
type Node struct {
	// Name is the first label of the device's machine name, "ams1" of "ams1.tail1234.ts.net": what the admin console and
	// MagicDNS call it. The control plane keeps machine names apart, which it does not do with host names.
	Name      string
	ID        string
	Hostname  string
	FullName  string
	Addresses []netip.Addr // mesh addresses, IPv4 first
	Location  string
	PodCIDRs  []netip.Prefix

	endpoints []netip.Addr
}

func (n *Node) config() config.Node {
	return config.Node{Name: n.Name, ID: n.ID, Addresses: n.Addresses, Location: n.Location}
}

func newNode(d *policy.Device) Node {
	n := Node{ID: cmp.Or(d.NodeID, d.ID), Hostname: d.Hostname, FullName: d.Name}
	n.Name, _, _ = strings.Cut(cmp.Or(d.Name, d.Hostname), ".")
	for _, text := range d.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && config.IsMesh(a) {
			n.Addresses = append(n.Addresses, a)
		}
	}
	slices.SortFunc(n.Addresses, netip.Addr.Compare)
	if d.ClientConnectivity != nil {
		for _, text := range d.ClientConnectivity.Endpoints {
			if e, err := netip.ParseAddrPort(text); err == nil {
				n.endpoints = append(n.endpoints, e.Addr().Unmap())
			}
		}
	}
	return n
}

// selectNodes fills plan.Nodes.
func (b *builder) selectNodes(devices []policy.Device) {
	sel := b.spec.Selector
	if len(sel.Tags) == 0 && len(sel.Names) == 0 {
		b.problem(diag.Error, "selector", "", "the selector chooses nothing: give tags, as in [%q], or names", "tag:node")
		return
	}
	for _, tag := range sel.Tags {
		if name, ok := strings.CutPrefix(tag, "tag:"); !ok || name == "" {
			b.problem(diag.Error, "selector.tags", "", "%q is not a tag: want the form %q", tag, "tag:node")
		}
	}
	found := map[string]bool{}
	for i := range devices {
		d := &devices[i]
		n := newNode(d)
		chosen := slices.ContainsFunc(d.Tags, func(t string) bool { return slices.Contains(sel.Tags, t) })
		for _, name := range sel.Names {
			if n.called(name) {
				found[name], chosen = true, true
			}
		}
		switch {
		case !chosen:
		case d.IsExternal:
			b.problem(diag.Warning, "", "", "device %q (%s) is left out: it belongs to another tailnet, whose policy governs it", n.Name, n.ID)
		case !d.Authorized:
			b.problem(diag.Warning, "", "", "device %q (%s) is left out: it is not authorized, so no peer knows it; approve it in the admin console", n.Name, n.ID)
		case len(n.Addresses) == 0:
			b.problem(diag.Error, "", "", "device %q (%s) has no mesh address (of %s or %s) among %q: its peers could not reach it",
				n.Name, n.ID, config.MeshRange4(), config.MeshRange6(), d.Addresses)
		default:
			b.plan.Nodes = append(b.plan.Nodes, n)
		}
	}
	for _, name := range sel.Names {
		if !found[name] {
			b.problem(diag.Warning, "selector.names", "", "no device is called %q%s", name, b.known())
		}
	}
	slices.SortFunc(b.plan.Nodes, func(x, y Node) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.ID, y.ID), slices.CompareFunc(x.Addresses, y.Addresses, netip.Addr.Compare))
	})
	switch n := len(b.plan.Nodes); {
	case n < b.spec.MinNodes:
		b.problem(diag.Error, "min_nodes", "", "the mesh has %d nodes, and at least %d are wanted%s%s", n, b.spec.MinNodes, b.known(), tagsOf(devices))
	case n == 0:
		b.problem(diag.Warning, "selector", "", "no device of the tailnet's %d is a node of mesh %q: there are no documents%s",
			len(devices), b.spec.Name, tagsOf(devices))
	}
	b.duplicates()
}

// called says whether name means this node: short name, full machine name, host name or node ID.
func (n *Node) called(name string) bool {
	return name != "" && (strings.EqualFold(name, n.Name) || strings.EqualFold(strings.TrimSuffix(name, "."), n.FullName) ||
		name == n.Hostname || name == n.ID)
}

// node finds the node that the user means by a key of a map. A host name that several nodes have means none of them.
func (b *builder) node(key string) *Node {
	for i := range b.plan.Nodes {
		if n := &b.plan.Nodes[i]; strings.EqualFold(key, n.Name) || key == n.ID || strings.EqualFold(key, n.FullName) {
			return n
		}
	}
	var only *Node
	for i := range b.plan.Nodes {
		if n := &b.plan.Nodes[i]; n.Hostname == key {
			if only != nil {
				return nil
			}
			only = n
		}
	}
	return only
}

func (b *builder) duplicates() {
	byHost := map[string][]string{}
	for i := range b.plan.Nodes {
		n := &b.plan.Nodes[i]
		if i > 0 && strings.EqualFold(b.plan.Nodes[i-1].Name, n.Name) {
			b.problem(diag.Error, "", "", "two nodes are called %q (%s and %s): a document is found by its node's name; rename one of them",
				n.Name, b.plan.Nodes[i-1].ID, n.ID)
		}
		if n.Hostname != "" {
			byHost[n.Hostname] = append(byHost[n.Hostname], n.Name)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		if names := byHost[host]; len(names) > 1 {
			b.problem(diag.Warning, "", "", "nodes %q report the same host name %q: a machine that registered twice leaves "+
				"its old registration behind; if so, remove that in the admin console", names, host)
		}
	}
}

// unknownKey reports a key of a map that means no node. It is no error: machines may join after their addresses are
// planned.
func (b *builder) unknownKey(attribute, key string) {
	b.problem(diag.Warning, attribute, key, "%q is no node of the mesh, so its entry has no effect%s", key, b.known())
}

// known lists the nodes for messages about one that is not among them.
func (b *builder) known() string {
	names := make([]string, 0, len(b.plan.Nodes))
	for _, n := range b.plan.Nodes {
		names = append(names, n.Name)
	}
	return list("; the nodes are", names)
}

func tagsOf(devices []policy.Device) string {
	seen := map[string]bool{}
	for _, d := range devices {
		for _, t := range d.Tags {
			seen[t] = true
		}
	}
	return list("; its devices carry", slices.Sorted(maps.Keys(seen)))
}

// list prints at most some names behind a few words, and nothing where there are none.
func list(words string, names []string) string {
	const most = 8
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		return words + " " + strings.Join(names[:most], ", ") + " and others"
	}
	return words + " " + strings.Join(names, ", ")
}
