package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func newTestCmd(e env) *cobra.Command {
	var in inputs
	var quiet bool
	var cover coverageOptions
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "test POLICY --inventory FILE",
		Short: "Run a policy's tests and sshTests, and name the rule that decided each",
		Long: `test runs each line of the policy's tests and sshTests and names the rule that decided it. A line is judged as the
control plane judges it, which refuses the whole policy for one that fails, without saying which.

--json prints

  {"schemaVersion": 1, "passed": 3, "failed": 1, "undecided": 0, "tests": [...], "sshTests": [...]}

with the path, src, dst, want, got, verdict and rule of each. --format short, github or sarif prints the findings as
check does.

--coverage says which rules the tests prove. A line proves a rule where it passes, and would not pass if that rule alone
were taken out: a rule that is proved cannot be lost by mistake. A line that passes by two rules proves neither. The same
is asked of each element of a rule's src, dst, ip and users that has others beside it. With --json it adds

  "coverage": {"rules": [{"path": "grants[0]", "provedBy": [...], "sharedBy": [...]}, ...], "parts": [...], "percent": 50}

--suggest writes a test for each rule that no test proves, or says why there is none; each passes, and would not without
its rule. With -w they go into the file, which keeps its comments and layout.

Exit codes: 0 all pass; 1 one fails, or the control plane would refuse the policy before it ran them; 2 could not tell.`,
		Example: `  tailmesh-policy test policy.hujson --inventory inventory.json
  tailmesh-policy test policy.hujson -i inventory.json --quiet
  tailmesh-policy test policy.hujson -i inventory.json --suggest -w
  tailmesh-policy test policy.hujson -i inventory.json --json | jq -r '.tests[] | select(.verdict == "fail") | .path'`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.policy = args[0]
			if err := cover.validate(&out, in.policy); err != nil {
				return usageError{cmd.CommandPath(), err}
			}
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report := l.check()
			if report.Compiled == nil {
				return out.refused(l, report)
			}
			t := newTally(report)
			c, err := cover.measure(report, l)
			if err != nil {
				return err
			}
			added, err := cover.save(l, report, c)
			if err != nil {
				return err
			}
			if err := out.tests(l, report, t, c, quiet); err != nil {
				return err
			}
			cover.report(&out, l, c, added)
			switch {
			case t.Failed > 0:
				return exitError{code: exitNo}
			case t.Undecided > 0:
				return exitError{code: exitCannotDo}
			}
			return nil
		},
	}
	in.inventoryFlag(cmd, true)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only what does not pass, and the count")
	cmd.Flags().BoolVar(&cover.measured, "coverage", false, "say which rules the tests prove")
	cmd.Flags().BoolVar(&cover.suggest, "suggest", false, "write tests for rules that no test proves")
	cmd.Flags().BoolVarP(&cover.write, "write", "w", false, "with --suggest, put them into the file")
	out.flags(cmd, true)
	return cmd
}

// refused reports a policy whose rules the control plane would not take, to a command that needs the rules.
func (o *output) refused(l *loaded, report *policy.Report) error {
	if o.format == "json" {
		return exitError{exitNo, errors.New(l.file + " would be " + verdictLine(report))}
	}
	if o.format == "text" {
		printLine(o.env.Stderr, "%s: would be %s", l.file, verdictLine(report))
	}
	if err := o.findings(report.Diagnostics, l.file, l.src); err != nil {
		return err
	}
	return exitError{code: exitNo}
}

// tally counts test lines by verdict.
type tally struct {
	Passed    int `json:"passed"`
	Failed    int `json:"failed"`
	Undecided int `json:"undecided"`
}

func (t *tally) add(results []policy.TestResult) {
	for _, r := range results {
		switch r.Verdict {
		case policy.Pass:
			t.Passed++
		case policy.Undecided:
			t.Undecided++
		default:
			t.Failed++
		}
	}
}

func newTally(report *policy.Report) tally {
	var t tally
	t.add(report.Tests)
	t.add(report.SSHTests)
	return t
}

func (o *output) tests(l *loaded, report *policy.Report, t tally, c *covered, quiet bool) error {
	switch o.format {
	case "json":
		return writeJSON(o.env.Stdout, struct {
			version
			tally
			Tests    []policy.TestResult `json:"tests"`
			SSHTests []policy.TestResult `json:"sshTests"`
			Coverage *covered            `json:"coverage,omitempty"`
		}{v1, t, notNil(report.Tests), notNil(report.SSHTests), c})
	case "text":
		w := testWriter{out: o, file: l.file, report: report, rules: rulesOf(report.Policy)}
		w.section("tests", report.Tests, quiet)
		w.section("sshTests", report.SSHTests, quiet)
		if w.printed {
			fmt.Fprintln(o.env.Stdout)
		}
		fmt.Fprintln(o.env.Stdout, join("; ", count("tests", report.Tests), count("sshTests", report.SSHTests)))
		return nil
	}
	return o.findings(report.Diagnostics, l.file, l.src)
}

