package cli

import (
	"encoding/json"
	"fmt"
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

The rules are spelled as on the wire; null is a device that gets no rules. Where several devices have one host name,
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
			doc, err := compiledDoc(report.Compiled, devices)
			if err != nil {
				return err
			}
			if !report.Accepted {
				fmt.Fprintf(e.Stderr, "%s: would be %s\n", l.file, verdictLine(report))
			}
			return writeJSON(e.Stdout, doc)
		},
	}
	in.inventoryFlag(cmd, true)
	cmd.Flags().StringVar(&node, "node", "", "only the device of this host name")
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

// compiled is the answer of compile.
type compiled struct {
	version
	Filters   map[string][]policy.FilterRule          `json:"filters"`
	SSH       map[string][]policy.SSHRule             `json:"ssh"`
	NodeAttrs map[string]map[string][]json.RawMessage `json:"nodeAttrs"`
}

func compiledDoc(c *policy.Compiled, devices []string) (*compiled, error) {
	doc := &compiled{
		version:   v1,
		Filters:   make(map[string][]policy.FilterRule),
		SSH:       make(map[string][]policy.SSHRule),
		NodeAttrs: make(map[string]map[string][]json.RawMessage),
	}
	for _, d := range devices {
		var err error
		if doc.Filters[d], err = c.Filter(d); err != nil {
			return nil, err
		}
		if doc.SSH[d], err = c.SSH(d); err != nil {
			return nil, err
		}
		if doc.NodeAttrs[d], err = c.NodeAttrs(d); err != nil {
			return nil, err
		}
	}
	return doc, nil
}
