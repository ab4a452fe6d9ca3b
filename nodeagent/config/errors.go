package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	Path    string `json:"path"`             // where, as in "peers[2].addresses[0]"; "" is the document as a whole
	Line    int    `json:"line,omitempty"`   // where in the text, the first being 1; 0: there is no text, or it is about all of it
	Column  int    `json:"column,omitempty"` // in characters
	Message string `json:"message"`          // what, and what to write instead
}

// String returns the problem in one line.
func (p Problem) String() string {
	text := p.Message
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, text)
	}
	return text
}

// Error is everything that is wrong with a document.
type Error struct {
	Problems []Problem // at least one, in the order of the document
}

// Error returns one line for one problem, else a line that counts them and one indented line for each of the first twenty.
func (e *Error) Error() string {
	const shown = 20
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(e.Problems))
	for _, p := range e.Problems[:min(len(e.Problems), shown)] {
		b.WriteString("\n  " + p.String())
	}
	if more := len(e.Problems) - shown; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// problems collects what is wrong.
type problems []Problem

func (ps *problems) add(at path, format string, args ...any) {
	*ps = append(*ps, Problem{Path: at.String(), Message: fmt.Sprintf(format, args...)})
}

func (ps problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{Problems: ps}
}

// path is a place in a document: a key, its part i if that is not negative, a key in that, and its part j. It is put into
// words only when something is wrong there.
type path struct {
	key string
	i   int
	sub string
	j   int
}

func at(key string) path { return path{key: key, i: -1, j: -1} }

func (p path) item(i int) path {
	if p.sub == "" {
		p.i = i
	} else {
		p.j = i
	}
	return p
}

func (p path) in(sub string) path {
	p.sub = sub
	return p
}

// String returns the path as in "peers[2].addresses[0]".
func (p path) String() string {
	text := p.key
	if p.i >= 0 {
		text += fmt.Sprintf("[%d]", p.i)
	}
	if p.sub != "" {
		text += "." + p.sub
	}
	if p.j >= 0 {
		text += fmt.Sprintf("[%d]", p.j)
	}
	return text
}

// short cuts what a message repeats of a document to what a line can hold.
func short(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	end := limit
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
