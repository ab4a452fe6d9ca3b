package policy

import (
	"bytes"
	"sort"
	"unicode/utf8"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// stride is the distance in bytes between two places at which positions knows the count of characters.
const stride = 256

// positions turns byte offsets into lines and columns. Looking one up costs the same on a line of any length: a file
// without line breaks must not make a check quadratic.
type positions struct {
	src   []byte
	lines []int // offset of each line's first byte
	runes []int // characters in src[:i*stride]
}

func newPositions(src []byte) *positions {
	p := &positions{src: src, lines: []int{0}}
	for off := 0; ; {
		i := bytes.IndexByte(src[off:], '\n')
		if i < 0 {
			break
		}
		off += i + 1
		p.lines = append(p.lines, off)
	}
	count := 0
	for off := 0; off <= len(src); off += stride {
		p.runes = append(p.runes, count)
		count += runeStarts(src[off:min(off+stride, len(src))])
	}
	return p
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

func (p *positions) runesBefore(off int) int {
	i := off / stride
	return p.runes[i] + runeStarts(p.src[i*stride:off])
}

func (p *positions) at(off int) diag.Pos {
	off = max(0, min(off, len(p.src)))
	line := sort.SearchInts(p.lines, off+1)
	return diag.Pos{Line: line, Column: 1 + p.runesBefore(off) - p.runesBefore(p.lines[line-1]), Offset: off}
}

func (p *positions) span(start, end int) diag.Range {
	return diag.Range{Start: p.at(start), End: p.at(end)}
}
