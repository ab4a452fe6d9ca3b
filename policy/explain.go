package policy

import (
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Explanation is the answer to "may this flow pass", with every rule that touches it.
type Explanation struct {
	Decision
	// Pairs counts the ordered pairs of devices that the two ends stand for, a device with itself left out.
	Pairs int
	Rules []RuleTouch
}

// RuleTouch is how far one rule goes with a flow: it names the two ends of some pairs, and admits the flow between none,
// some or all of these.
type RuleTouch struct {
	Rule      string     `json:"rule"` // path
	Range     diag.Range `json:"range"`
	Pairs     int        `json:"pairs"`     // of which it names both ends
	Admitted  int        `json:"admitted"`  // of these, between which it admits the flow
	Undecided int        `json:"undecided"` // of these, for which the inventory does not tell
	// Covers is the traffic that it admits between the ends, such as "tcp on 443" or "ip-in-ip".
	Covers string `json:"covers"`
	// Decides says that it is the rule of the decision.
	Decides bool `json:"decides"`
}

// Explain is Can with the reasons: every rule that names both ends of at least one pair, in the order in which the
// control plane evaluates them (grants, then acls).
func (c *Compiled) Explain(src, dst, proto string, port int) (*Explanation, error) {
	q, err := c.ask(src, dst, proto, port)
	if err != nil {
		return nil, err
	}
	out := &Explanation{Decision: c.decide(q)}
	touches := map[string]*RuleTouch{}
	covers := map[string][]string{}
	first := map[string]int{} // position of a path's first rule
	from := c.parties(q.from)
	for _, d := range c.parties(q.to) {
		for _, s := range from {
			weight := pairsOf(s, d)
			out.Pairs += weight
			if weight == 0 {
				continue
			}
			for path, m := range c.meet(s, d, q.flow) {
				t := touches[path]
				if t == nil {
					t = &RuleTouch{Rule: path, Range: m.node.Range, Decides: out.Rule == path && out.Verdict != Fail}
					touches[path], first[path] = t, m.pos
				}
				t.Pairs += weight
				switch m.verdict {
				case Pass:
					t.Admitted += weight
				case Undecided:
					t.Undecided += weight
				}
				covers[path] = append(covers[path], m.covers...)
			}
		}
	}
	for path, t := range touches {
		slices.Sort(covers[path])
		t.Covers = strings.Join(slices.Compact(covers[path]), "; ")
		out.Rules = append(out.Rules, *t)
	}
	slices.SortFunc(out.Rules, func(a, b RuleTouch) int { return first[a.Rule] - first[b.Rule] })
	return out, nil
}

// meeting is how the rules of one path in the text, of which a grant may have several, meet one pair.
type meeting struct {
	node    Node
	pos     int
	verdict Verdict
	covers  []string
}

// meet finds the rules that name both ends of a pair.
func (c *Compiled) meet(s, d party, f flow) map[string]*meeting {
	out := map[string]*meeting{}
	for _, de := range d.ends {
		all := c.candidates(d, de)
		for i := 0; i < len(all); {
			r, start := all[i].rule, i
			for i < len(all) && all[i].rule == r {
				i++
			}
			own := all[start:i]
			ports := c.portsTo(own, de)
			for _, se := range s.ends {
				if !sameFamily(se, de) || r.src.has(c, se) == Fail {
					continue
				}
				if r.selfPorts != nil {
					if !sameOwner(se, de) {
						continue
					}
				} else if len(ports) == 0 {
					continue
				}
				m := out[r.node.Path]
				if m == nil {
					m = &meeting{node: r.node, pos: r.pos, verdict: Fail}
					out[r.node.Path] = m
				}
				m.covers = append(m.covers, r.covers(ports))
				if v := c.judge(se, de, c.offers(de, f, own)).verdict; v == Pass || m.verdict == Fail {
					m.verdict = v
				}
			}
		}
	}
	return out
}

// portsTo are the ports that a rule names for a destination, those included of which the inventory does not tell whether
// they are the destination's.
func (c *Compiled) portsTo(own []posting, de endpoint) []PortRange {
	var out []PortRange
	for _, p := range own {
		switch r := p.rule; {
		case r.selfPorts != nil:
			out = r.selfPorts
		case r.isVia && de.dev != nil: // via opens what lies behind a router, not the router
		case r.dsts[p.part].to.match(c, de) != Fail:
			out = append(out, r.dsts[p.part].ports...)
		}
	}
	return out
}

// covers describes the traffic that a rule admits, given the ports that it names.
func (r *rule) covers(ports []PortRange) string {
	if r.proto == nil && !slices.ContainsFunc(ports, PortRange.isAll) {
		return "tcp and udp on " + portsText(ports) + ", icmp and ipv6-icmp" // which any port opens
	}
	protos := "tcp, udp, icmp and ipv6-icmp"
	portless := false
	if r.proto != nil {
		names := make([]string, len(r.proto))
		for i, p := range r.proto {
			names[i] = protoName(p)
		}
		protos = strings.Join(names, ", ")
		portless = !slices.ContainsFunc(r.proto, hasPorts)
	}
	if portless || slices.ContainsFunc(ports, PortRange.isAll) {
		return protos
	}
	return protos + " on " + portsText(ports)
}

func portsText(ports []PortRange) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = p.text()
	}
	return strings.Join(texts, ", ")
}
