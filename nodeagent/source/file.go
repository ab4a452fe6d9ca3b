package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// file is a document in a file, by its path.
type file string

// Read implements [Source]. A pipe may be one, too, as shells make them; nobody waits for one into which nothing is written.
func (f file) Read(ctx context.Context) ([]byte, error) {
	in, err := os.OpenFile(string(f), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no document at %q: write the node's document there, or name another file with --config", string(f))
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	stop := context.AfterFunc(ctx, func() { _ = in.SetReadDeadline(time.Now()) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && len(text) > limit {
		err = errTooLarge(string(f))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return text, err
}

// Again implements [Source]. A file is read whenever it is asked for.
func (f file) Again() {}

// Watch implements [Source]. What cannot be watched is trouble once, and is tried again.
func (f file) Watch(ctx context.Context, changed func(), trouble func(error)) func() error {
	w, err := watchWay(string(f))
	return func() error {
		defer func() { _ = w.close() }()
		told := ""
		for {
			var again <-chan time.Time
			if err != nil {
				again = time.After(interval)
				if err.Error() != told {
					told = err.Error()
					trouble(err)
				}
			}
			for another := false; !another; {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case e := <-w.events:
					if !w.names[filepath.Clean(e.Name)] {
						continue
					}
					another = e.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) != 0
				case <-w.errors: //nolint:errcheck // there were too many events to tell
					another = true
				case <-again:
					another = true
				}
				if !another {
					changed()
				}
			}
			before := w
			w, err = watchWay(string(f))
			_ = before.close()
			changed()
		}
	}
}

// way is the way to a file: every name that leads there, those of links and of what they lead to included.
type way struct {
	names  map[string]bool
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
}

// watchWay watches the folders that the names on the way to a file stand in, as far as there are any. What is put into the
// place of one, be it the file, a folder or a link, shows there. An error comes with the way that is watched all the same.
func watchWay(path string) (way, error) {
	w := way{names: map[string]bool{}, close: func() error { return nil }}
	path, err := filepath.Abs(path)
	if err != nil {
		return w, err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return w, fmt.Errorf("watch files: %w", err)
	}
	w.events, w.errors, w.close = watcher.Events, watcher.Errors, watcher.Close
	const maxLinks = 40 // of the kernel's
	folder, rest, links := "/", parts(path), 0
	var trouble error
	for len(rest) > 0 && links <= maxLinks {
		switch name := rest[0]; name {
		case "", ".":
		case "..":
			folder = filepath.Dir(folder)
		default:
			switch err := watcher.Add(folder); {
			case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
				return w, trouble // when it comes, it comes by a name that is watched
			case err != nil:
				trouble = fmt.Errorf("watch the folder %q for the document: %w", folder, err)
			}
			at := filepath.Join(folder, name)
			w.names[at] = true
			target, err := os.Readlink(at)
			if err != nil {
				folder = at
				break
			}
			links++
			if filepath.IsAbs(target) {
				folder = "/"
			}
			rest = slices.Concat(rest[:1], parts(target), rest[1:])
		}
		rest = rest[1:]
	}
	return w, trouble
}

func parts(path string) []string { return strings.Split(path, string(filepath.Separator)) }
