package diag

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Lines finds lines and columns in a text. The zero value is that of an empty text.
type Lines struct {
	src    []byte
	starts []int // offset of each line's first byte, without the first line's 0
}

// NewLines indexes src, which must not change afterwards. A line ends with "\n"; a "\r" before it belongs to the line.
func NewLines(src []byte) *Lines {
	l := &Lines{src: src}
	for i, b := range src {
		if b == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

// Count is the number of lines. A text that ends with "\n" has an empty last line.
func (l *Lines) Count() int { return len(l.starts) + 1 }

// start returns the offset of the first byte of line n.
func (l *Lines) start(n int) int {
	if n <= 1 {
		return 0
	}
	return l.starts[n-2]
}

// Pos converts an offset in bytes to a position. An offset outside of the text is taken as the nearer end of it. A byte
// that is no valid UTF-8 counts as one character.
func (l *Lines) Pos(offset int) Pos {
	offset = min(max(offset, 0), len(l.src))
	i, found := slices.BinarySearch(l.starts, offset)
	if found {
		i++
	}
	line := i + 1
	return Pos{Line: line, Column: utf8.RuneCount(l.src[l.start(line):offset]) + 1, Offset: offset}
}

// Range converts a pair of offsets in bytes, the second exclusive, to a range.
func (l *Lines) Range(start, end int) Range {
	return Range{Start: l.Pos(start), End: l.Pos(max(start, end))}
}

// Text returns line n, counted from 1, without its line end; empty where there is no such line.
func (l *Lines) Text(n int) string {
	if n < 1 || n > l.Count() {
		return ""
	}
	end := len(l.src)
	if n < l.Count() {
		end = l.start(n+1) - 1
	}
	return strings.TrimSuffix(string(l.src[l.start(n):end]), "\r")
}
