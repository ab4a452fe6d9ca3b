package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Bounds of the drawing. What is beyond them is counted in it, and said below it.
const (
	maxClusters = 16
	maxNodes    = 24 // names in one cluster

	// namedClusters is the number of clusters up to which nodes are named in the drawing. Beyond it only those to look at
	// are, and few: on a ring of many boxes, large ones leave no room for the lines.
	namedClusters = 8
	fewNodes      = 3
)

// noOverlay is the protocol of a mesh without an overlay.
const noOverlay = "none"

// graph is the drawing of a mesh: clusters of nodes, and the links between and inside them.
type graph struct {
	Title, Protocol string
	ByTag           bool
	Nodes           int
	Clusters        []*cluster
	Links           []*link
	Sum             tallyOfPairs // over all pairs that the mesh joins
	Left            string       // what is not drawn
	Empty           string       // why there is nothing to draw
	Unknown         []string     // nodes that the inventory does not have
	Layout          *layout
}

// cluster is a location, or a tag.
type cluster struct {
	Name  string
	Count int
	Nodes []clusterNode
	More  int           // nodes that are not named
	All   []clusterNode // where that is so
	Local []string
	nodes []*node
	mesh  tallyOfPairs // pairs inside, through the mesh
	lan   int          // pairs inside, not through the mesh
}

type clusterNode struct {
	Name, Title string
	Trouble     bool
}

// tallyOfPairs counts pairs of nodes by what the policy admits between them.
type tallyOfPairs struct {
	Both, OneWay, Refused, Open int
	Bare                        int // without an overlay, so that nothing has to be admitted
}

func (t tallyOfPairs) Total() int { return t.Good() + t.OneWay + t.Refused + t.Open }

// Good counts those that lack nothing.
func (t tallyOfPairs) Good() int { return t.Both + t.Bare }

func (t *tallyOfPairs) add(o tallyOfPairs) {
	t.Both += o.Both
	t.OneWay += o.OneWay
	t.Refused += o.Refused
	t.Open += o.Open
	t.Bare += o.Bare
}

// link is the bundle of pairs between two clusters.
type link struct {
	A, B         string
	a, b         int
	Pairs        tallyOfPairs
	Rules        []place
	Label, Title string
	State        string // "good", "bad", "warn"
}

// node is a node with what the policy knows of it.
type node struct {
	name, location string
	device         int  // -1 where the inventory has none
	external       bool // shared in: another tailnet's policy says what it admits
	lane           int  // that its packets to peers take; 0 where its protocol is none that policies know
	bare           bool // without an overlay: there is nothing to admit
	peers          map[string]bool
	required       bool     // whether a requirement names it
	bad            []string // the others of its pairs that are not admitted both ways
	trouble        bool     // whether to look at it
}

func newGraph(f *flows, in *Input, lines ruleLines) *graph {
	g := &graph{Title: "The mesh by location", Protocol: "ip-in-ip"}
	var nodes []*node
	if in.Mesh != nil {
		nodes = g.meshNodes(f, in.Mesh)
	} else {
		g.ByTag, g.Title = true, "Nodes by tag"
		nodes = g.tagNodes(f, in.Report.Requirements)
		if len(nodes) == 0 {
			g.Empty = "No device may send " + g.Protocol + " to another one. With --mesh, the nodes of a mesh are drawn by location."
			return g
		}
	}
	g.Nodes = len(nodes)
	g.join(f, nodes, lines)
	g.Layout = place2D(g)
	return g
}

