package report

import (
	"bytes"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// sourceLine is a line of the policy, cut where what it is changes.
type sourceLine struct {
	N     int
	Parts []sourcePart
	Mark  string // the worst finding's severity, "" for none
}

// sourcePart is plain text, a comment ("c"), a string ("s") or a key ("k").
type sourcePart struct{ Class, Text string }

// highlight cuts a text into lines and tells comments, strings and keys apart. It reads any text: what is no HuJSON is
// shown as well.
func highlight(src []byte, found diag.List) []sourceLine {
	marks := map[int]diag.Severity{}
	for _, d := range found {
		if n := d.Range.Start.Line; n > 0 && (marks[n] == 0 || d.Severity < marks[n]) {
			marks[n] = d.Severity
		}
	}
	var out []sourceLine
	var parts []sourcePart
	flush := func() {
		n := len(out) + 1
		l := sourceLine{N: n, Parts: parts}
		if s := marks[n]; s != 0 {
			l.Mark = s.String()
		}
		out = append(out, l)
		parts = nil
	}
	emit := func(class string, b []byte) {
		for i, piece := range bytes.Split(b, []byte("\n")) {
			if i > 0 {
				flush()
			}
			if len(piece) > 0 {
				parts = append(parts, sourcePart{class, string(bytes.TrimSuffix(piece, []byte("\r")))})
			}
		}
	}
	for i := 0; i < len(src); {
		end, class := token(src[i:])
		emit(class, src[i:i+end])
		i += end
	}
	if len(parts) > 0 || len(out) == 0 || marks[len(out)+1] != 0 { // a finding may be at the end of the text
		flush()
	}
	return out
}

// token measures the piece of text at the start of src.
func token(src []byte) (n int, class string) {
	switch {
	case bytes.HasPrefix(src, []byte("//")):
		if n = bytes.IndexByte(src, '\n'); n < 0 {
			n = len(src)
		}
		return n, "c"
	case bytes.HasPrefix(src, []byte("/*")):
		if n = bytes.Index(src[2:], []byte("*/")); n < 0 {
			return len(src), "c"
		}
		return n + 4, "c"
	case src[0] == '"':
		n = 1
		for n < len(src) && src[n] != '"' && src[n] != '\n' {
			if src[n] == '\\' {
				n++
			}
			n++
		}
		n = min(n+1, len(src))
		if bytes.HasPrefix(bytes.TrimLeft(src[n:], " \t"), []byte(":")) {
			return n, "k"
		}
		return n, "s"
	}
	n = 1
	for n < len(src) && src[n] != '"' && src[n] != '/' {
		n++
	}
	return n, ""
}
