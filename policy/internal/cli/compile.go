package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

func newCompileCmd(e env) *cobra.Command {
	var in inputs
	var node string
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "compile POLICY --inventory FILE",
		Short: "Print the packet filter, SSH rules and node attributes that each device gets",
		Long: `compile prints as JSON what the control plane would send to each device of the inventory, by host name:

  {"schemaVersion": 1, "filters": {HOST: [rule...]}, "ssh": {HOST: [rule...]}, "nodeAttrs": {HOST: {NAME: ...}}}

The rules are spelled as on the wire, one a line; null is a device that gets no rules. Where several devices have one host name,
they are told apart by the first label of their machine names. A device that is not authorized gets nothing and is left
out.

Exit codes: 0 printed; 1 the control plane would refuse the rules; 2 could not tell.`,
		Example: `  tailmesh-policy compile policy.hujson --inventory inventory.json
  tailmesh-policy compile policy.hujson -i inventory.json --node fra1 | jq '.filters.fra1'
  diff <(tailmesh-policy compile old.hujson -i inventory.json) <(tailmesh-policy compile new.hujson -i inventory.json)`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(_ *cobra.Command, args []string) error {
			in.policy = args[0]
			l, err := in.load(e)
			if err != nil {
				return err
			}
			report := l.check()
			if report.Compiled == nil {
				return out.refused(l, report)
			}
			devices := report.Compiled.Devices()
			if node != "" {
				if !slices.Contains(devices, node) {
					return fmt.Errorf("no device %q in the inventory%s", node, elsewise(node, devices))
				}
				devices = []string{node}
			}
			if !report.Accepted {
				printLine(e.Stderr, "%s: would be %s", l.file, verdictLine(report))
			}
			return writeCompiled(e.Stdout, report.Compiled, devices)
		},
	}
	in.inventoryFlag(cmd, true)
	cmd.Flags().Var((*fileName)(&node), "node", "only the device of this host name")
	out.flags(cmd, false)
	return cmd
}

// elsewise continues a message about a name that is not among those given: with the nearest, or with a few of them.
func elsewise(name string, names []string) string {
	const shown = 5
	if question := didYouMean(name, names); question != "" {
		return question
	}
	switch n := len(names); {
	case n == 0:
		return ", which has no authorized devices"
	case n > shown:
		return fmt.Sprintf("; it has %s and %d more", strings.Join(names[:shown], ", "), n-shown)
	}
	return "; it has " + strings.Join(names, ", ")
}

// writeCompiled prints the answer of compile, one rule or attribute a line: a large tailnet's filters are many times as
// long as its policy, so they are never held as a whole, and a line is what diff compares.
func writeCompiled(to io.Writer, c *policy.Compiled, devices []string) error {
	w := &lineWriter{Writer: bufio.NewWriter(to)}
	w.enc = jsonEncoder(&w.line)
	fmt.Fprintf(w, "{\n  \"schemaVersion\": %d,\n", v1.SchemaVersion)
	w.section("filters", devices, func(d string) error {
		rules, err := c.Filter(d)
		return writeLines(w, rules, err)
	})
	io.WriteString(w, ",\n")
	w.section("ssh", devices, func(d string) error {
		rules, err := c.SSH(d)
		return writeLines(w, rules, err)
	})
	io.WriteString(w, ",\n")
	w.section("nodeAttrs", devices, func(d string) error {
		attrs, err := c.NodeAttrs(d)
		if err != nil {
			return err
		}
		return w.json(attrs)
	})
	io.WriteString(w, "\n}\n")
	if w.err != nil {
		return w.err
	}
	return w.Flush()
}

// lineWriter writes the parts of a document until one fails; err is why.
type lineWriter struct {
	*bufio.Writer
	err  error
	line bytes.Buffer // one for all lines, since there may be a million
	enc  *json.Encoder
}

// section writes a member of the document that has a value for each device; each writes one.
func (w *lineWriter) section(name string, devices []string, each func(device string) error) {
	fmt.Fprintf(w, "  %q: {", name)
	for i, d := range slices.Sorted(slices.Values(devices)) {
		if w.err != nil {
			return
		}
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString("\n    ")
		if w.err = w.json(d); w.err == nil {
			w.WriteString(": ")
			w.err = each(d)
		}
	}
	w.WriteString("\n  }")
}

// json writes v on the line.
func (w *lineWriter) json(v any) error {
	w.line.Reset()
	if err := w.enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(bytes.TrimSuffix(w.line.Bytes(), []byte("\n")))
	return err
}

// writeLines writes a list with each of its elements on a line. err is passed on.
func writeLines[T any](w *lineWriter, list []T, err error) error {
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return w.json(list) // null for none, as the control plane has it
	}
	for i, v := range list {
		before := ",\n      "
		if i == 0 {
			before = "[\n      "
		}
		w.WriteString(before)
		if err := w.json(v); err != nil {
			return err
		}
	}
	_, err = w.WriteString("\n    ]")
	return err
}
