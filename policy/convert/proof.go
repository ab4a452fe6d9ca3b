package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Proof is what comparing the compiled policies, before and after, has shown.
type Proof struct {
	// Devices is how many get filters, and Same for how many both policies have the same one: equal rules, and equal
	// destinations in each, whose order within a rule means nothing.
	Devices, Same int
	// Reordered is how many of the same have their rules in another order, which grants nothing and takes nothing: it is
	// so where entries stay in their old form, because grants come before acls.
	Reordered int
	// MadeUp are the names that no device bears, for which devices were made up, so that rules about them are compared too.
	MadeUp []string
	// Differs says what is not the same.
	Differs []string
}

// Holds reports whether the two policies are the same.
func (p *Proof) Holds() bool { return len(p.Differs) == 0 }

// prove compares two policies for the devices of an inventory, for made-up ones that bear the names nobody bears, and by
// what the inventory leaves open. mixed allows another order of rules.
func prove(before, after *policy.Report, inv *policy.Inventory, mixed bool) Proof {
	var p Proof
	devices := before.Compiled.Devices()
	p.Devices = len(devices)
	for _, d := range devices {
		same, order := sameFilter(before.Compiled, after.Compiled, d)
		switch {
		case !same, !order && !mixed:
			p.Differs = append(p.Differs, "the filter of "+d)
			continue
		case !order:
			p.Reordered++
		}
		p.Same++
	}
	if !slices.Equal(admissions(before.Compiled), admissions(after.Compiled)) {
		p.Differs = append(p.Differs, "what the inventory leaves open")
	}
	if before.Accepted != after.Accepted || before.Message != after.Message {
		p.Differs = append(p.Differs, fmt.Sprintf("the control plane's answer: %q, was %q", after.Message, before.Message))
	}
	if !sameTests(before.Tests, after.Tests) || !sameTests(before.SSHTests, after.SSHTests) {
		p.Differs = append(p.Differs, "the results of the tests")
	}
	full, names := populate(before.Policy, inv)
	p.MadeUp = names
	a, b := policy.Check("", before.Policy.Source(), full, nil), policy.Check("", after.Policy.Source(), full, nil)
	if a.Compiled == nil || b.Compiled == nil {
		p.Differs = append(p.Differs, "the answer for made-up devices")
		return p
	}
	for _, d := range a.Compiled.Devices() {
		if same, order := sameFilter(a.Compiled, b.Compiled, d); (!same || !order && !mixed) && !slices.Contains(devices, d) {
			p.Differs = append(p.Differs, "the filter that a device "+d+" would get")
		}
	}
	if !slices.Equal(admissions(a.Compiled), admissions(b.Compiled)) {
		p.Differs = append(p.Differs, "what made-up devices would be admitted to")
	}
	return p
}

// sameFilter compares the filters of one device: rule by rule, and whether they are in the same order.
func sameFilter(a, b *policy.Compiled, device string) (same, order bool) {
	x, y := ruleTexts(a, device), ruleTexts(b, device)
	if slices.Equal(x, y) {
		return true, true
	}
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y), false
}

// ruleTexts writes each rule of a device as text, its destinations sorted.
func ruleTexts(c *policy.Compiled, device string) []string {
	rules, err := c.Filter(device)
	if err != nil {
		return []string{err.Error()}
	}
	out := make([]string, len(rules))
	for i, r := range rules {
		r.DstPorts = slices.Clone(r.DstPorts)
		slices.SortFunc(r.DstPorts, func(a, b policy.NetPortRange) int {
			return cmp.Or(strings.Compare(a.IP, b.IP), cmp.Compare(a.Ports.First, b.Ports.First), cmp.Compare(a.Ports.Last, b.Ports.Last))
		})
		out[i] = asJSON(r)
	}
	return out
}

// admissions writes what each device admits, sources that depend on something unknown among it, whatever entries it comes
// from.
func admissions(c *policy.Compiled) []string {
	a := c.Access()
	ports := map[string][]string{}
	add := func(device string, adm policy.Admission) {
		key := device + " " + asJSON(struct {
			S            *policy.Sources
			Dst, Needs   string
			IPs          []string
			Proto        []int
			Caps         any
			Self, All, O bool
		}{adm.Sources, adm.Dst, adm.Needs, adm.IPs, adm.Proto, adm.Caps, adm.Self, adm.All, adm.Own})
		for _, p := range adm.Ports {
			ports[key] = append(ports[key], fmt.Sprint(p))
		}
		if len(adm.Ports) == 0 {
			ports[key] = append(ports[key], "")
		}
	}
	for i, d := range a.Devices() {
		for _, adm := range a.Admissions(i) {
			add(d.Name, adm)
		}
	}
	for _, adm := range a.Unplaced() {
		add("", adm)
	}
	var out []string
	for key, p := range ports {
		slices.Sort(p)
		out = append(out, key+" "+strings.Join(p, " "))
	}
	slices.Sort(out)
	return out
}

