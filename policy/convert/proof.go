package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/madeup"
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

// Prove compares two policies for the devices of an inventory, for made-up ones that bear the names nobody bears, and by
// what the inventory leaves open. mixed allows another order of rules.
func Prove(before, after *policy.Report, inv *policy.Inventory, mixed bool) Proof {
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
	numbers := map[string]int{}
	if !slices.Equal(admissions(before.Compiled, numbers), admissions(after.Compiled, numbers)) {
		p.Differs = append(p.Differs, "what the inventory leaves open")
	}
	if before.Accepted != after.Accepted || before.Message != after.Message {
		p.Differs = append(p.Differs, fmt.Sprintf("the control plane's answer: %q, was %q", after.Message, before.Message))
	}
	if !sameTests(before.Tests, after.Tests) || !sameTests(before.SSHTests, after.SSHTests) {
		p.Differs = append(p.Differs, "the results of the tests")
	}
	full, names := madeup.Populate(before.Policy, inv, false)
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
	if !slices.Equal(admissions(a.Compiled, numbers), admissions(b.Compiled, numbers)) {
		p.Differs = append(p.Differs, "what made-up devices would be admitted to")
	}
	return p
}

// sameFilter compares the filters of one device: rule by rule, and whether they are in the same order.
func sameFilter(a, b *policy.Compiled, device string) (same, order bool) {
	x, errA := a.Filter(device)
	y, errB := b.Filter(device)
	if errA != nil || errB != nil {
		return false, false
	}
	if slices.EqualFunc(x, y, sameRule) {
		return true, true
	}
	s, t := ruleTexts(x), ruleTexts(y)
	slices.Sort(s)
	slices.Sort(t)
	return slices.Equal(s, t), false
}

func sameRule(a, b policy.FilterRule) bool {
	return slices.Equal(a.IPProto, b.IPProto) && slices.Equal(a.SrcIPs, b.SrcIPs) &&
		slices.Equal(sortedPorts(a.DstPorts), sortedPorts(b.DstPorts)) &&
		(a.CapGrant == nil && b.CapGrant == nil || asJSON(a.CapGrant) == asJSON(b.CapGrant))
}

func sortedPorts(ports []policy.NetPortRange) []policy.NetPortRange {
	return slices.SortedFunc(slices.Values(ports), func(a, b policy.NetPortRange) int {
		return cmp.Or(strings.Compare(a.IP, b.IP), cmp.Compare(a.Ports.First, b.Ports.First), cmp.Compare(a.Ports.Last, b.Ports.Last))
	})
}

// ruleTexts writes each rule as text, its destinations sorted.
func ruleTexts(rules []policy.FilterRule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		r.DstPorts = sortedPorts(r.DstPorts)
		out[i] = asJSON(r)
	}
	return out
}

// admissions writes what each device admits, sources that depend on something unknown among it, whatever entries it comes
// from. Equal sources have one number in numbers, which what is compared must share.
func admissions(c *policy.Compiled, numbers map[string]int) []string {
	a := c.Access()
	seen := map[*policy.Sources]int{}
	number := func(s *policy.Sources) int {
		n, ok := seen[s]
		if !ok {
			text := asJSON(s)
			if n, ok = numbers[text]; !ok {
				n = len(numbers)
				numbers[text] = n
			}
			seen[s] = n
		}
		return n
	}
	ports := map[string][]string{}
	add := func(device string, adm policy.Admission) {
		if adm.Needs == "" {
			adm.Dst = "" // how the destination is spelled means nothing where it is known what it is
		}
		key := fmt.Sprintf("%s %d %q %q %v %v %t %t %t", device, number(adm.Sources),
			adm.Dst, adm.Needs, adm.IPs, adm.Proto, adm.Self, adm.All, adm.Own)
		if adm.Caps != nil {
			key += " " + asJSON(adm.Caps)
		}
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
