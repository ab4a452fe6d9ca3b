//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// commandTime is how long one command may take.
const commandTime = 90 * time.Second

// story tells what the demo does, and logs every command with its whole output.
type story struct {
	out      io.Writer
	logs     string   // folder
	commands *os.File // the log of commands
}

func newStory(out io.Writer, logs string) (*story, error) {
	commands, err := os.Create(filepath.Join(logs, "commands.log"))
	return &story{out: out, logs: logs, commands: commands}, err
}

func (s *story) step(number int, title string) {
	fmt.Fprintf(s.out, "\n%d. %s\n", number, title)
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintln(s.out, strings.TrimRight("   "+fmt.Sprintf(format, args...), " "))
}

// show prints lines of a program's output, indented.
func (s *story) show(lines ...string) {
	for _, line := range lines {
		fmt.Fprintln(s.out, strings.TrimRight("     | "+line, " "))
	}
}

// command is a program to run.
type command struct {
	Args []string
	Dir  string
	Env  []string // nil: that of this process
	NS   string   // network namespace; empty: the one of the demo itself
	Show string   // how to tell it; empty: do not
}

// ran is what a command did.
type ran struct {
	Command string `json:"command"`
	Exit    int    `json:"exit"`
	Stdout  string `json:"stdout,omitempty"`
	Stderr  string `json:"stderr,omitempty"`
}

// lines are what the command printed, standard output first.
func (r ran) lines() []string { return splitLines(r.Stdout + r.Stderr) }

func splitLines(text string) []string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// run runs a command to its end. The error says that it could not be run at all, or was not done in time; any exit code
// is an answer.
func (s *story) run(ctx context.Context, c command) (ran, error) {
	if c.Show != "" {
		s.say("$ %s", c.Show)
	}
	args := c.Args
	if c.NS != "" {
		args = slices.Concat([]string{"ip", "netns", "exec", c.NS}, args)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	r := ran{Command: strings.Join(args, " "), Stdout: stdout.String(), Stderr: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		r.Exit, err = exit.ExitCode(), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.log(r, err)
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Command, err)
	}
	return r, nil
}

// must is run for commands that have to succeed.
func (s *story) must(ctx context.Context, c command) (ran, error) {
	r, err := s.run(ctx, c)
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("%s: exit code %d\n%s", r.Command, r.Exit, strings.Join(r.lines(), "\n"))
	}
	return r, err
}

func (s *story) log(r ran, err error) {
	text := fmt.Sprintf("$ %s\n%s%sexit code %d\n", r.Command, r.Stdout, r.Stderr, r.Exit)
	if err != nil {
		text += err.Error() + "\n"
	}
	if _, err := s.commands.WriteString(text + "\n"); err != nil {
		s.say("cannot log a command: %v", err)
	}
}
