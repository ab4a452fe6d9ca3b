package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// isRevision reports whether a name means a file in a git revision, as in HEAD:policy.hujson. A file that is there under
// the name itself is that file.
func isRevision(name string) bool {
	rev, path, ok := strings.Cut(name, ":")
	if !ok || rev == "" || path == "" {
		return false
	}
	_, err := os.Stat(name)
	return err != nil
}

// readSource reads a file, standard input or a file in a git revision.
func readSource(ctx context.Context, e env, name string) ([]byte, error) {
	if name == stdinName || !isRevision(name) {
		return readFile(e, name, maxText)
	}
	return readRevision(ctx, name)
}

// readRevision asks git for REVISION:PATH, where a path is from the top of the repository, or with ./ from here.
func readRevision(ctx context.Context, name string) ([]byte, error) {
	rev, path, _ := strings.Cut(name, ":")
	if strings.HasPrefix(rev, "-") {
		return nil, fmt.Errorf("cannot read %q: no git revision begins with a dash", name)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", "--no-pager", "show", "--no-textconv", "--no-ext-diff", "--end-of-options", name)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("cannot read %q: there is no such file, and no git to read it from a revision", name)
	case err != nil:
		return nil, fmt.Errorf("cannot read %q: %w", name, gitError(said.String(), err, rev, path))
	case bytes.HasPrefix(out.Bytes(), []byte("tree "+name+"\n")):
		return nil, fmt.Errorf("cannot read %q: a directory in git revision %q", name, rev)
	}
	return out.Bytes(), refuseMark(name, out.Bytes())
}

// gitError says in our words what git says of a revision that it cannot show.
func gitError(said string, err error, rev, path string) error {
	said = strings.TrimPrefix(strings.TrimSpace(said), "fatal: ")
	first, _, _ := strings.Cut(said, "\n")
	switch {
	case strings.Contains(said, "not a git repository"):
		return errors.New("there is no such file, and this is not in a git repository, which REVISION:PATH needs")
	case strings.Contains(said, "invalid object name"), strings.Contains(said, "unknown revision"), strings.Contains(said, "bad revision"):
		return fmt.Errorf("git knows no revision %q", rev)
	case strings.Contains(said, " aka "):
		return fmt.Errorf("git revision %q has no %q at the top of the repository; for the one in this directory, write %q", rev, path, rev+":./"+path)
	case strings.Contains(said, "exists on disk, but not in"), strings.Contains(said, "does not exist in"):
		return fmt.Errorf("git revision %q has no file %q", rev, path)
	case first == "":
		return fmt.Errorf("git show: %w", err)
	}
	return fmt.Errorf("git show: %s", first)
}
