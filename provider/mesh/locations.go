package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// locate gives the nodes their locations: those of the spec and, where Granularity is Subnet, those that can be found.
func (b *builder) locate() {
	given := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(b.spec.Locations)) {
		n := b.node(key)
		switch {
		case n == nil:
			b.unknownKey("locations", key)
		case given[n.Name] != "":
			b.problem(diag.Error, "locations", key, "%q and %q both mean node %q: keep one of them", given[n.Name], key, n.Name)
		case b.spec.Locations[key] == "":
			b.problem(diag.Error, "locations", key, "the location of node %q is empty: give it a name or leave it out", n.Name)
		default:
			given[n.Name] = key
			n.Location = b.spec.Locations[key]
		}
	}
	if b.spec.Granularity == Subnet {
		b.findByNetworks()
		b.findByNeighbours()
	}
	b.judgeLocations()
}

// findByNetworks puts a node at the location whose local networks hold one of its addresses, where that is one location.
func (b *builder) findByNetworks() {
	for i := range b.plan.Nodes {
		n := &b.plan.Nodes[i]
		if n.Location != "" {
			continue
		}
		var at []string
		for _, location := range slices.Sorted(maps.Keys(b.spec.LocalCIDRs)) {
			if slices.ContainsFunc(b.spec.LocalCIDRs[location], func(p netip.Prefix) bool { return slices.ContainsFunc(n.endpoints, p.Contains) }) {
				at = append(at, location)
			}
		}
		switch len(at) {
		case 0:
		case 1:
			n.Location = at[0]
		default:
			b.problem(diag.Warning, "local_cidrs", "", "node %q has addresses in the networks of locations %q: say in locations at which it is", n.Name, at)
		}
	}
}

// findByNeighbours puts nodes that have no location yet at one of their own where there is proof that they share a
// network. Private networks alone prove nothing, because everybody has 192.168.1.0/24; these do:
//
//   - an address in the same /64 of global IPv6, which exists once in the world
//   - a private address in the same /24, and the same address towards the internet: both are behind one NAT
//
// The length of the network is not known to the API, so that /24 is a guess, towards the small. Nodes for which nothing is
// proved reach each other through the mesh, which always works.
func (b *builder) findByNeighbours() {
	var all []int
	evidence := map[string][]int{} // what nodes may have in common -> nodes
	for i := range b.plan.Nodes {
		if n := &b.plan.Nodes[i]; n.Location == "" {
			all = append(all, i)
			for _, e := range n.evidence() {
				evidence[e] = append(evidence[e], i)
			}
		}
	}
	group := map[int]int{} // node -> first node of its group
	for _, i := range all {
		group[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if group[i] != i {
			group[i] = find(group[i])
		}
		return group[i]
	}
	name := map[int]string{} // the first thing in common, by the first node of the group
	for _, e := range slices.Sorted(maps.Keys(evidence)) {
		nodes := evidence[e]
		if len(nodes) < 2 {
			continue
		}
		for _, i := range nodes[1:] {
			x, y := find(nodes[0]), find(i)
			first, known := name[min(x, y)], name[max(x, y)]
			group[max(x, y)] = min(x, y)
			if first == "" {
				first = known
			}
			if first == "" {
				first = e
			}
			name[min(x, y)] = first
		}
	}
	for _, i := range all {
		if found := name[find(i)]; found != "" {
			b.plan.Nodes[i].Location = found
		}
	}
}

// evidence is what proves, if another node has it too, that the two share a network.
func (n *Node) evidence() (out []string) {
	var private, public []netip.Addr
	for _, a := range n.endpoints {
		switch {
		case config.IsMesh(a) || !a.IsGlobalUnicast():
		case a.Is4() && a.IsPrivate():
			private = append(private, a)
		case a.Is4():
			public = append(public, a)
		case !a.IsPrivate():
			out = append(out, network(a, 64))
		}
	}
	for _, outside := range public {
		for _, inside := range private {
			out = append(out, fmt.Sprintf("%s behind %s", network(inside, 24), outside))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func network(a netip.Addr, bits int) string {
	p, err := a.Prefix(bits)
	if err != nil {
		return a.String()
	}
	return p.String()
}

func (b *builder) judgeLocations() {
	if b.spec.Granularity == Full {
		return
	}
	count := map[string][]string{}
	for _, n := range b.plan.Nodes {
		count[n.Location] = append(count[n.Location], n.Name)
	}
	for _, location := range slices.Sorted(maps.Keys(count)) {
		names := count[location]
		switch {
		case location == "":
			severity := diag.Warning
			if b.spec.Granularity == Subnet {
				severity = diag.Note // that is how it is meant
			}
			b.problem(severity, "locations", "", "no location is known for%s, so that each of them reaches every other node through the mesh", list("", names))
		case len(names) == 1:
			b.problem(diag.Note, "locations", "", "location %q has one node, %q, which reaches every other node through the mesh", location, names[0])
		}
	}
}
