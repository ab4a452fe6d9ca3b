package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func newCheckCmd(e env) *cobra.Command {
	var in inputs
	var strict bool
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "check POLICY",
		Short: "Say what the control plane would answer to a policy, and what else is wrong",
		Long: `check says first what the control plane would answer if POLICY were written to it: accepted, or the message with
which it would refuse. Then it lists what it found, each with its place in the file, why, and what to do.

The policy's own tests and sshTests are run as the control plane runs them. --require adds flows that must be admitted
between the devices of the inventory: a list of JSON or HuJSON, or an object with that list under "requirements", of

  {"name": "overlay", "src": ["tag:node"], "dst": ["tag:node"], "proto": "ip-in-ip", "why": "pod-to-pod traffic"}

with "ports" ("443", "80-443") where the protocol has ports and not all are needed.

The verdict goes to standard output and the findings to standard error; with --format short, github or sarif the
findings go to standard output and nothing else does. --json prints

  {"schemaVersion": 1, "accepted": true, "message": "", "diagnostics": [...]}

Exit codes: 0 accepted and every requirement met; 1 refused, or a requirement not met; 2 could not tell, such as where
a test or a requirement depends on devices and no inventory is given.`,
		Example: `  tailmesh-policy check policy.hujson
  tailmesh-policy check policy.hujson --inventory inventory.json --require overlay.json
  tofu output -json mesh | tailmesh-policy check policy.hujson -i inventory.json --require -
  tailmesh-policy check policy.hujson -i inventory.json --format github   # annotations in a pull request`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(_ *cobra.Command, args []string) error {
			in.policy = args[0]
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report := l.check()
			if err := out.check(l, report); err != nil {
				return err
			}
			return checkExit(report, strict)
		},
	}
	in.inventoryFlag(cmd, false)
	in.requireFlag(cmd)
	must(cmd.MarkFlagFilename("require", "json", "hujson"))
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 on warnings as well")
	out.flags(cmd, true)
	return cmd
}

// check prints the report of a policy.
func (o *output) check(l *loaded, report *policy.Report) error {
	switch o.format {
	case "json":
		return writeJSON(o.env.Stdout, struct {
			version
			Accepted    bool      `json:"accepted"`
			Message     string    `json:"message"`
			Diagnostics diag.List `json:"diagnostics"`
		}{v1, report.Accepted, report.Message, report.Diagnostics})
	case "text":
		printLine(o.env.Stdout, "%s: %s", l.file, verdictLine(report))
	}
	return o.findings(report.Diagnostics, l.file, l.src)
}

// verdictLine is what the control plane would answer.
func verdictLine(report *policy.Report) string {
	switch {
	case report.Accepted && undecided(report.Tests, report.SSHTests):
		return "accepted, unless one of the tests that could not be decided fails"
	case report.Accepted:
		return "accepted"
	}
	return fmt.Sprintf("refused with %d: %s", report.Status, diag.Printable(report.Message))
}

func checkExit(report *policy.Report, strict bool) error {
	worst := diag.Error
	if strict {
		worst = diag.Warning
	}
	for _, d := range report.Diagnostics {
		if d.Severity <= worst {
			return exitError{code: exitNo}
		}
	}
	if !report.Accepted {
		return exitError{code: exitNo}
	}
	for _, r := range report.Requirements {
		if r.Verdict == policy.Undecided {
			return exitError{code: exitCannotDo}
		}
	}
	if undecided(report.Tests, report.SSHTests) {
		return exitError{code: exitCannotDo}
	}
	return nil
}

func undecided(lists ...[]policy.TestResult) bool {
	for _, results := range lists {
		for _, r := range results {
			if r.Verdict == policy.Undecided {
				return true
			}
		}
	}
	return false
}
