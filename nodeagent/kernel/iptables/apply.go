package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// lockWait is how many seconds iptables waits for its lock, which the legacy variant has.
const lockWait = 5

// LockedError says that another program kept iptables' lock for longer than the agent waits.
type LockedError struct{ Command string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("another program has held the lock of iptables (/run/xtables.lock) for %d seconds: try again when it is done "+
		"(`fuser -v /run/xtables.lock` shows it; stopped at %s)", lockWait, e.Command)
}

// Apply makes the changes in their order. Those to rules and chains of one table and family that stand together are made
// at once, by one process, or not at all.
func (f *Firewall) Apply(changes []desired.FirewallChange) error {
	for len(changes) > 0 {
		first := changes[0]
		if first.OfSet() {
			if err := again(func() error { return changeSet(first) }); err != nil {
				return fmt.Errorf("%s: %w%s", first, err, suspicion(first))
			}
			changes = changes[1:]
			continue
		}
		end := slices.IndexFunc(changes, func(c desired.FirewallChange) bool {
			return c.OfSet() || c.Backend != first.Backend || c.Chain.Family != first.Chain.Family || c.Chain.Type != first.Chain.Type
		})
		if end < 0 {
			end = len(changes)
		}
		if err := again(func() error { return f.restore(changes[:end]) }); err != nil {
			return err
		}
		changes = changes[end:]
	}
	return nil
}

// again tries up to five times: a program may fail because another is at work on the same table for a moment. The lock
// has been waited for already, and what a program cannot show it will not show the next time either.
func again(step func() error) error {
	for range 4 {
		if err := step(); err == nil || isLocked(err) || isHung(err) || errors.Is(err, errNotShown) {
			return err
		}
	}
	return step()
}

func isLocked(err error) bool {
	_, locked := errors.AsType[*LockedError](err)
	return locked
}

// HungError says that a program of iptables did not end, and was ended.
type HungError struct {
	Program string
	After   time.Duration
}

func (e *HungError) Error() string {
	return fmt.Sprintf("%s has not ended within %s, and was killed: does it work when you run it by hand?", e.Program, e.After)
}

func isHung(err error) bool {
	_, hung := errors.AsType[*HungError](err)
	return hung
}

// patience is how long a program of iptables may take. It changes thousands of rules within a few seconds.
const patience = 20 * time.Second

// start runs a program of iptables with what it is to read, and returns what it said: to its answer, or about its failure.
func (f *Firewall) start(path, input string, arguments ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), f.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"--wait", strconv.Itoa(lockWait)}, arguments...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that it can be ended with what it has started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(input)
	var answer, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &answer, &complaint
	switch err := cmd.Run(); {
	case err == nil:
		return answer.String(), nil
	case ctx.Err() != nil:
		return "", &HungError{Program: path, After: f.patience}
	case answer.Len()+complaint.Len() == 0:
		return err.Error(), err
	default:
		return complaint.String() + answer.String(), err
	}
}

// restore has iptables-restore make the steps.
func (f *Firewall) restore(steps []desired.FirewallChange) error {
	path, err := find(steps[0].Backend, steps[0].Chain.Family, restoring)
	if err != nil {
		return err
	}
	text := desired.Restore(steps)
	said, err := f.start(path, text, "--noflush")
	if err == nil || isHung(err) {
		return err
	}
	step := steps[failed(steps, said)]
	err = problem(said, step.String())
	if isLocked(err) {
		return err
	}
	return fmt.Errorf("%w%s", err, suspicion(step))
}

// suspicion says why something of the agent's can mostly not be deleted, or "". The legacy variant itself gives no reason.
func suspicion(step desired.FirewallChange) string {
	name := step.Chain.Name
	switch step.Op {
	case desired.DeleteSet:
		name = step.Backend.SetName(step.Set.Name)
	case desired.DeleteChain:
	default:
		return ""
	}
	return fmt.Sprintf("; a rule that is not the agent's may use it: find that with `%s-save | grep %s`, delete it, and try again",
		step.Backend.Tool(step.Chain.Family), name)
}

var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// failed returns which of the steps iptables-restore failed at, by the line that it names; the first if it names none.
func failed(steps []desired.FirewallChange, said string) int {
	named := lineNumber.FindStringSubmatch(said)
	if named == nil {
		return 0
	}
	line, err := strconv.Atoi(named[1])
	if err != nil {
		return 0
	}
	next := 2 // the first line names the table
	for i := range steps {
		next += strings.Count(desired.Restore(steps[i:i+1]), "\n") - 2
		if line < next {
			return i
		}
	}
	return len(steps) - 1 // COMMIT
}

// problem puts what the tool said about a command into words.
func problem(said, command string) error {
	if strings.Contains(said, "holding the xtables lock") {
		return &LockedError{Command: command}
	}
	if strings.Contains(said, "Can't open socket to ipset") || strings.Contains(said, "you must be root") ||
		strings.Contains(said, "unable to initialize table") && lacksRaw() {
		return fmt.Errorf("iptables needs CAP_NET_RAW beside CAP_NET_ADMIN: run as root, or add it to the unit as its comments say "+
			"(stopped at %s)", command)
	}
	lines := slices.DeleteFunc(strings.Split(said, "\n"), noise)
	return fmt.Errorf("%s: %s", command, strings.Join(lines, "; "))
}

// lacksRaw says whether this process, or those that it starts, may not open raw sockets, as iptables does for sets and for
// legacy tables.
func lacksRaw() bool {
	if bounded, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_NET_RAW, 0, 0, 0); err == nil && bounded == 0 {
		return true
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err == nil {
		_ = unix.Close(socket)
	}
	return errors.Is(err, unix.EPERM)
}

func noise(line string) bool {
	return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "Try `")
}
