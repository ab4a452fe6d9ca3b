// Package report writes what a reviewer wants to see of a tailnet policy as one HTML page: the control plane's verdict,
// who reaches whom, the mesh as a drawing, requirements, tests, findings, and the policy's text that all of them point to.
//
// The page stands alone: no script, font, style or picture from elsewhere, and none of its own that runs. What came from
// the policy, the inventory or the mesh is escaped by html/template, and a content security policy in the page forbids
// the rest. The same input gives the same bytes.
//
//	flows    compiled policy -> for each device, protocol and port: who is admitted by which rule
//	matrix   flows -> cells between tags, groups and the other names that rules use
//	mesh     node documents, or tags -> clusters of nodes and the links between them, judged by flows
//	layout   clusters -> boxes, lines and labels that do not overlap
//	page     all of it -> html
//
// Nothing is decided here that package policy does not decide; what it says is only counted and drawn.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Input is what a page is made of.
type Input struct {
	File      string // name of the policy, as in messages
	Source    []byte
	Inventory *policy.Inventory
	// Report is what policy.Check made of Source with Inventory.
	Report *policy.Report
	// Findings are those of Report and of package lint, sorted by position.
	Findings diag.List
	// Mesh are the nodes to draw; nil draws the devices by tag.
	Mesh *Mesh
	// Tool and Version name the program that writes.
	Tool, Version string
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// Write writes the page. It fails where w does.
func Write(w io.Writer, in Input) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(pageCSS) },
	}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, newPage(&in)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(bytes.Map(plain, b.Bytes())); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// plain shows what would change how the text around it reads, such as marks that turn the direction of writing.
func plain(r rune) rune {
	if r == '\n' {
		return r
	}
	for _, p := range diag.Printable(string(r)) {
		return p
	}
	return r
}

// page is what the template shows.
type page struct {
	File, Tool, Version string
	Tiles               []tile
	Refusal             string
	Counts              []string
	Requirements        []requirement
	Matrix              *matrix
	Graph               *graph
	Tests               []testList
	Findings            []findings
	Lines               []sourceLine
}

// tile is one answer at the head of the page.
type tile struct {
	Title, Value, Detail, Href string
	State                      string // "good", "bad", "warn" or "none", as the colour and the sign
}

// requirement is the judgement of one, with what the engine has to say about it.
type requirement struct {
	Name, Flow, Why, State, Verdict, Pairs string
	Rules                                  []place
	Failed                                 []policy.FailedPair
	MoreFailed                             int
	Missing                                []string
	Findings                               []finding
}

// place is a link to a rule's text.
type place struct {
	Path string
	Line int
}

// testList is one section of the policy's tests.
type testList struct {
	Section, Summary string
	Failed, Passed   []test
	Open             bool // whether those that passed are shown at once
}

type test struct {
	policy.TestResult
	State string
	Line  int
	By    *place
}

// finding is one diagnostic with the lines of the text that it is about.
type finding struct {
	diag.Diagnostic
	Line    int
	Snippet []snippetLine
}

// findings are those of one kind; many are folded to one line.
type findings struct {
	Severity diag.Severity
	Title    string
	Fold     bool
	Findings []finding
}

// foldFindings is the number from which on findings of one kind are folded, unless they are errors.
const foldFindings = 4

// snippetLine is a line of a finding as a terminal would show it; Class colours what is added, removed or marked.
type snippetLine struct{ Class, Text string }

// openTests is the number of tests up to which all are shown at once where none failed.
const openTests = 30

// failedShown bounds the list of pairs under a requirement.
const failedShown = 50

func newPage(in *Input) *page {
	p := &page{File: in.File, Tool: in.Tool, Version: in.Version, Lines: highlight(in.Source, in.Findings)}
	lines := rules(in.Report.Policy)
	r := in.Report
	p.Counts = counts(in)
	for _, q := range r.Requirements {
		p.Requirements = append(p.Requirements, newRequirement(in, lines, q))
	}
	for _, l := range []struct {
		section string
		results []policy.TestResult
	}{{"tests", r.Tests}, {"sshTests", r.SSHTests}} {
		if len(l.results) > 0 {
			p.Tests = append(p.Tests, newTests(l.section, lines, l.results))
		}
	}
	said := map[string]bool{}
	for _, q := range r.Requirements {
		for _, d := range q.Diagnostics {
			said[d.Code+d.Message] = true
		}
	}
	at := map[string]int{}
	for _, d := range in.Findings {
		if said[d.Code+d.Message] {
			continue
		}
		key := d.Severity.String() + d.Code
		if _, ok := at[key]; !ok {
			at[key] = len(p.Findings)
			p.Findings = append(p.Findings, findings{Severity: d.Severity, Title: strings.ReplaceAll(d.Code, "-", " ")})
		}
		kind := &p.Findings[at[key]]
		kind.Findings = append(kind.Findings, newFinding(in, d))
		kind.Fold = len(kind.Findings) >= foldFindings && d.Severity != diag.Error
	}
	slices.SortStableFunc(p.Findings, func(a, b findings) int { return cmp.Compare(a.Severity, b.Severity) })
	if r.Compiled != nil {
		f := newFlows(r.Compiled.Access(), r.Policy)
		p.Matrix = newMatrix(f, lines)
		p.Graph = newGraph(f, in, lines)
	}
	if !r.Accepted {
		p.Refusal = r.Message
	}
	p.Tiles = p.tiles(in)
	return p
}

