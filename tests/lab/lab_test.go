//go:build linux

package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// requireEnv makes a failure of what is otherwise skipped where the machine cannot have a lab.
const requireEnv = "REQUIRE_NETNS"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	if Missing() != "" {
		return m.Run()
	}
	if os.Getenv(insideEnv) == "" {
		dir, err := os.MkdirTemp("", "lab")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		if err := BuildPrograms(context.Background(), dir, func(s string) { fmt.Fprintln(os.Stderr, "lab:", s) }); err != nil {
			return fail(err)
		}
	}
	inside, code, err := Enter()
	switch {
	case err != nil:
		return fail(err)
	case !inside:
		return code
	}
	return m.Run()
}

func start(t *testing.T) *Lab {
	t.Helper()
	if what := Missing(); what != "" {
		if os.Getenv(requireEnv) != "" {
			t.Fatalf("a lab needs %s", what)
		}
		t.Skipf("a lab needs %s", what)
	}
	l, err := New(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func (l *Lab) policyFile(t *testing.T, name string) {
	t.Helper()
	path := "testdata/" + name
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetPolicy(t.Context(), path, src); err != nil {
		t.Fatal(err)
	}
}
