package diag

import (
	"cmp"
	"fmt"
	"slices"
)

// Apply returns src with the edits carried out, which go by the offsets of their ranges. Edits may come in any order;
// those that insert at the same place are inserted in the order given. It fails, and changes nothing, where an edit lies
// outside of the text or two overlap.
func Apply(src []byte, edits []Edit) ([]byte, error) {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b Edit) int {
		return cmp.Or(
			cmp.Compare(a.Range.Start.Offset, b.Range.Start.Offset),
			cmp.Compare(a.Range.End.Offset, b.Range.End.Offset),
		)
	})
	out := make([]byte, 0, len(src))
	done := 0
	for _, e := range sorted {
		start, end := e.Range.Start.Offset, e.Range.End.Offset
		switch {
		case start < 0 || end < start || end > len(src):
			return nil, fmt.Errorf("edit of bytes %d to %d lies outside of a text of %d bytes", start, end, len(src))
		case start < done:
			return nil, fmt.Errorf("edit of bytes %d to %d overlaps the edit before it, which ends at byte %d",
				start, end, done)
		}
		out = append(out, src[done:start]...)
		out = append(out, e.NewText...)
		done = end
	}
	return append(out, src[done:]...), nil
}
