package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Graph is a drawing of the mesh: nodes in boxes by location, a line for each pair of locations whose nodes are peers,
// and within a location a line for each pair of peers.
type Graph struct {
	DOT     string // for Graphviz
	Mermaid string // for Markdown
}

// site is one box of a drawing.
type site struct {
	location string // empty for nodes that have none
	nodes    []int
}

func draw(b *builder) Graph {
	var sites []site
	byLocation := map[string][]int{}
	for i, n := range b.plan.Nodes {
		byLocation[n.Location] = append(byLocation[n.Location], i)
	}
	for _, l := range slices.Sorted(maps.Keys(byLocation)) {
		sites = append(sites, site{l, byLocation[l]})
	}
	return Graph{DOT: drawDOT(b, sites), Mermaid: drawMermaid(b, sites)}
}

// lines calls node for each pair of nodes to be joined by a line, and box for each pair of boxes. Between two named
// locations all nodes are peers of all, so that one line says it.
func lines(b *builder, sites []site, node func(i, j int), box func(s, t int)) {
	for s := range sites {
		for t := s; t < len(sites); t++ {
			if s != t && sites[s].location != "" {
				box(s, t)
				continue
			}
			for _, i := range sites[s].nodes {
				for _, j := range sites[t].nodes {
					if (s != t || i < j) && b.peers(&b.plan.Nodes[i], &b.plan.Nodes[j]) {
						node(i, j)
					}
				}
			}
		}
	}
}

func drawDOT(b *builder, sites []site) string {
	var out strings.Builder
	fmt.Fprintf(&out, "graph %s {\n\tcompound=true\n\tnode [shape=box]\n", quote(b.spec.Name))
	for s, site := range sites {
		indent := "\t"
		if site.location != "" {
			fmt.Fprintf(&out, "\tsubgraph cluster_%d {\n\t\tlabel=%s\n", s, quote(site.location))
			indent = "\t\t"
		}
		for _, i := range site.nodes {
			n := b.plan.Nodes[i]
			fmt.Fprintf(&out, "%sn%d [label=%s]\n", indent, i, quote(n.Name+"\n"+n.Addresses[0].String()))
		}
		if site.location != "" {
			out.WriteString("\t}\n")
		}
	}
	lines(b, sites,
		func(i, j int) { fmt.Fprintf(&out, "\tn%d -- n%d\n", i, j) },
		func(s, t int) {
			fmt.Fprintf(&out, "\tn%d -- n%d [ltail=cluster_%d, lhead=cluster_%d, label=%s]\n",
				sites[s].nodes[0], sites[t].nodes[0], s, t, quote(b.spec.Overlay.Protocol))
		})
	out.WriteString("}\n")
	return out.String()
}

func drawMermaid(b *builder, sites []site) string {
	var out strings.Builder
	out.WriteString("flowchart LR\n")
	for s, site := range sites {
		indent := "  "
		if site.location != "" {
			fmt.Fprintf(&out, "  subgraph s%d[%s]\n", s, mermaidText(site.location))
			indent = "    "
		}
		for _, i := range site.nodes {
			n := b.plan.Nodes[i]
			fmt.Fprintf(&out, "%sn%d[%s]\n", indent, i, mermaidText(n.Name, n.Addresses[0].String()))
		}
		if site.location != "" {
			out.WriteString("  end\n")
		}
	}
	lines(b, sites,
		func(i, j int) { fmt.Fprintf(&out, "  n%d --- n%d\n", i, j) },
		func(s, t int) { fmt.Fprintf(&out, "  s%d -- %s --- s%d\n", s, mermaidText(b.spec.Overlay.Protocol), t) })
	return out.String()
}

// mermaidText quotes lines of text for a label, in which Mermaid reads a little HTML.
func mermaidText(lines ...string) string {
	escape := strings.NewReplacer(`"`, "&quot;", "<", "&lt;", ">", "&gt;", "&", "&amp;", "`", "&#96;")
	for i, l := range lines {
		lines[i] = escape.Replace(l)
	}
	return `"` + strings.Join(lines, "<br>") + `"`
}
