// Package sarif writes findings as SARIF 2.1.0, the form in which code scanning services take them. It stands apart from
// package diag so that who only shows findings to people does not link a schema library.
package sarif

import (
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Tool describes the program that made the findings.
type Tool struct {
	Name    string
	Version string
	URI     string
	// About gives what is known of a code, and false where nothing is.
	About func(code string) (Rule, bool)
}

// Rule describes a kind of finding.
type Rule struct {
	Title string // one line
	Help  string // the whole page, plain text
}

// Write writes the findings as one SARIF run.
func Write(w io.Writer, l diag.List, tool Tool) error {
	return report(l, tool).PrettyWrite(w)
}

func report(l diag.List, tool Tool) *sarif.Report {
	run := sarif.NewRunWithInformationURI(tool.Name, tool.URI)
	run.WithColumnKind("unicodeCodePoints")
	if tool.Version != "" {
		run.Tool.Driver.WithVersion(tool.Version)
	}
	var codes []string
	for _, d := range l {
		codes = append(codes, d.Code)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for _, code := range codes {
		rule := run.AddRule(code)
		if about, ok := tool.About(code); ok {
			rule.WithShortDescription(sarif.NewMultiformatMessageString().WithText(about.Title))
			rule.WithHelp(sarif.NewMultiformatMessageString().WithText(about.Help))
		}
	}
	for _, d := range l {
		index, _ := slices.BinarySearch(codes, d.Code)
		run.AddResult(result(d, index))
	}
	return sarif.NewReport().AddRun(run)
}

func result(d diag.Diagnostic, rule int) *sarif.Result {
	r := sarif.NewResult().
		WithRuleID(d.Code).WithRuleIndex(rule).
		WithLevel(d.Severity.String()). // error, warning and note are SARIF's words too
		WithMessage(sarif.NewTextMessage(d.Text()))
	if d.File != "" {
		at := location(d.File, d.Range)
		if d.Path != "" {
			at.LogicalLocations = []*sarif.LogicalLocation{sarif.NewLogicalLocation().WithFullyQualifiedName(d.Path)}
		}
		r.AddLocation(at)
		for i, related := range d.Related {
			r.AddRelatedLocation(location(d.File, related.Range).
				WithID(i + 1).WithMessage(sarif.NewTextMessage(related.Message)))
		}
		for _, h := range d.Help {
			if len(h.Edits) > 0 {
				r.AddFixe(fix(d.File, h))
			}
		}
	}
	return r
}

func location(file string, r diag.Range) *sarif.Location {
	physical := sarif.NewPhysicalLocation().WithArtifactLocation(artifact(file))
	if !r.IsZero() {
		physical.WithRegion(region(r))
	}
	return sarif.NewLocationWithPhysicalLocation(physical)
}

func region(r diag.Range) *sarif.Region {
	return sarif.NewRegion().
		WithStartLine(r.Start.Line).WithStartColumn(r.Start.Column).
		WithEndLine(max(r.End.Line, r.Start.Line)).WithEndColumn(max(r.End.Column, 1))
}

func fix(file string, h diag.Help) *sarif.Fix {
	change := sarif.NewArtifactChange().WithArtifactLocation(artifact(file))
	for _, e := range h.Edits {
		replacement := sarif.NewReplacement().WithDeletedRegion(region(e.Range))
		if e.NewText != "" {
			replacement.WithInsertedContent(sarif.NewArtifactContent().WithText(e.NewText))
		}
		change.AddReplacement(replacement)
	}
	return sarif.NewFix().WithDescription(sarif.NewTextMessage(h.Message)).AddArtifactChange(change)
}

// artifact names a file by a URI: relative as it is, so that a service finds it in the repository, or absolute.
func artifact(file string) *sarif.ArtifactLocation {
	u := url.URL{Path: path.Clean(filepath.ToSlash(file))}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return sarif.NewSimpleArtifactLocation(u.String())
}
