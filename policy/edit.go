package policy

import (
	"bytes"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// shape is what has to be known of a list or an object of the text to put something at its end: the offsets of its last
// element, -1 where it is empty, and whether a comma follows that.
type shape struct {
	lastStart, lastEnd int
	comma              bool
}

// appendTo makes the edits that put one more element (or member) at the end of a list (or object) of the text, in the
// layout that the list has: on a line of its own where the closing bracket stands on one. Comments and commas are kept.
func (p *Policy) appendTo(container diag.Range, element string) []diag.Edit {
	shape, ok := p.shapes[container.Start.Offset]
	if !ok || container.End.Offset <= container.Start.Offset {
		return nil // no place in this text
	}
	start, end := container.Start.Offset, container.End.Offset
	lastStart, lastEnd, comma := shape.lastStart, shape.lastEnd, shape.comma
	insert := func(off int, text string) diag.Edit { return diag.Edit{Range: p.lines.Range(off, off), NewText: text} }
	closing := end - 1
	line := bytes.LastIndexByte(p.src[:closing], '\n') + 1
	ownLine := line > start && len(bytes.TrimLeft(p.src[line:closing], " \t\r")) == 0
	var edits []diag.Edit
	switch {
	case ownLine:
		indent := string(p.src[line:closing]) + "\t"
		if lastStart >= 0 {
			indent = p.indentAt(lastStart)
			if !comma {
				edits = append(edits, insert(lastEnd, ","))
			}
		}
		edits = append(edits, insert(line, indent+element+",\n"))
	case lastStart < 0:
		edits = append(edits, insert(closing, element))
	case comma:
		edits = append(edits, insert(closing, " "+element))
	case lastEnd == closing:
		edits = append(edits, insert(closing, ", "+element))
	default:
		edits = append(edits, insert(lastEnd, ","), insert(closing, " "+element))
	}
	return edits
}

// indentAt returns the blanks that begin the line of an offset.
func (p *Policy) indentAt(off int) string {
	line := p.src[bytes.LastIndexByte(p.src[:off], '\n')+1 : off]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// setSection makes the edits that give a policy a top-level section which it lacks, or has as null.
func (p *Policy) setSection(name, value string) []diag.Edit {
	for _, m := range p.empty {
		if strings.EqualFold(m.Path, name) {
			return []diag.Edit{{Range: m.Range, NewText: value}}
		}
	}
	return p.appendTo(p.Range, quote(name)+": "+value)
}
