// Package diag holds what the policy engine has to say about a text: findings as data, with ranges in the user's
// own text. Rendering them is apart from making them, in the writers of this package. It knows nothing of policies.
package diag

import (
	"fmt"
	"slices"
)

// Severity says what a finding does to the answer. The zero value is invalid on purpose: a finding without a
// severity is a programming mistake.
type Severity int

// Severities, worst first.
const (
	Error   Severity = iota + 1 // the control plane refuses, or a promise is broken
	Warning                     // accepted, and worth a look
	Note                        // a fact, such as what could not be checked
)

// String returns "error", "warning" or "note".
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	case Note:
		return "note"
	}
	return "invalid"
}

// MarshalText gives the severity's name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes a severity's name.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{Error, Warning, Note} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("severity %q is none of error, warning and note", text)
}

// Pos is a place in a text. Line and Column count from 1, Column in characters (not bytes), Offset in bytes from 0.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Offset int `json:"offset"`
}

// Range is a part of a text; End is exclusive. A Range whose Start.Line is 0 points nowhere.
type Range struct {
	Start Pos `json:"start"`
	End   Pos `json:"end"`
}

// IsZero reports whether the range points nowhere.
func (r Range) IsZero() bool { return r.Start.Line == 0 }

// Related is a second place that belongs to a finding: where the other of two things that disagree is.
type Related struct {
	Message string `json:"message"`
	Range   Range  `json:"range"`
}

// Edit replaces the text of Range by NewText. An empty range inserts.
type Edit struct {
	Range   Range  `json:"range"`
	NewText string `json:"newText"`
}

// Help is a way out: a sentence and, where it is sure, the edits that carry it out.
type Help struct {
	Message string `json:"message"`
	Edits   []Edit `json:"edits,omitempty"`
}

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Code is a stable slug such as "unknown-tag"; `tailmesh-policy explain CODE` tells about it.
	Code string `json:"code"`
	// Message stands alone: lower case, no full stop, the control plane's own wording where it has one.
	Message string `json:"message"`
	// File names the text as the caller did; empty where there is none (inside a Terraform configuration).
	File string `json:"file,omitempty"`
	// Path names the culprit by structure, such as "grants[3].src[0]".
	Path  string `json:"path,omitempty"`
	Range Range  `json:"range,omitzero"`
	// Label says what is wrong at Range; it is printed beside the caret.
	Label   string    `json:"label,omitempty"`
	Related []Related `json:"related,omitempty"`
	// Notes are facts: who is affected, which rule nearly matched.
	Notes []string `json:"notes,omitempty"`
	// Missing is what would have to be known to decide what the finding says cannot be decided; each is a note as well.
	Missing []string `json:"missing,omitempty"`
	Help    []Help   `json:"help,omitempty"`
}

// Lacks adds what is missing, each with a note.
func (d *Diagnostic) Lacks(missing []string) {
	d.Missing = append(d.Missing, missing...)
	for _, m := range missing {
		d.Notes = append(d.Notes, "not known: "+m)
	}
}

// List is a number of findings, in the order in which they were made until Sort.
type List []Diagnostic

// HasErrors reports whether any finding is an Error.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Error })
}
