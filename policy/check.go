package policy

import (
	"net/http"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Report is all that can be said of a policy file.
type Report struct {
	// Accepted, Status and Message are what the control plane would answer to a write: 200, 400 or 500.
	Accepted bool
	Status   int
	Message  string
	// Diagnostics are the findings, sorted by position, the unmet requirements and failed tests among them.
	Diagnostics  diag.List
	Tests        []TestResult
	SSHTests     []TestResult
	Requirements []RequirementResult
	// Policy is nil where the text is not HuJSON; Compiled is nil where the control plane would refuse the rules.
	Policy   *Policy
	Compiled *Compiled
}

// Check says what the control plane would say to a write of src, and then judges reqs. inv may be nil: what needs
// devices is then Undecided. file names the text in diagnostics and may be empty.
func Check(file string, src []byte, inv *Inventory, reqs []Requirement) *Report {
	r := &Report{Status: http.StatusBadRequest}
	p, diags := Parse(file, src)
	r.Policy, r.Diagnostics = p, diags
	for _, d := range diags {
		if d.Severity == diag.Error {
			r.Message = d.Message
			return r
		}
	}
	v := newValidator(file, p, newIndex(inv))
	v.run()
	r.Diagnostics = append(r.Diagnostics, v.diags...)
	if v.message != "" {
		r.Status, r.Message = v.status, v.message
		return r
	}
	r.Compiled = compile(p, v)
	r.Accepted, r.Status = true, http.StatusOK
	return r
}
