package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// maxDepth bounds the nesting of a text. encoding/json has the same bound; the HuJSON parser has none and recurses.
const maxDepth = 10000

// Parse reads the text of a policy file. The policy is nil only where the text is not a HuJSON object; what else is
// wrong with the shape of the text (keys that do not exist, a list where a string belongs, a key given twice) is in
// the list, and the policy then holds what could be read. Parse checks shapes, not meanings: see Check.
func Parse(file string, src []byte) (*Policy, diag.List) {
	d := newDecoder(file, src)
	root, ok := d.tree()
	if !ok {
		return nil, d.diags
	}
	p := d.policy(root)
	return p, d.diags
}

// decoder turns a HuJSON tree into a Policy and keeps what was wrong.
type decoder struct {
	file  string
	src   []byte
	lines *diag.Lines
	diags diag.List
	// shapes are collected for edits.
	shapes map[int]shape
}

func newDecoder(file string, src []byte) *decoder {
	return &decoder{file: file, src: src, lines: diag.NewLines(src), shapes: map[int]shape{}}
}

func (d *decoder) report(sev diag.Severity, code string, n Node, message, label string) *diag.Diagnostic {
	d.diags = append(d.diags, diag.Diagnostic{
		Severity: sev, Code: code, Message: message, File: d.file, Path: n.Path, Range: n.Range, Label: label,
	})
	return &d.diags[len(d.diags)-1]
}

var hujsonError = regexp.MustCompile(`^hujson: line (\d+), column (\d+): (.*)$`)

// tree parses the text and reports the one syntax error that the parser finds.
func (d *decoder) tree() (*hujson.Value, bool) {
	if off, ok := tooDeep(d.src); ok {
		d.report(diag.Error, "syntax", Node{Range: d.lines.Range(off, off+1)}, "exceeded max depth", "nested too deeply")
		return nil, false
	}
	root, err := hujson.Parse(d.src)
	if err != nil {
		d.syntaxError(err)
		return nil, false
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		d.report(diag.Error, "wrong-type", d.node(&root, ""), "a policy file is an object, not "+kindName(&root),
			"an object in braces belongs here")
		return nil, false
	}
	return &root, true
}

// syntaxError words the parser's error as the control plane does, "line 7, column 3: invalid character …".
func (d *decoder) syntaxError(err error) {
	m := hujsonError.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		d.report(diag.Error, "syntax", Node{Range: d.lines.Range(0, 0)}, err.Error(), "")
		return
	}
	line, _ := strconv.Atoi(m[1])
	col, _ := strconv.Atoi(m[2])
	off := min(d.lines.Start(line)+col-1, len(d.src))
	text := m[3]
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	diagnostic := d.report(diag.Error, "syntax", Node{Range: d.lines.Range(off, min(off+1, len(d.src)))},
		fmt.Sprintf("line %d, column %d: %s", line, d.lines.Pos(off).Column, text), "")
	if !strings.HasSuffix(text, "unexpected EOF") {
		diagnostic.Label = "not valid here"
		return
	}
	diagnostic.Label = "the text ends here"
	open, closer := unclosed(d.src)
	if len(open) == 0 {
		return
	}
	diagnostic.Code = "unclosed"
	for i := len(open) - 1; i >= 0 && len(diagnostic.Related) < 3; i-- {
		diagnostic.Related = append(diagnostic.Related, diag.Related{
			Message: fmt.Sprintf("this %q is never closed", d.src[open[i]]), Range: d.lines.Range(open[i], open[i]+1),
		})
	}
	if strings.Contains(text, "parsing string") || strings.Contains(text, "parsing comment") {
		return
	}
	// Only where every missing bracket belongs at the end is it sure that adding them there mends the text.
	help := diag.Help{Message: fmt.Sprintf("add %q at the end", closer)}
	if len(open) == 1 {
		help.Edits = []diag.Edit{{Range: d.lines.Range(len(d.src), len(d.src)), NewText: closer + "\n"}}
	}
	diagnostic.Help = append(diagnostic.Help, help)
}

// scan calls f for each bracket outside of strings and comments until f returns false.
func scan(src []byte, f func(off int, c byte) bool) {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '/':
			switch {
			case i+1 < len(src) && src[i+1] == '/':
				for i < len(src) && src[i] != '\n' {
					i++
				}
			case i+1 < len(src) && src[i+1] == '*':
				for i += 2; i < len(src) && (src[i] != '/' || src[i-1] != '*'); i++ {
				}
			}
		case '{', '[', '}', ']':
			if !f(i, c) {
				return
			}
		}
	}
}

func tooDeep(src []byte) (int, bool) {
	depth, at := 0, -1
	scan(src, func(off int, c byte) bool {
		if c == '{' || c == '[' {
			depth++
		} else {
			depth--
		}
		if depth > maxDepth {
			at = off
		}
		return at < 0
	})
	return at, at >= 0
}

// unclosed returns the offsets of the brackets that have no partner, and the text that closes them.
func unclosed(src []byte) (open []int, closer string) {
	scan(src, func(off int, c byte) bool {
		switch {
		case c == '{' || c == '[':
			open = append(open, off)
		case len(open) > 0:
			open = open[:len(open)-1]
		}
		return true
	})
	if len(open) > 8 {
		return open, ""
	}
	for _, o := range slices.Backward(open) {
		if src[o] == '{' {
			closer += "}"
		} else {
			closer += "]"
		}
	}
	return open, closer
}
