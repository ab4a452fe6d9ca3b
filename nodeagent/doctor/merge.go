package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Direction is what the reports of a mesh say of one node's packets to another.
type Direction struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Verdict Verdict  `json:"verdict"`
	Causes  []string `json:"causes,omitempty"` // "NODE: CODE: SUMMARY", what packets meet first in front
	Missing []string `json:"missing,omitempty"`
}

// Merge puts the reports of several nodes together. Each direction is judged by both ends: by the sender for the way out,
// and by the receiver for what the sender cannot see, its packet filter and whether it is in the tailnet at all. What only a
// node without a report could say leaves the direction unknown. Reports without a node's name, and a second one of a node,
// are an error.
func Merge(reports []Report) ([]Direction, error) {
	byName := map[string]Report{}
	for i, r := range reports {
		if r.Node == "" {
			return nil, fmt.Errorf("report %d names no node: it was made without a document", i+1)
		}
		if _, twice := byName[r.Node]; twice {
			return nil, fmt.Errorf("there are two reports of node %s", r.Node)
		}
		byName[r.Node] = r
	}
	var out []Direction
	for _, r := range reports {
		for _, peer := range r.Peers {
			d := Direction{From: r.Node, To: peer, Verdict: VerdictOK}
			d.take(r, peer, func(code string) bool { return !inbound(code) })
			if receiver, ok := byName[peer]; ok {
				d.take(receiver, r.Node, arrival)
			} else {
				d.Missing = append(d.Missing, peer)
			}
			if d.Verdict == VerdictOK && len(d.Missing) > 0 {
				d.Verdict = VerdictUnknown
			}
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Direction) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out, nil
}

// inbound says whether a finding is about what comes in to the node that reports it.
func inbound(code string) bool {
	return strings.HasPrefix(code, "policy.") || strings.HasPrefix(code, "peer-connections.")
}

// arrival says whether a finding of the receiver keeps packets from arriving there.
func arrival(code string) bool {
	return inbound(code) || strings.HasPrefix(code, "tailscaled.") || code == "document.foreign" || code == "document.unusable"
}

// take adds what a report says of the other node, or of all of them. A check that could not tell leaves the answer open, and
// so does one of what comes in that could not be made. (Of what goes out, one is also untested that waits for another peer.)
func (d *Direction) take(r Report, other string, about func(code string) bool) {
	for _, result := range r.Results {
		open := result.Status == StatusUnknown || result.Status == StatusUntested && inbound(result.Check+".")
		if open && len(result.Findings) == 0 && about(result.Check+".") && d.Verdict == VerdictOK {
			d.Verdict = VerdictUnknown
			d.Causes = append(d.Causes, fmt.Sprintf("%s: %s: %s", r.Node, result.Check, result.Detail))
		}
	}
	for _, f := range r.Findings() {
		if !about(f.Code) || f.Level == Warn || len(f.Peers) > 0 && !slices.Contains(f.Peers, other) {
			continue
		}
		cause := fmt.Sprintf("%s: %s: %s", r.Node, f.Code, f.Summary)
		switch {
		case f.Level == Fail && f.Behind == "":
			d.Verdict = VerdictWrong
			d.Causes = append([]string{cause}, d.Causes...)
		case f.Level == Fail:
			d.Verdict = VerdictWrong
			d.Causes = append(d.Causes, cause+" (behind "+f.Behind+")")
		case d.Verdict == VerdictOK:
			d.Verdict = VerdictUnknown
			d.Causes = append(d.Causes, cause)
		}
	}
}