func sameTests(a, b []policy.TestResult) bool {
	return slices.EqualFunc(a, b, func(x, y policy.TestResult) bool {
		return x.Path == y.Path && x.Got == y.Got && x.Verdict == y.Verdict && x.Reason == y.Reason
	})
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// populate adds to an inventory a device for each tag and each user that the policy names and no device bears, and a router
// for every network and address that it spells. names are what was made up for, sorted.
func populate(p *policy.Policy, inv *policy.Inventory) (full *policy.Inventory, names []string) {
	full = &policy.Inventory{}
	borne := map[string]bool{}
	used := map[string]bool{}
	if inv != nil {
		full.Users = inv.Users
		full.Devices = slices.Clone(inv.Devices)
		for _, d := range inv.Devices {
			used[d.Hostname] = true
			for _, a := range d.Addresses {
				used[a] = true
			}
			if !d.Authorized || d.IsExternal {
				continue
			}
			for _, t := range d.Tags {
				borne[t] = true
			}
			if len(d.Tags) == 0 {
				borne[d.User] = true
			}
		}
	}
	next := 0
	addresses := func() []string {
		for {
			next++
			v4, v6 := fmt.Sprintf("100.127.%d.%d", 250-next/250, 1+next%250), fmt.Sprintf("fd7a:115c:a1e0:ffff::%x", next)
			if !used[v4] && !used[v6] || next > 60000 {
				return []string{v4, v6}
			}
		}
	}
	add := func(name string, d policy.Device) {
		host := "with " + name
		for used[host] {
			host += "'"
		}
		used[host] = true
		d.NodeID, d.Hostname, d.Name = "made up: "+name, host, host
		d.Addresses, d.Authorized = addresses(), true
		full.Devices = append(full.Devices, d)
		names = append(names, name)
	}
	routes := map[string]bool{}
	for _, name := range named(p) {
		switch {
		case borne[name]:
		case strings.HasPrefix(name, "tag:"):
			add(name, policy.Device{Tags: []string{name}})
		case strings.HasPrefix(name, "user:"), strings.HasPrefix(name, "group:"), strings.HasPrefix(name, "autogroup:"):
		case strings.Contains(name, "@"):
			add(name, policy.Device{User: name})
		default:
			if n, err := netip.ParsePrefix(name); err == nil && n.Bits() > 0 {
				routes[n.Masked().String()] = true
			} else if a, err := netip.ParseAddr(name); err == nil {
				routes[netip.PrefixFrom(a, a.BitLen()).String()] = true
			}
		}
		borne[name] = true
	}
	slices.Sort(names)
	if len(routes) > 0 {
		var list []string
		for r := range routes {
			list = append(list, r)
		}
		slices.Sort(list)
		made := names
		add("routes to all that the policy spells", policy.Device{EnabledRoutes: list})
		names = append(made, fmt.Sprintf("%d networks and addresses", len(list)))
	}
	return full, names
}

// named lists what a policy's rules may name: tags, users, addresses and networks.
func named(p *policy.Policy) []string {
	var out []string
	for _, t := range p.TagOwners {
		out = append(out, t.Name.Value)
	}
	for _, g := range p.Groups {
		out = append(out, g.Members.Values()...)
	}
	for _, h := range p.Hosts {
		out = append(out, h.Value.Value)
	}
	for _, s := range p.IPSets {
		for _, e := range s.Entries.Items {
			fields := strings.Fields(e.Value)
			if len(fields) > 0 {
				out = append(out, fields[len(fields)-1])
			}
		}
	}
	for _, a := range p.ACLs {
		out = append(out, a.Src.Values()...)
		for _, d := range a.Dst.Items {
			if selector, _, err := policy.SplitACLDst(d.Value); err == nil {
				out = append(out, selector)
			}
		}
	}
	for _, g := range p.Grants {
		out = append(append(out, g.Src.Values()...), g.Dst.Values()...)
	}
	return out
}
