// Package page writes what the doctor found as one HTML page that needs nothing else: for a ticket, a colleague or a
// printer. It loads nothing and runs nothing.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
)

// Page is what is shown.
type Page struct {
	Report   doctor.Report
	Gathered []doctor.Section
	// Text is the report as the command line prints it, to be pasted into an issue.
	Text    string
	Version string
	Made    time.Time
	// Redacted says that names and addresses were replaced.
	Redacted bool
}

//go:embed page.html
var source string

//go:embed page.css
var style string

// Write writes the page.
func Write(w io.Writer, p Page) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"word":     word,
		"findings": findings,
		"headline": headline,
	}).Parse(source)
	if err != nil {
		return err
	}
	return page.Execute(w, struct {
		Page
		Style template.CSS
	}{p, template.CSS(style)})
}

// headline is the answer in a sentence.
func headline(r doctor.Report) string {
	switch r.Verdict {
	case doctor.VerdictOK:
		return "Nothing was found"
	case doctor.VerdictWrong:
		return "A cause was found"
	}
	return "It could not be told"
}

// word is a status or level as a reader sees it.
func word(s any) string {
	switch v := s.(type) {
	case doctor.Status:
		if v == doctor.StatusUntested {
			return "not testable yet"
		}
		return string(v)
	case doctor.Level:
		return string(v)
	}
	return ""
}

// finding is one with the check that it is of.
type finding struct {
	doctor.Finding
	Check string
	ID    string // of its place in the page; the first of a code has one
}

func findings(r doctor.Report) []finding {
	seen := map[string]bool{}
	var out []finding
	for _, c := range r.Results {
		for _, f := range c.Findings {
			one := finding{Finding: f, Check: c.Title}
			if !seen[f.Code] {
				seen[f.Code], one.ID = true, f.Code
			}
			out = append(out, one)
		}
	}
	return out
}
