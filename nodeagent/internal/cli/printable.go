package cli

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable is a terminal, a file or a journal that gets text alone. Names of the tailnet, comments of firewall rules, what
// servers say: all of it may hold what acts on a terminal, or hides from whoever reads. That is escaped as JSON does, so
// that JSON stays the same.
type printable struct{ w io.Writer }

// Write writes whole characters.
func (p printable) Write(text []byte) (int, error) {
	if bytes.IndexFunc(text, acts) < 0 && utf8.Valid(text) {
		return p.w.Write(text)
	}
	var out []byte
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, rest[0])
		case !acts(r):
			out = append(out, rest[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

func acts(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
