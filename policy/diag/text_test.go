package diag_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// source is a text in which the tests mark places.
type source string

// find returns the range of the nth occurrence (from 1) of a piece.
func (s source) find(piece string, nth int) diag.Range {
	offset := 0
	for range nth {
		i := strings.Index(string(s)[offset:], piece)
		if i < 0 {
			panic("no " + piece)
		}
		offset += i + 1
	}
	return diag.NewLines([]byte(s)).Range(offset-1, offset-1+len(piece))
}

// before and after are the empty ranges at the ends of a range.
func before(r diag.Range) diag.Range { return diag.Range{Start: r.Start, End: r.Start} }
func after(r diag.Range) diag.Range  { return diag.Range{Start: r.End, End: r.End} }

const overlay source = `{
  // who may reach whom
  "grants": [
    {
      "src": ["tag:node"], "dst": ["tag:node"],
      "ip":  ["*"],
    },
  ],
}
`

const pasted source = `{
  "grants": [
    {
    "action": "accept",
    "src": ["group:eng"], "dst": ["tag:db:5432"],
    },
  ],
}
`

const misspelt source = `{
  "tagOwners": {
    "tag:production": ["group:sre"],
  },
  "acls": [
    {
      "action": "accept",
      "src": ["tag:prodution"],
      "dst": ["*:*"],
    },
  ],
}
`

const tabs source = "{\n\t\"hosts\":\t{\"h\": \"1.2.3\"},\r\n}"

const wide source = `{"hosts": {"日本": "x", "é": "y"}}`

