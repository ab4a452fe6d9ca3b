package diag

import (
	"cmp"
	"slices"
)

// Sort puts the findings in the order in which they are shown: by file, position in it, then code. A finding without a
// position comes before those that have one. Findings that agree in all of these and in their message stay as they are.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Range.Start.Line, b.Range.Start.Line),
			cmp.Compare(a.Range.Start.Column, b.Range.Start.Column),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

// Dedup returns the findings in their order, without those that have the place, code and message of an earlier one, so
// that one mistake gives one message.
func (l List) Dedup() List {
	type key struct {
		file, code, message string
		at                  Range
	}
	seen := make(map[key]bool, len(l))
	var out List
	for _, d := range l {
		k := key{d.File, d.Code, d.Message, d.Range}
		if !seen[k] {
			seen[k] = true
			out = append(out, d)
		}
	}
	return out
}
