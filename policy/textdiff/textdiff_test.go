package textdiff

import (
	"slices"
	"strings"
	"testing"
)

func TestSame(t *testing.T) {
	const text = `{"a": [1, "x // y"], /* c */ "b": {}}`
	for _, tt := range []struct {
		name, other string
		want        bool
	}{
		{"itself", text, true},
		{"indented", "{\n\t\"a\": [\n1,\n\"x // y\"\n], /* c */\n\"b\": {\n}\n}\n", true},
		{"trailing commas", `{"a": [1, "x // y",], /* c */ "b": {},}`, true},
		{"trailing comma before a comment", `{"a": [1, "x // y"], /* c */ "b": {}, }`, true},
		{"escapes that are not needed", `{"a": [1, "\u0078 \/\/ y"], /* c */ "b": {}}`, true},
		{"another value", `{"a": [1, "x  // y"], /* c */ "b": {}}`, false},
		{"no comment", `{"a": [1, "x // y"], "b": {}}`, false},
		{"another comment", `{"a": [1, "x // y"], /* d */ "b": {}}`, false},
		{"moved comment", `{/* c */ "a": [1, "x // y"], "b": {}}`, false},
		{"escaped quote", `{"a": [1, "x \" // y"], /* c */ "b": {}}`, false},
		{"no HuJSON", `{"a": [1, "x // y"], /* c */ "b": {}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Same(text, tt.other); got != tt.want {
				t.Errorf("Same(%s, %s) = %v, want %v", text, tt.other, got, tt.want)
			}
		})
	}
	if !Same("[1, // one\n]", "[1 // one\n]") {
		t.Error("a trailing comma before a comment makes a difference")
	}
}

func FuzzSame(f *testing.F) {
	f.Add("{\n\t// who\n\t\"groups\": {\"group:a\": [\"ada@example.com\"],},\n\t\"grants\": [{\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\", \"ip-in-ip:*\"]}],\n}\n")
	f.Add("[1,// c\n2/* d */,\"\\\\\\\"\"]")
	f.Fuzz(func(t *testing.T, text string) {
		formattedText := formatted(text)
		if !Same(text, formattedText) {
			t.Errorf("formatting makes a difference:\n%s\n%s", text, formattedText)
		}
	})
}

func TestSections(t *testing.T) {
	const old = `{"acls": [1], /* c */ "groups": {"a": []}, "tests": []}`
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"itself", old, nil},
		{"comments alone", `{"acls": [1], "groups": {"a": []}, "tests": []}`, nil},
		{"one", `{"acls": [1, 2], "groups": {"a": []}, "tests": []}`, []string{"acls"}},
		{"one gone, one new", `{"acls": [1], "groups": {"a": []}, "hosts": {}}`, []string{"hosts", "tests"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Sections(old, tt.text); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLinesAreBounded(t *testing.T) {
	long := "[\n" + strings.Repeat("1,\n", 500) + "]\n"
	got := Lines("old", "[]", "new", long)
	if n := strings.Count(got, "\n"); n > 62 || !strings.Contains(got, "lines more") {
		t.Errorf("%d lines:\n%s", n, got)
	}
	if got := Lines("old", "[1]", "new", "[ 2 ]"); !strings.Contains(got, "  -[1]\n  +[2]\n") {
		t.Errorf("got\n%s", got)
	}
}
