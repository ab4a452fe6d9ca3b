package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/accessdiff"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

// minInterval is how often the API is asked at the most.
const minInterval = time.Second

// watchOptions are the flags of the command watch.
type watchOptions struct {
	inputs
	once     bool
	interval time.Duration
}

// drift is the answer of watch.
type drift struct {
	version
	Drift bool `json:"drift"`
	// Comments says that comments differ, and nothing else: that is no drift.
	Comments bool `json:"comments"`
	// ETag is that of the policy in force.
	ETag string `json:"etag"`
	// Sections are the parts of the policy file whose values differ.
	Sections []string `json:"sections"`
	// Result is what access differs, nil where that cannot be told.
	*accessdiff.Result

	ours string // what is in the file
}

func newWatchCmd(e env) *cobra.Command {
	var o watchOptions
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "watch POLICY",
		Short: "Say when the policy in force is no longer the one in a file",
		Long: `watch compares the policy in force with POLICY (a file, or REVISION:PATH in git), again and again, and reports when
they begin to differ, differ otherwise, or agree again: in which sections, and which access somebody gained and lost.
Formatting is no difference, and one of comments alone is said and no drift. An API that cannot be reached is reported, and asked again.

` + credentialsHelp + `

--json prints for each report

  {"schemaVersion": 1, "drift": true, "comments": false, "etag": ETAG, "sections": ["acls"], "gained": [...], "lost": [...], ...}

Exit codes: 0 told to end, or with --once the same; 1 with --once, they differ; 2 trouble.`,
		Example: `  tailmesh-policy watch policy.hujson --once     # every night, in CI
  tailmesh-policy watch policy.hujson --interval 1m`,
		Args:              args("POLICY"),
		ValidArgsFunction: policyArg(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.policy = args[0]
			if o.interval < minInterval {
				return usageError{cmd.CommandPath(), fmt.Errorf("--interval %v: want at least %v", o.interval, minInterval)}
			}
			if o.policy == stdinName {
				return usageError{cmd.CommandPath(), errors.New("POLICY is read again and again: standard input cannot be")}
			}
			if o.inventory == stdinName {
				return usageError{cmd.CommandPath(), errors.New("--inventory is read again and again: standard input cannot be")}
			}
			ctx, stop := untilTold(cmd.Context())
			defer stop()
			return o.run(ctx, e, out)
		},
	}
	o.inventoryFlag(cmd, false)
	cmd.Flags().BoolVar(&o.once, "once", false, "compare once, and exit with 1 where they differ")
	cmd.Flags().DurationVar(&o.interval, "interval", 5*time.Minute, "how long to wait between two looks")
	out.flags(cmd, false)
	return cmd
}

func (o *watchOptions) run(ctx context.Context, e env, out output) error {
	api, err := e.connect()
	if err != nil {
		return err
	}
	said := drift{ETag: "never looked"}
	for {
		found, err := o.look(ctx, e, api)
		if err != nil && ctx.Err() == nil { // the credential may be a file that has been written anew
			if again, err := e.connect(); err == nil {
				api = again
			}
		}
		switch {
		case ctx.Err() != nil && o.once:
			return errors.New("told to end before it was done")
		case ctx.Err() != nil:
			return nil
		case err != nil && o.once:
			return err
		case err != nil:
			fmt.Fprintf(e.Stderr, "%s: %s\n", o.policy, printable(err.Error()))
		case found.ETag != said.ETag || found.Drift != said.Drift || found.Comments != said.Comments || found.Drift && !textdiff.Same(found.ours, said.ours):
			if err := o.report(out, found); err != nil {
				return err
			}
			said = found
		}
		if o.once {
			if found.Drift {
				return exitError{code: exitNo}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval):
		}
	}
}

// look compares once.
func (o *watchOptions) look(ctx context.Context, e env, api *client.Client) (drift, error) {
	src, err := readSource(ctx, e, o.policy)
	if err != nil {
		return drift{}, err
	}
	var inv *policy.Inventory
	if o.inventory != "" {
		if inv, err = o.readInventory(e); err != nil {
			return drift{}, err
		}
	}
	tn, err := live(ctx, api, inv)
	if err != nil {
		return drift{}, err
	}
	out := drift{version: v1, ETag: tn.policy.ETag, Sections: []string{}, ours: string(src)}
	if textdiff.Same(string(src), tn.policy.HuJSON) {
		return out, nil
	}
	out.Sections = notNil(textdiff.Sections(string(src), tn.policy.HuJSON))
	if len(out.Sections) == 0 && wellFormed(src) && wellFormed([]byte(tn.policy.HuJSON)) {
		out.Comments = true
		return out, nil
	}
	out.Drift = true
	result, err := accessdiff.Compare(
		policy.Check(o.policy, src, tn.inventory, nil), policy.Check(liveName, []byte(tn.policy.HuJSON), tn.inventory, nil))
	if err == nil {
		out.Result = result
	}
	return out, nil
}

func wellFormed(text []byte) bool {
	_, err := policy.Format(text)
	return err == nil
}

// report says what was found.
func (o *watchOptions) report(out output, found drift) error {
	w := out.env.Stdout
	switch {
	case out.format == "json":
		return writeJSON(w, found)
	case found.Comments:
		printLine(w, "%s: is what is in force, apart from comments, ETag %s", o.policy, found.ETag)
		return nil
	case !found.Drift:
		printLine(w, "%s: is what is in force, ETag %s", o.policy, found.ETag)
		return nil
	}
	printLine(w, "%s: is not what is in force, ETag %s; differs in %s", o.policy, found.ETag, sectionList(found.Sections))
	if found.Result == nil {
		fmt.Fprintln(w, "what that means for access cannot be told")
		return nil
	}
	return accessdiff.WriteText(w, found.Result)
}
