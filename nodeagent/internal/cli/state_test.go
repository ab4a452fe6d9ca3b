package cli

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
)

// What the service saw of the packet filter outlives it, and an end of it is said once.
func TestAdmissionsArePutAway(t *testing.T) {
	doc := config.New()
	doc.Mesh, doc.Node = "m", config.Node{Name: "ams1", ID: "nAms", Addresses: []netip.Addr{netip.MustParseAddr("100.64.0.11")}}
	peer := netip.MustParseAddr("100.64.0.12")
	doc.Peers = []config.Node{{Name: "fra1", ID: "nFra", Addresses: []netip.Addr{peer}}}
	mesh := netip.MustParsePrefix("100.64.0.0/10")
	admitted := []doctor.FilterRule{{
		Protocols: []int{4}, Sources: []netip.Prefix{mesh}, Destinations: []doctor.FilterDestination{{Net: mesh, Last: 65535}},
	}}
	e := &doctor.Evidence{
		Now: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), Document: &doc,
		Facts: desired.Facts{Links: []desired.Link{{Name: desired.Interface, Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("100.64.0.11/32")}}}},
		Tailscaled: doctor.Tailscaled{
			State: "Running", Self: doctor.TailscaleNode{ID: "nAms", Addresses: doc.Node.Addresses}, Filters: true, Filter: admitted,
			Peers: []doctor.TailscaleNode{{ID: "nFra", Name: "fra1", Addresses: []netip.Addr{peer}}},
		},
	}
	var log bytes.Buffer
	r := &runner{state: t.TempDir(), log: slog.New(slog.NewTextHandler(&log, nil))}
	look := func() { r.note(readAdmissions(r.state), e) }

	look()
	if got := readAdmissions(r.state); got.Peers["nFra"].Since != e.Now || log.Len() > 0 {
		t.Errorf("%+v\n%s", got, log.String())
	}
	e.Tailscaled.Filter, e.Now = nil, e.Now.Add(time.Hour)
	look()
	look()
	if got := readAdmissions(r.state); got.Peers["nFra"].Until != e.Now {
		t.Errorf("%+v", got)
	}
	if got := strings.Count(log.String(), "no longer admits the overlay"); got != 1 || !strings.Contains(log.String(), "from=fra1") {
		t.Errorf("said %d times, want once:\n%s", got, log.String())
	}
	e.Tailscaled.Filter = admitted
	look()
	if got := readAdmissions(r.state); got.Peers["nFra"] != (doctor.Admission{Since: e.Now}) {
		t.Errorf("%+v", got)
	}

	for _, bad := range []string{"", "[]", "{", `{"peers":3}`, "null"} {
		must(t, os.WriteFile(admissionsPath(r.state), []byte(bad), 0o600))
		if got := readAdmissions(r.state); got.Protocol != "" || len(got.Peers) > 0 {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}
