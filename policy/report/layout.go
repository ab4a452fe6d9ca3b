package report

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// layout is where everything of a drawing stands, in pixels.
type layout struct {
	W, H   int
	Boxes  []box
	Lines  []line
	Labels []label
}

// Least is the width below which the drawing is not shrunk but scrolled: a narrow screen's, or what keeps names legible.
func (l *layout) Least() int { return min(l.W, max(736, l.W*4/5)) }

type box struct {
	X, Y, W, H    float64
	Title, Count  string
	TitleX, TextY float64
	CountX        float64
	Nodes         []dot
	Spines        []line
	Foot          []text
}

type dot struct {
	X, Y, TextX float64
	Name, Title string
	Trouble     bool
}

type text struct {
	X, Y  float64
	Text  string
	Class string
}

type line struct {
	X1, Y1, X2, Y2 float64
	Class, Title   string
}

type label struct {
	X, Y, W, H float64 // of the pill
	TX, TY     float64 // of its text, middle and baseline
	Text       string
	Class      string
	Title      string
}

// Sizes of the drawing in pixels. Names are set in a monospaced font, of which monoWidth is a wide one's character at the
// size in the style sheet; sansWidth and boldWidth are wide averages for the others.
const (
	monoWidth  = 7.4
	sansWidth  = 7.2
	boldWidth  = 9.2
	nameCells  = 26
	pad        = 14
	headHeight = 34
	rowHeight  = 20
	footHeight = 19
	gapX       = 70
	gapY       = 48
	margin     = 8
	pillHeight = 21

	// maxClear is the number of boxes up to which no line may pass behind a box that it does not join, and every line has
	// a label: the ring grows with their square. Beyond it lines are faint, and only those with trouble have a label,
	// which then names both ends.
	maxClear = 10

	// maxRadius bounds the search; boxes on a ring come apart, and lines clear of them, long before.
	maxRadius = 3000.0
)

// cells estimates the width of a text in characters: those of scripts with wide ones count twice.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n++
		if 0x1100 <= r && r <= 0x115f || r >= 0x2e80 {
			n++
		}
	}
	return n
}

// shorten cuts a text in its middle, as ends tell hosts apart more often than not.
func shorten(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	runes := []rune(s)
	head, tail := len(runes)/2, len(runes)-len(runes)/2
	for head > 0 && cells(string(runes[:head]))+1+cells(string(runes[tail:])) > most {
		head--
		tail++
	}
	return string(runes[:head]) + "…" + string(runes[min(tail, len(runes)):])
}

// place2D lays a graph out: clusters as boxes on a ring, so that no line between two passes behind a third (up to
// maxClear), and the smallest such ring on which no label meets another or a box.
func place2D(g *graph) *layout {
	boxes := make([]box, len(g.Clusters))
	for i, c := range g.Clusters {
		boxes[i] = newBox(c)
	}
	var between []*link
	for _, l := range g.Links {
		if l.a != l.b {
			between = append(between, l)
		}
	}
	var best *layout
	score := math.Inf(1)
	for _, ratio := range []float64{1.3, 1, 1.7, 2.2, 3} {
		tries := 0 // a little more room may spare a label from lying on a line that is not its own
		for r := 20.0; r < maxRadius && tries < 10; r += 12 {
			on := ring(boxes, r*ratio, r)
			if !apart(on) || len(on) <= maxClear && !clear(on, between) {
				continue
			}
			l, crossed, ok := labelled(on, between)
			if !ok && r < maxRadius/2 {
				continue
			}
			tries++
			l.crop()
			if s := max(float64(l.W), 1.4*float64(l.H)) + 30*float64(crossed); s < score {
				best, score = l, s
			}
		}
	}
	if best == nil { // cannot be: boxes on a ring come apart
		best = &layout{Boxes: boxes}
		best.crop()
	}
	for i := range best.Boxes {
		best.Boxes[i].fill(g.Clusters[i])
	}
	return best
}

func columns(n int) int {
	switch {
	case n <= 5:
		return 1
	case n <= 12:
		return 2
	}
	return 3
}

func nameWidth(c *cluster) float64 {
	w := 0
	for _, n := range c.Nodes {
		w = max(w, cells(shorten(n.Name, nameCells)))
	}
	return float64(w)*monoWidth + 32
}

func (c *cluster) rows() int {
	cols := columns(len(c.Nodes))
	return (len(c.Nodes) + cols - 1) / cols
}

func (c *cluster) foot() []string {
	if c.More > 0 && len(c.Nodes) > 0 {
		return append([]string{"and " + plural(c.More, "more node")}, c.Local...)
	}
	return c.Local
}

