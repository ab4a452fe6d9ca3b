package mesh

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// podCIDRs gives the nodes their pod networks. Two nodes that have the same would send each other's packets astray.
func (b *builder) podCIDRs() {
	type owned struct {
		prefix netip.Prefix
		node   string
	}
	var all []owned
	given := map[string]string{} // node -> key
	for _, key := range slices.Sorted(maps.Keys(b.spec.PodCIDRs)) {
		n := b.node(key)
		if n == nil {
			b.unknownKey("pod_cidrs", key)
			continue
		}
		if other, twice := given[n.Name]; twice {
			b.problem(diag.Error, "pod_cidrs", key, "%q and %q both mean node %q: keep one of them", other, key, n.Name)
			continue
		}
		given[n.Name] = key
		for _, p := range b.spec.PodCIDRs[key] {
			if !b.podCIDR("pod_cidrs", key, p) {
				continue
			}
			for _, o := range all {
				if o.prefix.Overlaps(p) {
					b.problem(diag.Error, "pod_cidrs", key, "%s of node %q overlaps %s of node %q: a pod's address must say on which node the pod is",
						p, n.Name, o.prefix, o.node)
				}
			}
			if len(b.spec.ClusterCIDRs) > 0 && !slices.ContainsFunc(b.spec.ClusterCIDRs, func(c netip.Prefix) bool {
				return c.Bits() <= p.Bits() && c.Overlaps(p)
			}) {
				b.problem(diag.Warning, "pod_cidrs", key, "%s of node %q lies outside of the cluster's networks %s", p, n.Name, b.spec.ClusterCIDRs)
			}
			all = append(all, owned{p, n.Name})
			n.PodCIDRs = append(n.PodCIDRs, p)
		}
		slices.SortFunc(n.PodCIDRs, comparePrefix)
	}
	for i, p := range b.spec.ClusterCIDRs {
		if b.podCIDR("cluster_cidrs", "", p) {
			for _, q := range b.spec.ClusterCIDRs[:i] {
				if p.Overlaps(q) {
					b.problem(diag.Error, "cluster_cidrs", "", "%s overlaps %s", p, q)
				}
			}
		}
	}
	for i := range b.plan.Nodes {
		if n := &b.plan.Nodes[i]; given[n.Name] == "" {
			n.PodCIDRs = b.spec.ClusterCIDRs
		}
	}
}

func (b *builder) podCIDR(attribute, key string, p netip.Prefix) bool {
	if !b.network(attribute, key, p) {
		return false
	}
	for _, local := range slices.Sorted(maps.Keys(b.spec.LocalCIDRs)) {
		for _, l := range b.spec.LocalCIDRs[local] {
			if l.Overlaps(p) {
				b.problem(diag.Warning, attribute, key, "the pod network %s overlaps %s of location %q: a machine there cannot tell pods from its neighbours", p, l, local)
			}
		}
	}
	return true
}

// network checks what holds for pod networks and local networks alike.
func (b *builder) network(attribute, key string, p netip.Prefix) bool {
	if p != p.Masked() {
		b.problem(diag.Error, attribute, key, "%s has bits set behind its length: write %s", p, p.Masked())
		return false
	}
	for _, mesh := range []netip.Prefix{config.MeshRange4(), config.MeshRange6()} {
		if p.Overlaps(mesh) {
			b.problem(diag.Error, attribute, key, "%s contains addresses of the tailnet (%s): choose a network outside of it", p, mesh)
			return false
		}
	}
	return true
}

// localCIDRs checks the networks of the locations.
func (b *builder) localCIDRs() {
	var locations []string
	for _, n := range b.plan.Nodes {
		if n.Location != "" && !slices.Contains(locations, n.Location) {
			locations = append(locations, n.Location)
		}
	}
	for _, location := range slices.Sorted(maps.Keys(b.spec.LocalCIDRs)) {
		for _, p := range b.spec.LocalCIDRs[location] {
			b.network("local_cidrs", location, p)
		}
		if !slices.Contains(locations, location) {
			b.problem(diag.Warning, "local_cidrs", location, "no node is at location %q, so its entry has no effect%s",
				location, list("; there are", locations))
		}
	}
}
