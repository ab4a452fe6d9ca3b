// Package metrics shows the agent's passes to Prometheus and to health checks. What it shows is what the last pass found,
// never what should be.
package metrics

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// stale is after how long without a pass the agent does not count as healthy: twice the time between two passes when
// nothing happens.
const stale = 10 * time.Minute

// Metrics remembers the last pass. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	passes   *prometheus.CounterVec
	duration prometheus.Histogram
	changes  prometheus.Counter
	dropped  prometheus.Counter

	version string
	started time.Time

	mu      sync.Mutex
	last    reconcile.Pass
	success time.Time
	checks  map[string]bool
	checked time.Time
}

// New returns metrics before the first pass, of a program of the version.
func New(version string) *Metrics {
	m := &Metrics{
		version: version,
		started: time.Now(),

		registry: prometheus.NewRegistry(),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tailmesh_agent_passes_total",
			Help: "Passes over the node by what came of them: ok, wrong, unknown, or error.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tailmesh_agent_pass_duration_seconds",
			Help: "How long a pass over the node took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 7),
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tailmesh_agent_changes_total",
			Help: "Changes made to the node, repairs included.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tailmesh_agent_stale_connections_total",
			Help: "Connections that were made to begin anew because they had kept their own source.",
		}),
	}
	for _, result := range []string{string(reconcile.OK), string(reconcile.Wrong), string(reconcile.Unknown), "error"} {
		m.passes.WithLabelValues(result)
	}
	m.registry.MustRegister(m.passes, m.duration, m.changes, m.dropped, (*state)(m),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Observe takes a pass.
func (m *Metrics) Observe(p reconcile.Pass) {
	result := string(p.Verdict())
	if p.Err != nil {
		result = "error"
	}
	m.passes.WithLabelValues(result).Inc()
	m.duration.Observe(p.Took.Seconds())
	m.changes.Add(float64(len(p.Report.Changes)))
	m.dropped.Add(float64(p.Report.Dropped))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = p
	if p.Err == nil && p.Document != nil {
		m.success = p.Begin.Add(p.Took)
	}
}

// Checked takes what the doctor's checks came to, by ID: whether they failed. Those that could not tell are not in it.
func (m *Metrics) Checked(failed map[string]bool, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks, m.checked = failed, at
}

func (m *Metrics) state() (reconcile.Pass, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.success
}

// Handler serves /metrics and three answers to how the agent does, each 200 or 503 and why:
//
//   - /livez: passes over the node are made, whatever comes of them; if not, a restart may help;
//   - /readyz: the last pass made the node what its document asks for, as far as that is the agent's to do;
//   - /healthz: that, and every peer is reached through the mesh.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	for path, trouble := range map[string]func(reconcile.Pass) string{
		"/livez": func(reconcile.Pass) string { return "" }, "/readyz": unready, "/healthz": unhealthy,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			last, _ := m.state()
			why := trouble(last)
			alive := last.Begin.Add(last.Took)
			if last.Begin.IsZero() {
				alive = m.started
			}
			if ago := time.Since(alive); ago > stale {
				why = fmt.Sprintf("no pass has ended for %s", ago.Round(time.Second))
			}
			if why != "" {
				http.Error(w, why, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}

func unready(last reconcile.Pass) string {
	switch {
	case last.Begin.IsZero():
		return "no pass yet"
	case last.Err != nil:
		return last.Err.Error()
	case last.BadReason != "":
		return "the document cannot be used: " + last.BadReason
	case len(last.Report.Pending) > 0:
		return "did not hold: " + last.Report.Pending[0]
	}
	return ""
}

func unhealthy(last reconcile.Pass) string {
	if why := unready(last); why != "" {
		return why
	}
	for _, p := range last.Report.Peers {
		if p.Verdict != reconcile.OK {
			return fmt.Sprintf("peer %s (%s): %s: %s", p.Name, p.Address, p.Verdict, p.Why)
		}
	}
	if v := last.Report.Verdict(); v != reconcile.OK {
		return string(v)
	}
	return ""
}

// state is the collector of what the last pass found, worked out when it is asked for, so that no peer that is gone
// lingers.
type state Metrics

func checkDescriptions() (failed, at *prometheus.Desc) {
	return prometheus.NewDesc("tailmesh_agent_check_failed",
			"1 if a check of the doctor's has found a cause of lost packets, 0 if not. A check that could not tell is left out.", []string{"check"}, nil),
		prometheus.NewDesc("tailmesh_agent_checks_timestamp_seconds", "When the doctor's checks last ran.", nil, nil)
}

func descriptions() (valid, success, peer, packets, build *prometheus.Desc) {
	return prometheus.NewDesc("tailmesh_agent_document_valid", "1 if the document is followed, 0 if it cannot be used.", nil, nil),
		prometheus.NewDesc("tailmesh_agent_last_success_timestamp_seconds", "When the last pass ended that held the node to a document, without an error.", nil, nil),
		prometheus.NewDesc("tailmesh_agent_peer_reached", "1 if packets of pods to the peer's address go through the mesh, 0 if not or if that is not known.",
			[]string{"peer", "address"}, nil),
		prometheus.NewDesc("tailmesh_agent_firewall_packets", "Packets that a firewall rule of the agent's has taken since it was added; a translated connection counts once.",
			[]string{"rule"}, nil),
		prometheus.NewDesc("tailmesh_agent_build_info", "1, with the version of the agent.", []string{"version"}, nil)
}

// Describe implements [prometheus.Collector].
func (s *state) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements [prometheus.Collector].
func (s *state) Collect(ch chan<- prometheus.Metric) {
	valid, success, peer, packets, build := descriptions()
	last, at := (*Metrics)(s).state()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(build, 1, s.version)
	if last.Begin.IsZero() {
		return
	}
	gauge(valid, boolean(last.BadReason == ""))
	if !at.IsZero() {
		gauge(success, float64(at.UnixMilli())/1000)
	}
	for _, p := range last.Report.Peers {
		gauge(peer, boolean(p.Verdict == reconcile.OK), p.Name, p.Address.String())
	}
	for comment, c := range last.Report.Counters {
		gauge(packets, float64(c.Packets), comment)
	}
	s.mu.Lock()
	checks, checked := s.checks, s.checked
	s.mu.Unlock()
	if checked.IsZero() {
		return
	}
	failed, ran := checkDescriptions()
	gauge(ran, float64(checked.UnixMilli())/1000)
	for check, wrong := range checks {
		gauge(failed, boolean(wrong), check)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
