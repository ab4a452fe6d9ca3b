package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func newExplainCmd(e env) *cobra.Command {
	var in inputs
	var flow flowFlags
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "explain [CODE | SRC DST POLICY --inventory FILE]",
		Short: "Explain a finding's code, or why a flow passes or does not",
		Long: `explain CODE tells about the code of a finding, such as unknown-tag: when it appears, why it matters and what to do.
Without a code it lists all.

explain SRC DST POLICY tells why a flow may pass or not, as can does, and lists every rule that touches it: that names
both SRC and DST for at least one pair of devices. For each it says for how many pairs, which traffic it covers, and for
how many pairs it admits the flow; the one that decides is marked. SRC, DST, --proto and --port are those of can.

Exit codes: 0 explained a code, or the flow may pass; 1 the flow may not pass; 2 could not tell.`,
		Example: `  tailmesh-policy explain
  tailmesh-policy explain requirement-unmet
  tailmesh-policy explain tag:node tag:node --proto ip-in-ip policy.hujson --inventory inventory.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if n := len(args); n == 2 || n > 3 {
				return errors.New("want a CODE, or SRC DST POLICY")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return codes(), cobra.ShellCompDirectiveNoFileComp
			}
			return policyArg(2)(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return out.codes()
			case 1:
				return out.page(args[0])
			}
			if in.inventory == "" {
				return usageError{cmd.CommandPath(), errNoInventory}
			}
			if err := flow.check(cmd); err != nil {
				return err
			}
			in.policy = args[2]
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report := l.check()
			if report.Compiled == nil {
				return out.unanswerable(l, report)
			}
			x, err := report.Compiled.Explain(args[0], args[1], string(flow.proto), int(flow.port))
			if err != nil {
				return err
			}
			if !report.Accepted {
				printLine(e.Stderr, "%s: would be %s", l.file, verdictLine(report))
			}
			if err := out.explanation(l, args[0], args[1], flow, x); err != nil {
				return err
			}
			return decisionExit(x.Verdict)
		},
	}
	in.inventoryFlag(cmd, false)
	flow.add(cmd)
	out.flags(cmd, false)
	return cmd
}

// explanation prints why a flow passes or not.
func (o *output) explanation(l *loaded, src, dst string, flow flowFlags, x *policy.Explanation) error {
	if o.format == "json" {
		return writeJSON(o.env.Stdout, struct {
			version
			Answer  string             `json:"answer"`
			File    string             `json:"file"`
			Pairs   int                `json:"pairs"`
			Rules   []policy.RuleTouch `json:"rules"`
			Missing []string           `json:"missing"`
		}{v1, answer(x.Verdict), l.file, x.Pairs, notNil(x.Rules), notNil(x.Missing)})
	}
	printLine(o.env.Stdout, "%s", answerLine(l.file, src, dst, flow, x.Decision))
	for _, m := range x.Missing {
		printLine(o.env.Stdout, "  needs %s", m)
	}
	if len(x.Rules) == 0 {
		fmt.Fprintln(o.env.Stdout)
		printLine(o.env.Stdout, "no rule names both %s and %s", src, dst)
		return nil
	}
	fmt.Fprintln(o.env.Stdout)
	table := tabwriter.NewWriter(o.env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tRULE\tLINE\tPAIRS\tADMITTED\tCOVERS")
	for _, r := range x.Rules {
		decides := ""
		if r.Decides {
			decides = "->"
		}
		admitted := strconv.Itoa(r.Admitted)
		if r.Undecided > 0 {
			admitted += fmt.Sprintf(" (%d unknown)", r.Undecided)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d of %d\t%s\t%s\n",
			decides, cmp.Or(r.Rule, "(default)"), r.Range.Start.Line, r.Pairs, x.Pairs, admitted, diag.Printable(r.Covers))
	}
	return table.Flush()
}

// codes lists all codes, sorted.
func codes() []string {
	var out []string
	for _, p := range pages() {
		out = append(out, p.code)
	}
	slices.Sort(out)
	return out
}

func pageOf(code string) (page, bool) {
	for _, p := range pages() {
		if p.code == code {
			return p, true
		}
	}
	return page{}, false
}

// pageJSON is a page as a document.
type pageJSON struct {
	Code    string `json:"code"`
	Title   string `json:"title"`
	Trigger string `json:"trigger"`
	Why     string `json:"why"`
	Fix     string `json:"fix"`
}

func (p page) json() pageJSON {
	return pageJSON{Code: p.code, Title: p.title, Trigger: p.trigger, Why: p.why, Fix: p.fix}
}

// text is the page as a person reads it.
func (p page) text() string {
	const width = 98
	return fmt.Sprintf("%s: %s\n\nWhen\n%s\n\nWhy\n%s\n\nFix\n%s\n", p.code, p.title,
		paragraph(p.trigger, width), paragraph(p.why, width), paragraph(p.fix, width))
}

// paragraph breaks text between words and indents it.
func paragraph(text string, width int) string {
	var out strings.Builder
	used := width
	for word := range strings.FieldsSeq(text) {
		switch {
		case out.Len() == 0:
			out.WriteString("  ")
			used = 2
		case used+1+len(word) > width:
			out.WriteString("\n  ")
			used = 2
		default:
			out.WriteByte(' ')
			used++
		}
		out.WriteString(word)
		used += len(word)
	}
	return out.String()
}

func (o *output) codes() error {
	if o.format == "json" {
		doc := struct {
			version
			Codes []pageJSON `json:"codes"`
		}{version: v1}
		for _, code := range codes() {
			p, _ := pageOf(code)
			doc.Codes = append(doc.Codes, p.json())
		}
		return writeJSON(o.env.Stdout, doc)
	}
	width := 0
	for _, code := range codes() {
		width = max(width, len(code))
	}
	for _, code := range codes() {
		p, _ := pageOf(code)
		fmt.Fprintf(o.env.Stdout, "%-*s  %s\n", width, code, p.title)
	}
	return nil
}

func (o *output) page(code string) error {
	p, ok := pageOf(code)
	switch {
	case !ok:
		return fmt.Errorf("no code %q%s (without a code, explain lists all)", code, didYouMean(code, codes()))
	case o.format == "json":
		return writeJSON(o.env.Stdout, struct {
			version
			pageJSON
		}{v1, p.json()})
	}
	fmt.Fprint(o.env.Stdout, p.text())
	return nil
}
