//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const commandTimeout = 30 * time.Second

// Run runs a command in a namespace and returns what it prints, stdout and stderr together.
func Run(ctx context.Context, ns string, args ...string) (string, error) {
	return run(ctx, append([]string{"ip", "netns", "exec", ns}, args...)...)
}

// Sh runs a shell script in a namespace.
func Sh(ctx context.Context, ns, script string) (string, error) {
	return Run(ctx, ns, "sh", "-ec", script)
}

func run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

func ip(args ...string) error {
	_, err := run(context.Background(), append([]string{"ip"}, args...)...)
	return err
}

// steps runs ip(8) commands, one a line, until one fails. pairs are replaced in the text, as strings.NewReplacer does.
func steps(script string, pairs ...string) error {
	for line := range strings.Lines(strings.NewReplacer(pairs...).Replace(script)) {
		if words := strings.Fields(line); len(words) > 0 {
			if err := ip(words...); err != nil {
				return err
			}
		}
	}
	return nil
}

// within calls f with its thread in a namespace. Sockets that f opens belong to that namespace for good.
func within[T any](ns string, f func() (T, error)) (T, error) {
	var none T
	runtime.LockOSThread()
	lost := false
	defer func() {
		// A thread that cannot go back stays locked, so that it ends with the goroutine.
		if !lost {
			runtime.UnlockOSThread()
		}
	}()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return none, err
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + ns)
	if err != nil {
		return none, err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return none, fmt.Errorf("enter namespace %s: %w", ns, err)
	}
	result, err := f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		lost = true
		return none, fmt.Errorf("leave namespace %s: %w", ns, back)
	}
	return result, err
}

// wait calls f every 100 ms until it returns nil or the time is up.
func wait(ctx context.Context, limit time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
