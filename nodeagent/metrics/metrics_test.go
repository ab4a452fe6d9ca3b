package metrics

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

func pass(verdict reconcile.Verdict) reconcile.Pass {
	return reconcile.Pass{
		Begin: time.Now(), Took: 3 * time.Millisecond, Document: &config.Document{},
		Report: reconcile.Report{
			Changes:  []string{"ip rule add", "nft add table"},
			Dropped:  3,
			Peers:    []reconcile.Peer{{Name: "fra1", Address: netip.MustParseAddr("100.64.0.12"), Verdict: verdict, Why: "because"}},
			Counters: map[string]desired.Counter{"sources of pods to peers, IPv4": {Packets: 7, Bytes: 700}},
		},
	}
}

func TestMetrics(t *testing.T) {
	m := New("v1.2.3")
	m.Observe(pass(reconcile.OK))
	p := pass(reconcile.Wrong)
	p.BadReason = "colour: unknown key"
	m.Observe(p)
	m.Observe(reconcile.Pass{Begin: time.Now(), Err: errors.New("no buffer space")})
	m.Observe(reconcile.Pass{Begin: time.Now(), BadReason: "no document"})
	m.Observe(pass(reconcile.Wrong))
	const want = `
# HELP tailmesh_agent_changes_total Changes made to the node, repairs included.
# TYPE tailmesh_agent_changes_total counter
tailmesh_agent_changes_total 6
# HELP tailmesh_agent_document_valid 1 if the document is followed, 0 if it cannot be used.
# TYPE tailmesh_agent_document_valid gauge
tailmesh_agent_document_valid 1
# HELP tailmesh_agent_firewall_packets Packets that a firewall rule of the agent's has taken since it was added; a translated connection counts once.
# TYPE tailmesh_agent_firewall_packets gauge
tailmesh_agent_firewall_packets{rule="sources of pods to peers, IPv4"} 7
# HELP tailmesh_agent_passes_total Passes over the node by what came of them: ok, wrong, unknown, or error.
# TYPE tailmesh_agent_passes_total counter
tailmesh_agent_passes_total{result="error"} 1
tailmesh_agent_passes_total{result="ok"} 1
tailmesh_agent_passes_total{result="unknown"} 1
tailmesh_agent_passes_total{result="wrong"} 2
# HELP tailmesh_agent_peer_reached 1 if packets of pods to the peer's address go through the mesh, 0 if not or if that is not known.
# TYPE tailmesh_agent_peer_reached gauge
tailmesh_agent_peer_reached{address="100.64.0.12",peer="fra1"} 0
# HELP tailmesh_agent_stale_connections_total Connections that were made to begin anew because they had kept their own source.
# TYPE tailmesh_agent_stale_connections_total counter
tailmesh_agent_stale_connections_total 9
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want),
		"tailmesh_agent_changes_total", "tailmesh_agent_document_valid", "tailmesh_agent_firewall_packets",
		"tailmesh_agent_passes_total", "tailmesh_agent_peer_reached", "tailmesh_agent_stale_connections_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// A pass that did nothing for want of a document is no success, and neither is one that failed.
func TestLastSuccess(t *testing.T) {
	m := New("v1.2.3")
	good := pass(reconcile.OK)
	good.Begin, good.Took = time.Unix(1_700_000_000, 0), time.Second
	m.Observe(good)
	m.Observe(reconcile.Pass{Begin: time.Now(), BadReason: "no document"})
	m.Observe(reconcile.Pass{Begin: time.Now(), Document: &config.Document{}, Err: errors.New("no buffer space")})
	const want = `
# HELP tailmesh_agent_last_success_timestamp_seconds When the last pass ended that held the node to a document, without an error.
# TYPE tailmesh_agent_last_success_timestamp_seconds gauge
tailmesh_agent_last_success_timestamp_seconds 1.700000001e+09
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "tailmesh_agent_last_success_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	bad, failed, old := pass(reconcile.OK), pass(reconcile.OK), pass(reconcile.OK)
	bad.BadReason = "colour: unknown key"
	failed.Err = errors.New("no buffer space")
	old.Begin = old.Begin.Add(-time.Hour)
	pending := pass(reconcile.OK)
	pending.Report.Pending = []string{"ip rule add"}
	const (
		stalled = "503 no pass has ended for 1h0m0s\n"
		refused = "503 the document cannot be used: colour: unknown key\n"
	)
	tests := []struct {
		name                string
		passes              []reconcile.Pass
		live, ready, health string
	}{
		{"before the first pass", nil, "200 ok\n", "503 no pass yet\n", "503 no pass yet\n"},
		{"well", []reconcile.Pass{pass(reconcile.OK)}, "200 ok\n", "200 ok\n", "200 ok\n"},
		{"a peer is not reached", []reconcile.Pass{pass(reconcile.Wrong)}, "200 ok\n", "200 ok\n", "503 peer fra1 (100.64.0.12): wrong: because\n"},
		{
			"a peer is not known to be reached",
			[]reconcile.Pass{pass(reconcile.Unknown)},
			"200 ok\n", "200 ok\n", "503 peer fra1 (100.64.0.12): unknown: because\n",
		},
		{"something did not hold", []reconcile.Pass{pending}, "200 ok\n", "503 did not hold: ip rule add\n", "503 did not hold: ip rule add\n"},
		{"bad document", []reconcile.Pass{bad}, "200 ok\n", refused, refused},
		{"error", []reconcile.Pass{pass(reconcile.OK), failed}, "200 ok\n", "503 no buffer space\n", "503 no buffer space\n"},
		{"long ago", []reconcile.Pass{old}, stalled, stalled, stalled},
		{"well again", []reconcile.Pass{failed, pass(reconcile.OK)}, "200 ok\n", "200 ok\n", "200 ok\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New("v1.2.3")
			for _, p := range tt.passes {
				m.Observe(p)
			}
			for path, want := range map[string]string{"/livez": tt.live, "/readyz": tt.ready, "/healthz": tt.health} {
				w := httptest.NewRecorder()
				m.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
				text, _ := io.ReadAll(w.Result().Body)
				if got := fmt.Sprint(w.Code, " ", string(text)); got != want {
					t.Errorf("%s: got %q, want %q", path, got, want)
				}
			}
		})
	}
}

