package doctor

import (
	"fmt"
	"maps"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Admissions is what a node has seen of its own packet filter over time: since when it admits the overlay from each peer,
// and until when it did. A policy that admitted the overlay and no longer does was edited, whatever the present one says
// of itself; the filter of now alone does not tell that from one that never did.
type Admissions struct {
	Protocol string               `json:"protocol"` // of the overlay, as the document names it
	Peers    map[string]Admission `json:"peers"`    // by ID, or by name where the document has no ID
}

// Admission is what was seen of one peer. A node that looks now and then sees a change some time after it.
type Admission struct {
	Since time.Time `json:"since"`          // when it was first seen to be admitted
	Until time.Time `json:"until,omitzero"` // when it was first seen not to be, after that; zero: it still is
}

// Note returns what is known with what the evidence adds, and the names of the peers whose overlay is no longer admitted.
// Where the filter is not known, or the peer is not in the tailnet, what was known stays. The receiver is not changed.
func (a Admissions) Note(e *Evidence) (now Admissions, ended []string) {
	if e.Document == nil {
		return a, nil
	}
	j := newJudgement(e)
	now = Admissions{Protocol: j.doc.Overlay.Protocol, Peers: map[string]Admission{}}
	at := e.Now.UTC().Truncate(time.Second)
	for _, p := range j.doc.Peers {
		known, seen := a.of(p, now.Protocol)
		verdict := perhaps
		if from, to := outer(j, p); j.admissible(p, from, to) {
			verdict = admits(e.Tailscaled.Filter, protocolNumber(now.Protocol), from, to)
		}
		switch {
		case verdict == yes && (!seen || !known.Until.IsZero()):
			known = Admission{Since: at}
		case !seen:
			continue
		case verdict == no && known.Until.IsZero():
			known.Until = at
			ended = append(ended, p.Name)
		}
		now.Peers[peerKey(p)] = known
	}
	return now, ended
}

// Same says whether two are alike.
func (a Admissions) Same(b Admissions) bool {
	return a.Protocol == b.Protocol && maps.Equal(a.Peers, b.Peers)
}

// of returns what was seen of a peer with the overlay's protocol, and false if it was never seen to be admitted.
func (a Admissions) of(p config.Node, protocol string) (Admission, bool) {
	if a.Protocol != protocol {
		return Admission{}, false
	}
	seen, ok := a.Peers[peerKey(p)]
	return seen, ok
}

// seeing puts it into words for a filter that does not admit the overlay now.
func (a Admission) seeing() Seeing {
	const layout = "2006-01-02 15:04:05 UTC"
	s := Seeing{
		What: "it was admitted on " + a.Since.Format(layout) + " and after, and when that ended is not known",
		How:  "what tailmesh-agent run saw of this filter, now and then, and put away",
	}
	if !a.Until.IsZero() {
		s.What = fmt.Sprintf("it was admitted from %s on, and not when looked at on %s", a.Since.Format(layout), a.Until.Format(layout))
	}
	return s
}

func peerKey(p config.Node) string {
	if p.ID != "" {
		return p.ID
	}
	return p.Name
}