func counts(in *Input) []string {
	var out []string
	if p := in.Report.Policy; p != nil {
		if p.ACLs == nil && p.Grants == nil {
			out = append(out, "no rules: everything is admitted")
		} else {
			if len(p.Grants) > 0 {
				out = append(out, plural(len(p.Grants), "grant"))
			}
			if len(p.ACLs) > 0 || len(p.Grants) == 0 {
				out = append(out, plural(len(p.ACLs), "acl"))
			}
		}
	}
	if in.Inventory != nil {
		out = append(out, plural(len(in.Inventory.Devices), "device"), plural(len(in.Inventory.Users), "user"))
	}
	return out
}

func (p *page) tiles(in *Input) []tile {
	r := in.Report
	verdict := tile{Title: "Control plane", Value: "accepted", State: "good", Href: "#source"}
	if !r.Accepted {
		verdict.Value, verdict.State, verdict.Href = fmt.Sprintf("refused with %d", r.Status), "bad", "#findings"
	}
	tests := tile{Title: "Tests", Value: "none", Detail: "nothing proves the policy", State: "warn", Href: "#tests"}
	if all := slices.Concat(r.Tests, r.SSHTests); len(all) > 0 {
		n := map[policy.Verdict]int{}
		for _, t := range all {
			n[t.Verdict]++
		}
		tests.Value, tests.Detail, tests.State = tally(len(all), n, "passed", "failed")
		if r.Accepted && n[policy.Undecided] > 0 {
			verdict.Detail, verdict.State = "unless one of the tests that could not be decided fails", "warn"
		}
	} else if r.Compiled == nil {
		tests.Value, tests.Detail, tests.State = "not run", "the rules are refused", "none"
	}
	reqs := tile{Title: "Requirements", Value: "none given", State: "none", Href: "#requirements"}
	if len(r.Requirements) > 0 {
		n := map[policy.Verdict]int{}
		for _, q := range r.Requirements {
			n[q.Verdict]++
		}
		reqs.Value, reqs.Detail, reqs.State = tally(len(r.Requirements), n, "met", "not met")
	}
	var by [diag.Note + 1]int
	for _, d := range in.Findings {
		by[d.Severity]++
	}
	found := tile{Title: "Findings", Value: "nothing found", State: "good", Href: "#findings"}
	var parts []string
	for _, s := range []diag.Severity{diag.Error, diag.Warning, diag.Note} {
		if by[s] > 0 {
			parts = append(parts, plural(by[s], s.String()))
		}
	}
	if len(parts) > 0 {
		found.Value, found.Detail, found.State = parts[0], strings.Join(parts[1:], ", "), "none"
		if by[diag.Warning] > 0 {
			found.State = "warn"
		}
		if by[diag.Error] > 0 {
			found.State = "bad"
		}
	}
	return []tile{verdict, tests, reqs, found}
}

// tally says how many of a number passed, worst first.
func tally(all int, n map[policy.Verdict]int, good, bad string) (value, detail, state string) {
	switch {
	case n[policy.Fail] > 0:
		value, state = fmt.Sprintf("%d %s", n[policy.Fail], bad), "bad"
	case n[policy.Undecided] > 0:
		value, state = fmt.Sprintf("%d undecided", n[policy.Undecided]), "warn"
	default:
		return fmt.Sprintf("%d %s", all, good), "", "good"
	}
	detail = fmt.Sprintf("%d of %d %s", n[policy.Pass], all, good)
	if n[policy.Fail] > 0 && n[policy.Undecided] > 0 {
		detail += fmt.Sprintf(", %d undecided", n[policy.Undecided])
	}
	return value, detail, state
}

func stateOf(v policy.Verdict) string {
	switch v {
	case policy.Pass:
		return "good"
	case policy.Fail:
		return "bad"
	}
	return "warn"
}

