package accessdiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// lane is one kind of access that a rule gives or does not give, such as tcp, a capability or ssh as root. Those with
// ports are given port by port, the others as a whole.
type lane struct {
	kind   Kind
	name   string
	detail string
}

// Lane names of network access that are not protocols of one number.
const (
	laneICMP    = "icmp" // pings, of either family: they pass wherever anything does
	laneNonroot = "autogroup:nonroot"
)

// span is a range of ports, both included; 0 to 0 for what has no ports.
type span = spans.Span

func noPorts() []span { return []span{{}} }

// ware is what a rule lets through in one lane.
type ware struct {
	lane  int
	ports []span // sorted, apart
}

// source is whom a rule names, as points.
type source struct {
	id      int // equal for equal content
	sure    bitset
	unknown []unknown
}

// unknown is a set of points that are sources if a condition holds.
type unknown struct {
	needs int
	set   bitset
}

// piece is what one rule lets through from one set of sources, wherever it lands.
type piece struct {
	cause int
	src   *source
	wares []ware
	goods int // equal for equal wares
	dst   string
	self  bool
}

// landing is a piece on a device.
type landing struct {
	piece int
	all   bool
	own   bool
	ips   []string
}

// side is one of the two policies.
type side struct {
	name   string
	report *policy.Report
	access *policy.Access

	pieces   []*piece
	byKey    map[pieceKey]int
	landings [][]landing // by device
	unplaced map[string][]landing
	needs    map[string]string // what is not known of an unplaced destination
	names    map[string]ruleNames
}

type pieceKey struct {
	id, part int
	src      *policy.Sources
}

// cause is a rule of one side.
type cause struct {
	side *side
	path string
	node policy.Node
}

// gatherer brings both policies to one numbering.
type gatherer struct {
	*world
	lanes   []lane
	laneIDs map[lane]int
	goods   map[string]int
	needs   []string // 0 is nothing
	needIDs map[string]int
	sets    *setTable
	sources map[*policy.Sources]*source
	srcIDs  map[string]int
	causes  []cause
	causeID map[causeKey]int
	pending []func() // what awaits the points
	texts   map[string]bool
	logins  []string // accounts that ssh rules name, root and nonroot apart
	routes  []network
}

type causeKey struct {
	side *side
	path string
}

func gather(w *world, sides ...*side) *gatherer {
	g := &gatherer{
		world: w, laneIDs: map[lane]int{}, goods: map[string]int{}, needs: []string{""}, needIDs: map[string]int{"": 0},
		sets: newSetTable(), sources: map[*policy.Sources]*source{}, srcIDs: map[string]int{}, causeID: map[causeKey]int{},
		texts: map[string]bool{},
	}
	for _, s := range sides {
		g.names(s)
	}
	for _, s := range sides {
		s.byKey, s.unplaced, s.needs = map[pieceKey]int{}, map[string][]landing{}, map[string]string{}
		s.landings = make([][]landing, len(w.devices))
		s.names = indexRules(s.report.Policy)
		g.rules(s)
		g.ssh(s)
		g.attrs(s)
		g.approvers(s)
	}
	w.cut(g.texts)
	for _, f := range g.pending {
		f()
	}
	return g
}

// names collects what lanes stand for one account or route each.
func (g *gatherer) names(s *side) {
	p := s.report.Policy
	for i := range p.SSH {
		for _, u := range trimmed(p.SSH[i].Users) {
			if u != "root" && u != laneNonroot {
				g.logins = append(g.logins, u)
			}
		}
	}
	for _, a := range p.AutoApprovers.Routes {
		if prefix, err := netip.ParsePrefix(a.Name.Value); err == nil {
			g.routes = append(g.routes, network{a.Name.Value, prefix})
		}
	}
	slices.Sort(g.logins)
	g.logins = slices.Compact(g.logins)
	slices.SortFunc(g.routes, func(a, b network) int { return strings.Compare(a.text, b.text) })
	g.routes = slices.CompactFunc(g.routes, func(a, b network) bool { return a.text == b.text })
}

// network is a route that approvers name.
type network struct {
	text   string
	prefix netip.Prefix
}

func (g *gatherer) lane(kind Kind, name, detail string) int {
	l := lane{kind, name, detail}
	id, ok := g.laneIDs[l]
	if !ok {
		id = len(g.lanes)
		g.laneIDs[l] = id
		g.lanes = append(g.lanes, l)
	}
	return id
}

