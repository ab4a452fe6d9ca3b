package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2/maybe"
	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func newFmtCmd(e env) *cobra.Command {
	var write, check bool
	cmd := &cobra.Command{
		Use:   "fmt [-w | --check] FILE...",
		Short: "Format policy files, comments kept",
		Long: `fmt formats HuJSON as the control plane does when it stores a policy file. Comments and the order of keys stay.

It prints the formatted text of one file (- is standard input). -w rewrites each file that is not formatted and prints
its name; --check only prints the names. A file that is not HuJSON is reported and left as it is.

Exit codes: 0 all formatted; 1 with --check, a file is not; 2 a file could not be read, written or understood.`,
		Example: `  tailmesh-policy fmt policy.hujson
  tailmesh-policy fmt -w policies/*.hujson
  tailmesh-policy fmt --check policies/*.hujson   # in CI`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("no FILE given")
			case len(args) > 1 && !write && !check:
				return errors.New("several files need -w or --check")
			}
			return nil
		},
		ValidArgsFunction: policyArg(-1),
		RunE: func(_ *cobra.Command, args []string) error {
			changed, failed := false, false
			for _, file := range args {
				differs, err := fmtFile(e, file, write, check)
				if err != nil {
					fmt.Fprintln(e.Stderr, printable(err.Error()))
					failed = true
				}
				changed = changed || differs
			}
			switch {
			case failed:
				return exitError{code: exitCannotDo}
			case changed && check:
				return exitError{code: exitNo}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "rewrite the files")
	cmd.Flags().BoolVar(&check, "check", false, "print the names of files that are not formatted, change nothing")
	cmd.MarkFlagsMutuallyExclusive("write", "check")
	return cmd
}

// fmtFile formats one file and reports whether it was not formatted before.
func fmtFile(e env, file string, write, check bool) (differs bool, err error) {
	if write && file == stdinName {
		return false, errors.New("-w cannot rewrite standard input")
	}
	src, err := readFile(e, file, maxText)
	if err != nil {
		return false, err
	}
	formatted, err := policy.Format(src)
	if err != nil {
		return false, syntaxError(file, src, err)
	}
	if !write && !check {
		_, err := e.Stdout.Write(formatted)
		return false, err
	}
	if bytes.Equal(src, formatted) {
		return false, nil
	}
	if write {
		if err := rewrite(file, formatted); err != nil {
			return false, fmt.Errorf("cannot write %q: %w", file, withoutPath(err))
		}
	}
	printLine(e.Stdout, "%s", displayName(file))
	return true, nil
}

// syntaxError shows where a text is not HuJSON, as check would.
func syntaxError(file string, src []byte, err error) error {
	name := displayName(file)
	if _, findings := policy.Parse(name, src); len(findings) > 0 {
		var out strings.Builder
		if err := diag.WriteText(&out, findings[:1], diag.Sources{name: src}, diag.TextOptions{}); err != nil {
			return err
		}
		text, _, _ := strings.Cut(out.String(), "\n\n") // without the count
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// rewrite replaces a file whole or not at all. A symbolic link stays one, and the mode stays.
func rewrite(file string, text []byte) error {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	if err := maybe.WriteFile(target, text, info.Mode().Perm()); err != nil {
		return withoutPath(err)
	}
	return os.Chmod(target, info.Mode().Perm()) // again, without the umask
}

// withoutPath is an error about a file without the file's name, which may be that of one that was to take another's place.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
