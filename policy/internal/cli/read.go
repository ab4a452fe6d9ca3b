package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"
)

// What is read of one file at the most, in bytes: a pipe may have no end. A policy of a thousand rules takes a tenth of a
// MiB, a device three or four thousand bytes of an inventory.
const (
	maxText      = 16 << 20
	maxInventory = 256 << 20
)

// readFile reads a file, a pipe or standard input, of most bytes.
func readFile(e env, name string, most int64) ([]byte, error) {
	if name == stdinName {
		src, err := readAll(e.Stdin, most)
		if err != nil {
			return nil, fmt.Errorf("cannot read standard input: %w", err)
		}
		return src, refuseMark(stdinFile, src)
	}
	src, err := readNamed(name, most)
	if err != nil {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		return nil, fmt.Errorf("cannot read %q: %w", name, err)
	}
	return src, refuseMark(name, src)
}

// refuseMark refuses a text that an editor saved with a byte order mark, which is neither JSON nor HuJSON.
func refuseMark(name string, src []byte) error {
	for _, known := range []struct{ mark, encoding string }{
		{"\xef\xbb\xbf", "UTF-8"}, {"\xff\xfe\x00\x00", "UTF-32"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	} {
		if bytes.HasPrefix(src, []byte(known.mark)) {
			return fmt.Errorf("%s: the file begins with a byte order mark of %s: save it as UTF-8 without one", name, known.encoding)
		}
	}
	return nil
}

func readNamed(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case isDevice(f, info):
		return nil, errors.New("it is a device, not a file")
	case info.Size() > most:
		return nil, errTooLarge(most)
	}
	return readAll(f, most)
}

// isDevice reports whether a file is what never ends or is no text, such as /dev/zero or a disk. A terminal and the empty
// file that every system has are read.
func isDevice(f *os.File, info os.FileInfo) bool {
	if info.Mode()&os.ModeDevice == 0 || term.IsTerminal(int(f.Fd())) {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// readAll reads to the end, unless that is too far away.
func readAll(r io.Reader, most int64) ([]byte, error) {
	src, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(src)) > most {
		return nil, errTooLarge(most)
	}
	return src, err
}

func errTooLarge(most int64) error {
	return fmt.Errorf("it is longer than %d MiB: is it the right file?", most>>20)
}