func (g *graph) meshNodes(f *flows, m *Mesh) []*node {
	switch len(m.Names) {
	case 0:
	case 1:
		g.Title = fmt.Sprintf("Mesh %s by location", m.Names[0])
	default:
		g.Title = fmt.Sprintf("Meshes %s by location", strings.Join(m.Names, ", "))
	}
	byName := map[string]int{}
	for n, d := range f.devices {
		byName[d.Name] = n
	}
	var protocols []string
	var out []*node
	for _, mn := range m.Nodes {
		n := &node{name: mn.Name, location: mn.Location, device: -1, peers: map[string]bool{}}
		for _, p := range mn.Peers {
			n.peers[p] = p != mn.Name
		}
		if i, ok := byName[mn.Name]; ok {
			n.device = i
		}
		for _, a := range mn.Addresses { // what the agent goes by
			if i, ok := f.at[a]; ok {
				n.device = i
			}
		}
		if n.device < 0 {
			g.Unknown = append(g.Unknown, mn.Name)
		} else {
			n.external = f.devices[n.device].External
		}
		n.lane, n.bare = laneOf(mn.Protocol), mn.Protocol == noOverlay
		if !n.bare && !slices.Contains(protocols, mn.Protocol) {
			protocols = append(protocols, mn.Protocol)
		}
		out = append(out, n)
	}
	g.Protocol = cmp.Or(strings.Join(protocols, ", "), noOverlay)
	return out
}

// laneOf is the lane of a protocol, 0 where there is none.
func laneOf(protocol string) int {
	for n := 1; n < 256; n++ {
		if strings.EqualFold(policy.ProtocolName(n), protocol) || strconv.Itoa(n) == protocol {
			return n
		}
	}
	if strings.EqualFold(protocol, "ipv4") { // the other name of protocol 4
		return laneIPIP
	}
	return 0
}

// tagNodes takes the devices that may send the overlay's protocol to another one, or that a requirement of it names; one
// that is shared in only where a requirement names it.
func (g *graph) tagNodes(f *flows, reqs []policy.RequirementResult) []*node {
	lane := laneIPIP
	named := map[string]bool{}
	for _, q := range reqs {
		l := laneOf(q.Requirement.Proto)
		if l == 0 || l == laneTCP || l == laneUDP || l == laneICMP {
			continue
		}
		if len(named) == 0 {
			lane = l
		}
		if l == lane {
			for _, s := range slices.Concat(q.Requirement.Src, q.Requirement.Dst) {
				named[s] = true
			}
		}
	}
	g.Protocol = laneName(lane)
	required := func(d policy.AccessDevice) bool {
		return named[d.Name] || slices.ContainsFunc(d.Tags, func(t string) bool { return named[t] })
	}
	takes := make([]bool, len(f.devices))
	for n, d := range f.devices {
		takes[n] = takes[n] || required(d)
		if d.External {
			continue
		}
		l := f.own(n).lanes[lane]
		if l == nil {
			continue
		}
		for m, from := range f.devices {
			if m != n && !from.External && l.all.has(m) {
				takes[n], takes[m] = true, true
			}
		}
	}
	var out []*node
	for n, d := range f.devices {
		if !takes[n] {
			continue
		}
		location := "shared in"
		switch {
		case len(d.Tags) > 0:
			location = slices.Min(d.Tags)
			for _, t := range slices.Sorted(slices.Values(d.Tags)) {
				if named[t] {
					location = t
					break
				}
			}
		case d.Owner != "":
			location = agMember
		}
		out = append(out, &node{
			name: d.Name, location: location, device: n, external: d.External, lane: lane, required: required(d),
		})
	}
	return out
}

// join judges all pairs, gathers them by cluster, and chooses what is drawn.
func (g *graph) join(f *flows, nodes []*node, lines ruleLines) {
	byLocation := map[string][]*node{}
	for _, n := range nodes {
		byLocation[n.location] = append(byLocation[n.location], n)
	}
	for i, name := range slices.Sorted(maps.Keys(byLocation)) {
		c := &cluster{Name: cmp.Or(name, "no location"), Count: len(byLocation[name]), nodes: byLocation[name]}
		g.Clusters = append(g.Clusters, c)
		for j := 0; j <= i; j++ {
			l := &link{A: g.Clusters[j].Name, B: c.Name, a: j, b: i}
			rules := map[string]bool{}
			for x, n := range c.nodes {
				others := g.Clusters[j].nodes
				if i == j {
					others = others[:x]
				}
				for _, m := range others {
					joined := g.ByTag || n.peers[m.name] || m.peers[n.name]
					if !joined {
						if i == j && name != "" {
							c.lan++
						}
						continue
					}
					g.pair(f, n, m, l, rules)
				}
			}
			if l.Pairs.Total() == 0 {
				continue
			}
			for _, path := range slices.Sorted(maps.Keys(rules)) {
				l.Rules = append(l.Rules, lines.place(path))
			}
			slices.SortStableFunc(l.Rules, func(a, b place) int { return cmp.Compare(a.Line, b.Line) })
			l.describe(g)
			if i == j {
				c.mesh = l.Pairs
			}
			g.Links = append(g.Links, l)
		}
	}
	mark(nodes)
	g.cut()
	for _, c := range g.Clusters {
		c.describe(g)
	}
	slices.SortStableFunc(g.Links, func(x, y *link) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) })
}

