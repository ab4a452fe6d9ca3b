package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// maxAxis bounds rows and columns: a larger table is not read any more, and the page grows with the product.
const maxAxis = 40

// matrix is the table of who reaches whom.
type matrix struct {
	Views []viewChoice
	Cols  []head
	Rows  []row
	Cards []card
	// Cut says what is left out for its size, Absent which names stand for nobody.
	Cut    string
	Absent []string
	Tall   bool
}

// viewChoice is a protocol to look at.
type viewChoice struct{ ID, Label string }

type head struct {
	Name, Kind, Count string
	Line              int
	First             bool // of its kind
}

type row struct {
	Head  head
	Cells []cell
}

// cell is what one party may do to another. Class has a letter and a level for each view.
type cell struct {
	ID, Class, Title string
	None, Nobody     bool
	Chips            []chip // by view "any"
	Texts            []viewText
}

type chip struct {
	Text string
	Part bool
}

type viewText struct{ View, Text string }

// card says of a cell which rules it is due to.
type card struct {
	ID, Back, Src, Dst string
	Admits             []cardLine
	Needs              []string
}

type cardLine struct {
	Rule  place
	What  string
	Pairs string
	Note  string
}

// levels of access, from nothing to everything.
const (
	levelNone = iota
	levelPart // between some of the pairs only
	levelAny  // between all pairs, on some ports
	levelAll  // between all pairs, on every port
)

func newMatrix(f *flows, lines ruleLines) *matrix {
	m := &matrix{Views: []viewChoice{
		{"a", "any protocol"}, {"t", "tcp"}, {"u", "udp"}, {"i", "icmp"}, {"p", "ip-in-ip"}, {"o", "other"},
	}}
	var rows, cols []*party
	for _, q := range f.parties {
		switch n := q.points.count(); {
		case n == 0 && len(q.spots) == 0:
			absent := q.name
			if len(f.access.Select(q.name).Unknown) > 0 {
				absent += " (its members are not known)"
			}
			m.Absent = append(m.Absent, absent)
		default:
			if q.src && n > 0 {
				rows = append(rows, q)
			}
			if q.dst && len(q.spots) > 0 {
				cols = append(cols, q)
			}
		}
	}
	allRows, allCols := len(rows), len(cols)
	rows, cols = bounded(rows), bounded(cols)
	if len(rows) < allRows || len(cols) < allCols {
		m.Cut = fmt.Sprintf("%d of %d sources and %d of %d destinations are shown: those that rules name most, then those with most devices",
			len(rows), allRows, len(cols), allCols)
	}
	m.Tall = len(rows) > 16
	m.Cols = heads(f, cols)
	rowHeads := heads(f, rows)
	for r, src := range rows {
		out := row{Head: rowHeads[r]}
		for c, dst := range cols {
			id := fmt.Sprintf("m%d-%d", r+1, c+1)
			cell, card := f.cell(src, dst, lines)
			cell.ID = id
			if card != nil {
				card.ID, card.Back = "rules-"+id, id
				m.Cards = append(m.Cards, *card)
			}
			out.Cells = append(out.Cells, cell)
		}
		m.Rows = append(m.Rows, out)
	}
	return m
}

func bounded(list []*party) []*party {
	if len(list) <= maxAxis {
		return list
	}
	best := slices.Clone(list)
	slices.SortStableFunc(best, func(a, b *party) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(b.points.count(), a.points.count()))
	})
	keep := map[*party]bool{}
	for _, q := range best[:maxAxis] {
		keep[q] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(q *party) bool { return !keep[q] })
}

func heads(f *flows, list []*party) []head {
	var out []head
	for i, q := range list {
		h := head{Name: q.name, Kind: q.kind, Line: q.line, First: i > 0 && q.kind != list[i-1].kind}
		devices := 0
		for n := range f.devices {
			if q.points.has(n) {
				devices++
			}
		}
		switch {
		case devices > 0:
			h.Count = plural(devices, "device")
		case q.kind == kindNetwork:
			h.Count = "network"
		}
		out = append(out, h)
	}
	return out
}

// sum counts pairs in one lane.
type sum struct {
	some, any, all int
	open           int // pairs that might be admitted to more, if more were known
	ports          []span
}

