package accessdiff

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// section is one list of a result as renderers show it.
type section struct {
	title string
	sign  string
	list  []Change
}

func (r *Result) sections() []section {
	return []section{{"ACCESS GAINED", "+", r.Gained}, {"ACCESS LOST", "-", r.Lost}, {"CANNOT BE DECIDED", "?", r.Undecided}}
}

// Summary counts what there is, such as "2 gained, 1 lost".
func (r *Result) Summary() string {
	if len(r.Gained)+len(r.Lost)+len(r.Undecided) == 0 {
		return "same access"
	}
	out := fmt.Sprintf("%d gained, %d lost", len(r.Gained), len(r.Lost))
	if n := len(r.Undecided); n > 0 {
		out += fmt.Sprintf(", %d undecided", n)
	}
	behind := 0
	for _, c := range r.Gained {
		if c.Kind == Network && c.Dst.Behind > 0 {
			behind++
		}
	}
	switch {
	case behind == 1:
		out += "; 1 gained line reaches behind a router"
	case behind > 1:
		out += fmt.Sprintf("; %d gained lines reach behind a router", behind)
	}
	return out
}

// WriteText writes the result for a terminal: what is gained, lost and undecided in columns, then the edits that change
// nothing, then a summary.
func WriteText(w io.Writer, r *Result) error {
	b := bufio.NewWriter(w)
	for _, s := range r.sections() {
		if len(s.list) == 0 {
			continue
		}
		fmt.Fprintln(b, s.title)
		rows := make([][]string, len(s.list))
		for i, c := range s.list {
			parties := c.Src.String()
			if len(c.Src.Names) > 0 {
				parties += "\x00-> "
			} else {
				parties = "\x00"
			}
			src, dst, _ := strings.Cut(parties, "\x00")
			why := diag.Printable(c.Cause.Text)
			if c.Needs != "" {
				why += "; would be " + c.Effect + ", depends on " + diag.Printable(c.Needs)
			}
			rows[i] = []string{s.sign + " " + src, dst + c.Dst.String(), c.What(), c.Size(), why}
			if src == "" {
				rows[i][0], rows[i][1] = s.sign+" "+c.Dst.String(), ""
			}
		}
		columns(b, rows)
	}
	if len(r.Edited) > 0 {
		fmt.Fprintln(b, "SAME ACCESS, EDITED")
		rows := make([][]string, len(r.Edited))
		for i, e := range r.Edited {
			rows[i] = []string{"  " + diag.Printable(e.Path), diag.Printable(e.What)}
		}
		columns(b, rows)
	}
	if len(r.Edited)+len(r.Gained)+len(r.Lost)+len(r.Undecided) > 0 {
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b, r.Summary())
	return b.Flush()
}

// widest is the width up to which a cell widens its column.
const widest = 60

// columns writes rows so that cells are below each other; the last is as long as it is.
func columns(w io.Writer, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if n := len([]rune(cell)); n <= widest {
				widths[i] = max(widths[i], n)
			}
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row[:len(row)-1] {
			if widths[i] == 0 && cell == "" {
				continue
			}
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", max(0, widths[i]-len([]rune(cell)))))
			if i == 0 && len(row) > 2 && widths[1] > 0 {
				line.WriteString(" ")
			} else {
				line.WriteString("  ")
			}
		}
		line.WriteString(row[len(row)-1])
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// shownRows is how many rows of a table a review comment has room for.
const shownRows = 100

// WriteMarkdown writes the result as a comment for a review.
func WriteMarkdown(w io.Writer, r *Result) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "### Tailnet access: %s\n", r.Summary())
	for _, s := range r.sections() {
		if len(s.list) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n**%s**\n\n| | from | to | what | devices | because |\n| --- | --- | --- | --- | --- | --- |\n", sentence(s.title))
		for i, c := range s.list {
			if i == shownRows {
				fmt.Fprintf(b, "\nand %d more\n", len(s.list)-i)
				break
			}
			why := code(c.Cause.Text)
			if c.Needs != "" {
				why += "; would be " + c.Effect + ", depends on " + code(c.Needs)
			}
			from := ""
			if len(c.Src.Names) > 0 {
				from = codes(c.Src)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", strings.Replace(s.sign, "-", "&minus;", 1), from, codes(c.Dst), code(c.What()), c.Size(), why)
		}
	}
	if len(r.Edited) > 0 {
		fmt.Fprintf(b, "\n<details><summary>Same access, edited: %d</summary>\n\n", len(r.Edited))
		for i, e := range r.Edited {
			if i == shownRows {
				fmt.Fprintf(b, "- and %d more\n", len(r.Edited)-i)
				break
			}
			fmt.Fprintf(b, "- %s %s\n", code(e.Path), code(e.What))
		}
		fmt.Fprint(b, "\n</details>\n")
	}
	return b.Flush()
}

func sentence(title string) string {
	return title[:1] + strings.ToLower(title[1:])
}

// code is text that Markdown leaves alone, in a table as well. It cannot end its own span, or the table's cell.
func code(s string) string {
	s = strings.ReplaceAll(diag.Printable(s), "|", "\\|")
	if !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return "`` " + strings.ReplaceAll(s, "``", "` `") + " ``"
}

func codes(p Party) string {
	list := func(names []string) string {
		var out []string
		for _, n := range names[:min(len(names), shownNames)] {
			out = append(out, code(n))
		}
		text := strings.Join(out, ", ")
		if n := len(names) - shownNames; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		return text
	}
	out := list(p.Names)
	if len(p.Except) > 0 {
		out += " except " + list(p.Except)
	}
	return out
}
