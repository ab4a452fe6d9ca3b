package policy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// appendTo makes the edits that put one more element (or member) at the end of a list (or object) of the text, in the
// layout that the list has: on a line of its own where the closing bracket stands on one. Comments and commas are kept.
func (p *Policy) appendTo(container diag.Range, element string) []diag.Edit {
	start, end := container.Start.Offset, container.End.Offset
	v, err := hujson.Parse(p.src[start:end])
	if err != nil {
		return nil
	}
	lastStart, lastEnd, comma := -1, -1, false
	switch c := v.Value.(type) {
	case *hujson.Array:
		if n := len(c.Elements); n > 0 {
			last := &c.Elements[n-1]
			lastStart, lastEnd, comma = last.StartOffset, last.EndOffset, last.AfterExtra != nil
		}
	case *hujson.Object:
		if n := len(c.Members); n > 0 {
			last := &c.Members[n-1]
			lastStart, lastEnd, comma = last.Name.StartOffset, last.Value.EndOffset, last.Value.AfterExtra != nil
		}
	default:
		return nil
	}
	pos := newPositions(p.src)
	insert := func(off int, text string) diag.Edit { return diag.Edit{Range: pos.span(off, off), NewText: text} }
	closing := end - 1
	line := bytes.LastIndexByte(p.src[:closing], '\n') + 1
	ownLine := line > start && len(bytes.TrimLeft(p.src[line:closing], " \t\r")) == 0
	var edits []diag.Edit
	switch {
	case ownLine:
		indent := string(p.src[line:closing]) + "\t"
		if lastStart >= 0 {
			indent = p.indentAt(start + lastStart)
			if !comma {
				edits = append(edits, insert(start+lastEnd, ","))
			}
		}
		edits = append(edits, insert(line, indent+element+",\n"))
	case lastStart < 0:
		edits = append(edits, insert(closing, element))
	case comma:
		edits = append(edits, insert(closing, " "+element))
	case start+lastEnd == closing:
		edits = append(edits, insert(closing, ", "+element))
	default:
		edits = append(edits, insert(start+lastEnd, ","), insert(closing, " "+element))
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
	root, err := hujson.Parse(p.src)
	if err != nil {
		return nil
	}
	obj, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	for i := range obj.Members {
		m := &obj.Members[i]
		if strings.EqualFold(m.Name.Value.(hujson.Literal).String(), name) {
			return []diag.Edit{{Range: newPositions(p.src).span(m.Value.StartOffset, m.Value.EndOffset), NewText: value}}
		}
	}
	return p.appendTo(p.Range, quote(name)+": "+value)
}

// Apply returns the text with edits made, which must not overlap. Their ranges are places in src.
func Apply(src []byte, edits []diag.Edit) []byte {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b diag.Edit) int { return a.Range.Start.Offset - b.Range.Start.Offset })
	var out bytes.Buffer
	at := 0
	for _, e := range sorted {
		if e.Range.Start.Offset < at || e.Range.End.Offset > len(src) || e.Range.End.Offset < e.Range.Start.Offset {
			continue
		}
		out.Write(src[at:e.Range.Start.Offset])
		out.WriteString(e.NewText)
		at = e.Range.End.Offset
	}
	out.Write(src[at:])
	return out.Bytes()
}