func TestWriteText(t *testing.T) {
	minified := source(`{"acls":[` + strings.Repeat(`{"action":"accept","src":["*"],"dst":["*:*"]},`, 20) +
		`{"action":"deny"}]}`)
	for _, tc := range []struct {
		name string
		src  source
		l    diag.List
		opt  diag.TextOptions
		want string
	}{
		{name: "nothing", want: ""},
		{
			name: "a place alone, notes and an insertion",
			src:  overlay,
			l: diag.List{{
				Severity: diag.Error, Code: "requirement-unmet", File: "p", Path: "grants[0].ip[0]",
				Message: `mesh "backbone" needs ip-in-ip from tag:node to tag:node; no rule allows it`,
				Range:   overlay.find(`"*"`, 1),
				Label:   "covers tcp, udp, icmp and icmpv6 only",
				Notes: []string{
					"ip-in-ip is IP protocol 4; a rule that names no protocol never matches it",
					"12 of 12 node pairs affected, first fra1 (100.64.0.11) -> ams1 (100.64.0.14)",
				},
				Help: []diag.Help{{
					Message: "name the protocol in this grant",
					Edits:   []diag.Edit{{Range: after(overlay.find(`"*"`, 1)), NewText: `, "ip-in-ip:*"`}},
				}},
			}},
			want: `p:6:15: error[requirement-unmet]: mesh "backbone" needs ip-in-ip from tag:node to tag:node; no rule allows it
  |
5 |       "src": ["tag:node"], "dst": ["tag:node"],
6 |       "ip":  ["*"],
  |               ^^^ covers tcp, udp, icmp and icmpv6 only
  |
note: ip-in-ip is IP protocol 4; a rule that names no protocol never matches it
note: 12 of 12 node pairs affected, first fra1 (100.64.0.11) -> ams1 (100.64.0.14)
help: name the protocol in this grant
  |
6 |       "ip":  ["*", "ip-in-ip:*"],
  |                  ++++++++++++++

p: 1 error
`,
		},
		{
			name: "a related place on the next line, and lines that are replaced",
			src:  pasted,
			l: diag.List{{
				Severity: diag.Error, Code: "unknown-field", File: "p", Message: `unknown field "action" in grants[0]`,
				Range: pasted.find(`"action"`, 1), Label: `a grant always allows; "action" belongs to acls`,
				Related: []diag.Related{{
					Message: `in a grant the port goes into "ip"`, Range: pasted.find("5432", 1),
				}},
				Help: []diag.Help{{
					Message: "this looks like an acls entry; as a grant it is",
					Edits: []diag.Edit{
						{Range: pasted.find("    \"action\": \"accept\",\n", 1)},
						{Range: pasted.find(":5432", 1)},
						{Range: after(pasted.find(`db:5432"]`, 1)), NewText: `, "ip": ["5432"]`},
					},
				}},
			}},
			want: `p:4:5: error[unknown-field]: unknown field "action" in grants[0]
  |
4 |     "action": "accept",
  |     ^^^^^^^^ a grant always allows; "action" belongs to acls
5 |     "src": ["group:eng"], "dst": ["tag:db:5432"],
  |                                           ---- in a grant the port goes into "ip"
  |
help: this looks like an acls entry; as a grant it is
  |
4 -     "action": "accept",
5 -     "src": ["group:eng"], "dst": ["tag:db:5432"],
4 +     "src": ["group:eng"], "dst": ["tag:db"], "ip": ["5432"],

p: 1 error
`,
		},
		{
			name: "a related place far above",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "unknown-tag", File: "p", Message: `src=tag not found: "tag:prodution"`,
				Range: misspelt.find(`"tag:prodution"`, 1), Label: "not in tagOwners",
				Related: []diag.Related{{
					Message: "similar name defined here", Range: misspelt.find(`"tag:production"`, 1),
				}},
				Help: []diag.Help{{Message: `did you mean "tag:production"?`}},
			}},
			want: `p:8:15: error[unknown-tag]: src=tag not found: "tag:prodution"
  |
3 |     "tag:production": ["group:sre"],
  |     ---------------- similar name defined here
...
8 |       "src": ["tag:prodution"],
  |               ^^^^^^^^^^^^^^^ not in tagOwners
  |
help: did you mean "tag:production"?

p: 1 error
`,
		},
		{
			name: "a single line between two places is shown, a range of several lines is marked on its first",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Warning, Code: "c", File: "p", Message: "m",
				Range:   misspelt.find("\"dst\": [\"*:*\"],\n    }", 1),
				Related: []diag.Related{{Message: "here", Range: misspelt.find(`"action"`, 1)}},
			}},
			want: `p:9:7: warning[c]: m
  |
7 |       "action": "accept",
  |       -------- here
8 |       "src": ["tag:prodution"],
9 |       "dst": ["*:*"],
  |       ^^^^^^^^^^^^^^^

p: 1 warning
`,
		},
		{
			name: "two places in one line, from left to right",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m",
				Range: misspelt.find(`"accept"`, 1), Label: "this",
				Related: []diag.Related{{Message: "that", Range: misspelt.find(`"action"`, 1)}},
			}},
			want: `p:7:17: error[c]: m
  |
6 |     {
7 |       "action": "accept",
  |       -------- that
  |                 ^^^^^^^^ this

p: 1 error
`,
		},
		{
			name: "tabs are repeated under the line, windows line ends are not shown",
			src:  tabs,
			l: diag.List{{
				Severity: diag.Error, Code: "invalid-host", File: "p", Message: "m", Range: tabs.find(`"1.2.3"`, 1),
			}},
			want: "p:2:17: error[invalid-host]: m\n  |\n1 | {\n2 | \t\"hosts\":\t{\"h\": \"1.2.3\"},\n" +
				"  | \t        \t      ^^^^^^^\n\np: 1 error\n",
		},
		{
			name: "columns count characters, carets stand under what is as wide as it shows",
			src:  wide,
			l: diag.List{
				{Severity: diag.Error, Code: "c", File: "p", Message: "m", Range: wide.find(`"日本"`, 1)},
				{Severity: diag.Error, Code: "c", File: "p", Message: "m", Range: wide.find(`"y"`, 1)},
			},
			want: `p:1:12: error[c]: m
  |
1 | {"hosts": {"日本": "x", "é": "y"}}
  |            ^^^^^^

p:1:28: error[c]: m
  |
1 | {"hosts": {"日本": "x", "é": "y"}}
  |                              ^^^

p: 2 errors
`,
		},
		{
			name: "the end of the text",
			src:  "{\n",
			l: diag.List{{
				Severity: diag.Error, Code: "syntax", File: "p", Message: "unexpected EOF",
				Range: diag.NewLines([]byte("{\n")).Range(2, 2),
			}},
			want: "p:2:1: error[syntax]: unexpected EOF\n  |\n1 | {\n2 |\n  | ^\n\np: 1 error\n",
		},
		{
			name: "no place, and no text to show a place in",
			src:  "{}",
			l: diag.List{
				{Severity: diag.Note, Code: "undecided", File: "p", Message: "m", Notes: []string{"n"}},
				{Severity: diag.Error, Code: "c", Message: "of no file"},
				{
					Severity: diag.Warning, Code: "c", File: "other", Message: "m", Range: overlay.find("grants", 1),
					Help: []diag.Help{{Message: "h", Edits: []diag.Edit{{Range: overlay.find("grants", 1)}}}},
				},
			},
			want: "p: note[undecided]: m\nnote: n\n\nerror[c]: of no file\n\nother:3:4: warning[c]: m\nhelp: h\n\n" +
				"p: 1 note\n1 error\nother: 1 warning\n",
		},
		{
			name: "a place outside of the text, from another version of it",
			src:  "{}",
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m", Range: misspelt.find(`"tag:prodution"`, 1),
				Help: []diag.Help{{Message: "h", Edits: []diag.Edit{{Range: misspelt.find("src", 1)}}}},
			}},
			want: "p:8:15: error[c]: m\n  |\n8 |\n  | ^\n  |\nhelp: h\n\np: 1 error\n",
		},
		{
			name: "whole lines are inserted",
			src:  pasted,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m",
				Help: []diag.Help{{Message: "add this grant", Edits: []diag.Edit{{
					Range:   before(pasted.find("  ],", 1)),
					NewText: "    {\n      \"src\": [\"a\"],\n    },\n",
				}}}},
			}},
			want: `p: error[c]: m
help: add this grant
  |
6 |     },
7 +     {
8 +       "src": ["a"],
9 +     },

p: 1 error
`,
		},
		{
			name: "edits far apart, numbers of a later one shifted by an earlier one",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m",
				Help: []diag.Help{{Message: "h", Edits: []diag.Edit{
					{Range: misspelt.find("prodution", 1), NewText: "production"},
					{Range: after(misspelt.find("{", 1)), NewText: "\n  // by hand"},
					{Range: before(misspelt.find(`"*:*"`, 1)), NewText: `"x:1", `},
					{Range: after(misspelt.find(`"*:*"`, 1)), NewText: `, "y:2"`},
				}}},
			}},
			want: `p: error[c]: m
help: h
   |
 1 | {
 2 +   // by hand
...
 8 -       "src": ["tag:prodution"],
 9 -       "dst": ["*:*"],
 9 +       "src": ["tag:production"],
10 +       "dst": ["x:1", "*:*", "y:2"],

p: 1 error
`,
		},
		{
			name: "two insertions into one line",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m",
				Help: []diag.Help{{Message: "h", Edits: []diag.Edit{
					{Range: after(misspelt.find(`"*:*"`, 1)), NewText: `, "y:2"`},
					{Range: before(misspelt.find(`"*:*"`, 1)), NewText: `"x:1", `},
				}}},
			}},
			want: `p: error[c]: m
help: h
  |
9 |       "dst": ["x:1", "*:*", "y:2"],
  |               +++++++     +++++++

p: 1 error
`,
		},
		{
			name: "no more than so many",
			src:  "{}",
			l: diag.List{
				{Severity: diag.Error, Code: "c", File: "p", Message: "1"},
				{Severity: diag.Error, Code: "c", File: "p", Message: "2"},
				{Severity: diag.Warning, Code: "c", File: "p", Message: "3"},
				{Severity: diag.Note, Code: "c", File: "p", Message: "4"},
			},
			opt:  diag.TextOptions{Max: 2},
			want: "p: error[c]: 1\n\np: error[c]: 2\n\nand 2 more (--all)\n\np: 2 errors, 1 warning, 1 note\n",
		},
		{
			name: "narrow terminal",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "a message is never broken, however long it is",
				Range: misspelt.find(`"group:sre"`, 1), Label: "this one",
				Notes: []string{"a note of many words goes over several lines\nand starts a new one where it says so"},
			}},
			opt: diag.TextOptions{Width: 30},
			want: `p:3:24: error[c]: a message is never broken, however long it is
  |
2 |   "tagOwners": {
3 | ...uction": ["group:sre"],
  |              ^^^^^^^^^^^ this one
  |
note: a note of many words
      goes over several lines
      and starts a new one
      where it says so

p: 1 error
`,
		},
		{
			name: "a policy on one line",
			src:  minified,
			l: diag.List{{
				Severity: diag.Error, Code: "unsupported-action", File: "p", Message: `action="deny" is not supported`,
				Range:   minified.find(`"deny"`, 1),
				Related: []diag.Related{{Message: "there", Range: minified.find(`"accept"`, 3)}},
				Help: []diag.Help{{
					Message: "h", Edits: []diag.Edit{{Range: minified.find("deny", 1), NewText: "accept"}},
				}},
			}},
			want: `p:1:940: error[unsupported-action]: action="deny" is not supported
  |
1 | ..."src":["*"],"dst":["*:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"accept","src":["*"],"dst":["*:...
  |                                         -------- there
1 | ...:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"deny"}]}
  |                                                                                                                ^^^^^^
  |
help: h
  |
1 - ...:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"deny"}]}
1 + ..."]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"accept","src":["*"],"dst":["*:*"]},{"action":"accept"}]}

p: 1 error
`,
		},
		{
			name: "what would act on the terminal",
			src:  source("\x1b[31m\u202e\x00 x"),
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "bad \x1b[2J\nthing",
				Range: source("\x1b[31m\u202e\x00 x").find("x", 1), Label: "\a", Notes: []string{"\x07"},
			}},
			want: "p:1:9: error[c]: bad \ufffd[2J thing\n  |\n1 | \ufffd[31m\ufffd\ufffd x\n  |         ^ \ufffd\n  |\n" +
				"note: \ufffd\n\np: 1 error\n",
		},
		{
			name: "colours",
			src:  misspelt,
			l: diag.List{{
				Severity: diag.Error, Code: "c", File: "p", Message: "m", Range: misspelt.find(`"*:*"`, 1), Label: "l",
				Related: []diag.Related{{Message: "r", Range: misspelt.find("tag:prod", 2)}},
				Notes:   []string{"n"},
				Help: []diag.Help{{
					Message: "h", Edits: []diag.Edit{{Range: misspelt.find(`"*:*"`, 1), NewText: `"x:1"`}},
				}},
			}},
			opt: diag.TextOptions{Color: true},
			want: strings.NewReplacer("<red>", "\x1b[1;31m", "<bold>", "\x1b[1m", "<blue>", "\x1b[34m", "<cyan>", "\x1b[36m",
				"<green>", "\x1b[32m", "</>", "\x1b[0m").Replace(`p:9:15: <red>error[c]</>: <bold>m</>
<blue>  |</>
<blue>8 |</>       "src": ["tag:prodution"],
<blue>  |</>                <blue>--------</> <blue>r</>
<blue>9 |</>       "dst": ["*:*"],
<blue>  |</>               <red>^^^^^</> <red>l</>
<blue>  |</>
<cyan>note:</> n
<green>help:</> h
<blue>  |</>
<red>9 -</>       "dst": ["*:*"],
<green>9 +</>       "dst": ["x:1"],

p: 1 error
`),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if err := diag.WriteText(&out, tc.l, diag.Sources{"p": []byte(tc.src)}, tc.opt); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s\ngot:\n%s", diff, out.String())
			}
		})
	}
}