// cellSum is what a cell adds up over the spots of its destination.
type cellSum struct {
	total  int
	lanes  map[int]*sum
	any    sum
	lines  map[lineKey]*lineSum
	needs  map[string]bool
	openTo int // pairs that might be admitted to more, if more were known
}

type lineKey struct {
	path string
	lane int
}

type lineSum struct {
	offset     int
	ports      []span
	pairs      int
	half       int // of these, in one address family alone
	part, self bool
}

// cell judges a pair of parties.
func (f *flows) cell(src, dst *party, lines ruleLines) (cell, *card) {
	s := f.sum(src, dst)
	if s.total == 0 {
		return cell{None: true, Nobody: true}, nil
	}
	if s.any.some == 0 && s.openTo == 0 {
		return cell{None: true}, nil
	}
	out := cell{}
	levels := map[string]int{"a": s.any.level(s.total)}
	texts := map[string][]string{}
	var title []string
	lanes := slices.SortedFunc(maps.Keys(s.lanes), func(a, b int) int { return cmp.Compare(laneOrder(a), laneOrder(b)) })
	for _, lane := range lanes {
		l := s.lanes[lane]
		v := viewOf(lane)
		if l.some > 0 {
			ports := shortPorts(l.ports)
			levels[v] = max(levels[v], l.level(s.total))
			text := cmp.Or(ports, "all")
			switch v {
			case "i", "p":
				text = "yes"
				if levels[v] == levelPart {
					text = "some"
				}
			case "o":
				text = strings.TrimSpace(laneName(lane) + " " + ports)
			}
			texts[v] = append(texts[v], text)
			title = append(title, strings.TrimSpace(laneName(lane)+" "+portsText(l.ports, 12))+" "+l.pairs(s.total))
		}
		if l.open > 0 && !slices.Contains(texts[v], "?") {
			texts[v] = append(texts[v], "?")
		}
	}
	tcp, udp := s.lanes[laneTCP].orNone(), s.lanes[laneUDP].orNone()
	if tcp.all == s.total && udp.all == s.total {
		levels["a"] = levelAll
	} else {
		levels["a"] = min(levels["a"], levelAny)
	}
	out.Chips = s.chips(lanes)
	for _, v := range []string{"t", "u", "i", "p", "o"} {
		if len(texts[v]) > 0 {
			out.Texts = append(out.Texts, viewText{v, strings.Join(texts[v], ", ")})
		}
	}
	var classes []string
	for _, v := range []string{"a", "t", "u", "i", "p", "o"} {
		if levels[v] > levelNone {
			classes = append(classes, fmt.Sprintf("%s%d", v, levels[v]))
		}
	}
	if s.openTo > 0 {
		out.Chips = append(out.Chips, chip{"?", true})
		classes = append(classes, "open")
		title = append(title, fmt.Sprintf("%s might be admitted to more", plural(s.openTo, "pair")))
	}
	out.Class = strings.Join(classes, " ")
	out.Title = fmt.Sprintf("%s to %s: %s", src.name, dst.name, strings.Join(title, "; "))
	return out, s.card(src, dst, lines)
}

// viewOf is the view that shows a lane.
func viewOf(lane int) string {
	switch lane {
	case laneTCP:
		return "t"
	case laneUDP:
		return "u"
	case laneICMP:
		return "i"
	case laneIPIP:
		return "p"
	}
	return "o"
}

func (l *sum) orNone() *sum {
	if l == nil {
		return &sum{}
	}
	return l
}

func (l *sum) level(total int) int {
	switch {
	case l.some == 0:
		return levelNone
	case l.any < total:
		return levelPart
	case l.all < total:
		return levelAny
	}
	return levelAll
}

func (l *sum) pairs(total int) string {
	if l.any == total {
		return fmt.Sprintf("(all of %s)", plural(total, "pair"))
	}
	if l.any == 0 {
		return fmt.Sprintf("(in part, of %s)", plural(total, "pair"))
	}
	return fmt.Sprintf("(%d of %s)", l.any, plural(total, "pair"))
}

