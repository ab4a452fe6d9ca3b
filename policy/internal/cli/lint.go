package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/convert"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/lint"
)

func newLintCmd(e env) *cobra.Command {
	var in inputs
	var strict, fix bool
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "lint POLICY",
		Short: "Find what a policy has and does not need, and what it lacks",
		Long: `lint finds what the control plane accepts and is worth a second look: rules that admit nothing or nothing more than
others do, names that nothing uses, tests that prove nothing, rules that no test would miss, everybody admitted to what
is sensitive, a mesh without ip-in-ip. What check finds is listed too. tailmesh-policy explain CODE tells about each.

What is said of access is found on the compiled rules, not by comparing text, for the devices of the inventory and for
one made up for each name of the policy. Whether a tag is used is known only with an inventory. --require adds flows
that must be admitted, as for check; they guard rules as tests do.

--fix rewrites the file where a fix is sure, today for deprecated spellings; comments and layout stay. It is done only
once it is proved that every device keeps its filter. What is left is listed.

Findings go to standard error; with --format short, github or sarif they go to standard output, and --json prints

  {"schemaVersion": 1, "accepted": true, "message": "", "diagnostics": [...]}

Exit codes: 0 nothing worse than a warning (with --strict: than a note); 1 errors (with --strict: or warnings), or the
control plane would refuse the policy; 2 could not tell, such as where a requirement depends on devices and no inventory
is given.`,
		Example: `  tailmesh-policy lint policy.hujson --inventory inventory.json
  tailmesh-policy lint --strict policy.hujson -i inventory.json --format github   # in CI
  tailmesh-policy lint --fix policy.hujson`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(_ *cobra.Command, args []string) error {
			in.policy = args[0]
			if fix && in.policy == stdinName {
				return errors.New("--fix cannot rewrite standard input")
			}
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report, found := l.lint()
			if fix && report.Compiled != nil {
				fixed, err := l.fix(report, found)
				if err != nil {
					return err
				}
				if fixed > 0 {
					if err := rewrite(in.policy, l.src); err != nil {
						return fmt.Errorf("cannot write %q: %w", in.policy, err)
					}
					printLine(e.Stderr, "%s: fixed %s", l.file, countedFindings(fixed))
					report, found = l.lint()
				}
			}
			if err := out.lint(l, report, found); err != nil {
				return err
			}
			return lintExit(report, found, strict)
		},
	}
	in.inventoryFlag(cmd, false)
	in.requireFlag(cmd)
	must(cmd.MarkFlagFilename("require", "json", "hujson"))
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 on warnings as well")
	cmd.Flags().BoolVar(&fix, "fix", false, "rewrite the file where a fix is sure")
	out.flags(cmd, true)
	return cmd
}

// lint checks what was loaded and looks for more. That tests are undecided without an inventory is left to check.
func (l *loaded) lint() (*policy.Report, diag.List) {
	report := l.check()
	found := slices.DeleteFunc(slices.Clone(report.Diagnostics), func(d diag.Diagnostic) bool {
		return d.Code == "test-undecided" && l.inventory == nil
	})
	found = append(found, lint.Lint(l.file, report, l.inventory)...)
	slices.SortStableFunc(found, func(a, b diag.Diagnostic) int {
		return cmp.Compare(a.Range.Start.Offset, b.Range.Start.Offset)
	})
	return report, found
}

// fix carries out what is sure and puts the text in place, unless it would change a device's filter.
func (l *loaded) fix(before *policy.Report, found diag.List) (fixed int, err error) {
	text, fixed, err := lint.Fix(l.src, found)
	if err != nil || bytes.Equal(text, l.src) {
		return 0, err
	}
	after := policy.Check(l.file, text, l.inventory, nil)
	if after.Compiled == nil {
		return 0, fmt.Errorf("%s: not fixed: it would be refused: %s", l.file, after.Message)
	}
	if proof := convert.Prove(before, after, l.inventory, false); !proof.Holds() {
		return 0, fmt.Errorf("%s: not fixed: it would change %s", l.file, strings.Join(proof.Differs, ", "))
	}
	l.src = text
	return fixed, nil
}

// lint prints what was found.
func (o *output) lint(l *loaded, report *policy.Report, found diag.List) error {
	switch {
	case o.format == "json":
		return writeJSON(o.env.Stdout, struct {
			version
			Accepted    bool      `json:"accepted"`
			Message     string    `json:"message"`
			Diagnostics diag.List `json:"diagnostics"`
		}{v1, report.Accepted, report.Message, notNil(found)})
	case o.format == "text" && report.Compiled == nil:
		printLine(o.env.Stdout, "%s: %s", l.file, verdictLine(report))
	case o.format == "text" && len(found) == 0:
		printLine(o.env.Stdout, "%s: nothing found", l.file)
		return nil
	}
	return o.findings(found, l.file, l.src)
}

func countedFindings(n int) string {
	if n == 1 {
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", n)
}

func lintExit(report *policy.Report, found diag.List, strict bool) error {
	worst := diag.Error
	if strict {
		worst = diag.Warning
	}
	if !report.Accepted || slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Severity <= worst }) {
		return exitError{code: exitNo}
	}
	if slices.ContainsFunc(report.Requirements, func(r policy.RequirementResult) bool { return r.Verdict == policy.Undecided }) {
		return exitError{code: exitCannotDo}
	}
	return nil
}
