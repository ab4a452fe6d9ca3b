package policy

// WithRules judges the policy's tests and the report's requirements as if the policy had these acls and grants, which may
// be none: nothing is admitted then. The names that they use must be the policy's. Findings are not made. It returns nil
// where the policy's own rules could not be compiled.
func (r *Report) WithRules(acls []ACL, grants []Grant) *Report {
	if r.Compiled == nil {
		return nil
	}
	p := *r.Policy
	p.ACLs, p.Grants = acls, grants
	p.shapes = nil // the text has other rules: there is no place in it for what these lack
	if p.ACLs == nil {
		p.ACLs = []ACL{} // a missing section, with the other one missing as well, would allow everything
	}
	c := compile(&p, newValidator(r.Compiled.v.file, &p, r.Compiled.x))
	out := &Report{Policy: &p, Compiled: c, Tests: c.evalTests()}
	for _, req := range r.Requirements {
		out.Requirements = append(out.Requirements, c.require(req.Requirement))
	}
	return out
}

// WithSSH judges the policy's sshTests, and nothing else, as if the policy had these ssh rules. As with WithRules, the names
// that they use must be the policy's, and it returns nil where the policy's own rules could not be compiled.
func (r *Report) WithSSH(rules []SSH) *Report {
	if r.Compiled == nil {
		return nil
	}
	p := *r.Policy
	p.SSH, p.ACLs, p.Grants, p.shapes = rules, []ACL{}, nil, nil // the rules of the network have no part in it
	c := compile(&p, newValidator(r.Compiled.v.file, &p, r.Compiled.x))
	return &Report{Policy: &p, Compiled: c, SSHTests: c.evalSSHTests()}
}
