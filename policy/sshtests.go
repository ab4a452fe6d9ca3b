package policy

// sshTests checks the section of that name, as far as the control plane refuses entries before it judges them.
func (v *validator) sshTests() {}

// evalSSHTests judges the entries of sshTests, one result for each user of accept, deny and check on each dst.
func (c *Compiled) evalSSHTests() []TestResult { return nil }
