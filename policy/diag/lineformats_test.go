package diag_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// sample has one finding of each severity and shape.
func sample() diag.List {
	return diag.List{
		{
			Severity: diag.Error, Code: "unknown-tag", File: "dir,1/p:q.hujson", Path: "acls[0].src[0]",
			Message: `src=tag not found: "tag:prodution"`, Range: misspelt.find(`"tag:prodution"`, 1), Label: "not in tagOwners",
			Related: []diag.Related{{Message: "similar name defined here", Range: misspelt.find(`"tag:production"`, 1)}},
			Notes:   []string{"100% of it", "two\nlines"},
			Help: []diag.Help{{
				Message: `did you mean "tag:production"?`,
				Edits:   []diag.Edit{{Range: misspelt.find("prodution", 1), NewText: "production"}},
			}},
		},
		{Severity: diag.Warning, Code: "wide", File: "p", Message: "a & b -> c", Range: misspelt.find("acls", 1)},
		{Severity: diag.Note, Code: "undecided", Message: "nowhere"},
	}
}

func TestLineFormats(t *testing.T) {
	for _, tc := range []struct {
		name  string
		write func(io.Writer, diag.List) error
		want  string
	}{
		{"short", diag.WriteShort, `dir,1/p:q.hujson:8:15: error[unknown-tag]: src=tag not found: "tag:prodution"
p:5:4: warning[wide]: a & b -> c
note[undecided]: nowhere
`},
		{
			"github", func(w io.Writer, l diag.List) error {
				return diag.WriteGitHub(w, l, diag.Sources{"dir,1/p:q.hujson": []byte(misspelt)})
			},
			`::error file=dir%2C1/p%3Aq.hujson,line=8,col=15,endLine=8,endColumn=30,title=unknown-tag::` +
				`src=tag not found: "tag:prodution": not in tagOwners%0Anote: 100%25 of it%0Anote: two%0Alines%0A` +
				`help: did you mean "tag:production"?%0A+       "src": ["tag:production"],
::warning file=p,line=5,col=4,endLine=5,endColumn=8,title=wide::a & b -> c
::notice title=undecided::nowhere
`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if err := tc.write(&out, sample()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			out.Reset()
			if err := tc.write(&out, nil); err != nil || out.String() != "" {
				t.Errorf("of nothing: %q, %v", out.String(), err)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	got, err := json.MarshalIndent(sample()[:2], "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `[
  {
    "severity": "error",
    "code": "unknown-tag",
    "message": "src=tag not found: \"tag:prodution\"",
    "file": "dir,1/p:q.hujson",
    "path": "acls[0].src[0]",
    "range": {
      "start": {
        "line": 8,
        "column": 15,
        "offset": 119
      },
      "end": {
        "line": 8,
        "column": 30,
        "offset": 134
      }
    },
    "label": "not in tagOwners",
    "related": [
      {
        "message": "similar name defined here",
        "range": {
          "start": {
            "line": 3,
            "column": 5,
            "offset": 23
          },
          "end": {
            "line": 3,
            "column": 21,
            "offset": 39
          }
        }
      }
    ],
    "notes": [
      "100% of it",
      "two\nlines"
    ],
    "help": [
      {
        "message": "did you mean \"tag:production\"?",
        "edits": [
          {
            "range": {
              "start": {
                "line": 8,
                "column": 20,
                "offset": 124
              },
              "end": {
                "line": 8,
                "column": 29,
                "offset": 133
              }
            },
            "newText": "production"
          }
        ]
      }
    ]
  },
  {
    "severity": "warning",
    "code": "wide",
    "message": "a \u0026 b -\u003e c",
    "file": "p",
    "range": {
      "start": {
        "line": 5,
        "column": 4,
        "offset": 64
      },
      "end": {
        "line": 5,
        "column": 8,
        "offset": 68
      }
    }
  }
]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSONOfNothingIsAnArray(t *testing.T) {
	for _, l := range []diag.List{nil, {}} {
		if got, err := json.Marshal(struct{ D diag.List }{l}); err != nil || string(got) != `{"D":[]}` {
			t.Errorf("%#v gives %s, %v", l, got, err)
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	text, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got diag.List
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`[{"severity":"fatal"}]`), &got); err == nil {
		t.Error("an unknown severity was taken")
	}
}
