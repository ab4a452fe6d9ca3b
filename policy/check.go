package policy

import (
	"cmp"
	"net/http"
	"slices"

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
	r.Policy = p
	if i := slices.IndexFunc(diags, func(d diag.Diagnostic) bool { return d.Severity == diag.Error }); i >= 0 {
		r.Message = diags[i].Message
	}
	if p == nil {
		for _, req := range reqs {
			r.Requirements = append(r.Requirements, requireWithout(req))
		}
		r.finish(diags)
		return r
	}
	v := newValidator(file, p, newIndex(inv))
	v.diags = diags
	v.message, v.status = r.Message, r.Status
	v.run()
	if v.message == "" {
		r.Compiled = compile(p, v)
		r.Tests = r.Compiled.evalTests()
		r.SSHTests = r.Compiled.evalSSHTests()
		for _, t := range r.Tests {
			r.Compiled.reportTest(t)
		}
		for _, t := range r.SSHTests {
			v.reportSSHTest(t)
		}
	}
	for _, req := range reqs {
		res := requireWithout(req)
		if r.Compiled != nil {
			res = r.Compiled.require(req)
		}
		r.Requirements = append(r.Requirements, res)
		v.diags = append(v.diags, res.Diagnostics...)
	}
	r.Message, r.Status = v.message, v.status
	if r.Message == "" {
		r.Accepted, r.Status = true, http.StatusOK
	}
	r.finish(v.diags)
	return r
}

// finish sorts the findings and drops those that say the same of the same place, and those about what stands where
// something of another type belongs: they follow from that.
func (r *Report) finish(diags diag.List) {
	slices.SortStableFunc(diags, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Range.Start.Offset, b.Range.Start.Offset), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	var wrong []diag.Range // in order, and none inside another: what has the wrong type is not read further
	for _, d := range diags {
		if d.Code == "wrong-type" {
			wrong = append(wrong, d.Range)
		}
	}
	follows := func(d diag.Diagnostic) bool {
		i, _ := slices.BinarySearchFunc(wrong, d.Range.Start.Offset+1, func(w diag.Range, off int) int { return w.Start.Offset - off })
		return d.Code != "wrong-type" && i > 0 && !d.Range.IsZero() && d.Range.End.Offset <= wrong[i-1].End.Offset
	}
	r.Diagnostics = slices.CompactFunc(slices.DeleteFunc(diags, follows), func(a, b diag.Diagnostic) bool {
		return a.Range == b.Range && a.Code == b.Code && a.Message == b.Message
	})
}
