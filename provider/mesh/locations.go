package mesh

import (
	"maps"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// locate gives the nodes their locations.
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
	b.judgeLocations()
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
			b.problem(diag.Warning, "locations", "", "no location is known for%s: each of them reaches every other node through the mesh", list("", names))
		case len(names) == 1:
			b.problem(diag.Note, "locations", "", "location %q has one node, %q, which reaches every other node through the mesh", location, names[0])
		}
	}
}