func TestDetail(t *testing.T) {
	d := diag.Diagnostic{
		Severity: diag.Error, Code: "unknown-tag", File: "left out", Path: "acls[0].src[0]",
		Message: "left out too", Range: misspelt.find(`"tag:prodution"`, 1), Label: "not in tagOwners",
		Related: []diag.Related{{Message: "similar name defined here", Range: misspelt.find(`"tag:production"`, 1)}},
		Notes:   []string{"a note"},
		Help: []diag.Help{{
			Message: `did you mean "tag:production"?`,
			Edits:   []diag.Edit{{Range: misspelt.find("prodution", 1), NewText: "production"}},
		}},
	}
	want := `line 8, column 15, acls[0].src[0] (unknown-tag):
    |
  3 |     "tag:production": ["group:sre"],
    |     ---------------- similar name defined here
  ...
  8 |       "src": ["tag:prodution"],
    |               ^^^^^^^^^^^^^^^ not in tagOwners
    |
note: a note
help: did you mean "tag:production"?
    |
  8 -       "src": ["tag:prodution"],
  8 +       "src": ["tag:production"],
`
	if diff := cmp.Diff(want, diag.Detail(d, []byte(misspelt))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nowhere := diag.Diagnostic{Severity: diag.Error, Code: "c", Message: "m", Notes: []string{"n"}}
	if got, want := diag.Detail(nowhere, []byte("{}")), "(c)\nnote: n\n"; got != want {
		t.Errorf("without a place: got %q, want %q", got, want)
	}
}

func TestSummary(t *testing.T) {
	all := diag.List{{Severity: diag.Note}, {Severity: diag.Error}, {Severity: diag.Warning}, {Severity: diag.Error}}
	for _, tc := range []struct {
		l    diag.List
		file string
		want string
	}{
		{nil, "p", "p: no findings"},
		{all, "p", "p: 2 errors, 1 warning, 1 note"},
		{all[:1], "", "1 note"},
	} {
		if got := tc.l.Summary(tc.file); got != tc.want {
			t.Errorf("Summary = %q, want %q", got, tc.want)
		}
	}
}