// cut takes out of the drawing what it has no room for, and says what that is: clusters with trouble stay, then large ones.
func (g *graph) cut() {
	if len(g.Clusters) <= maxClusters {
		return
	}
	bad := make([]int, len(g.Clusters))
	for _, l := range g.Links {
		n := l.Pairs.Total() - l.Pairs.Good()
		bad[l.a] += n
		bad[l.b] += n
	}
	order := make([]int, len(g.Clusters))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(bad[b], bad[a]), cmp.Compare(g.Clusters[b].Count, g.Clusters[a].Count))
	})
	kept := order[:maxClusters]
	slices.Sort(kept)
	all, nodes := len(g.Clusters), g.Nodes
	var clusters []*cluster
	at := map[int]int{}
	for _, i := range kept {
		at[i] = len(clusters)
		clusters = append(clusters, g.Clusters[i])
		nodes -= g.Clusters[i].Count
	}
	var links []*link
	var left tallyOfPairs
	for _, l := range g.Links {
		a, okA := at[l.a]
		b, okB := at[l.b]
		if !okA || !okB {
			left.add(l.Pairs)
			continue
		}
		l.a, l.b = a, b
		links = append(links, l)
	}
	g.Clusters, g.Links = clusters, links
	g.Left = fmt.Sprintf("%d of %d clusters are drawn: first those with most pairs that are not admitted both ways, then the largest. "+
		"Not drawn: %s, and %s.", maxClusters, all, plural(nodes, "node"), left.text(g.Protocol))
}

// pair judges one pair of nodes in both directions.
func (g *graph) pair(f *flows, n, m *node, l *link, rules map[string]bool) {
	there, back := f.way(n, m, rules), f.way(m, n, rules)
	var t tallyOfPairs
	switch {
	case n.bare && m.bare:
		t.Bare++
	case there == policy.Undecided || back == policy.Undecided:
		t.Open++
	case there == policy.Pass && back == policy.Pass:
		t.Both++
	case there != back:
		t.OneWay++
	case g.ByTag && (!n.required || !m.required): // nobody means to join these two
		return
	default:
		t.Refused++
	}
	l.Pairs.add(t)
	g.Sum.add(t)
	if t.Good() == 0 && !n.external && !m.external {
		n.bad, m.bad = append(n.bad, m.name), append(m.bad, n.name)
	}
}

// way judges one direction, and notes the rules that admit it.
func (f *flows) way(from, to *node, rules map[string]bool) policy.Verdict {
	switch {
	case from.bare:
		return policy.Pass
	case from.device < 0 || to.device < 0 || from.lane == 0 || to.external:
		return policy.Undecided
	}
	for _, r := range f.own(to.device).rules {
		if r.lane == from.lane && r.admits.has(from.device) {
			rules[r.rule.Path] = true
		}
	}
	return f.admitted(from.device, to.device, from.lane)
}

