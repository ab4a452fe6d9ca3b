package policy

import (
	"net/http"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// validator checks the meaning of a policy, section by section. The control plane answers with the first thing that
// it finds wrong; the validator keeps that as message and goes on, so that a user sees everything at once.
type validator struct {
	file  string
	p     *Policy
	x     *index
	diags diag.List

	// message and status are the control plane's answer; message is empty while nothing is wrong.
	message string
	status  int

	groups    map[string]*Group
	hosts     map[string]*Host
	ipsets    map[string]*IPSet
	tagOwners map[string]*TagOwner
	postures  map[string]*Posture
}

func newValidator(file string, p *Policy, x *index) *validator {
	v := &validator{
		file: file, p: p, x: x,
		groups: make(map[string]*Group, len(p.Groups)), hosts: make(map[string]*Host, len(p.Hosts)),
		ipsets: make(map[string]*IPSet, len(p.IPSets)), tagOwners: make(map[string]*TagOwner, len(p.TagOwners)),
		postures: make(map[string]*Posture, len(p.Postures)),
	}
	for i := range p.Groups {
		v.groups[p.Groups[i].Name.Value] = &p.Groups[i]
	}
	for i := range p.Hosts {
		v.hosts[p.Hosts[i].Name.Value] = &p.Hosts[i]
	}
	for i := range p.IPSets {
		v.ipsets[p.IPSets[i].Name.Value] = &p.IPSets[i]
	}
	for i := range p.TagOwners {
		v.tagOwners[p.TagOwners[i].Name.Value] = &p.TagOwners[i]
	}
	for i := range p.Postures {
		v.postures[p.Postures[i].Name.Value] = &p.Postures[i]
	}
	return v
}

// run checks every section.
func (v *validator) run() {
	v.ssh()
	v.nodeAttrs()
	v.sshTests()
}

// refuse reports an error at n that makes the control plane refuse the policy with 400 and message.
// The pointer is good until the next report.
func (v *validator) refuse(code string, n Node, message, label string) *diag.Diagnostic {
	if v.message == "" {
		v.message, v.status = message, http.StatusBadRequest
	}
	return v.report(diag.Error, code, n, message, label)
}

// report adds a finding that does not change the control plane's answer.
func (v *validator) report(sev diag.Severity, code string, n Node, message, label string) *diag.Diagnostic {
	v.diags = append(v.diags, diag.Diagnostic{
		Severity: sev, Code: code, Message: message, File: v.file, Path: n.Path, Range: n.Range, Label: label,
	})
	return &v.diags[len(v.diags)-1]
}
