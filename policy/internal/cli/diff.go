package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/accessdiff"
)

func newDiffCmd(e env) *cobra.Command {
	var in inputs
	var exitCode, markdown bool
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "diff OLD NEW --inventory FILE",
		Short: "Say which access a change of policy gives and takes",
		Long: `diff compares two policies by what they let through between the devices of the inventory, not by their text: access
gained, access lost, and edits that change nobody's access. It covers the network (addresses, protocols and ports as
each device's packet filter has them), ssh, capabilities, node attributes and the routes that are approved without
review. Each line names the two ends as the policy does and the edit that is the cause. What depends on what the
inventory does not tell, such as the members of a synced group, is listed apart.

OLD and NEW are files, - for standard input, or REVISION:PATH for a file in a git revision, where PATH is from the top
of the repository, or with ./ from the current directory. The word live stands for the policy in force, and then the
inventory is that of the API where none is named. ` + credentialsHelp + `

--json prints

  {"schemaVersion": 1, "old": FILE, "new": FILE, "differs": true, "gained": [...], "lost": [...], "undecided": [...],
   "edited": [...]}

Exit codes: 0 compared; 1 with --exit-code, access differs; 2 could not tell, with --exit-code also where it depends on
what the inventory does not tell alone whether access differs.`,
		Example: `  tailmesh-policy diff HEAD:policy.hujson policy.hujson --inventory inventory.json
  tailmesh-policy diff origin/main:policy.hujson HEAD:policy.hujson -i inventory.json --markdown   # for a review comment
  tailmesh-policy diff live policy.hujson
  tailmesh-policy diff old.hujson new.hujson -i inventory.json --exit-code --json | jq '.gained[].dst.names'`,
		Args: args("OLD", "NEW"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"hujson", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			old, new, err := in.loadTwo(cmd.Context(), e, args[0], args[1])
			if err != nil {
				return err
			}
			result, err := out.compare(old, new)
			if err != nil {
				return err
			}
			if err := out.diff(old, new, result, markdown); err != nil {
				return err
			}
			switch {
			case exitCode && result.Differs():
				return exitError{code: exitNo}
			case exitCode && len(result.Undecided) > 0:
				return exitError{code: exitCannotDo}
			}
			return nil
		},
	}
	in.inventoryFlag(cmd, false)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 where access differs")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print a comment for a review")
	out.flags(cmd, false)
	cmd.MarkFlagsMutuallyExclusive("json", "markdown")
	return cmd
}

// loadTwo reads two policies and the inventory.
func (in *inputs) loadTwo(ctx context.Context, e env, old, new string) (*loaded, *loaded, error) {
	fromStdin := 0
	for _, name := range []string{old, new, in.inventory} {
		if name == stdinName {
			fromStdin++
		}
	}
	if fromStdin > 1 {
		return nil, nil, errors.New("only one file can be read from standard input")
	}
	var inv *policy.Inventory
	var inForce *tailnet
	var err error
	if in.inventory != "" {
		if inv, err = in.readInventory(e); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case isLive(old) || isLive(new):
		api, err := e.connect()
		if err != nil {
			return nil, nil, err
		}
		if inForce, err = live(ctx, api, inv); err != nil {
			return nil, nil, err
		}
		inv = inForce.inventory
	case inv == nil:
		return nil, nil, usageError{"tailmesh-policy diff", errNoInventory}
	}
	var out [2]*loaded
	for i, name := range []string{old, new} {
		if isLive(name) {
			out[i] = inForce.loaded()
			continue
		}
		src, err := readSource(ctx, e, name)
		if err != nil {
			return nil, nil, err
		}
		out[i] = &loaded{file: displayName(name), src: src, inventory: inv}
	}
	return out[0], out[1], nil
}

// compare checks both policies and compares them.
func (o *output) compare(old, new *loaded) (*accessdiff.Result, error) {
	var reports [2]*policy.Report
	for i, l := range []*loaded{old, new} {
		reports[i] = l.check()
		if reports[i].Compiled == nil {
			if o.format == "json" {
				return nil, fmt.Errorf("%s would be %s", l.file, verdictLine(reports[i]))
			}
			return nil, o.unanswerable(l, reports[i])
		}
		if !reports[i].Accepted {
			printLine(o.env.Stderr, "%s: would be %s", l.file, verdictLine(reports[i]))
		}
	}
	result, err := accessdiff.Compare(reports[0], reports[1])
	if err != nil {
		return nil, err
	}
	switch n := len(reports[0].Compiled.Devices()); {
	case result.Named:
	case n == 0:
		return nil, errors.New("the inventory has no authorized devices of the tailnet: nothing can be compared")
	default:
		return nil, fmt.Errorf("none of the %d devices of the inventory is named by a rule of either policy: is it another tailnet's?", n)
	}
	return result, nil
}

func (o *output) diff(old, new *loaded, r *accessdiff.Result, markdown bool) error {
	switch {
	case markdown:
		return accessdiff.WriteMarkdown(o.env.Stdout, r)
	case o.format == "json":
		return writeJSON(o.env.Stdout, struct {
			version
			Old     string `json:"old"`
			New     string `json:"new"`
			Differs bool   `json:"differs"`
			*accessdiff.Result
		}{v1, old.file, new.file, r.Differs(), r})
	}
	return accessdiff.WriteText(o.env.Stdout, r)
}