func newBox(c *cluster) box {
	b := box{Title: shorten(c.Name, nameCells), Count: plural(c.Count, "node")}
	b.W = float64(columns(len(c.Nodes)))*nameWidth(c) + 2*pad - 14
	b.W = max(b.W, float64(cells(b.Title))*boldWidth+float64(len(b.Count))*sansWidth+2*pad+16)
	for _, t := range c.foot() {
		b.W = max(b.W, float64(cells(t))*sansWidth+2*pad+28)
	}
	b.H = headHeight + pad/2
	if len(c.Nodes) > 0 {
		b.H += float64(c.rows()) * rowHeight
	}
	if n := len(c.foot()); n > 0 {
		b.H += float64(n)*footHeight + pad/2
	}
	b.W = math.Ceil(b.W)
	return b
}

// fill places what is in a box.
func (b *box) fill(c *cluster) {
	b.TitleX, b.TextY, b.CountX = b.X+pad, b.Y+22, b.X+b.W-pad
	cols, rows := columns(len(c.Nodes)), c.rows()
	width := (b.W - 2*pad + 14) / float64(cols)
	for i, n := range c.Nodes {
		x := b.X + pad + 5 + float64(i/rows)*width
		y := b.Y + headHeight + (float64(i%rows)+0.5)*rowHeight
		b.Nodes = append(b.Nodes, dot{X: x, Y: y, TextX: x + 12, Name: shorten(n.Name, nameCells), Title: n.Title, Trouble: n.Trouble})
	}
	class := "direct"
	if c.mesh.Total() > 0 && c.mesh.Total() >= c.lan {
		class = "over"
		if c.mesh.Good() < c.mesh.Total() {
			class = "over warn"
		}
	}
	if c.lan+c.mesh.Total() > 0 {
		for col := range cols {
			first, last := col*rows, min((col+1)*rows, len(c.Nodes))-1
			if last > first {
				b.Spines = append(b.Spines, line{X1: b.Nodes[first].X, Y1: b.Nodes[first].Y, X2: b.Nodes[last].X, Y2: b.Nodes[last].Y, Class: class})
			}
		}
	}
	y := b.Y + headHeight + float64(rows)*rowHeight + pad/2
	for _, t := range c.foot() {
		y += footHeight
		class := "over"
		switch {
		case strings.HasPrefix(t, "and "):
			class = ""
		case strings.HasSuffix(t, " direct"):
			class = "direct"
		case c.mesh.Good() < c.mesh.Total():
			class = "over warn"
		}
		b.Foot = append(b.Foot, text{X: b.X + pad, Y: y - 5, Text: t, Class: class})
	}
}

// ring puts the centres of boxes on an ellipse; an even number has a flat top.
func ring(boxes []box, rx, ry float64) []box {
	out := slices.Clone(boxes)
	k := float64(len(out))
	start := -math.Pi / 2
	if len(out)%2 == 0 {
		start -= math.Pi / k
	}
	if len(out) == 2 {
		start = math.Pi
	}
	if len(out) == 1 {
		rx, ry = 0, 0
	}
	for i := range out {
		angle := start + 2*math.Pi*float64(i)/k
		out[i].X = math.Round(rx*math.Cos(angle) - out[i].W/2)
		out[i].Y = math.Round(ry*math.Sin(angle) - out[i].H/2)
	}
	return out
}

func apart(boxes []box) bool {
	for i := range boxes {
		for j := range i {
			if meet(boxes[i].rect().grown(gapX/2, gapY/2), boxes[j].rect().grown(gapX/2, gapY/2)) {
				return false
			}
		}
	}
	return true
}

// clear reports whether no line passes behind a box that it does not join.
func clear(boxes []box, links []*link) bool {
	for _, l := range links {
		s := between(boxes[l.a], boxes[l.b])
		for i := range boxes {
			if i != l.a && i != l.b && s.crosses(boxes[i].rect().grown(14, 14)) {
				return false
			}
		}
	}
	return true
}

// labelled draws the lines and finds a place for each label: near the middle of its line, and on as few others as can be,
// which it counts. It reports whether each label has a place.
func labelled(boxes []box, links []*link) (out *layout, crossed int, ok bool) {
	out, ok = &layout{Boxes: boxes}, true
	segments := make([]segment, len(links))
	order := make([]int, len(links))
	for i, l := range links {
		segments[i], order[i] = between(boxes[l.a], boxes[l.b]), i
	}
	rank := func(l *link) int { return slices.Index([]string{"bad", "warn", "good"}, l.State) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(links[a]), rank(links[b])) })
	for _, i := range order {
		l := links[i]
		text := l.Label
		if len(boxes) > maxClear {
			if l.State == "good" {
				continue
			}
			text = shorten(l.A, 12) + " – " + shorten(l.B, 12) + ": " + text
		}
		best, cost := rect{}, math.Inf(1)
		w := float64(cells(text))*sansWidth + 16
		for step := range 31 {
			t := 0.5 + float64((step+1)/2)*0.0266*float64(1-2*(step%2))
			x, y := segments[i].at(t)
			r := rect{x - w/2, y - pillHeight/2, x + w/2, y + pillHeight/2}
			if slices.ContainsFunc(boxes, func(b box) bool { return meet(r.grown(16, 10), b.rect()) }) ||
				slices.ContainsFunc(out.Labels, func(p label) bool { return meet(r.grown(5, 5), p.rect()) }) {
				continue
			}
			c := math.Abs(t - 0.5)
			for j, s := range segments {
				if j != i && s.crosses(r.grown(3, 3)) {
					c++
				}
			}
			if c < cost {
				best, cost = r, c
			}
		}
		if math.IsInf(cost, 1) {
			ok = false
			continue
		}
		crossed += int(cost)
		out.Labels = append(out.Labels, label{
			X: best.x1, Y: best.y1, W: w, H: pillHeight, TX: (best.x1 + best.x2) / 2, TY: best.y1 + 15, Text: text, Class: l.State, Title: l.Title,
		})
	}
	slices.Reverse(order) // trouble on top
	for _, i := range order {
		s := segments[i]
		class := links[i].State
		if len(boxes) > maxClear && class == "good" {
			class = "good faint"
		}
		out.Lines = append(out.Lines, line{s.x1, s.y1, s.x2, s.y2, class, links[i].Title})
	}
	return out, crossed, ok
}

