//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// settings are what the outer process hands to the inner one.
type settings struct {
	Work    string // folder for everything that the demo writes
	Bin     string // folder of the three programs
	Tofu    string // OpenTofu or Terraform
	Version string // of it, with its name: "OpenTofu v1.12.6"
	Example string // the configuration that is applied
	JSON    bool
}

// insideEnv carries the settings, and by being there says that the process is the inner one.
const insideEnv = "TAILMESH_DEMO_INSIDE"

// errNoNamespaces is what the demo needs and does not have.
var errNoNamespaces = errors.New("the demo makes network namespaces of its own and needs to be root for that, " +
	"or a kernel that lets users make user namespaces")

// enter runs this program again in fresh network, mount and process namespaces, in which it is root, and returns its
// exit code. The inner process is the first of its process namespace and is killed when the outer one ends, for whatever
// reason; then the kernel ends every process that it started and takes the namespaces, devices and rules away.
func enter(s settings) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	// The parent's death signal comes when the thread ends that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	text, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	var cmd *exec.Cmd
	for _, asUser := range []bool{false, true} { // root may lack the capability, as in most containers
		if !asUser && os.Geteuid() != 0 {
			continue
		}
		cmd = exec.Command(self)
		cmd.Env = append(os.Environ(), insideEnv+"="+string(text))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
			Pdeathsig:  syscall.SIGKILL,
		}
		if asUser {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
		if err = cmd.Start(); err == nil {
			break
		}
		if asUser {
			return 0, fmt.Errorf("%w (%w)", errNoNamespaces, err)
		}
	}
	go func() {
		for range signals {
			// From a terminal the inner process has its own; one more does no harm.
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() < 0 {
			return 0, fmt.Errorf("the demo was ended from outside: %w", err)
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// prepareInside makes the fresh namespaces usable, with mounts of their own.
func prepareInside() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w (private mounts: %w)", errNoNamespaces, err)
	}
	for _, m := range []struct{ fs, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"tmpfs", "/run"}, // names of network namespaces, lock of iptables; and it hides this machine's tailscaled
	} {
		if err := syscall.Mount(m.fs, m.at, m.fs, 0, ""); err != nil {
			return fmt.Errorf("%w (mount %s: %w)", errNoNamespaces, m.at, err)
		}
	}
	// Providers listen on sockets among the temporary files, and the path of a socket must be short.
	const tmp = "/run/tmp"
	return errors.Join(os.Unsetenv(insideEnv), os.Setenv("TMPDIR", tmp), os.Mkdir(tmp, 0o700))
}