func join(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

func count(section string, results []policy.TestResult) string {
	if len(results) == 0 {
		return section + ": none"
	}
	var t tally
	t.add(results)
	line := fmt.Sprintf("%s: %d passed, %d failed", section, t.Passed, t.Failed)
	if t.Undecided > 0 {
		line += fmt.Sprintf(", %d undecided", t.Undecided)
	}
	return line
}

// testWriter prints test results for a person.
type testWriter struct {
	out     *output
	file    string
	report  *policy.Report
	rules   map[string]diag.Range
	printed bool
}

func (w *testWriter) section(name string, results []policy.TestResult, quiet bool) {
	pathWidth, flowWidth := 0, 0
	for _, r := range results {
		if !quiet || r.Verdict != policy.Pass {
			pathWidth = max(pathWidth, len(r.Path))
			flowWidth = max(flowWidth, len(flow(name, r)))
		}
	}
	for _, r := range results {
		if quiet && r.Verdict == policy.Pass {
			continue
		}
		w.printed = true
		word, outcome := "FAIL", fmt.Sprintf("want %s, got %s", r.Want, r.Got)
		switch {
		case r.Verdict == policy.Pass:
			word, outcome = "ok", w.reason(r)
		case r.Reason != "":
			outcome = "cannot be run: " + r.Reason
		case r.Verdict == policy.Undecided:
			word, outcome = "????", fmt.Sprintf("want %s, cannot be decided", r.Want)
		}
		printLine(w.out.env.Stdout, "%-4s  %-*s  %-*s  %s", word, pathWidth, r.Path, flowWidth, flow(name, r), outcome)
		if r.Verdict != policy.Pass {
			w.details(r)
		}
	}
}

// flow describes what a test line asks.
func flow(section string, r policy.TestResult) string {
	line := r.Src + " -> " + r.Dst
	switch {
	case section == "tests" && r.Proto != "":
		line += "/" + r.Proto
	case r.User != "":
		line += " as " + r.User
	}
	return line
}

// reason says which rule made the outcome.
func (w *testWriter) reason(r policy.TestResult) string {
	if r.Rule == "" {
		return r.Got + ": no rule admits it"
	}
	return r.Got + " by " + w.place(r.Rule)
}

func (w *testWriter) place(path string) string {
	if at, ok := w.rules[path]; ok {
		return fmt.Sprintf("%s (%s)", path, position(w.file, at))
	}
	return path
}

func (w *testWriter) details(r policy.TestResult) {
	line := func(word, text string) { printLine(w.out.env.Stdout, "      %-5s  %s", word, text) }
	if !r.Range.IsZero() {
		printLine(w.out.env.Stdout, "      %s", position(w.file, r.Range))
	}
	if r.Rule != "" {
		line("rule", w.place(r.Rule))
	}
	for _, t := range w.near(r) {
		line("near", fmt.Sprintf("%s covers %s", w.place(t.Rule), t.Covers))
	}
	for _, m := range r.Missing {
		line("needs", m)
	}
	for _, d := range w.report.Diagnostics {
		if d.Path != r.Path {
			continue
		}
		if r.Verdict != policy.Undecided { // whose notes say again what is missing
			for _, n := range d.Notes {
				line("note", n)
			}
		}
		for _, h := range d.Help {
			line("help", h.Message)
		}
	}
}

// near finds the rules that touch the flow of a test line that should be accepted and is not.
func (w *testWriter) near(r policy.TestResult) []policy.RuleTouch {
	i := strings.LastIndexByte(r.Dst, ':')
	if r.Verdict != policy.Fail || r.Want != "accept" || r.Reason != "" || i < 0 {
		return nil
	}
	port, err := strconv.Atoi(r.Dst[i+1:])
	if err != nil {
		return nil
	}
	x, err := w.report.Compiled.Explain(r.Src, r.Dst[:i], r.Proto, port)
	if err != nil {
		return nil // the end of an sshTest, or nothing that can be asked about
	}
	return slices.DeleteFunc(x.Rules, func(t policy.RuleTouch) bool { return t.Rule == r.Rule })
}

func position(file string, at diag.Range) string {
	return fmt.Sprintf("%s:%d:%d", file, at.Start.Line, at.Start.Column)
}

// rulesOf finds the places of rules by their paths.
func rulesOf(p *policy.Policy) map[string]diag.Range {
	out := make(map[string]diag.Range)
	for _, r := range p.ACLs {
		out[r.Path] = r.Range
	}
	for _, r := range p.Grants {
		out[r.Path] = r.Range
	}
	for _, r := range p.SSH {
		out[r.Path] = r.Range
	}
	return out
}

// notNil keeps an empty list from being null in JSON.
func notNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