func newRequirement(in *Input, lines ruleLines, q policy.RequirementResult) requirement {
	req := q.Requirement
	out := requirement{
		Name: req.Name, Why: req.Why, State: stateOf(q.Verdict),
		Flow:    fmt.Sprintf("%s from %s to %s", strings.TrimSpace(cmp.Or(req.Proto, "tcp")+" "+req.Ports), strings.Join(req.Src, ", "), strings.Join(req.Dst, ", ")),
		Verdict: map[policy.Verdict]string{policy.Pass: "met", policy.Fail: "not met", policy.Undecided: "undecided"}[q.Verdict],
		Missing: q.Missing,
	}
	switch {
	case q.Pairs == 0:
	case q.Verdict == policy.Pass:
		out.Pairs = fmt.Sprintf("%d of %d pairs admitted", q.Pairs, q.Pairs)
	case q.Verdict == policy.Fail: // the others may be undecided
		out.Pairs = fmt.Sprintf("%d of %d pairs not admitted", q.FailedPairs, q.Pairs)
	default:
		out.Pairs = plural(q.Pairs, "pair") + " looked at"
	}
	for _, path := range q.Rules {
		out.Rules = append(out.Rules, lines.place(path))
	}
	if q.Verdict == policy.Fail {
		out.Failed = q.Failed[:min(len(q.Failed), failedShown)]
		out.MoreFailed = q.FailedPairs - len(out.Failed)
	}
	for _, d := range q.Diagnostics {
		out.Findings = append(out.Findings, newFinding(in, d))
	}
	return out
}

func newTests(section string, lines ruleLines, results []policy.TestResult) testList {
	out := testList{Section: section}
	n := map[policy.Verdict]int{}
	for _, r := range results {
		n[r.Verdict]++
		t := test{TestResult: r, State: stateOf(r.Verdict), Line: r.Range.Start.Line}
		if r.Rule != "" {
			at := lines.place(r.Rule)
			t.By = &at
		}
		if r.Verdict == policy.Pass {
			out.Passed = append(out.Passed, t)
		} else {
			out.Failed = append(out.Failed, t)
		}
	}
	out.Open = len(out.Failed) == 0 && len(out.Passed) <= openTests
	value, detail, _ := tally(len(results), n, "passed", "failed")
	out.Summary = value
	if detail != "" {
		out.Summary += ", " + detail
	}
	return out
}

func newFinding(in *Input, d diag.Diagnostic) finding {
	out := finding{Diagnostic: d, Line: d.Range.Start.Line}
	var text strings.Builder
	// Writing to a builder cannot fail.
	_ = diag.WriteText(&text, diag.List{d}, diag.Sources{in.File: in.Source}, diag.TextOptions{})
	body, _, _ := strings.Cut(text.String(), "\n\n") // without the count
	all := strings.Split(strings.TrimRight(body, "\n"), "\n")
	for _, l := range all[min(1, len(all)):] { // the first is the message
		out.Snippet = append(out.Snippet, snippetLine{snippetClass(l), l})
	}
	return out
}

// snippetClass tells the lines of a terminal's snippet apart: "12 + added", "12 - removed", "   | ^^^ marked", "note: …".
func snippetClass(l string) string {
	rest := strings.TrimLeft(l, " ")
	body := strings.TrimLeft(rest, "0123456789")
	numbered := len(body) < len(rest)
	switch {
	case numbered && strings.HasPrefix(body, " + "):
		return "add"
	case numbered && strings.HasPrefix(body, " - "):
		return "del"
	case !numbered && strings.HasPrefix(rest, "|"):
		switch mark := strings.TrimLeft(rest[1:], " \t"); {
		case strings.HasPrefix(mark, "^"):
			return "mark"
		case strings.HasPrefix(mark, "+"):
			return "add"
		}
		return "dim"
	case strings.HasPrefix(rest, "help: ") || strings.HasPrefix(rest, "note: "):
		return "say"
	}
	return ""
}

// ruleLines are the lines of rules by path.
type ruleLines map[string]int

func rules(p *policy.Policy) ruleLines {
	out := ruleLines{}
	if p == nil {
		return out
	}
	add := func(n policy.Node) { out[n.Path] = n.Range.Start.Line }
	for i := range p.Grants {
		add(p.Grants[i].Node)
	}
	for i := range p.ACLs {
		add(p.ACLs[i].Node)
	}
	for i := range p.SSH {
		add(p.SSH[i].Node)
	}
	return out
}

func (l ruleLines) place(path string) place {
	if path == "" {
		path = "no rules: everything is admitted"
	}
	return place{path, l[path]}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
