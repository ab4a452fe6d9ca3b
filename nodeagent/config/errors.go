package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	Path    string `json:"path"`    // where, as in "peers[2].addresses[0]"; "" is the document as a whole
	Message string `json:"message"` // what, and what to write instead
}

// String returns the problem in one line.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Error is everything that is wrong with a document.
type Error struct {
	Problems []Problem // at least one, in the order of the document
}

// Error returns one line for one problem, else a line that counts them and one indented line for each.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// problems collects what is wrong, each place once.
type problems []Problem

func (ps *problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// covers says whether a problem is known for the path itself or for something around it, so that nothing more can be
// said about it: what could not be read also looks as if it were missing.
func (ps problems) covers(path string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool {
		rest, ok := strings.CutPrefix(path, p.Path)
		return ok && (rest == "" || p.Path == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{Problems: ps}
}
