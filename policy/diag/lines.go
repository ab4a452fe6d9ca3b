package diag

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// stride is the distance in bytes between two places at which Lines knows the count of characters.
const stride = 256

// Lines finds lines and columns in a text. To look one up costs the same on a line of any length: a file without line
// breaks makes nothing quadratic. The zero value is that of an empty text.
type Lines struct {
	src    []byte
	starts []int // offset of each line's first byte, without the first line's 0
	runes  []int // characters in src[:i*stride]
}

// NewLines indexes src, which must not change afterwards. A line ends with "\n"; a "\r" before it belongs to the line.
func NewLines(src []byte) *Lines {
	l := &Lines{src: src}
	for off := 0; ; {
		i := bytes.IndexByte(src[off:], '\n')
		if i < 0 {
			break
		}
		off += i + 1
		l.starts = append(l.starts, off)
	}
	count := 0
	for off := 0; off <= len(src); off += stride {
		l.runes = append(l.runes, count)
		count += runeStarts(src[off:min(off+stride, len(src))])
	}
	return l
}

// runeStarts counts the bytes that begin a character, so that counts of neighbouring pieces add up.
func runeStarts(b []byte) int {
	n := 0
	for _, c := range b {
		if utf8.RuneStart(c) {
			n++
		}
	}
	return n
}

// runesBefore counts the characters before an offset.
func (l *Lines) runesBefore(offset int) int {
	i := offset / stride
	if i >= len(l.runes) {
		return 0 // the zero value
	}
	return l.runes[i] + runeStarts(l.src[i*stride:offset])
}

// Count is the number of lines. A text that ends with "\n" has an empty last line.
func (l *Lines) Count() int { return len(l.starts) + 1 }

// Start returns the offset of the first byte of line n, counted from 1; of the first or last line where there is none.
func (l *Lines) Start(n int) int {
	n = min(n, l.Count())
	if n <= 1 {
		return 0
	}
	return l.starts[n-2]
}

// Pos converts an offset in bytes to a position. An offset outside of the text is taken as the nearer end of it. Of bytes
// that are no valid UTF-8, those count as characters that could begin one.
func (l *Lines) Pos(offset int) Pos {
	offset = min(max(offset, 0), len(l.src))
	i, found := slices.BinarySearch(l.starts, offset)
	if found {
		i++
	}
	line := i + 1
	return Pos{Line: line, Column: 1 + l.runesBefore(offset) - l.runesBefore(l.Start(line)), Offset: offset}
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
		end = l.Start(n+1) - 1
	}
	return strings.TrimSuffix(string(l.src[l.Start(n):end]), "\r")
}
