package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// file is a document in a file, by its path.
type file string

// Read implements [Source].
func (f file) Read(context.Context) ([]byte, error) {
	in, err := os.Open(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no document at %q: write the node's document there, or name another file with --config", string(f))
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && len(text) > limit {
		err = errTooLarge(string(f))
	}
	return text, err
}

// Again implements [Source]. A file is read whenever it is asked for.
func (f file) Again() {}

// Watch implements [Source]. It watches the folder, not the file: a new document takes the old one's place by its name.
func (f file) Watch(ctx context.Context, changed func(), trouble func(error)) (func() error, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	folder, name := filepath.Dir(string(f)), filepath.Base(string(f))
	if err := watcher.Add(folder); err != nil {
		watcher.Close()
		return nil, fmt.Errorf("watch the folder of the document, %q: %w", folder, err)
	}
	return func() error {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e, ok := <-watcher.Events:
				if !ok {
					return errWatchEnded
				}
				// Kubernetes swaps a symbolic link beside the file instead of the file.
				if base := filepath.Base(e.Name); base == name || base == "..data" {
					changed()
				}
			case err := <-watcher.Errors:
				trouble(fmt.Errorf("watch the folder of the document: %w", err))
				changed()
			}
		}
	}, nil
}
