package diag

import (
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyText is a small text of what is awkward: line ends of both kinds, tabs, wide characters, bytes that are no UTF-8.
func anyText(t *rapid.T, label string) string {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "bc", " ", "\t", "\n", "\r\n", "é", "日", "\u0301", "\xff", "\x1b", "{", "\"x\"", strings.Repeat("long ", 150),
	}), 0, 12).Draw(t, label)
	return strings.Join(pieces, "")
}

func anyRange(t *rapid.T, lines *Lines, label string) Range {
	start := rapid.IntRange(0, len(lines.src)).Draw(t, label+" start")
	return lines.Range(start, rapid.IntRange(start, len(lines.src)).Draw(t, label+" end"))
}

// anyEdits are edits that do not overlap.
func anyEdits(t *rapid.T, lines *Lines) []Edit {
	at := rapid.SliceOfN(rapid.IntRange(0, len(lines.src)), 0, 6).Draw(t, "edits")
	slices.Sort(at)
	var out []Edit
	for i := 0; i+1 < len(at); i += 2 {
		out = append(out, Edit{Range: lines.Range(at[i], at[i+1]), NewText: anyText(t, "new text")})
	}
	return out
}

func TestHunksShowWhatApplyDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := NewLines([]byte(anyText(t, "text")))
		edits := anyEdits(t, lines)
		changed, err := Apply(lines.src, edits)
		if err != nil {
			t.Fatal(err)
		}
		got := splitLines(string(lines.src))
		for _, h := range slices.Backward(hunks(edits, lines)) {
			if !slices.Equal(got[h.first-1:h.first-1+len(h.removed)], h.removed) {
				t.Fatalf("lines from %d on are not %q", h.first, h.removed)
			}
			got = slices.Replace(got, h.first-1, h.first-1+len(h.removed), h.added...)
		}
		if want := splitLines(string(changed)); !slices.Equal(got, want) {
			t.Fatalf("shown %q, applied %q", got, want)
		}
		for _, h := range hunks(edits, lines) {
			if want := splitLines(string(changed))[h.newFirst-1:]; !slices.Equal(h.added, want[:len(h.added)]) {
				t.Fatalf("%q is not at line %d of %q", h.added, h.newFirst, want)
			}
		}
	})
}

func TestWritersTakeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := NewLines([]byte(anyText(t, "text")))
		other := NewLines([]byte(anyText(t, "another text"))) // positions may be those of another version of the text
		d := Diagnostic{
			Severity: Error, Code: "c", Message: anyText(t, "message"), File: "p", Range: anyRange(t, lines, "range"),
			Label: anyText(t, "label"), Notes: []string{anyText(t, "note")},
			Related: []Related{
				{Message: "r", Range: anyRange(t, lines, "related")}, {Message: "r", Range: anyRange(t, other, "strange")},
			},
			Help: []Help{{Message: "h", Edits: anyEdits(t, lines)}, {Message: "h", Edits: anyEdits(t, other)}},
		}
		src := Sources{"p": lines.src}
		width := rapid.IntRange(0, 100).Draw(t, "width")
		var out strings.Builder
		for _, err := range []error{
			WriteText(&out, List{d}, src, TextOptions{Width: width}),
			WriteShort(&out, List{d}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Fatalf("an escape sequence reaches the terminal: %q", out.String())
		}
		if err := WriteGitHub(io.Discard, List{d}, src); err != nil {
			t.Fatal(err)
		}
		Detail(d, lines.src)
	})
}
