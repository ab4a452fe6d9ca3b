package diag_test

import (
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func TestLinesPos(t *testing.T) {
	for _, tc := range []struct {
		name   string
		src    string
		offset int
		want   diag.Pos
	}{
		{"empty text", "", 0, diag.Pos{Line: 1, Column: 1}},
		{"before the text", "ab", -3, diag.Pos{Line: 1, Column: 1}},
		{"behind the text", "ab\nc", 99, diag.Pos{Line: 2, Column: 2, Offset: 4}},
		{"first byte", "ab\ncd", 0, diag.Pos{Line: 1, Column: 1}},
		{"the line end is on its line", "ab\ncd", 2, diag.Pos{Line: 1, Column: 3, Offset: 2}},
		{"first byte of a line", "ab\ncd", 3, diag.Pos{Line: 2, Column: 1, Offset: 3}},
		{"behind the last line end", "ab\n", 3, diag.Pos{Line: 2, Column: 1, Offset: 3}},
		{"empty lines", "\n\n\nx", 3, diag.Pos{Line: 4, Column: 1, Offset: 3}},
		{"windows line ends", "ab\r\ncd", 5, diag.Pos{Line: 2, Column: 2, Offset: 5}},
		{"characters of two bytes", `"é": x`, 6, diag.Pos{Line: 1, Column: 6, Offset: 6}},
		{"characters of four bytes", "😀x", 4, diag.Pos{Line: 1, Column: 2, Offset: 4}},
		{"a tab is one character", "\tx", 1, diag.Pos{Line: 1, Column: 2, Offset: 1}},
		{"no valid UTF-8", "\xff\xfex", 2, diag.Pos{Line: 1, Column: 3, Offset: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := diag.NewLines([]byte(tc.src)).Pos(tc.offset); got != tc.want {
				t.Errorf("Pos(%d) = %+v, want %+v", tc.offset, got, tc.want)
			}
		})
	}
}

func TestLinesText(t *testing.T) {
	l := diag.NewLines([]byte("a\r\n\nb c\n"))
	if got := l.Count(); got != 4 {
		t.Errorf("Count() = %d, want 4", got)
	}
	for n, want := range map[int]string{-1: "", 0: "", 1: "a", 2: "", 3: "b c", 4: "", 5: ""} {
		if got := l.Text(n); got != want {
			t.Errorf("Text(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestLinesRangeNeverEndsBeforeItsStart(t *testing.T) {
	got := diag.NewLines([]byte("abc")).Range(2, 1)
	if got.End != got.Start {
		t.Errorf("Range(2, 1) = %+v", got)
	}
}
