package diag

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteShort writes each finding as one line, "file:line:col: severity[code]: message", as compilers do.
func WriteShort(w io.Writer, l List) error {
	var p printer
	for _, d := range l {
		p.header(d)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

// WriteGitHub writes each finding as a workflow command of GitHub Actions, which shows it beside the line in a change.
// Notes and help follow the message, each on a line of its own, and the lines that a help would add.
//
// The commands and their escapes: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
func WriteGitHub(w io.Writer, l List, src Sources) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var out strings.Builder
	for _, d := range l {
		command := d.Severity.String()
		if d.Severity == Note {
			command = "notice"
		}
		var properties []string
		set := func(name, value string) {
			if value != "" {
				properties = append(properties, name+"="+property.Replace(value))
			}
		}
		set("file", d.File)
		if start, end := d.Range.Start, d.Range.End; start.Line > 0 {
			set("line", strconv.Itoa(start.Line))
			set("col", strconv.Itoa(start.Column))
			set("endLine", strconv.Itoa(max(end.Line, start.Line)))
			set("endColumn", strconv.Itoa(max(end.Column, 1)))
		}
		set("title", d.Code)
		fmt.Fprintf(&out, "::%s %s::%s\n", command, strings.Join(properties, ","), data.Replace(printableLines(d.text(src))))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// printableLines keeps control characters from whoever reads a log, line ends apart.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return strings.Join(lines, "\n")
}

// Text is the message with the notes and the help below it, each on a line of its own, without source lines.
func (d Diagnostic) Text() string { return d.text(nil) }

// text is Text with the lines that the help's edits would add, where the text they are for is among src.
func (d Diagnostic) text(src Sources) string {
	lines := []string{d.Message}
	if d.Label != "" {
		lines[0] += ": " + d.Label
	}
	for _, n := range d.Notes {
		lines = append(lines, "note: "+n)
	}
	for _, h := range d.Help {
		lines = append(lines, "help: "+h.Message)
		if text, ok := src[d.File]; ok {
			for _, hunk := range hunks(h.Edits, NewLines(text)) {
				for _, added := range hunk.added {
					lines = append(lines, "+ "+added)
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

// MarshalJSON gives an array, an empty one where there are no findings.
func (l List) MarshalJSON() ([]byte, error) {
	if len(l) == 0 {
		return []byte("[]"), nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // left to who marshals the whole
	if err := enc.Encode([]Diagnostic(l)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
