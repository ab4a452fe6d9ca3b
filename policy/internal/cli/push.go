package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/accessdiff"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

// pushOptions are the flags of the command push.
type pushOptions struct {
	inputs
	base    string
	ifMatch string
	apply   bool
}

// pushed is the answer of push.
type pushed struct {
	version
	// Written says that the policy was put in force, InForce that it is, be it by this or before.
	Written bool `json:"written"`
	InForce bool `json:"inForce"`
	// Conflict says that what is in force is not the base.
	Conflict bool `json:"conflict"`
	// Error says why nothing was written, where it was to be or could not be.
	Error string `json:"error,omitempty"`
	// ETag is that of the policy that is in force in the end.
	ETag string `json:"etag"`
	// Accepted and Message are the verdict on the policy: what is found offline, or what the service says of it.
	Accepted    bool      `json:"accepted"`
	Message     string    `json:"message"`
	Diagnostics diag.List `json:"diagnostics"`
	// Result is what access would change, or has; nil where that cannot be told.
	*accessdiff.Result
}

func newPushCmd(e env) *cobra.Command {
	var o pushOptions
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "push POLICY",
		Short: "Say what putting a policy in force would change, and with --apply do it",
		Long: `push checks POLICY against the tailnet's devices, offline and by the service's own validation, runs its tests and
requirements, and says which access it gives and takes against what is in force. It writes nothing unless told --apply.

--apply writes only over the version that the change was made from, which has to be named: by its text with --base (a
file, or REVISION:PATH in git, such as what was pushed last), or by its ETag with --if-match (pull and a push without
--apply print it). Where another version is in force, somebody has changed it in the meantime: then what they changed
is shown, and nothing is written. The ETag goes with the write, so that nobody's change gets lost in between either.

` + credentialsHelp + `

--json prints

  {"schemaVersion": 1, "written": false, "inForce": false, "conflict": false, "etag": ETAG, "accepted": true,
   "message": "", "diagnostics": [...], "gained": [...], "lost": [...], "undecided": [...], "edited": [...]}

with an "error" that says why, where nothing was or could be written.

Exit codes: 0 it is in force, or without --apply could be; 1 refused, or another version is in force, and nothing was
written; 2 could not tell, or trouble.`,
		Example: `  tailmesh-policy push policy.hujson
  tailmesh-policy push policy.hujson --apply --base HEAD^:policy.hujson   # in CI, on the main branch
  tailmesh-policy push policy.hujson --apply --if-match '"a1b2..."'`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.policy = args[0]
			if o.apply && o.base == "" && o.ifMatch == "" {
				return usageError{cmd.CommandPath(), errors.New("--apply needs --base or --if-match: which version is to be replaced")}
			}
			return o.run(cmd.Context(), e, out)
		},
	}
	o.inventoryFlag(cmd, false)
	o.requireFlag(cmd)
	must(cmd.MarkFlagFilename("require", "json", "hujson"))
	cmd.Flags().Var((*fileName)(&o.base), "base", "the version that POLICY was made from: a file, or REVISION:PATH")
	cmd.Flags().StringVar(&o.ifMatch, "if-match", "", "the ETag of the version that POLICY was made from")
	cmd.Flags().BoolVar(&o.apply, "apply", false, "put the policy in force")
	cmd.MarkFlagsMutuallyExclusive("base", "if-match")
	out.flags(cmd, false)
	return cmd
}

func (o *pushOptions) run(ctx context.Context, e env, out output) error {
	l, err := o.load(e, o.base)
	if err != nil {
		return err
	}
	base := ""
	if o.base != "" {
		text, err := readSource(ctx, e, o.base)
		if err != nil {
			return err
		}
		base = string(text)
	}
	api, err := e.connect()
	if err != nil {
		return err
	}
	tn, err := live(ctx, api, l.inventory)
	if err != nil {
		return err
	}
	l.inventory = tn.inventory
	report := l.check()
	answer := pushed{
		version: v1, ETag: tn.policy.ETag, Accepted: report.Accepted, Message: report.Message, Diagnostics: notNil(report.Diagnostics),
		InForce: textdiff.Same(tn.policy.HuJSON, string(l.src)),
	}
	if out.format != "json" {
		if err := out.check(l, report); err != nil {
			return err
		}
	}
	if err := pushable(report); err != nil {
		return o.refuse(out, answer, err, "")
	}
	if answer.InForce {
		return o.tell(out, answer, fmt.Sprintf("%s: in force already, ETag %s", l.file, answer.ETag))
	}
	if err := out.validate(ctx, tn.api, l, &answer); err != nil {
		return o.refuse(out, answer, err, "")
	}
	if answer.Conflict = o.stale(base, tn.policy); answer.Conflict {
		return o.refuse(out, answer, exitError{code: exitNo}, out.rival(l.file, base, string(l.src), tn))
	}
	result, err := accessdiff.Compare(policy.Check(liveName, []byte(tn.policy.HuJSON), tn.inventory, nil), report)
	if answer.Result = result; err != nil {
		printLine(e.Stderr, "%s: what access changes cannot be told: %v", l.file, err)
	} else if out.format != "json" {
		if err := accessdiff.WriteText(e.Stdout, result); err != nil {
			return err
		}
	}
	if !o.apply {
		return o.tell(out, answer, fmt.Sprintf("%s: nothing was written; to put it in force: --apply --if-match '%s'", l.file, answer.ETag))
	}
	saved, err := tn.api.SetPolicy(ctx, string(l.src), tn.policy.ETag)
	if client.IsPreconditionFailed(err) {
		base, answer.Conflict = tn.policy.HuJSON, true
		if tn.policy, err = tn.api.GetPolicy(ctx); err != nil {
			return o.refuse(out, answer, err, "")
		}
		answer.ETag = tn.policy.ETag
		return o.refuse(out, answer, exitError{code: exitNo}, out.rival(l.file, base, string(l.src), tn))
	}
	if err != nil {
		answer.refusedBy(err)
		return o.refuse(out, answer, apiFailure(err), "")
	}
	answer.Written, answer.InForce, answer.ETag = true, true, saved.ETag
	return o.tell(out, answer, fmt.Sprintf("%s: in force, ETag %s", l.file, saved.ETag))
}

