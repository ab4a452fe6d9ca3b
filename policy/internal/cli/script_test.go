package cli

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"tailmesh-policy": func() { os.Exit(Main()) },
	})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"binary":  binary,
			"large":   sized(maxText + 1),
			"huge":    sized(maxInventory + 1),
			"bom":     written("\ufeff{}\n"),
			"utf16le": written("\xff\xfe{\x00}\x00"),
			"utf16be": written("\xfe\xff\x00{\x00}"),
			"escape":  written("{\"acls\": [{\"action\": \"accept\", \"src\": [\"tag:\x1b[31mx\"], \"dst\": [\"*:*\"]}]}\n"),
		},
	})
}

// exits runs a program and checks its exit code: exits 2 tailmesh-policy check nowhere.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// written makes a command that writes a file of a text that a script cannot hold.
func written(text string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		if len(args) != 1 {
			ts.Fatalf("usage: NAME FILE")
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
	}
}

// binary writes a file of bytes that are no text, escape sequences among them.
func binary(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: binary FILE")
	}
	var bytes []byte
	for i := range 2048 {
		bytes = append(bytes, byte(i*7+i/256))
	}
	bytes = append(bytes, "\x1b[2J"...)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes, 0o600))
}

// sized makes a command that writes a file of so many bytes, which takes no place on the disk.
func sized(bytes int64) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		if len(args) != 1 {
			ts.Fatalf("usage: NAME FILE")
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), nil, 0o600))
		ts.Check(os.Truncate(ts.MkAbs(args[0]), bytes))
	}
}
