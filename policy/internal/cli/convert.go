package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/convert"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func forms() []string { return []string{string(convert.Grants), string(convert.ACLs)} }

func newConvertCmd(e env) *cobra.Command {
	var in inputs
	var to string
	var write bool
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "convert [--to FORM] [-w] POLICY --inventory FILE",
		Short: "Rewrite acls as grants, or grants as acls, with proof that no device's filter changes",
		Long: `convert rewrites the acls of POLICY as grants, or with --to acls the grants as acls. Comments, order and layout stay. An
acl whose destinations have different ports becomes several grants, because a grant admits each of its ports to each of
its destinations; nothing is widened. What the other form cannot say stays as it is, and the reason is given.

The converted policy goes to standard output, or back to the file with -w, but only once it is proved the same: both
policies are compiled, and the filter of each device must have the same rules. Where entries of both forms remain, rules
may come in another order, since grants come first; they admit the same. Rules about tags, users and networks that no
device has are compared on devices made up for them, and so are the answers of the policy's tests.

--json prints

  {"schemaVersion": 1, "converted": 4, "made": 5, "kept": [{"path": "acls[2]", "reason": ..., "range": ...}], "proved": true,
   "devices": 13, "differs": [], "text": "..."}

with the text where it is proved; -w writes it to the file as well.

Exit codes: 0 converted, as far as can be; 1 the control plane would refuse the policy, or the proof failed, and nothing
is written; 2 could not tell.`,
		Example: `  tailmesh-policy convert policy.hujson --inventory inventory.json > grants.hujson
  tailmesh-policy convert -w policy.hujson -i inventory.json
  tailmesh-policy convert --to acls policy.hujson -i inventory.json`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.policy = args[0]
			if !slices.Contains(forms(), to) {
				return usageError{cmd.CommandPath(), fmt.Errorf("--to %q is none of %s", to, strings.Join(forms(), ", "))}
			}
			if write && in.policy == stdinName {
				return errors.New("-w cannot rewrite standard input")
			}
			l, err := in.load(e)
			if err != nil {
				return err
			}
			res, err := convert.Convert(l.file, l.src, l.inventory, convert.Form(to))
			if errors.Is(err, convert.ErrRefused) {
				return out.refused(l, l.check())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", l.file, err)
			}
			// The answer is true only of a file that has been written.
			if write && res.Proof.Holds() && !bytes.Equal(l.src, res.Text) {
				if err := rewrite(in.policy, res.Text); err != nil {
					return fmt.Errorf("cannot write %q: %w", in.policy, withoutPath(err))
				}
			}
			if out.format == "json" {
				return out.conversionJSON(res)
			}
			if err := out.conversion(l, res, convert.Form(to)); err != nil {
				return err
			}
			if write {
				return nil
			}
			_, err = e.Stdout.Write(res.Text)
			return err
		},
	}
	in.inventoryFlag(cmd, true)
	cmd.Flags().StringVar(&to, "to", string(convert.Grants), "form to convert to: "+strings.Join(forms(), " or "))
	must(cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(forms(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().BoolVarP(&write, "write", "w", false, "rewrite the file instead of printing it")
	out.flags(cmd, false)
	return cmd
}

// conversionJSON is what conversion says, and the text where it is proved.
func (o *output) conversionJSON(res *convert.Result) error {
	type kept struct {
		Path   string     `json:"path"`
		Reason string     `json:"reason"`
		Range  diag.Range `json:"range"`
	}
	doc := struct {
		version
		Converted int      `json:"converted"`
		Made      int      `json:"made"`
		Kept      []kept   `json:"kept"`
		Proved    bool     `json:"proved"`
		Devices   int      `json:"devices"`
		Differs   []string `json:"differs"`
		Text      string   `json:"text,omitempty"`
	}{
		version: v1, Converted: res.Converted, Made: res.Made, Kept: []kept{}, Proved: res.Proof.Holds(), Devices: res.Proof.Devices,
		Differs: notNil(res.Proof.Differs),
	}
	for _, k := range res.Kept {
		doc.Kept = append(doc.Kept, kept{k.Path, k.Reason, k.Range})
	}
	if doc.Proved {
		doc.Text = string(res.Text)
	}
	if err := writeJSON(o.env.Stdout, doc); err != nil {
		return err
	}
	if !doc.Proved {
		return exitError{code: exitNo}
	}
	return nil
}

// conversion says on standard error what was converted, what stays and why, and what the proof has shown.
func (o *output) conversion(l *loaded, res *convert.Result, to convert.Form) error {
	w := o.env.Stderr
	old, one := convert.ACLs, "an acl"
	if to == convert.ACLs {
		old, one = convert.Grants, "a grant"
	}
	for _, k := range res.Kept {
		printLine(w, "%s:%d:%d: %s stays %s: %s", l.file, k.Range.Start.Line, k.Range.Start.Column, k.Path, one, k.Reason)
	}
	switch res.Converted {
	case 0:
		printLine(w, "%s: no %s to convert", l.file, old)
	default:
		printLine(w, "%s: %s became %s", l.file, counted(res.Converted, old), counted(res.Made, to))
	}
	p := res.Proof
	fmt.Fprintf(w, "same filters for %d of %d devices", p.Same, p.Devices)
	if p.Reordered > 0 {
		fmt.Fprintf(w, ", for %d of them in another order, as grants come before acls", p.Reordered)
	}
	fmt.Fprintln(w)
	if n := len(p.MadeUp); n > 0 && p.Holds() {
		printLine(w, "the same for made-up devices, since no device has: %s", strings.Join(p.MadeUp, ", "))
	}
	if !p.Holds() {
		for _, d := range p.Differs {
			printLine(w, "not the same: %s", d)
		}
		printLine(w, "%s: not converted", l.file)
		return exitError{code: exitNo}
	}
	return nil
}

// counted is a number of entries of a form: "1 acl", "2 grants".
func counted(n int, form convert.Form) string {
	if n == 1 {
		return "1 " + strings.TrimSuffix(string(form), "s")
	}
	return fmt.Sprintf("%d %s", n, form)
}
