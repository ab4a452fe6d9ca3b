// Package doctor finds out why packets do not go as they should between the pods of a node and the other nodes of its
// mesh. It gathers evidence, judges it by checks that are functions of the evidence alone, and says for each finding what
// it was seen by and what that cannot show. A cause is named only where the evidence rules its look-alikes out: else the
// answer is that it is not known. It repairs nothing.
package doctor

import (
	"net/netip"
	"slices"
)

// Level is how grave a finding is.
type Level string

// The levels. Only Fail is the answer no.
const (
	Fail    Level = "fail"    // packets are lost or go the wrong way
	Warn    Level = "warn"    // a cause of trouble that has no effect now, or only for others
	Unknown Level = "unknown" // it cannot be told from here
)

// Finding is one cause of trouble.
type Finding struct {
	Code  string   `json:"code"` // stable, with the check's name in front
	Level Level    `json:"level"`
	Peers []string `json:"peers,omitempty"` // whom it concerns; empty: all, or none in particular
	// Addresses are those of the peers that it concerns, where only some are.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Summary   string       `json:"summary"`
	Evidence  []Seeing     `json:"evidence"`
	Cause     string       `json:"cause,omitempty"`
	Fix       string       `json:"fix,omitempty"`
	Blind     string       `json:"blind,omitempty"`  // what the evidence cannot show
	Remote    []Question   `json:"remote,omitempty"` // what to run elsewhere to know more
	// Behind is the code of a finding that packets meet first. The cause is there, and that it has its effect cannot be
	// tested before the other is mended.
	Behind string `json:"behind,omitempty"`
}

// Seeing is a piece of evidence and how it was got.
type Seeing struct {
	What string `json:"what"`
	How  string `json:"how"`
}

// Question is what only another machine can answer.
type Question struct {
	On      string `json:"on"`
	Command string `json:"command"`
	Why     string `json:"why"`
}

// Status is the result of one check.
type Status string

// The statuses of a check.
const (
	StatusOK       Status = "ok"
	StatusFail     Status = "fail"
	StatusWarn     Status = "warn"
	StatusUnknown  Status = "unknown"  // it could not be told, for the reason in the detail
	StatusSkipped  Status = "skipped"  // not asked for, or does not apply
	StatusUntested Status = "untested" // cannot be tested until something else is mended
)

// Result is what a check came to.
type Result struct {
	Check    string    `json:"check"`
	Title    string    `json:"title"`
	Status   Status    `json:"status"`
	Detail   string    `json:"detail,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Verdict is the answer of a whole look: yes, no, or could not tell.
type Verdict string

// The verdicts, in the words of the agent's other commands.
const (
	VerdictOK      Verdict = "ok"
	VerdictWrong   Verdict = "wrong"
	VerdictUnknown Verdict = "unknown"
)

// Report is what a look at a node came to.
type Report struct {
	Mesh    string     `json:"mesh,omitempty"`
	Node    string     `json:"node,omitempty"`
	Peers   []string   `json:"peers,omitempty"` // the names of the node's peers
	Verdict Verdict    `json:"verdict"`
	First   string     `json:"first,omitempty"` // the code of the cause that packets meet first
	Probed  bool       `json:"probed"`          // packets were sent and followed
	Results []Result   `json:"checks"`
	Limits  []Question `json:"limits,omitempty"` // what cannot be seen from this node, whatever it says
}

// Findings returns the findings of all checks.
func (r Report) Findings() []Finding {
	var out []Finding
	for _, result := range r.Results {
		out = append(out, result.Findings...)
	}
	return out
}

// Check is one question to the evidence.
type Check struct {
	ID    string
	Title string
	Needs Need // without it the check is not run
	// Optional says that not to know the answer does not make the whole verdict unknown.
	Optional bool
	run      func(*judgement, *Result)
}

// Need is what a check needs to be run at all.
type Need int

// The needs.
const (
	NeedDocument   Need = 1 << iota // a document that can be used
	NeedTailscaled                  // an answer of tailscaled
	NeedRules                       // the firewall's rules, which only root may read
)

// Checks returns all checks, in the order in which a packet of a pod meets what they judge.
func Checks() []Check {
	return slices.Concat(
		documentChecks(), tailscaleChecks(), forwardingChecks(), routeChecks(), firewallChecks(), sourceChecks(),
		returnChecks(), familyChecks(), localChecks(), nodeChecks(), overlayChecks(), agentChecks(), probeChecks(),
	)
}

// Judge runs the checks on the evidence.
func Judge(e *Evidence) Report {
	j := newJudgement(e)
	report := Report{Probed: e.Probe != nil, Verdict: VerdictOK}
	if e.Document != nil {
		report.Mesh, report.Node = e.Document.Mesh, e.Document.Node.Name
	}
	for _, p := range j.doc.Peers {
		report.Peers = append(report.Peers, p.Name)
	}
	unknown := false
	for _, check := range Checks() {
		result := Result{Check: check.ID, Title: check.Title, Status: StatusOK}
		if why := j.lacks(check.Needs); why != "" {
			result.Status, result.Detail = StatusSkipped, why
			if !check.Optional {
				result.Status = StatusUnknown
			}
		} else {
			j.result = &result
			check.run(j, &result)
		}
		result.settle()
		if result.Status == StatusUnknown && !check.Optional {
			unknown = true
		}
		report.Results = append(report.Results, result)
	}
	report.Limits = j.limits()
	for _, f := range report.Findings() {
		if f.Level == Fail {
			report.Verdict = VerdictWrong
			if report.First == "" && f.Behind == "" {
				report.First = f.Code
			}
		}
	}
	if report.Verdict == VerdictOK && unknown {
		report.Verdict = VerdictUnknown
	}
	return report
}

// settle raises the status to that of the gravest finding.
func (r *Result) settle() {
	rank := func(s Status) int {
		return slices.Index([]Status{StatusSkipped, StatusOK, StatusWarn, StatusUntested, StatusUnknown, StatusFail}, s)
	}
	for _, f := range r.Findings {
		if s := Status(f.Level); rank(s) > rank(r.Status) {
			r.Status = s
		}
	}
}
