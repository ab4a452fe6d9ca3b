package fragment

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

func fragments(texts ...string) (out []Fragment) {
	for i, t := range texts {
		out = append(out, Fragment{Name: fmt.Sprintf("fragment %d", i+1), Text: t})
	}
	return out
}

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"none", nil, "{}\n"},
		{"empty", []string{"{}", "{}"}, "{}\n"},
		{
			"lists end to end",
			[]string{`{"grants": [{"a": 1}]}`, `{"grants": [{"b": 2}], "tests": [3]}`},
			`{"grants": [{"a": 1}, {"b": 2}], "tests": [3]}`,
		},
		{
			"objects by key",
			[]string{`{"groups": {"group:a": ["x"]}}`, `{"groups": {"group:b": ["y"]}}`},
			`{"groups": {"group:a": ["x"], "group:b": ["y"]}}`,
		},
		{
			"agreement",
			[]string{`{"tagOwners": {"tag:a": ["x", "y"]}}`, `{"tagOwners": {"tag:a": ["x", /* and */ "y",],},}`},
			`{"tagOwners": {"tag:a": ["x", "y"]}}`,
		},
		{
			"objects in objects",
			[]string{`{"autoApprovers": {"routes": {"10.0.0.0/8": ["a"]}}}`, `{"autoApprovers": {"routes": {"10.1.0.0/16": ["b"]}, "exitNode": ["c"]}}`},
			`{"autoApprovers": {"routes": {"10.0.0.0/8": ["a"], "10.1.0.0/16": ["b"]}, "exitNode": ["c"]}}`,
		},
		{"sections without case", []string{`{"ACLs": [1]}`, `{"acls": [2]}`}, `{"ACLs": [1, 2]}`},
		{"what nobody knows", []string{`{"future": {"x": [1]}}`, `{"futures": 7}`}, `{"future": {"x": [1]}, "futures": 7}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Merge(fragments(tt.texts...))
			if err != nil {
				t.Fatal(err)
			}
			standard, err := hujson.Minimize([]byte(got))
			if err != nil {
				t.Fatalf("%v:\n%s", err, got)
			}
			want, err := hujson.Minimize([]byte(tt.want))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(standard)); d != "" {
				t.Errorf("merged (-want +got):\n%s", d)
			}
		})
	}
}

func TestMergeConflicts(t *testing.T) {
	_, err := Merge(fragments(
		"{\n  \"tagOwners\": {\n    \"tag:a\": [\"x\"],\n    \"tag:b\": [\"x\"]\n  },\n \"oneCGNATRoute\": \"mac-always\"}",
		"{}",
		"{\"tagOwners\": {\n \"tag:b\": [\"y\"], \"tag:a\": [\"x\"]},\n\n \"OneCGNATRoute\": \"\", \"tests\": {}}",
		"{\"tests\": []}",
	))
	want := []string{
		`tagOwners["tag:b"] has two owners: fragment 1 (line 4) and fragment 3 (line 2) give it different values`,
		`OneCGNATRoute has two owners: fragment 1 (line 6) and fragment 3 (line 4) give it different values`,
		`tests has two owners: fragment 3 (line 4) and fragment 4 (line 1) give it different values`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got %v\nwant %s", err, strings.Join(want, "\n"))
	}
	if c, ok := errors.AsType[*Conflict](err); !ok || c.Path != `tagOwners["tag:b"]` {
		t.Errorf("no Conflict in %v", err)
	}
}

func TestMergeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                      "fragment 1: a policy is an object in braces",
		"{\n\"a\": x}":            "fragment 1: line 2, column 6",
		`{"acls": [], "ACLs":[]}`: "fragment 1: ACLs is there twice",
	} {
		if _, err := Merge(fragments(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Merge(%s) = %v, want %s", text, err, want)
		}
	}
}

func TestMergeKeepsComments(t *testing.T) {
	got, err := Merge(fragments(`// 1 head
{
	// 2 groups
	"groups": {
		"group:a": ["x"], // 3 a
		// 4 end of groups
	},
	"grants": [
		{"src": ["a"]}, // 5 first
		// 6 end of grants
	],
	// 7 end
}
// 8 tail
`, `// 9 head
{
	// 10 groups
	"groups": {
		"group:b": ["y"], // 11 b
	},
	/* 12 grants */ "grants": /* 13 list */ [
		// 14 second
		{"src": ["b"]},
	], // 15 behind
	"tests": [1], // 16 tests
} // 17 tail
`, `{} // 18 nothing
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hujson.Parse([]byte(got)); err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	for n := range 18 {
		if c := fmt.Sprintf(" %d ", n+1); strings.Count(got, c) != 1 {
			t.Errorf("comment%sis there %d times", c, strings.Count(got, c))
		}
	}
	if t.Failed() {
		t.Logf("\n%s", got)
	}
	again, err := Merge(fragments(got))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, again); d != "" {
		t.Errorf("merging the result alone changes it (-want +got):\n%s", d)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add(`{"a": [1], "b": {"c": 2}}`, `{"a": [2,], /* x */ "b": {"d": 3}} // y`)
	f.Fuzz(func(t *testing.T, x, y string) {
		got, err := Merge(fragments(x, y))
		if err != nil {
			return
		}
		if _, err := hujson.Parse([]byte(got)); err != nil {
			t.Errorf("%v:\n%s", err, got)
		}
	})
}
