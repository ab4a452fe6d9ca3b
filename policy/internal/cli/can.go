package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// flowFlags are those that say which traffic is asked about.
type flowFlags struct {
	proto protocol
	port  port
}

// protocol is the value of --proto, spelled in the one way that has a name where there is one.
type protocol string

func (p *protocol) String() string { return string(*p) }
func (p *protocol) Type() string   { return "string" }

func (p *protocol) Set(text string) error {
	name, err := policy.ProtocolText(text)
	if err != nil || name == "" {
		return errors.New("want the name of a protocol, or its number from 1 to 255")
	}
	*p = protocol(name)
	return nil
}

// port is the value of --port.
type port int

func (p *port) String() string { return strconv.Itoa(int(*p)) }
func (p *port) Type() string   { return "number" }

func (p *port) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return errors.New("want a number from 0 to 65535")
	}
	*p = port(n)
	return nil
}

func (f *flowFlags) add(cmd *cobra.Command) {
	f.proto = "tcp"
	cmd.Flags().Var(&f.proto, "proto", "protocol by name or number, such as udp, icmp, ip-in-ip or 47")
	cmd.Flags().Var(&f.port, "port", "port, for protocols that have ports")
	must(cmd.RegisterFlagCompletionFunc("proto", cobra.FixedCompletions(
		[]string{"tcp", "udp", "icmp", "ipv6-icmp", "ip-in-ip", "sctp", "gre", "esp", "ah"}, cobra.ShellCompDirectiveNoFileComp)))
}

// check says where the port does not go with the protocol.
func (f *flowFlags) check(cmd *cobra.Command) error {
	switch takes := policy.TakesPorts(string(f.proto)); {
	case takes && f.port == 0:
		return usageError{cmd.CommandPath(), fmt.Errorf("%s has ports: say which with --port", f.proto)}
	case !takes && f.port != 0:
		return usageError{cmd.CommandPath(), fmt.Errorf("%s has no ports: leave out --port", f.proto)}
	}
	return nil
}

// String is how messages call the traffic: "tcp/443", "ip-in-ip".
func (f *flowFlags) String() string {
	if f.port == 0 {
		return string(f.proto)
	}
	return fmt.Sprintf("%s/%d", f.proto, f.port)
}

func newCanCmd(e env) *cobra.Command {
	var in inputs
	var flow flowFlags
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "can SRC DST POLICY --inventory FILE",
		Short: "Say whether a flow may pass, and by which rule",
		Long: `can says whether traffic from SRC to DST may pass, and which rule lets it.

SRC and DST are selectors as in a grant (a user, group:, tag:, autogroup:, a host of the policy, an address or CIDR) or
host names of devices. Where one stands for several devices, all of them must be allowed for a yes. The protocol is tcp
unless --proto names another; protocols with ports need --port, others take none. A protocol without ports passes only
by a rule that names it and all ports: a rule that names no protocol admits tcp, udp and icmp, but not ip-in-ip.

--json prints

  {"schemaVersion": 1, "answer": "yes", "rule": "grants[0]", "file": ..., "range": ..., "missing": []}

where answer is yes, no or undecided.

Exit codes: 0 yes; 1 no; 2 could not tell.`,
		Example: `  tailmesh-policy can tag:node tag:node --proto ip-in-ip policy.hujson --inventory inventory.json
  tailmesh-policy can alice@example.com tag:db --port 5432 policy.hujson -i inventory.json
  tailmesh-policy can laptop fra1 --proto icmp policy.hujson -i inventory.json && echo pings pass`,
		Args:              args("SRC", "DST", "POLICY"),
		ValidArgsFunction: policyArg(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flow.check(cmd); err != nil {
				return err
			}
			src, dst := args[0], args[1]
			in.policy = args[2]
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report := l.check()
			if report.Compiled == nil {
				return out.unanswerable(l, report)
			}
			d, err := report.Compiled.Can(src, dst, string(flow.proto), int(flow.port))
			if err != nil {
				return err
			}
			if !report.Accepted {
				printLine(e.Stderr, "%s: would be %s", l.file, verdictLine(report))
			}
			if err := out.decision(l, src, dst, flow, d); err != nil {
				return err
			}
			return decisionExit(d.Verdict)
		},
	}
	in.inventoryFlag(cmd, true)
	flow.add(cmd)
	out.flags(cmd, false)
	return cmd
}

