package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/client"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

func newPullCmd(e env) *cobra.Command {
	var force bool
	var inventory string
	cmd := &cobra.Command{
		Use:   "pull [FILE]",
		Short: "Get the policy in force as a file, and the tailnet's devices as an inventory",
		Long: `pull writes the policy in force, comments included, to FILE, or to standard output. Its ETag, which names this very
version to push --if-match, goes to standard error.

A FILE that is there and says something else is left as it is, unless --force is given: it may hold work of yours.
--inventory also writes the devices and users to a file, which is replaced; other commands take it by the same name.

` + credentialsHelp + `

Exit codes: 0 FILE is what is in force; 1 FILE differs, and was left as it is; 2 trouble.`,
		Example: `  tailmesh-policy pull policy.hujson --inventory inventory.json
  tailmesh-policy pull | tailmesh-policy lint -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is one argument too many", args[1])
			}
			return nil
		},
		ValidArgsFunction: policyArg(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := e.connect()
			if err != nil {
				return err
			}
			live, err := api.GetPolicy(cmd.Context())
			if err != nil {
				return err
			}
			file := stdinName
			if len(args) > 0 {
				file = args[0]
			}
			if inventory != "" {
				if file == inventory || sameFile(file, inventory) {
					return fmt.Errorf("--inventory %q is the policy's file", inventory)
				}
				if err := saveInventory(cmd.Context(), e, api, inventory); err != nil {
					return err
				}
			}
			if file == stdinName {
				printLine(e.Stderr, "ETag %s", live.ETag)
				_, err := fmt.Fprint(e.Stdout, live.HuJSON)
				return err
			}
			return save(e, file, live.HuJSON, live.ETag, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a FILE that says something else")
	cmd.Flags().VarP((*fileName)(&inventory), "inventory", "i", "file to write the tailnet's devices and users to")
	must(cmd.MarkFlagFilename("inventory", "json"))
	return cmd
}

// saveInventory writes what the engine reads of the tailnet's devices and users to a file.
func saveInventory(ctx context.Context, e env, api *client.Client, file string) error {
	inv, err := api.Inventory(ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := writeJSON(&text, inv); err != nil {
		return err
	}
	if err := writeNew(file, text.Bytes()); err != nil {
		return fmt.Errorf("cannot write %q: %w", file, withoutPath(err))
	}
	printLine(e.Stderr, "%s: written; devices: %d, users: %d", file, len(inv.Devices), len(inv.Users))
	return nil
}

// save writes a policy to a file, which keeps its own formatting where it says the same already.
func save(e env, file, text, etag string, force bool) error {
	old, err := readFile(e, file, maxText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = writeNew(file, []byte(text))
	case err != nil:
		return err
	case textdiff.Same(string(old), text):
		printLine(e.Stderr, "%s: is what is in force, ETag %s", file, etag)
		return nil
	case !force:
		return exitError{code: exitNo, err: fmt.Errorf(
			"%s differs from what is in force and was left as it is; see: tailmesh-policy diff live %s; --force replaces it", file, file)}
	default:
		err = rewrite(file, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", file, withoutPath(err))
	}
	printLine(e.Stderr, "%s: written, ETag %s", file, etag)
	return nil
}