// crop moves everything so that it starts at the margin.
func (l *layout) crop() {
	all := rect{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	for _, b := range l.Boxes {
		all = rect{min(all.x1, b.X), min(all.y1, b.Y), max(all.x2, b.X+b.W), max(all.y2, b.Y+b.H)}
	}
	for _, p := range l.Labels {
		all = rect{min(all.x1, p.X), min(all.y1, p.Y), max(all.x2, p.X+p.W), max(all.y2, p.Y+p.H)}
	}
	dx, dy := margin-all.x1, margin-all.y1
	for i := range l.Boxes {
		l.Boxes[i].X, l.Boxes[i].Y = l.Boxes[i].X+dx, l.Boxes[i].Y+dy
	}
	for i := range l.Labels {
		p := &l.Labels[i]
		p.X, p.Y, p.W, p.TX, p.TY = tenth(p.X+dx), tenth(p.Y+dy), tenth(p.W), tenth(p.TX+dx), tenth(p.TY+dy)
	}
	for i := range l.Lines {
		n := &l.Lines[i]
		n.X1, n.Y1, n.X2, n.Y2 = tenth(n.X1+dx), tenth(n.Y1+dy), tenth(n.X2+dx), tenth(n.Y2+dy)
	}
	l.W, l.H = int(math.Ceil(all.x2-all.x1))+2*margin, int(math.Ceil(all.y2-all.y1))+2*margin
}

// tenth rounds what would otherwise be printed with all its digits, and might differ between machines in the last.
func tenth(x float64) float64 { return math.Round(x*10) / 10 }

type rect struct{ x1, y1, x2, y2 float64 }

func (b box) rect() rect   { return rect{b.X, b.Y, b.X + b.W, b.Y + b.H} }
func (l label) rect() rect { return rect{l.X, l.Y, l.X + l.W, l.Y + l.H} }

func (r rect) grown(x, y float64) rect { return rect{r.x1 - x, r.y1 - y, r.x2 + x, r.y2 + y} }

func meet(a, b rect) bool { return a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2 }

type segment struct{ x1, y1, x2, y2 float64 }

func (s segment) at(t float64) (x, y float64) { return s.x1 + t*(s.x2-s.x1), s.y1 + t*(s.y2-s.y1) }

// between is the line between the centres of two boxes, from border to border.
func between(a, b box) segment {
	ax, ay, bx, by := a.X+a.W/2, a.Y+a.H/2, b.X+b.W/2, b.Y+b.H/2
	out := segment{ax, ay, bx, by}
	exit := func(w, h float64) float64 { // the share of the line inside a box of this size around its start
		t := 1.0
		if dx := math.Abs(bx - ax); dx > 0 {
			t = min(t, w/2/dx)
		}
		if dy := math.Abs(by - ay); dy > 0 {
			t = min(t, h/2/dy)
		}
		return t
	}
	out.x1, out.y1 = out.at(exit(a.W, a.H))
	back := segment{bx, by, ax, ay}
	out.x2, out.y2 = back.at(exit(b.W, b.H))
	return out
}

// crosses reports whether any of the segment lies in the rectangle (Liang and Barsky).
func (s segment) crosses(r rect) bool {
	t0, t1 := 0.0, 1.0
	dx, dy := s.x2-s.x1, s.y2-s.y1
	for _, e := range [][2]float64{{-dx, s.x1 - r.x1}, {dx, r.x2 - s.x1}, {-dy, s.y1 - r.y1}, {dy, r.y2 - s.y1}} {
		p, q := e[0], e[1]
		switch {
		case p == 0 && q < 0:
			return false
		case p < 0:
			t0 = max(t0, q/p)
		case p > 0:
			t1 = min(t1, q/p)
		}
	}
	return t0 <= t1
}
