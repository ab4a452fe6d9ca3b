package diag_test

import (
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func edit(start, end int, text string) diag.Edit {
	return diag.Edit{
		Range:   diag.Range{Start: diag.Pos{Offset: start}, End: diag.Pos{Offset: end}},
		NewText: text,
	}
}

func TestApply(t *testing.T) {
	for _, tc := range []struct {
		name  string
		src   string
		edits []diag.Edit
		want  string
		err   string
	}{
		{name: "none", src: "abc", want: "abc"},
		{name: "replace", src: "abc", edits: []diag.Edit{edit(1, 2, "XY")}, want: "aXYc"},
		{name: "delete", src: "abc", edits: []diag.Edit{edit(0, 3, "")}, want: ""},
		{name: "insert at both ends", src: "abc", edits: []diag.Edit{edit(3, 3, ">"), edit(0, 0, "<")}, want: "<abc>"},
		{
			name: "insertions at one place keep their order", src: "ab",
			edits: []diag.Edit{edit(1, 1, "1"), edit(1, 1, "2")}, want: "a12b",
		},
		{
			name: "insert where a replacement starts", src: "abc",
			edits: []diag.Edit{edit(1, 2, "B"), edit(1, 1, "+")}, want: "a+Bc",
		},
		{name: "edits that touch", src: "abcd", edits: []diag.Edit{edit(2, 4, "Y"), edit(0, 2, "X")}, want: "XY"},
		{
			name: "edits that overlap", src: "abcd", edits: []diag.Edit{edit(0, 2, ""), edit(1, 3, "")},
			err: "edit of bytes 1 to 3 overlaps the edit before it, which ends at byte 2",
		},
		{
			name: "behind the text", src: "abcd", edits: []diag.Edit{edit(4, 5, "")},
			err: "edit of bytes 4 to 5 lies outside of a text of 4 bytes",
		},
		{
			name: "backwards", src: "abcd", edits: []diag.Edit{edit(3, 1, "")},
			err: "edit of bytes 3 to 1 lies outside of a text of 4 bytes",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := []byte(tc.src)
			got, err := diag.Apply(src, tc.edits)
			if msg := errText(err); msg != tc.err {
				t.Fatalf("error %q, want %q", msg, tc.err)
			}
			if string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if string(src) != tc.src {
				t.Errorf("the source became %q", src)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
