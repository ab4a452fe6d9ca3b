package policy

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// nearest returns the candidate that name was probably meant to be: less than three edits away, or than a third of its
// length; empty where there is none. Candidates should be of the kind of name. Among equals the first by name wins.
func nearest(name string, candidates []string) string {
	limit := max(2, len(name)/3)
	best, distance := "", limit+1
	params := levenshtein.NewParams().MaxCost(limit)
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := len(c) - len(name); d > limit || d < -limit || c == name {
			continue
		}
		if strings.EqualFold(c, name) {
			return c
		}
		// The bounded distance is quick and sometimes too low, never too high: it only rules candidates out.
		if levenshtein.Distance(name, c, params) >= distance {
			continue
		}
		if d := levenshtein.Distance(name, c, nil); d < distance {
			best, distance = c, d
		}
	}
	return best
}