func (l *link) describe(g *graph) {
	t := l.Pairs
	l.State, l.Label = "good", fmt.Sprint(t.Good())
	var parts []string
	say := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	say(t.Refused, "refused")
	say(t.OneWay, "one way")
	say(t.Open, "not known")
	if len(parts) > 0 {
		l.State = "warn"
		l.Label = strings.Join(parts, ", ")
		if t.Good() > 0 {
			l.Label = fmt.Sprintf("%s of %d", l.Label, t.Total())
		}
		if t.Refused > 0 {
			l.State = "bad"
		}
	}
	l.Title = fmt.Sprintf("%s and %s: %s", l.A, l.B, t.text(g.Protocol))
	if l.a == l.b {
		l.Title = fmt.Sprintf("inside %s: %s", l.A, t.text(g.Protocol))
	}
}

func (t tallyOfPairs) text(protocol string) string {
	if t.Bare > 0 && t.Bare == t.Total() {
		return plural(t.Total(), "pair") + ", without an overlay that the policy would have to let through"
	}
	parts := []string{plural(t.Total(), "pair"), fmt.Sprintf("%s admitted both ways for %d", protocol, t.Both)}
	for _, p := range []struct {
		n    int
		what string
	}{{t.OneWay, "one way only"}, {t.Refused, "refused"}, {t.Open, "not known"}, {t.Bare, "without an overlay"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Listed reports whether some nodes are not named in the drawing.
func (g *graph) Listed() bool {
	return slices.ContainsFunc(g.Clusters, func(c *cluster) bool { return c.More > 0 })
}

// Text says of all pairs what is admitted.
func (g *graph) Text() string { return g.Sum.text(g.Protocol) }

func (c *cluster) describe(g *graph) {
	slices.SortFunc(c.nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	for _, n := range c.nodes {
		c.All = append(c.All, n.describe(g))
	}
	trouble := slices.DeleteFunc(slices.Clone(c.All), func(n clusterNode) bool { return !n.Trouble })
	switch {
	case len(g.Clusters) > namedClusters:
		c.Nodes = trouble[:min(len(trouble), fewNodes)]
	case len(c.All) > maxNodes: // those to look at first
		others := slices.DeleteFunc(slices.Clone(c.All), func(n clusterNode) bool { return n.Trouble })
		c.Nodes = slices.Concat(trouble, others)[:maxNodes]
	default:
		c.Nodes = c.All
	}
	if c.More = len(c.All) - len(c.Nodes); c.More == 0 {
		c.All = nil
	}
	if c.lan > 0 {
		c.Local = append(c.Local, fmt.Sprintf("%s direct", plural(c.lan, "pair")))
	}
	if t := c.mesh; t.Total() > 0 {
		text := fmt.Sprintf("%s over mesh", plural(t.Total(), "pair"))
		if g.ByTag {
			text = plural(t.Total(), "pair")
		}
		if bad := t.Total() - t.Good(); bad > 0 {
			text += fmt.Sprintf(", %d not both ways", bad)
		}
		c.Local = append(c.Local, text)
	}
}

func (n *node) describe(g *graph) clusterNode {
	out := clusterNode{Name: n.name, Title: n.name, Trouble: n.trouble}
	switch {
	case n.device < 0:
		out.Title += ": not in the inventory"
	case n.external:
		out.Title += ": shared in, and another tailnet's policy says what it admits"
	case len(n.bad) > 0:
		slices.Sort(n.bad)
		few := n.bad[:min(len(n.bad), 8)]
		out.Title += fmt.Sprintf(": %s not admitted both ways with %s", g.Protocol, strings.Join(few, ", "))
		if more := len(n.bad) - len(few); more > 0 {
			out.Title += fmt.Sprintf(" and %d more", more)
		}
	}
	return out
}

// mark finds the nodes to look at: those that the inventory lacks, and those with at least twice the trouble of most whom
// they have it with. Where one node is at fault its many peers are not marked with it, and where two locations are closed
// to each other nobody is: the line between them says it.
func mark(nodes []*node) {
	bad := map[string]int{}
	for _, n := range nodes {
		bad[n.name] = len(n.bad)
	}
	for _, n := range nodes {
		var others []int
		for _, m := range n.bad {
			others = append(others, bad[m])
		}
		slices.Sort(others)
		n.trouble = n.device < 0 || len(others) > 0 && len(n.bad) >= 2*others[len(others)/2]
	}
}
