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

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if Missing() != "" {
			return m.Run()
		}
		if os.Getenv(insideEnv) == "" {
			dir, err := os.MkdirTemp("", "lab")
			if err != nil {
				return fail(err)
			}
			// Enter does not return here, so what the inner process leaves is its own to remove.
			if err := BuildPrograms(context.Background(), dir, func(s string) { fmt.Fprintln(os.Stderr, "lab:", s) }); err != nil {
				return fail(err)
			}
		}
		if err := Enter(); err != nil {
			return fail(err)
		}
		return m.Run()
	}())
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "lab:", err)
	return 1
}

func start(t *testing.T) *Lab {
	t.Helper()
	if what := Missing(); what != "" {
		if os.Getenv(requireEnv) != "" {
			t.Fatalf("a lab needs %s", what)
		}
		t.Skipf("a lab needs %s", what)
	}
	l, err := New(t.Context(), Config{Dir: t.TempDir(), Logf: t.Logf})
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
