// Package cli is the program tailmesh-policy: one file for each command, which reads files and flags, asks the engine
// in package policy, and prints. What is true of a policy is decided there, not here.
//
// Standard output carries the answer, standard error everything said about it. The exit code is 0 for yes, 1 for no and 2
// for "could not tell" or bad usage.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Exit codes, as those of grep and diff.
const (
	exitYes      = 0
	exitNo       = 1
	exitCannotDo = 2
)

// env is what the program meets outside of itself, the files that it is told to read apart.
type env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
}

// Main runs the program on the process's own arguments and returns its exit code.
func Main() int {
	return run(context.Background(), env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}, os.Args[1:])
}

// untilTold is done when the process is told to end, which some commands do in good order. All others end at once, wherever
// they are: in a long computation, or waiting for a pipe that nobody writes to.
func untilTold(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // told a second time, the process ends at once
	return ctx, stop
}

func run(ctx context.Context, e env, args []string) int {
	out := &answerWriter{w: e.Stdout}
	e.Stdout = out
	code := execute(ctx, e, out, args)
	if out.err != nil {
		// An answer that did not arrive is none, whatever it was.
		fmt.Fprintf(e.Stderr, "tailmesh-policy: cannot write the answer: %v\n", out.err)
		return exitCannotDo
	}
	return code
}

// answerWriter remembers the first error of writing, and whether there was anything to write.
type answerWriter struct {
	w     io.Writer
	begun bool
	err   error
}

func (a *answerWriter) Write(p []byte) (int, error) {
	if a.err != nil {
		return len(p), nil
	}
	a.begun = a.begun || len(p) > 0
	n, err := a.w.Write(p)
	if err != nil {
		a.err = err
		return len(p), nil
	}
	return n, nil
}

func execute(ctx context.Context, e env, out *answerWriter, args []string) int {
	root := newRootCmd(e)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitYes
	}
	if exit, ok := errors.AsType[exitError](err); ok && exit.err == nil {
		return exit.code
	}
	if flags := regexp.MustCompile(`^if any flags in the group \[.*were all set$`).FindString(err.Error()); flags != "" {
		err = usageError{cmd.CommandPath(), exclusive(flags)}
	}
	fmt.Fprintf(e.Stderr, "%s: %s\n", cmd.CommandPath(), printable(err.Error()))
	if usage, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(e.Stderr, "see: %s --help\n", usage.cmd)
	}
	asked, _ := cmd.Flags().GetBool("json")
	format, _ := cmd.Flags().GetString("format")
	if (asked || format == "json") && !out.begun {
		// Who reads standard output alone must find out as well; where an answer is there already, it says why.
		_ = writeJSON(e.Stdout, struct {
			version
			Error string `json:"error"`
		}{v1, err.Error()})
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	return exitCannotDo
}

// exclusive says in our words what cobra says of flags that do not go together: "…; [json format] were all set".
func exclusive(said string) error {
	_, list, _ := strings.Cut(said, "; [")
	list, _, _ = strings.Cut(list, "]")
	return fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(list), " and --"))
}

// printable makes text from files fit for a terminal and for a CI job's log, line by line.
func printable(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = diag.Printable(l)
		if i > 0 && strings.HasPrefix(strings.TrimSpace(l), "::") {
			lines[i] = strings.Replace(lines[i], ":", "\ufffd", 1) // or GitHub would take the line for a command
		}
	}
	return strings.Join(lines, "\n")
}

// printLine prints one line, and no more whatever is in the values: what files say must not act on a terminal or, as a line
// of its own, on a CI job.
func printLine(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, diag.Printable(fmt.Sprintf(format, args...)))
}

// exitError ends the program with a code. Without an error inside, all has been said already. Every other error ends it
// with exitCannotDo.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// usageError is a mistake in how the program was called, as against in what it was given.
type usageError struct {
	cmd string
	err error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func newRootCmd(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "tailmesh-policy",
		Short: "Check, test, compile, question and format tailnet policy files offline, and put them in force",
		Long: `tailmesh-policy answers questions about a Tailscale policy file without asking Tailscale: would the control plane
accept it, do its tests pass, which packet filter does each device get, may this flow pass and by which rule.

A policy is a file of HuJSON (JSON with comments and trailing commas), or - for standard input. What depends on
devices needs an inventory, {"devices":[...],"users":[...]}, each as the API lists them. Both can be fetched:

  tailmesh-policy pull policy.hujson --inventory inventory.json

Only pull, push, watch and the name live ask Tailscale.

Exit codes: 0 yes; 1 no; 2 could not tell, or the program was called wrongly.`,
		Example: `  tailmesh-policy check policy.hujson --inventory inventory.json
  tailmesh-policy can tag:node tag:node --proto ip-in-ip policy.hujson --inventory inventory.json
  tailmesh-policy explain requirement-unmet`,
		Version:       programVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.Help(); err != nil {
				return err
			}
			return exitError{code: exitCannotDo}
		},
	}
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd.CommandPath(), err} })
	root.PersistentFlags().String("color", "auto", "colour: auto (on a terminal, unless NO_COLOR is set), always or never")
	must(root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colors(), cobra.ShellCompDirectiveNoFileComp)))
	root.AddCommand(
		newCheckCmd(e),
		newTestCmd(e),
		newCompileCmd(e),
		newCanCmd(e),
		newExplainCmd(e),
		newFmtCmd(e),
		newLintCmd(e),
		newConvertCmd(e),
		newDiffCmd(e),
		newReportCmd(e),
		newPullCmd(e),
		newPushCmd(e),
		newWatchCmd(e),
		newSimCmd(e),
	)
	for _, cmd := range root.Commands() {
		markUsage(cmd)
	}
	return root
}

// markUsage makes wrong numbers of arguments usage errors.
func markUsage(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		return nil
	}
}

// args asks for as many arguments as are named, and says which are missing.
func args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("no %s given", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// must is for what fails only by a mistake in this package.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// programVersion is the version that the Go toolchain recorded, "(devel)" where it was built from a work tree.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