// chips are a cell's traffic in short: "all" is tcp and udp on every port, ports alone are those of both. Pings pass
// wherever anything does, and are said only where nothing else does.
func (s *cellSum) chips(lanes []int) []chip {
	var out []chip
	tcp, udp := s.lanes[laneTCP].orNone(), s.lanes[laneUDP].orNone()
	part := func(l *sum) bool { return l.any < s.total }
	switch {
	case tcp.some > 0 && udp.some > 0 && slices.Equal(tcp.ports, udp.ports) && part(tcp) == part(udp):
		out = append(out, chip{cmp.Or(shortPorts(tcp.ports), "all"), part(tcp)})
	default:
		if tcp.some > 0 {
			out = append(out, chip{strings.TrimSpace("tcp " + shortPorts(tcp.ports)), part(tcp)})
		}
		if udp.some > 0 {
			out = append(out, chip{strings.TrimSpace("udp " + shortPorts(udp.ports)), part(udp)})
		}
	}
	for _, lane := range lanes {
		if lane == laneTCP || lane == laneUDP || lane == laneICMP {
			continue
		}
		if l := s.lanes[lane]; l.some > 0 {
			out = append(out, chip{strings.TrimSpace(laneName(lane) + " " + shortPorts(l.ports)), part(l)})
		}
	}
	if l := s.lanes[laneICMP]; len(out) == 0 && l != nil && l.some > 0 {
		out = append(out, chip{"icmp", part(l)})
	}
	return out
}

func (s *cellSum) card(src, dst *party, lines ruleLines) *card {
	out := &card{Src: src.name, Dst: dst.name}
	for _, need := range slices.Sorted(maps.Keys(s.needs)) {
		if s.needs[need] {
			out.Needs = append(out.Needs, need)
		}
	}
	keys := slices.SortedFunc(maps.Keys(s.lines), func(a, b lineKey) int {
		return cmp.Or(cmp.Compare(s.lines[a].offset, s.lines[b].offset), cmp.Compare(laneOrder(a.lane), laneOrder(b.lane)))
	})
	for _, k := range keys {
		l := s.lines[k]
		what := strings.TrimSpace(laneName(k.lane) + " " + portsText(l.ports, 12))
		add := cardLine{Rule: lines.place(k.path), What: what, Pairs: fmt.Sprintf("%d of %d", l.pairs, s.total)}
		switch {
		case l.self:
			add.Note = "one's own devices only"
		case l.part:
			add.Note = "a part of the network"
		case l.half > 0:
			add.Note = fmt.Sprintf("%d of them in one address family only", l.half)
		}
		if n := len(out.Admits); n > 0 && out.Admits[n-1].Rule == add.Rule && out.Admits[n-1].Pairs == add.Pairs && out.Admits[n-1].Note == add.Note {
			out.Admits[n-1].What += "; " + what
			continue
		}
		out.Admits = append(out.Admits, add)
	}
	return out
}

func (f *flows) sum(src, dst *party) *cellSum {
	out := &cellSum{lanes: map[int]*sum{}, lines: map[lineKey]*lineSum{}, needs: map[string]bool{}}
	for _, sp := range dst.spots {
		v := f.view(sp.class, src.fams)
		count := func(set bitset) int { return src.points.both(set)*sp.n - src.points.three(set, sp.devices) }
		total := count(v.share)
		if total == 0 {
			continue
		}
		out.total += total
		add := func(to *sum, l *laneSet) {
			to.some += count(l.some)
			to.any += count(l.any)
			to.all += count(l.all)
			if l.open != nil {
				to.open += count(l.open)
			}
		}
		add(&out.any, &v.total)
		for lane, l := range v.lanes {
			if out.lanes[lane] == nil {
				out.lanes[lane] = &sum{}
			}
			add(out.lanes[lane], l)
		}
		if n := count(v.open); n > 0 {
			out.openTo += n
			for need, set := range v.needs {
				out.needs[need] = out.needs[need] || count(set) > 0
			}
		}
		for _, r := range v.rules {
			some := count(r.some)
			if some == 0 {
				continue
			}
			lane := out.lanes[r.lane]
			lane.ports = spans.Join(slices.Concat(lane.ports, r.ports))
			k := lineKey{r.rule.Path, r.lane}
			l := out.lines[k]
			if l == nil {
				l = &lineSum{offset: r.rule.Range.Start.Offset}
				out.lines[k] = l
			}
			l.ports = spans.Join(slices.Concat(l.ports, r.ports))
			l.pairs += some
			l.half += some - count(r.admits)
			l.part, l.self = l.part || r.part, l.self || r.self
		}
	}
	return out
}