func TestChecks(t *testing.T) {
	m := New("v1.2.3")
	m.Observe(pass(reconcile.OK))
	m.Checked(map[string]bool{"route": true, "source": false}, time.Unix(1_700_000_000, 0))
	const want = `
# HELP tailmesh_agent_check_failed 1 if a check of the doctor's has found a cause of lost packets, 0 if not. A check that could not tell is left out.
# TYPE tailmesh_agent_check_failed gauge
tailmesh_agent_check_failed{check="route"} 1
tailmesh_agent_check_failed{check="source"} 0
# HELP tailmesh_agent_checks_timestamp_seconds When the doctor's checks last ran.
# TYPE tailmesh_agent_checks_timestamp_seconds gauge
tailmesh_agent_checks_timestamp_seconds 1.7e+09
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "tailmesh_agent_check_failed", "tailmesh_agent_checks_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}

// TestAlertRules holds the rules of examples/monitoring to metrics that are there, and runs their own tests where promtool
// is installed.
func TestAlertRules(t *testing.T) {
	const dir = "../../examples/monitoring"
	m := New("v1.2.3")
	m.Observe(pass(reconcile.OK))
	m.Checked(map[string]bool{"route": false}, time.Now())
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range families {
		known = append(known, f.GetName())
	}
	used := 0
	for _, name := range []string{"alerts.yaml", "alerts_test.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range regexp.MustCompile(`tailmesh_agent_[a-z_]+`).FindAllString(string(text), -1) {
			used++
			base := strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_count")
			if !slices.Contains(known, metric) && !slices.Contains(known, base) {
				t.Errorf("%s: there is no metric %s", name, metric)
			}
		}
	}
	if used < 8 {
		t.Errorf("only %d uses of metrics were found", used)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool for the rules' own tests")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
