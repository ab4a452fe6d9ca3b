package policy

import (
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// AddTests makes the edits that put entries, each an object of HuJSON, at the end of the section tests or sshTests, in the
// layout that the section has. A section that is missing is added. There are no edits where the text is not one to add to:
// where the section is no list.
func (p *Policy) AddTests(section string, entries []string) []diag.Edit {
	if len(entries) == 0 {
		return nil
	}
	root, err := hujson.Parse(p.src)
	if err != nil {
		return nil
	}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	for i := range object.Members {
		m := &object.Members[i]
		if !strings.EqualFold(m.Name.Value.(hujson.Literal).String(), section) || isNull(&m.Value) {
			continue
		}
		edits := p.appendTo(p.lines.Range(m.Value.StartOffset, m.Value.EndOffset), entries[0])
		if len(edits) == 0 {
			return nil
		}
		last := &edits[len(edits)-1]
		if indent, own := strings.CutSuffix(last.NewText, entries[0]+",\n"); own {
			last.NewText = indent + strings.Join(entries, ",\n"+indent) + ",\n"
		} else {
			last.NewText = strings.TrimSuffix(last.NewText, entries[0]) + strings.Join(entries, ", ")
		}
		return edits
	}
	return p.setSection(section, "[\n\t\t"+strings.Join(entries, ",\n\t\t")+",\n\t]")
}
