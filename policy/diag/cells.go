package diag

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces what would act on a terminal instead of showing on it: control characters, and format characters
// such as those that reverse the direction of writing. Each is replaced by one character, so that columns stay right.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// oneLine makes a message printable and puts it on one line.
func oneLine(s string) string {
	return Printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
}

// cells is the number of terminal columns that s takes, a tab counted as one.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case r == '\u200d' || unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
		r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff: // full-width forms, pictographs
		return 2
	}
	return 1
}

// blank is as wide as s and shows nothing: tabs stay tabs, so that what follows stands under what follows s.
func blank(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\t' {
			b.WriteByte('\t')
			continue
		}
		b.WriteString("  "[:runeCells(r)])
	}
	return b.String()
}
