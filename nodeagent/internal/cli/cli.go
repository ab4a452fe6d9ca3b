// Package cli is the agent's command line: it reads the document, calls package reconcile and prints what comes of it.
//
// Exit codes: 0 is yes (done, in place, valid), 1 is no (a peer is not reached through the mesh, changes are pending, the
// document is not valid), 2 is could not tell or bad usage. Answers go to stdout, errors and notes to stderr.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/source"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/tailscale"
)

// Exit codes.
const (
	exitYes     = 0
	exitNo      = 1
	exitUnknown = 2
)

const defaultDocument = "/etc/tailmesh/node.json"

// Main runs the program and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	env := Env{Kernel: kernel.NewLinux(), Files: os.DirFS("/"), Stdout: os.Stdout, Stderr: os.Stderr}
	if os.Getenv("GOMEMLIMIT") == "" {
		env.LimitMemory = func(bytes int64) { debug.SetMemoryLimit(bytes) }
	}
	return Run(ctx, env, os.Args[1:])
}

// Env is what the program touches.
type Env struct {
	Kernel         kernel.Interface
	Files          fs.FS // the node's files, from its root
	Stdout, Stderr io.Writer
	// LimitMemory has the program collect its garbage before it takes more memory than that; nil: nobody is told.
	LimitMemory func(bytes int64)
}

// command is the state that the commands share.
type command struct {
	env    Env
	config string
	ca     string
	socket string
	lock   string
	json   bool
	code   int // set by a command that answers no or unknown
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, env Env, args []string) int {
	out := &answerWriter{w: env.Stdout}
	env.Stdout, env.Stderr = printable{out}, printable{env.Stderr}
	c := &command{env: env}
	root := c.root()
	root.SetArgs(args)
	executed, err := root.ExecuteContextC(ctx)
	if err != nil {
		c.code = c.fail(executed, err)
	}
	if out.err != nil {
		// An answer that did not arrive is none, whatever it was.
		fmt.Fprintf(env.Stderr, "tailmesh-agent: cannot write the answer: %v\n", out.err)
		return exitUnknown
	}
	return c.code
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tailmesh-agent",
		Short: "Keep packets from pods to mesh nodes on the mesh",
		Long: "Keep packets from pods to mesh nodes on the mesh.\n\n" +
			"Exit codes: 0 yes, 1 no, 2 could not tell or bad usage.",
		Version: version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(" (did you mean %q?)", near[0])
			}
			return fmt.Errorf("unknown command %q%s", args[0], hint)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.code = exitUnknown
			return cmd.Help()
		},
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(c.env.Stdout)
	root.SetErr(c.env.Stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(usage)
	root.PersistentFlags().StringVar(&c.config, "config", defaultDocument, "the node's document: a file, or an https:// URL")
	root.PersistentFlags().StringVar(&c.ca, "config-ca", "", "file with the authorities to trust with the URL, instead of the system's")
	root.PersistentFlags().StringVar(&c.socket, "socket", tailscale.DefaultSocket, "tailscaled's socket")
	root.PersistentFlags().StringVar(&c.lock, "lock", "/run/tailmesh/agent.lock", "file that keeps others from changing the node")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON")
	root.AddCommand(c.run(), c.apply(), c.plan(), c.status(), c.doctor(), c.cleanup(), c.validate())
	markUsage(root)
	return root
}

// usage is an error in how the program was called, as against in what it was given.
func usage(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// markUsage makes arguments that are refused a mistake of usage, for a command and those under it.
func markUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage(cmd, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and %q is one", cmd.Name(), args[0])
	}
	return nil
}

// version is what the Go toolchain recorded: "(devel)" where the program was built from a work tree without a version.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// fail prints an error, once, and returns the exit code.
func (c *command) fail(executed *cobra.Command, err error) int {
	code := exitUnknown
	_, shadowed := errors.AsType[*reconcile.ShadowedError](err)
	_, overtaken := errors.AsType[*reconcile.OvertakenError](err)
	if shadowed || overtaken {
		code = exitNo
	}
	message := err.Error()
	if errors.Is(err, os.ErrPermission) && !isFile(err) {
		message = fmt.Sprintf("not permitted: run as root, or with CAP_NET_ADMIN (%v)", err)
	}
	left, some := errors.AsType[*reconcile.LeftError](err)
	if c.json {
		out := failure{header: newHeader(executed.Name()), Error: message}
		if some {
			out.Changes = left.Gone
		}
		if invalid, ok := errors.AsType[*config.Error](err); ok {
			out.Problems = invalid.Problems
		}
		c.printJSON(out)
		return code
	}
	if some {
		printLines(c.env.Stdout, left.Gone)
	}
	fmt.Fprintf(c.env.Stderr, "tailmesh-agent: %s\n", message)
	return code
}

func isFile(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}

// invalidDocument is an error of the document itself, with the file that it is in.
type invalidDocument struct {
	path string
	err  error
}

func (e *invalidDocument) Error() string { return e.path + ": " + e.err.Error() }
func (e *invalidDocument) Unwrap() error { return e.err }

// document reads and checks the node's document.
func (c *command) document(ctx context.Context) (config.Document, error) {
	from, err := source.New(c.config, c.ca)
	if err != nil {
		return config.Document{}, fmt.Errorf("--config: %w", err)
	}
	text, err := from.Read(ctx)
	if err != nil {
		return config.Document{}, err
	}
	return c.parse(text)
}

func (c *command) parse(text []byte) (config.Document, error) {
	doc, err := config.Parse(text)
	if err != nil {
		return config.Document{}, &invalidDocument{path: c.config, err: err}
	}
	return doc, nil
}

// node is the node that the program runs on.
func (c *command) node() *reconcile.Node {
	return &reconcile.Node{Kernel: c.env.Kernel, Files: c.env.Files, Tailnet: tailscale.New(c.socket).Tailnet}
}

func (c *command) prepare(ctx context.Context, node *reconcile.Node) (reconcile.Plan, error) {
	doc, err := c.document(ctx)
	if err != nil {
		return reconcile.Plan{}, err
	}
	plan, err := node.Prepare(ctx, doc)
	_, foreign := errors.AsType[*desired.ForeignDocumentError](err)
	_, backend := errors.AsType[*desired.BackendError](err)
	if foreign || backend {
		err = &invalidDocument{path: c.config, err: err}
	}
	return plan, err
}
