package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		holder, _ := os.ReadFile(c.lock)
		return nil, fmt.Errorf("another tailmesh-agent (process %s) is at work on this node and holds %q: stop it first",
			strings.TrimSpace(string(holder)), c.lock)
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
