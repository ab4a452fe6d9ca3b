package diag

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Sources are the texts that findings point into, by the name in Diagnostic.File. A finding whose text is not among them
// is shown without source lines.
type Sources map[string][]byte

// TextOptions say how findings are shown to a person.
type TextOptions struct {
	// Width is the number of columns to keep to; 0, for what is no terminal, wraps nothing.
	Width int
	// Color adds ANSI colours. Nothing is said by colour alone.
	Color bool
	// Max is how many findings are shown before "and 7 more (--all)"; 0 shows all.
	Max int
}

// WriteText writes the findings for a person: each with its place, source lines and a caret, then what else is known
// and the way out, and one line for each file that counts them. It writes nothing where there are none.
func WriteText(w io.Writer, l List, src Sources, opt TextOptions) error {
	p := printer{opt: opt}
	lines := make(map[string]*Lines, len(src))
	for name, text := range src {
		lines[name] = NewLines(text)
	}
	for i, d := range l {
		if opt.Max > 0 && i == opt.Max {
			fmt.Fprintf(&p.out, "and %d more (--all)\n\n", len(l)-i)
			break
		}
		p.header(d)
		p.body(d, lines[d.File])
		p.out.WriteByte('\n')
	}
	for _, file := range l.files() {
		p.out.WriteString(l.of(file).Summary(file) + "\n")
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

// Detail renders one finding without its message and file name, for where both are shown apart, as in Terraform's
// diagnostics: place, source lines, notes and help. Lines of source are indented, so that Terraform does not wrap them.
func Detail(d Diagnostic, src []byte) string {
	p := printer{indent: "  "}
	if !d.Range.IsZero() {
		fmt.Fprintf(&p.out, "line %d, column %d", d.Range.Start.Line, d.Range.Start.Column)
		if d.Path != "" {
			p.out.WriteString(", " + d.Path)
		}
		fmt.Fprintf(&p.out, " (%s):\n", d.Code)
	} else {
		fmt.Fprintf(&p.out, "(%s)\n", d.Code)
	}
	var lines *Lines
	if src != nil {
		lines = NewLines(src)
	}
	p.body(d, lines)
	return p.out.String()
}

// Summary counts the findings in one line, such as "policy.hujson: 3 errors, 1 warning".
func (l List) Summary(file string) string {
	var parts []string
	for s := Error; s <= Note; s++ {
		n := 0
		for _, d := range l {
			if d.Severity == s {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, "1 "+s.String())
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
	}
	if parts == nil {
		parts = []string{"no findings"}
	}
	return join(": ", Printable(file), strings.Join(parts, ", "))
}

// files lists the files that have findings, in the order of the findings.
func (l List) files() []string {
	var out []string
	for _, d := range l {
		if !slices.Contains(out, d.File) {
			out = append(out, d.File)
		}
	}
	return out
}

func (l List) of(file string) List {
	var out List
	for _, d := range l {
		if d.File == file {
			out = append(out, d)
		}
	}
	return out
}

// printer collects text output.
type printer struct {
	out    strings.Builder
	opt    TextOptions
	indent string // before every line of a snippet
	gutter int    // columns of the line numbers
}

// place is "file:line:col", or as much of it as is known.
func place(d Diagnostic) string {
	if d.Range.IsZero() {
		return Printable(d.File)
	}
	return join(":", Printable(d.File), strconv.Itoa(d.Range.Start.Line), strconv.Itoa(d.Range.Start.Column))
}

// join joins what is not empty.
func join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

func (p *printer) header(d Diagnostic) {
	head := d.Severity.String()
	if d.Code != "" {
		head += "[" + d.Code + "]"
	}
	p.out.WriteString(join(": ", place(d), p.paint(severityColor(d.Severity), head), p.paint(bold, oneLine(d.Message))))
	p.out.WriteByte('\n')
}

// body writes all that follows the first line.
func (p *printer) body(d Diagnostic, lines *Lines) {
	p.gutter = p.gutterWidth(d, lines)
	if lines != nil && !d.Range.IsZero() {
		p.snippet(d, lines)
	}
	for _, note := range d.Notes {
		p.advice(cyan, "note: ", note)
	}
	for _, help := range d.Help {
		p.advice(green, "help: ", help.Message)
		if lines != nil {
			p.edits(help.Edits, lines)
		}
	}
}

// advice writes a paragraph behind its word, wrapped to the width, its further lines indented as far as its first.
func (p *printer) advice(c color, word, text string) {
	indent := strings.Repeat(" ", len(word))
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		out = append(out, wrap(Printable(line), p.opt.Width-len(word))...)
	}
	p.out.WriteString(p.paint(c, strings.TrimSuffix(word, " ")) + " " + strings.Join(out, "\n"+indent) + "\n")
}

// wrap breaks text between words into lines of at most width columns where it can; a width of 0 or less breaks nothing.
func wrap(text string, width int) []string {
	if width <= 0 || cells(text) <= width {
		return []string{text}
	}
	var out []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		n := cells(word)
		if line != "" && used+1+n > width {
			out = append(out, line)
			line, used = "", 0
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+n
	}
	return append(out, line)
}

// color is the parameter of an ANSI escape sequence.
type color string

const (
	bold   color = "1"
	red    color = "1;31"
	yellow color = "1;33"
	green  color = "32"
	blue   color = "34"
	cyan   color = "36"
)

func severityColor(s Severity) color {
	switch s {
	case Error:
		return red
	case Warning:
		return yellow
	}
	return cyan
}

func (p *printer) paint(c color, s string) string {
	if !p.opt.Color || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}