func (g *gatherer) cause(s *side, n policy.Node) int {
	k := causeKey{s, n.Path}
	id, ok := g.causeID[k]
	if !ok {
		id = len(g.causes)
		g.causeID[k] = id
		g.causes = append(g.causes, cause{s, n.Path, n})
	}
	return id
}

// source notes sources whose points will be known later.
func (g *gatherer) source(src *policy.Sources, only func(device int) bool) *source {
	if only == nil {
		if got := g.sources[src]; got != nil {
			return got
		}
	}
	for _, t := range src.IPs {
		g.texts[t] = true
	}
	out := &source{}
	if only == nil {
		g.sources[src] = out
	}
	g.pending = append(g.pending, func() {
		points := func(texts []string) bitset {
			b := newBitset(g.size)
			g.points(b, texts)
			if only != nil {
				keep := newBitset(g.size)
				b.all(func(p int) {
					if p < len(g.deviceN) && only(g.deviceN[p]) {
						keep.add(p)
					}
				})
				return keep
			}
			return b
		}
		out.sure = points(src.IPs)
		for _, u := range src.Unknown {
			out.unknown = append(out.unknown, unknown{g.need(u.Needs), points(u.IPs)})
		}
		g.number(out)
	})
	return out
}

func (g *gatherer) need(text string) int {
	id, ok := g.needIDs[text]
	if !ok {
		id = len(g.needs)
		g.needIDs[text] = id
		g.needs = append(g.needs, text)
	}
	return id
}

// number gives equal sources equal ids.
func (g *gatherer) number(s *source) {
	var key strings.Builder
	fmt.Fprint(&key, g.sets.id(s.sure))
	for _, u := range s.unknown {
		fmt.Fprintf(&key, " %d=%d", u.needs, g.sets.id(u.set))
	}
	id, ok := g.srcIDs[key.String()]
	if !ok {
		id = len(g.srcIDs)
		g.srcIDs[key.String()] = id
	}
	s.id = id
}

// everyone is the source of what has none.
func (g *gatherer) everyone() *source {
	out := &source{}
	g.pending = append(g.pending, func() {
		out.sure = newBitset(g.size)
		out.sure.add(g.nobody)
		g.number(out)
	})
	return out
}

func (g *gatherer) add(s *side, p *piece) int {
	slices.SortFunc(p.wares, func(a, b ware) int { return a.lane - b.lane })
	key := fmt.Sprint(p.wares)
	id, ok := g.goods[key]
	if !ok {
		id = len(g.goods)
		g.goods[key] = id
	}
	p.goods = id
	s.pieces = append(s.pieces, p)
	return len(s.pieces) - 1
}

// rules takes the filters: acls, grants and their capabilities.
func (g *gatherer) rules(s *side) {
	land := func(a policy.Admission) (landing, bool) {
		k := pieceKey{a.ID, a.Part, a.Sources}
		id, ok := s.byKey[k]
		if !ok {
			id = g.add(s, &piece{
				cause: g.cause(s, a.Rule), src: g.source(a.Sources, nil), wares: g.wares(a), dst: a.Dst, self: a.Self,
			})
			s.byKey[k] = id
		}
		return landing{id, a.All, a.Own, a.IPs}, len(s.pieces[id].wares) > 0
	}
	for n := range g.devices {
		for _, a := range s.access.Admissions(n) {
			if l, ok := land(a); ok {
				s.landings[n] = append(s.landings[n], l)
			}
		}
	}
	for _, a := range s.access.Unplaced() {
		if l, ok := land(a); ok {
			l.own = true
			s.unplaced[a.Dst] = append(s.unplaced[a.Dst], l)
			s.needs[a.Dst] = a.Needs
		}
	}
}

// wares is what an admission lets through, or grants.
func (g *gatherer) wares(a policy.Admission) []ware {
	var out []ware
	if a.Caps != nil {
		for _, name := range slices.Sorted(maps.Keys(a.Caps)) {
			for _, v := range capValues(a.Caps[name]) {
				out = append(out, ware{g.lane(Capability, name, v), noPorts()})
			}
		}
		return out
	}
	for _, l := range nodefilter.Lanes(&a) {
		ports := l.Ports
		if ports == nil {
			ports = noPorts()
		}
		out = append(out, ware{g.lane(Network, policy.ProtocolName(l.Proto), ""), ports})
	}
	return out
}

func capValues(values []json.RawMessage) []string {
	if len(values) == 0 {
		return []string{""}
	}
	var out []string
	for _, v := range values {
		out = append(out, string(v))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func keyed(section, key string) string { return fmt.Sprintf("%s[%q]", section, key) }
