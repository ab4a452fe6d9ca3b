package diag_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func at(file string, line, column int, code, message string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Error, Code: code, Message: message, File: file,
		Range: diag.Range{Start: diag.Pos{Line: line, Column: column}, End: diag.Pos{Line: line, Column: column + 1}},
	}
}

func TestSort(t *testing.T) {
	l := diag.List{
		at("b.hujson", 1, 1, "a", "first of another file"),
		at("a.hujson", 10, 1, "a", "line 10 is after line 9"),
		at("a.hujson", 9, 20, "a", "column 20 is after column 3"),
		at("a.hujson", 9, 3, "b", "code b"),
		at("a.hujson", 9, 3, "a", "y"),
		at("a.hujson", 9, 3, "a", "x"),
		{Code: "z", File: "a.hujson", Message: "of the whole file"},
	}
	l.Sort()
	var got []string
	for _, d := range l {
		got = append(got, d.Message)
	}
	want := []string{
		"of the whole file", "x", "y", "code b", "column 20 is after column 3", "line 10 is after line 9",
		"first of another file",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDedup(t *testing.T) {
	kept := diag.List{
		at("a", 1, 1, "unknown-tag", "x"),
		at("a", 1, 2, "unknown-tag", "x"),
		at("a", 1, 1, "unknown-host", "x"),
		at("a", 1, 1, "unknown-tag", "y"),
		at("b", 1, 1, "unknown-tag", "x"),
	}
	twice := append(append(diag.List{}, kept...), kept...)
	twice[7].Notes = []string{"said of the second only"}
	if diff := cmp.Diff(kept, twice.Dedup()); diff != "" {
		t.Errorf("Dedup (-want +got):\n%s", diff)
	}
	if got := diag.List(nil).Dedup(); got != nil {
		t.Errorf("Dedup of nothing = %v", got)
	}
}
