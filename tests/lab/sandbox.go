//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

const insideEnv = "TAILMESH_LAB_INSIDE"

// Missing says what of the machine keeps a lab from being built, or "" where nothing does.
func Missing() string {
	if os.Geteuid() != 0 {
		return "root"
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "/dev/net/tun"
	}
	for _, tool := range []string{"ip", "nft", "iptables", "ping"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ""
}

// Enter runs the program anew in network, mount and PID namespaces of its own. Inside, it prepares the namespaces and
// returns inside true. Outside, it returns when the inner process has ended, with its exit code.
//
// The inner process is the first of its PID namespace, so the kernel ends every daemon that it started as soon as it
// goes, for whatever reason (exit, panic, a test's timeout, SIGKILL of the outer process). The network namespaces go
// with them.
func Enter() (inside bool, code int, err error) {
	if os.Getenv(insideEnv) == "" {
		code, err := reexec()
		return false, code, err
	}
	return true, 0, prepare()
}

func prepare() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ fs, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"tmpfs", "/run"}, // names of namespaces, the lock of iptables, default sockets
	} {
		if err := syscall.Mount(m.fs, m.at, m.fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	// tailscaled may rewrite resolv.conf: it gets one of its own. A link leads below /run, which is ours already.
	const resolv, own = "/etc/resolv.conf", "/run/lab-resolv.conf"
	if info, err := os.Lstat(resolv); err == nil && info.Mode().IsRegular() {
		if err := os.WriteFile(own, nil, 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(own, resolv, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", resolv, err)
		}
	}
	return ip("link", "set", "lo", "up")
}

func reexec() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	// The signal of the parent's death is of its thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("enter namespaces: %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may be gone, which Wait tells
		}
	}()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
