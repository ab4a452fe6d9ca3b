package doctor

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNoteAdmissions(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) // of the evidence
	before, long := now.Add(-time.Hour), now.Add(-2*time.Hour)
	seen := func(a Admission) Admissions {
		return Admissions{Protocol: "ip-in-ip", Peers: map[string]Admission{"nFra": a}}
	}
	none := Admissions{Protocol: "ip-in-ip", Peers: map[string]Admission{}}
	refuse := func(e *Evidence) { e.Tailscaled.Filter = nil }
	for _, c := range []struct {
		name   string
		known  Admissions
		change func(*Evidence)
		want   Admissions
		ended  []string
	}{
		{"first seen admitted", Admissions{}, nil, seen(Admission{Since: now}), nil},
		{"still admitted", seen(Admission{Since: before}), nil, seen(Admission{Since: before}), nil},
		{"first seen refused", Admissions{}, refuse, none, nil},
		{"admitted no longer", seen(Admission{Since: before}), refuse, seen(Admission{Since: before, Until: now}), []string{"fra1"}},
		{"not for long", seen(Admission{Since: long, Until: before}), refuse, seen(Admission{Since: long, Until: before}), nil},
		{"admitted again", seen(Admission{Since: long, Until: before}), nil, seen(Admission{Since: now}), nil},
		{"filter unknown", seen(Admission{Since: before}), func(e *Evidence) { e.Tailscaled.Filters, e.Tailscaled.Filter = false, nil }, seen(Admission{Since: before}), nil},
		{"stopped", seen(Admission{Since: before}), func(e *Evidence) { e.Tailscaled.State, e.Tailscaled.Filter = "Stopped", nil }, seen(Admission{Since: before}), nil},
		{"peer gone", seen(Admission{Since: before}), func(e *Evidence) { e.Tailscaled.Peers, e.Tailscaled.Filter = nil, nil }, seen(Admission{Since: before}), nil},
		{"peer unlisted", seen(Admission{Since: before}), func(e *Evidence) { e.Document.Peers = nil }, none, nil},
		{"another overlay", Admissions{Protocol: "gre", Peers: map[string]Admission{"nFra": {Since: before}}}, refuse, none, nil},
		{"no overlay", seen(Admission{Since: before}), func(e *Evidence) { e.Document.Overlay.Protocol = "none" }, Admissions{Protocol: "none", Peers: map[string]Admission{}}, nil},
		{"without a document", seen(Admission{Since: before}), func(e *Evidence) { e.Document = nil }, seen(Admission{Since: before}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := healthyEvidence(t)
			if c.change != nil {
				c.change(e)
			}
			got, ended := c.known.Note(e)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(ended, c.ended) {
				t.Errorf("ended %q, want %q", ended, c.ended)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var again Admissions
			if err := json.Unmarshal(text, &again); err != nil || !again.Same(got) {
				t.Errorf("put away as %s and read again it is %v, %v", text, again, err)
			}
		})
	}
}
