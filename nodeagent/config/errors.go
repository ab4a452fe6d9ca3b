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

// What one look at a document may say: whoever reads it starts with the first problem, and a log has to hold it.
const (
	maxProblems = 100
	maxText     = 500 // bytes of a path, or of a message
)

// Error is what is wrong with a document.
type Error struct {
	Problems []Problem // at least one, in the order of the document; behind the hundredth, one that says that there are more
}

// Error returns one line for one problem, else a line that counts them and one indented line for each.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	if len(e.Problems) > maxProblems {
		fmt.Fprintf(&b, "more than %d problems", maxProblems)
	} else {
		fmt.Fprintf(&b, "%d problems", len(e.Problems))
	}
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// problems collects what is wrong, each place once, until there is enough of it.
type problems []Problem

func (ps *problems) add(path, format string, args ...any) {
	if ps.full() {
		return
	}
	ps.append(Problem{Path: shorten(path), Message: shorten(fmt.Sprintf(format, args...))})
}

func (ps *problems) append(p Problem) {
	switch {
	case ps.full():
	case len(*ps) == maxProblems:
		*ps = append(*ps, Problem{Message: fmt.Sprintf("there are more; these are the first %d", maxProblems)})
	default:
		*ps = append(*ps, p)
	}
}

// full says whether nothing more is collected, so that there is no use in looking further.
func (ps problems) full() bool { return len(ps) > maxProblems }

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), len(text))
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