// unanswerable reports a policy that the control plane would refuse to a command whose question is not about that.
func (o *output) unanswerable(l *loaded, report *policy.Report) error {
	if err := o.findings(report.Diagnostics, l.file, l.src); err != nil {
		return err
	}
	return fmt.Errorf("%s would be %s", l.file, verdictLine(report))
}

func decisionExit(v policy.Verdict) error {
	switch v {
	case policy.Pass:
		return nil
	case policy.Fail:
		return exitError{code: exitNo}
	}
	return exitError{code: exitCannotDo}
}

// answer is a verdict as the answer to a question.
func answer(v policy.Verdict) string {
	switch v {
	case policy.Pass:
		return "yes"
	case policy.Fail:
		return "no"
	}
	return "undecided"
}

func (o *output) decision(l *loaded, src, dst string, flow flowFlags, d policy.Decision) error {
	if o.format == "json" {
		doc := struct {
			version
			Answer  string     `json:"answer"`
			Rule    string     `json:"rule,omitempty"`
			File    string     `json:"file,omitempty"`
			Range   diag.Range `json:"range,omitzero"`
			Missing []string   `json:"missing"`
		}{version: v1, Answer: answer(d.Verdict), Missing: notNil(d.Missing)}
		if d.Rule != "" && d.Verdict != policy.Fail {
			doc.Rule, doc.File, doc.Range = d.Rule, l.file, d.Range
		}
		return writeJSON(o.env.Stdout, doc)
	}
	printLine(o.env.Stdout, "%s", answerLine(l.file, src, dst, flow, d))
	switch d.Verdict {
	case policy.Pass:
		if d.Rule != "" {
			o.rule(l, d.Range)
		}
	case policy.Undecided:
		for _, m := range d.Missing {
			printLine(o.env.Stdout, "  needs %s", m)
		}
	}
	return nil
}

// answerLine is the answer in one line.
func answerLine(file, src, dst string, flow flowFlags, d policy.Decision) string {
	asked := fmt.Sprintf("%s from %s to %s", &flow, src, dst)
	switch {
	case d.Verdict == policy.Pass:
		return fmt.Sprintf("yes: %s, by %s", asked, ruleAt(file, d.Rule, d.Range))
	case d.Verdict == policy.Undecided:
		return "cannot be decided: " + asked
	case d.Rule != "":
		return fmt.Sprintf("no: %s is admitted between some pairs, by %s, but not between all", asked, ruleAt(file, d.Rule, d.Range))
	}
	return fmt.Sprintf("no: %s is admitted by no rule", asked)
}

// ruleAt names a rule and its place; a policy without rules admits by having none.
func ruleAt(file, path string, at diag.Range) string {
	switch {
	case path == "":
		return "default: the policy has neither acls nor grants"
	case at.IsZero():
		return path
	}
	return fmt.Sprintf("%s (%s)", path, position(file, at))
}

// rule prints the lines of a rule, numbered.
func (o *output) rule(l *loaded, at diag.Range) {
	const shown = 12
	if at.IsZero() {
		return
	}
	lines := diag.NewLines(l.src)
	last := min(at.End.Line, at.Start.Line+shown-1)
	width := len(fmt.Sprint(last))
	for n := at.Start.Line; n <= last; n++ {
		fmt.Fprintln(o.env.Stdout, strings.TrimRight(fmt.Sprintf("%*d | %s", width, n, diag.Printable(lines.Text(n))), " "))
	}
	if last < at.End.Line {
		fmt.Fprintln(o.env.Stdout, "...")
	}
}
