//go:build linux

package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// Neither pipes in place of what it has put away, nor a supervisor or a reader of the log who reads no more, holds the service
// up or ends it.
func TestNobodyHoldsTheServiceUp(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, nodeDocument)
	dir, err := os.MkdirTemp("", "n") //nolint:usetesting // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, path := range []string{goodPath(dir), tailnetPath(dir), admissionsPath(dir)} {
		must(t, syscall.Mkfifo(path, 0o600))
	}
	socket := filepath.Join(dir, "systemd")
	deaf, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer deaf.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	reader, writer, err := os.Pipe()
	must(t, err)
	cmd := a.program("run", "--state", dir, "--listen", "")
	cmd.Stdout, cmd.Stderr = writer, writer
	must(t, cmd.Start())
	writer.Close()
	reader.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	const rule = "fwmark 0x2000/0x2000 lookup 52 proto 116"
	for i := range 15 { // more than the supervisor's socket has room for
		if !node.Wait(func() bool { return strings.Contains(node.Run("ip rule"), rule) }) {
			t.Fatalf("the rule is not there, after %d repairs", i)
		}
		node.Run("ip rule del pref 0 " + rule)
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("at the end: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
		_ = cmd.Process.Kill()
	}
}
