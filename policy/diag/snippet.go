package diag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Where the width is not given, lines longer than longLine are cut to a piece of cutLine characters around what they are
// shown for: a policy without line ends would fill the screen.
const (
	longLine = 500
	cutLine  = 120
)

// mark underlines a part of one line, or, without a sign, only says which part of a long line to show. Columns count
// characters from 0; to is exclusive.
type mark struct {
	from, to int
	sign     string // "^" for the culprit, "-" for what belongs to it, "+" for what is to be added
	color    color
	label    string
}

// marks gives the marks of a finding by line. A range of several lines is marked on its first.
func marks(d Diagnostic, lines *Lines) map[int][]mark {
	out := make(map[int][]mark)
	add := func(r Range, sign string, c color, label string) {
		if r.IsZero() {
			return
		}
		m := mark{from: r.Start.Column - 1, to: r.End.Column - 1, sign: sign, color: c, label: label}
		if r.End.Line > r.Start.Line {
			m.to = len([]rune(lines.Text(r.Start.Line)))
		}
		out[r.Start.Line] = append(out[r.Start.Line], m)
	}
	add(d.Range, "^", severityColor(d.Severity), d.Label)
	for _, r := range d.Related {
		add(r.Range, "-", blue, r.Message)
	}
	for _, ms := range out {
		slices.SortStableFunc(ms, func(a, b mark) int { return cmp.Compare(a.from, b.from) })
	}
	return out
}

// snippet writes the source lines of a finding with what is marked in them. A place that stands alone is shown with the
// line before it; between places far apart stands "...".
func (p *printer) snippet(d Diagnostic, lines *Lines) {
	marks := marks(d, lines)
	show := slices.Sorted(maps.Keys(marks))
	if first := show[0]; len(show) == 1 && strings.TrimSpace(lines.Text(first-1)) != "" {
		show = []int{first - 1, first}
	}
	p.bar()
	last := 0
	for i, n := range show {
		switch {
		case i > 0 && n == last+2:
			p.line(n-1, "|", blue, lines.Text(n-1), nil)
		case i > 0 && n > last+2:
			p.gap()
		}
		p.line(n, "|", blue, lines.Text(n), marks[n])
		last = n
	}
	if len(d.Notes) > 0 || len(d.Help) > 0 {
		p.bar()
	}
}

// line writes one numbered line and its marks below it.
func (p *printer) line(n int, sign string, c color, text string, marks []mark) {
	runes := []rune(Printable(text))
	limit := p.limit(len(runes))
	if len(runes) <= limit {
		p.row(strconv.Itoa(n), sign, c, string(runes))
		for _, m := range marks {
			if m.sign != "" {
				p.mark(runes, 0, m)
			}
		}
		return
	}
	if len(marks) == 0 {
		marks = []mark{{}}
	}
	for _, m := range marks {
		from := min(max(m.from-limit/3, 0), len(runes)-limit)
		piece := slices.Clone(runes[from : from+limit])
		if from > 0 {
			copy(piece, []rune("..."))
		}
		if from+limit < len(runes) {
			copy(piece[len(piece)-3:], []rune("..."))
		}
		p.row(strconv.Itoa(n), sign, c, string(piece))
		if m.sign != "" {
			p.mark(piece, from, m)
		}
	}
}

// limit is how many characters of a line of n are shown.
func (p *printer) limit(n int) int {
	if p.opt.Width > 0 {
		return max(p.opt.Width-p.gutter-len(p.indent)-3, 20)
	}
	if n > longLine {
		return cutLine
	}
	return n
}

// mark writes the line below a source line, of which runes are shown, the first of them at column first.
func (p *printer) mark(runes []rune, first int, m mark) {
	from := min(max(m.from-first, 0), len(runes))
	to := min(max(m.to-first, from), len(runes))
	text := blank(string(runes[:from])) + p.paint(m.color, strings.Repeat(m.sign, max(cells(string(runes[from:to])), 1)))
	if m.label != "" {
		text += " " + p.paint(m.color, oneLine(m.label))
	}
	p.row("", "|", blue, text)
}

// row writes one line of a snippet. Behind the sign nothing but text follows, so that tabs in it start where they would.
func (p *printer) row(number, sign string, c color, text string) {
	gutter := p.paint(c, fmt.Sprintf("%*s %s", p.gutter, number, sign))
	p.out.WriteString(p.indent + gutter)
	if text != "" {
		p.out.WriteString(" " + text)
	}
	p.out.WriteByte('\n')
}

func (p *printer) bar() { p.row("", "|", blue, "") }

func (p *printer) gap() { p.out.WriteString(p.indent + p.paint(blue, "...") + "\n") }

// gutterWidth is the number of digits of the highest line number that a finding shows.
func (p *printer) gutterWidth(d Diagnostic, lines *Lines) int {
	last := max(d.Range.Start.Line, 1)
	for _, r := range d.Related {
		last = max(last, r.Range.Start.Line)
	}
	if lines != nil {
		for _, h := range d.Help {
			for _, hunk := range hunks(h.Edits, lines) {
				last = max(last, hunk.last(), hunk.newFirst+len(hunk.added)-1)
			}
		}
	}
	return len(strconv.Itoa(last))
}
