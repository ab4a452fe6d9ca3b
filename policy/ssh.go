package policy

// SSHRule is an SSH rule of a device, JSON-identical to what the control plane sends.
type SSHRule struct{}

// ssh checks the section of that name.
func (v *validator) ssh() {}

// SSH returns the SSH rules that a device (named as in Devices) gets.
func (c *Compiled) SSH(device string) ([]SSHRule, error) { return nil, nil }
