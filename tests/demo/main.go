//go:build linux

// Command demo shows the whole of what the project is for, on an embedded default: no account, no credentials, no
// address outside of this machine. It runs the real programs, OpenTofu or Terraform among them, in namespaces that
// disappear with it. Exit codes: 0 every step held, 1 one did not, 2 it could not be tried.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// wholeTime is how long the demo may take, without building programs.
const wholeTime = 3 * time.Minute

// Exit codes; exitInterrupted is what shells give for an interrupt.
const (
	exitHeld        = 0
	exitBroken      = 1
	exitUnknown     = 2
	exitInterrupted = 130
)

// errBroken says that a step was carried out and did not hold.
var errBroken = errors.New("a step did not hold")

func main() {
	if text, ok := os.LookupEnv(insideEnv); ok {
		os.Exit(inside(text))
	}
	os.Exit(outside(os.Args[1:]))
}

// outside prepares what needs this machine and its network, and runs the rest inside.
func outside(args []string) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	bin := flags.String("bin", "", "folder of terraform-provider-tailmesh, tailmesh-policy and tailmesh-agent (default: they are built)")
	example := flags.String("example", "", "configuration to apply (default: examples/meshes/quickstart)")
	asJSON := flags.Bool("json", false, "print what was seen as JSON, and the story to standard error")
	keep := flags.Bool("keep", false, "keep the folder with the logs")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitHeld
	case err != nil:
		return exitUnknown
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flags.Arg(0))
		return exitUnknown
	}
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitUnknown
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	work, err := os.MkdirTemp("", "tailmesh-demo-")
	if err != nil {
		return fail(err)
	}
	code, err := func() (int, error) {
		set, err := prepare(ctx, work, *bin, *example)
		if err != nil {
			return exitUnknown, err
		}
		set.JSON = *asJSON
		if ctx.Err() != nil {
			return exitInterrupted, nil
		}
		return enter(set)
	}()
	switch {
	case ctx.Err() != nil:
		code = exitInterrupted
	case err != nil:
		code = fail(err)
	}
	if *keep || code == exitBroken {
		fmt.Fprintf(os.Stderr, "demo: every command with its whole output is in %s\n", filepath.Join(work, "logs"))
		return code
	}
	if err := os.RemoveAll(work); err != nil {
		return fail(err)
	}
	return code
}

// inside tells the story and returns the exit code.
func inside(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, wholeTime)
	defer cancel()

	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return exitUnknown
	}
	var set settings
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return fail(err)
	}
	if err := prepareInside(); err != nil {
		return fail(err)
	}
	out := os.Stdout
	if set.JSON {
		out = os.Stderr
	}
	s, err := newStory(out, filepath.Join(set.Work, "logs"))
	if err != nil {
		return fail(err)
	}
	// The only device there is, so that nothing can leave this machine.
	if _, err := s.must(ctx, command{Args: []string{"ip", "link", "set", "lo", "up"}}); err != nil {
		return fail(err)
	}
	return tell(ctx, s, set)
}

func tell(ctx context.Context, s *story, set settings) int {
	start := time.Now()
	res := &result{SchemaVersion: 1, Command: "demo"}
	err := perform(ctx, s, set, res)
	res.Held = err == nil
	code := exitBroken
	switch {
	case err == nil:
		summary(s)
		fmt.Fprintf(s.out, "\nEvery step held, in %.1f seconds.\n", time.Since(start).Seconds())
		code = exitHeld
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Fprintln(s.out, "\nInterrupted; nothing is left behind.")
		return exitInterrupted
	case errors.Is(err, errBroken):
		for _, b := range res.Broken {
			s.say("DID NOT HOLD: %s", b)
		}
	default:
		res.Error = err.Error()
		s.say("FAILED: %v", err)
	}
	if set.JSON {
		if err := writeJSON(os.Stdout, res); err != nil {
			fmt.Fprintf(os.Stderr, "demo: %v\n", err)
			return exitUnknown
		}
	}
	return code
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
