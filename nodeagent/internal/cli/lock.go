package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// acquire makes sure that one process at a time changes the node. The lock goes with the process, however it ends.
func (c *command) acquire() (release func(), err error) {
	err = os.MkdirAll(filepath.Dir(c.lock), 0o755)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(c.lock, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if errors.Is(err, os.ErrPermission) {
		// Whoever may not lock may not change the node either: this is not about a file.
		return nil, fmt.Errorf("lock %q: %w", c.lock, os.ErrPermission)
	}
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %q: %w", c.lock, err)
		}
		return nil, fmt.Errorf("another tailmesh-agent%s is at work on this node and holds %q: stop it first", holder(c.lock), c.lock)
	}
	if err = file.Truncate(0); err == nil {
		_, err = fmt.Fprintf(file, "%d\n", os.Getpid())
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %q: %w", c.lock, err)
	}
	return func() { file.Close() }, nil
}

// holder names the process that has written its number into the lock file. Whoever holds the lock may have another
// number here, or none, when it runs in a container, or when it has not come to write it yet.
func holder(lock string) string {
	text, _ := os.ReadFile(lock)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return fmt.Sprintf(" (`fuser -v %s` shows it)", lock)
	}
	return fmt.Sprintf(" (process %d)", pid)
}
