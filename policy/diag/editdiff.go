package diag

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// hunk is what edits do to a run of lines.
type hunk struct {
	first    int      // number of the first line in the text as it is
	newFirst int      // the same in the text as it will be
	removed  []string // lines that go
	added    []string // lines that come
	// insertions are set where every edit inserts a piece into one line: then removed and added have equal lengths, and
	// these are the pieces, by the index of the line.
	insertions map[int][]mark
}

func (h hunk) last() int { return h.first + len(h.removed) - 1 }

// firstDifference is the column, from 0, from which on the first lines differ.
func (h hunk) firstDifference() int {
	if len(h.removed) == 0 || len(h.added) == 0 {
		return 0
	}
	a, b := []rune(h.removed[0]), []rune(h.added[0])
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// hunks gives what the edits change, line by line; nothing where they cannot be applied.
func hunks(edits []Edit, lines *Lines) []hunk {
	if _, err := Apply(lines.src, edits); err != nil {
		return nil
	}
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b Edit) int {
		return cmp.Compare(a.Range.Start.Offset, b.Range.Start.Offset)
	})
	var out []hunk
	shift := 0
	for len(sorted) > 0 {
		n, last := 1, lines.Pos(sorted[0].Range.End.Offset).Line
		for n < len(sorted) && lines.Pos(sorted[n].Range.Start.Offset).Line <= last+1 {
			last = max(last, lines.Pos(sorted[n].Range.End.Offset).Line)
			n++
		}
		h := newHunk(sorted[:n], lines, last)
		h.newFirst = h.first + shift
		shift += len(h.added) - len(h.removed)
		out = append(out, h)
		sorted = sorted[n:]
	}
	return out
}

// newHunk applies edits that lie in the lines up to last.
func newHunk(edits []Edit, lines *Lines, last int) hunk {
	first := lines.Pos(edits[0].Range.Start.Offset).Line
	start, end := lines.Start(first), len(lines.src)
	if last < lines.Count() {
		end = lines.Start(last+1) - 1
	}
	local := slices.Clone(edits)
	pure := true
	for i := range local {
		local[i].Range.Start.Offset -= start
		local[i].Range.End.Offset -= start
		pure = pure && local[i].Range.Start.Offset == local[i].Range.End.Offset &&
			local[i].NewText != "" && !strings.Contains(local[i].NewText, "\n")
	}
	changed, err := Apply(lines.src[start:end], local)
	if err != nil {
		return hunk{first: first} // cannot be: the edits were applied to the whole before
	}
	h := hunk{
		first:   first,
		removed: splitLines(string(lines.src[start:end])),
		added:   splitLines(string(changed)),
	}
	if pure {
		h.insertions = insertions(edits, lines, first)
		return h
	}
	same := 0
	for same < min(len(h.removed), len(h.added)) && h.removed[same] == h.added[same] {
		same++
	}
	h.first += same
	h.removed, h.added = h.removed[same:], h.added[same:]
	for len(h.removed) > 0 && len(h.added) > 0 && h.removed[len(h.removed)-1] == h.added[len(h.added)-1] {
		h.removed, h.added = h.removed[:len(h.removed)-1], h.added[:len(h.added)-1]
	}
	return h
}

func splitLines(s string) []string {
	out := strings.Split(s, "\n")
	for i := range out {
		out[i] = strings.TrimSuffix(out[i], "\r")
	}
	return out
}

// insertions marks the inserted pieces in the lines as they will be.
func insertions(edits []Edit, lines *Lines, first int) map[int][]mark {
	out := make(map[int][]mark)
	shift := 0
	line := 0
	for _, e := range edits {
		pos := lines.Pos(e.Range.Start.Offset)
		if pos.Line != line {
			line, shift = pos.Line, 0
		}
		n := utf8.RuneCountInString(e.NewText)
		from := pos.Column - 1 + shift
		out[line-first] = append(out[line-first], mark{from: from, to: from + n, sign: "+", color: green})
		shift += n
	}
	return out
}

// edits shows what a help would change, as lines to remove and to add, or with the added pieces marked.
func (p *printer) edits(edits []Edit, lines *Lines) {
	for i, h := range hunks(edits, lines) {
		if i == 0 {
			p.bar()
		} else {
			p.gap()
		}
		if h.insertions != nil {
			for j, text := range h.added {
				p.inserted(h.newFirst+j, text, h.insertions[j])
			}
			continue
		}
		if len(h.removed) == 0 && h.first > 1 {
			p.line(h.newFirst-1, "|", blue, lines.Text(h.first-1), nil)
		}
		where := []mark{{from: h.firstDifference()}}
		for j, text := range h.removed {
			p.line(h.first+j, "-", red, text, where)
		}
		for j, text := range h.added {
			p.line(h.newFirst+j, "+", green, text, where)
		}
	}
}

// inserted writes a line with all of its inserted pieces marked below it at once.
func (p *printer) inserted(n int, text string, pieces []mark) {
	runes := []rune(Printable(text))
	if len(runes) > p.limit(len(runes)) {
		p.line(n, "|", blue, text, pieces)
		return
	}
	p.row(strconv.Itoa(n), "|", blue, string(runes))
	var under strings.Builder
	done := 0
	for _, m := range pieces {
		under.WriteString(blank(string(runes[done:m.from])))
		under.WriteString(p.paint(m.color, strings.Repeat(m.sign, cells(string(runes[m.from:m.to])))))
		done = m.to
	}
	p.row("", "|", blue, under.String())
}
