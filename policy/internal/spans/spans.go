// Package spans does arithmetic on ranges of ports.
package spans

import (
	"cmp"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Span is a range of ports, both included.
type Span struct{ First, Last int }

// Of sorts and joins the ranges of a rule. Port 0 is no port of its own.
func Of(ranges []policy.PortRange) []Span {
	var in []Span
	for _, r := range ranges {
		if r.Last > 0 {
			in = append(in, Span{max(1, int(r.First)), int(r.Last)})
		}
	}
	return Join(in)
}

// Join sorts ranges and makes one of those that touch. It reorders its argument.
func Join(in []Span) []Span {
	slices.SortFunc(in, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	var out []Span
	for _, s := range in {
		if n := len(out); n > 0 && s.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, s.Last)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// Hold reports whether joined spans hold all ports of others.
func Hold(joined, others []Span) bool {
	return !slices.ContainsFunc(others, func(o Span) bool {
		return !slices.ContainsFunc(joined, func(s Span) bool { return s.First <= o.First && o.Last <= s.Last })
	})
}
