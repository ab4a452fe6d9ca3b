// Package coverage says which rules of a policy its tests prove, and writes tests for the rest.
//
// A line of tests or sshTests proves a rule where the line passes, and would not pass if that rule alone were taken out of
// the policy. So a rule that is proved cannot be lost by mistake: the control plane would refuse the policy without it. A
// line that passes by the rule and by another one as well proves neither. What a line denies proves no rule, since nothing
// but a rule admits.
//
// The same is asked of each element of a rule's src, dst, ip and users that has others beside it: a part is proved where a
// line would fail without it.
//
// Both are found by judging the tests again without the rule or part, never by comparing text.
package coverage

import (
	"fmt"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Unit is a rule, or one element of a list of a rule.
type Unit struct {
	Path string `json:"path"` // "grants[0]", "grants[0].dst[1]"
	// Text is what a part says, empty for a rule.
	Text  string     `json:"text,omitempty"`
	Range diag.Range `json:"range"`
	// ProvedBy are the paths of the test lines that would not pass without it.
	ProvedBy []string `json:"provedBy"`
	// SharedBy are the paths of lines that pass by it and would still pass without it.
	SharedBy []string `json:"sharedBy"`

	at place
}

// Proved reports whether a test proves the unit.
func (u *Unit) Proved() bool { return len(u.ProvedBy) > 0 }

// Result is the coverage of a policy.
type Result struct {
	Rules []Unit `json:"rules"`
	Parts []Unit `json:"parts"`
}

// Percent is the share of units that are proved, rounded down so that 100 means all; 100 where there are none.
func Percent(units []Unit) int {
	if len(units) == 0 {
		return 100
	}
	return 100 * Proved(units) / len(units)
}

// Proved counts the units that are proved.
func Proved(units []Unit) int {
	n := 0
	for i := range units {
		if units[i].Proved() {
			n++
		}
	}
	return n
}

// Measure finds what the tests of a policy prove: the Report that policy.Check made of it, with an inventory. It fails
// where the control plane would refuse the rules.
func Measure(report *policy.Report) (*Result, error) {
	if report.Compiled == nil {
		return nil, fmt.Errorf("coverage: the policy cannot be compiled: %s", report.Message)
	}
	m := newMeasure(report)
	out := &Result{Rules: []Unit{}, Parts: []Unit{}}
	for _, at := range places(report.Policy) {
		u := Unit{Path: at.node.Path, Text: at.text, Range: at.node.Range, ProvedBy: []string{}, SharedBy: []string{}, at: at}
		m.measure(&u)
		if at.list == "" {
			out.Rules = append(out.Rules, u)
		} else {
			out.Parts = append(out.Parts, u)
		}
	}
	return out, nil
}

// measure judges tests without rules. A rule can make a difference to those lines only of which it alone admits something,
// and such lines are judged by the rules of which that is true: a policy of a thousand rules is not judged whole a thousand
// times.
type measure struct {
	report *policy.Report
	// alone holds for each rule of the network, by path, the indexes of the lines of which it alone admits something.
	alone map[string][]int
	// rules holds for each line the paths of those rules.
	rules [][]string
}

func newMeasure(report *policy.Report) *measure {
	m := &measure{report: report, alone: map[string][]int{}, rules: make([][]string, len(report.Tests))}
	var lines []int
	for i, t := range report.Tests {
		if t.Want == "accept" && t.Verdict == policy.Pass {
			lines = append(lines, i)
		}
	}
	rules := slices.DeleteFunc(places(report.Policy), func(at place) bool { return at.list != "" || at.section == "ssh" })
	m.narrow(rules, lines)
	return m
}

// narrow finds of which lines each rule admits something, by halves: a line of which many rules together admit nothing need
// not be judged by each of them.
func (m *measure) narrow(rules []place, lines []int) {
	if len(rules) == 0 || len(lines) == 0 {
		return
	}
	var acls []policy.ACL
	var grants []policy.Grant
	for _, at := range rules {
		a, g := at.only(m.report.Policy)
		acls, grants = append(acls, a...), append(grants, g...)
	}
	entries := make(map[string]bool, len(lines))
	for _, i := range lines {
		entries[entryOf(m.report.Tests[i].Path)] = true
	}
	judged := verdicts(m.asked(entries).WithRules(acls, grants).Tests)
	lines = slices.DeleteFunc(slices.Clone(lines), func(i int) bool { return judged[m.report.Tests[i].Path].Got == "drop" })
	if len(rules) > 1 {
		m.narrow(rules[:len(rules)/2], lines)
		m.narrow(rules[len(rules)/2:], lines)
		return
	}
	path := rules[0].rule()
	m.alone[path] = lines
	for _, i := range lines {
		m.rules[i] = append(m.rules[i], path)
	}
}

// asked is the report with the entries of tests that are named, and no others.
func (m *measure) asked(entries map[string]bool) *policy.Report {
	return withTests(m.report, slices.DeleteFunc(slices.Clone(m.report.Policy.Tests), func(t policy.Test) bool { return !entries[t.Path] }))
}

func (m *measure) measure(u *Unit) {
	if u.at.section == "ssh" {
		m.measureSSH(u)
		return
	}
	lines := m.alone[u.at.rule()]
	if len(lines) == 0 {
		return
	}
	touching := map[string]bool{}
	entries := map[string]bool{}
	for _, i := range lines {
		entries[entryOf(m.report.Tests[i].Path)] = true
		for _, path := range m.rules[i] {
			touching[path] = true
		}
	}
	asked := m.asked(entries)
	acls, grants := u.at.without(m.report.Policy)
	acls = slices.DeleteFunc(acls, func(a policy.ACL) bool { return !touching[a.Path] })
	grants = slices.DeleteFunc(grants, func(g policy.Grant) bool { return !touching[g.Path] })
	left := verdicts(asked.WithRules(acls, grants).Tests)
	var only map[string]policy.TestResult
	if u.at.list != "" {
		only = verdicts(asked.WithRules(u.at.only(m.report.Policy)).Tests)
	}
	for _, i := range lines {
		path := m.report.Tests[i].Path
		switch {
		case left[path].Verdict != policy.Pass:
			u.ProvedBy = append(u.ProvedBy, path)
		case only == nil || only[path].Got != "drop":
			u.SharedBy = append(u.SharedBy, path)
		}
	}
}

// measureSSH judges all sshTests again: which rule decides depends on the others, since checks come first.
func (m *measure) measureSSH(u *Unit) {
	left := m.report.WithSSH(u.at.withoutSSH(m.report.Policy)).SSHTests
	only := m.report.WithSSH(u.at.onlySSH(m.report.Policy)).SSHTests
	for i, t := range m.report.SSHTests {
		switch {
		case t.Verdict != policy.Pass || t.Want == "drop":
		case left[i].Verdict != policy.Pass:
			u.ProvedBy = append(u.ProvedBy, t.Path)
		case only[i].Verdict == policy.Pass:
			u.SharedBy = append(u.SharedBy, t.Path)
		}
	}
}

func verdicts(results []policy.TestResult) map[string]policy.TestResult {
	out := make(map[string]policy.TestResult, len(results))
	for _, r := range results {
		out[r.Path] = r
	}
	return out
}

// withTests is the report of the same policy with other tests.
func withTests(report *policy.Report, tests []policy.Test) *policy.Report {
	p := *report.Policy
	p.Tests = tests
	return &policy.Report{Policy: &p, Compiled: report.Compiled}
}