// tell ends with a good answer.
func (o *pushOptions) tell(out output, answer pushed, line string) error {
	if out.format == "json" {
		return writeJSON(out.env.Stdout, answer)
	}
	printLine(out.env.Stdout, "%s", line)
	return nil
}

// refuse ends with a bad one, of which the text forms have said why except for what is left to say.
func (o *pushOptions) refuse(out output, answer pushed, err error, rest string) error {
	if out.format == "json" {
		if answer.Conflict {
			err = exitError{exitNo, errors.New("nothing was written: another version is in force than the one that it was made from")}
		}
		answer.Error = err.Error()
		return errors.Join(writeJSON(out.env.Stdout, answer), err)
	}
	fmt.Fprint(out.env.Stderr, rest)
	return err
}

// refusedBy takes over what the service says of a policy that it refuses.
func (p *pushed) refusedBy(err error) {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusBadRequest {
		p.Accepted, p.Message = false, e.Message
	}
}

// pushable is an error where a policy must not be put in force by what is known offline. Tests that cannot be decided
// here are left to the service, which runs them on every write.
func pushable(report *policy.Report) error {
	nothing := errors.New("nothing was written: a requirement is not met, or another finding is an error")
	if !report.Accepted {
		return exitError{code: exitNo, err: errors.New("nothing was written: the policy would be refused")}
	}
	if slices.ContainsFunc(report.Diagnostics, func(d diag.Diagnostic) bool { return d.Severity == diag.Error }) {
		return exitError{code: exitNo, err: nothing}
	}
	if slices.ContainsFunc(report.Requirements, func(r policy.RequirementResult) bool { return r.Verdict == policy.Undecided }) {
		return exitError{code: exitCannotDo, err: errors.New("nothing was written: it cannot be told whether a requirement is met")}
	}
	return nil
}

// validate asks the service what it would say to the policy, and puts that into the answer.
func (o *output) validate(ctx context.Context, api *client.Client, l *loaded, answer *pushed) error {
	v, err := api.ValidatePolicy(ctx, string(l.src))
	if err != nil {
		answer.refusedBy(err)
		return apiFailure(err)
	}
	for _, f := range v.Data {
		for _, text := range slices.Concat(f.Errors, f.Warnings) {
			printLine(o.env.Stderr, "%s: the service: %s: %s", l.file, f.User, text)
		}
	}
	if v.Failed() {
		answer.Accepted, answer.Message = false, v.Message
		return exitError{code: exitNo, err: fmt.Errorf("nothing was written: the service would refuse it: %s", v.Message)}
	}
	return nil
}

// stale reports whether what is in force is not the version that the policy was made from.
func (o *pushOptions) stale(base string, live client.Policy) bool {
	switch {
	case o.base != "":
		return !textdiff.Same(base, live.HuJSON)
	case o.ifMatch != "":
		return tag(o.ifMatch) != tag(live.ETag)
	}
	return false
}

// tag is an ETag without its quotes, as people pass it, and without what a proxy makes of it.
func tag(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// rival tells three versions apart: the base, the one in force, which somebody else wrote, and ours.
func (o *output) rival(file, base, ours string, tn *tailnet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: nothing was written: another version is in force than the one that it was made from\n", file)
	if base == "" {
		fmt.Fprintf(&b, "\nFrom what is in force to %s:\n\n%s", file, textdiff.Lines(liveName, tn.policy.HuJSON, file, ours))
	} else {
		theirs, mine := textdiff.Sections(base, tn.policy.HuJSON), textdiff.Sections(base, ours)
		fmt.Fprintf(&b, "  they changed: %s\n  you changed:  %s\n", sectionList(theirs), sectionList(mine))
		both := slices.DeleteFunc(slices.Clone(mine), func(s string) bool { return !slices.Contains(theirs, s) })
		if len(both) > 0 {
			fmt.Fprintf(&b, "  both changed: %s\n", sectionList(both))
		}
		fmt.Fprintf(&b, "\nWhat they changed:\n\n%s", textdiff.Lines("base", base, liveName, tn.policy.HuJSON))
		result, err := accessdiff.Compare(
			policy.Check("base", []byte(base), tn.inventory, nil), policy.Check(liveName, []byte(tn.policy.HuJSON), tn.inventory, nil))
		if err == nil {
			b.WriteString("\nWhat that means:\n\n")
			if err := accessdiff.WriteText(&b, result); err != nil {
				return b.String()
			}
		}
	}
	fmt.Fprintf(&b, "\nTake what you want of it into %s, and push over the version in force: --if-match '%s'\n", file, tn.policy.ETag)
	return printable(b.String())
}

func sectionList(names []string) string {
	if len(names) == 0 {
		return "comments or formatting only"
	}
	return strings.Join(names, ", ")
}
