package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// nearestRule returns the rule that fails a pair by the least: one between the right ends but for other protocols or
// ports before one with a wrong end; nil where no rule has anything in common with the flow.
func (c *Compiled) nearestRule(f flow, failed []failedParty) *rule {
	if len(failed) == 0 {
		return nil
	}
	at := failed[0]
	var best *rule
	bestScore := 0
	for _, r := range c.rules {
		if r.selfPorts != nil || r.isVia || r.node.Path == "" {
			continue
		}
		score := 0
		src := r.src.has(c, at.src) == Pass
		dst := slices.ContainsFunc(r.dsts, func(p dstPart) bool { return p.to.match(c, at.dst) == Pass })
		if src {
			score += 4
		}
		if dst {
			score += 4
		}
		if r.lists(f.proto) {
			score += 3
		}
		// A rule that shares one end and not even the protocol is no neighbour.
		if score > bestScore && score >= 7 {
			best, bestScore = r, score
		}
	}
	return best
}

// pointAt sets the place of a finding: in the nearest rule the part that is too narrow, else the list of rules.
func (c *Compiled) pointAt(d *diag.Diagnostic, near *rule, f flow) {
	at := func(n Node, label string) { d.Range, d.Path, d.Label = n.Range, n.Path, label }
	if near == nil {
		switch list := c.listFor(nil); {
		case list != nil:
			n := *list
			n.Range.End = n.Range.Start
			n.Range.End.Column++
			n.Range.End.Offset++
			at(n, "no rule here is near it")
		default:
			n := c.p.Node
			n.Range.End = n.Range.Start
			n.Range.End.Column++
			n.Range.End.Offset++
			at(n, "no rules: everything is allowed, of tcp, udp, icmp and icmpv6")
		}
		return
	}
	covers := "covers tcp, udp, icmp and icmpv6 only"
	if near.proto != nil {
		covers = "covers " + protoName(near.proto[0]) + " only"
	}
	if near.lists(f.proto) {
		covers = "does not cover both ends and all ports"
	}
	if g, a := c.ruleText(near); g != nil {
		at(g.IP.Node, covers)
		for _, s := range g.IP.Items {
			pp, err := parseProtoPorts(s.Value)
			if err == nil && (pp.proto == 0 && near.proto == nil || near.proto != nil && pp.proto == near.proto[0]) {
				at(s.Node, covers)
				break
			}
		}
	} else if a != nil {
		switch {
		case a.Proto.Value != "":
			at(a.Proto.Node, covers)
		case !a.Dst.Range.IsZero():
			at(a.Dst.Node, "without a protocol this "+covers)
		default:
			at(a.Node, covers)
		}
	}
}

// ruleText finds the grant or the acl that a rule comes from.
func (c *Compiled) ruleText(r *rule) (*Grant, *ACL) {
	for i := range c.p.Grants {
		if c.p.Grants[i].Path == r.node.Path {
			return &c.p.Grants[i], nil
		}
	}
	for i := range c.p.ACLs {
		if c.p.ACLs[i].Path == r.node.Path {
			return nil, &c.p.ACLs[i]
		}
	}
	return nil, nil
}

// listFor is the section that a remedy belongs to: that of the nearest rule, else the one that the policy has. A policy
// that has both and no near rule gets a grant.
func (c *Compiled) listFor(near *rule) *Node {
	if near != nil {
		if g, _ := c.ruleText(near); g != nil {
			return &c.p.GrantList
		}
		return &c.p.ACLList
	}
	switch {
	case c.p.Grants != nil:
		return &c.p.GrantList
	case c.p.ACLs != nil:
		return &c.p.ACLList
	}
	return nil
}

// remedy is the text that makes the requirement pass, in the syntax of the rule that is near it.
func (c *Compiled) remedy(req *Requirement, f flow, near *rule) diag.Help {
	src, dst := c.ruleSelectors(req.Src), c.ruleSelectors(req.Dst)
	name := protoName(f.proto)
	if _, known := protocolNames()[name]; !known {
		name = strconv.Itoa(f.proto)
	}
	entry := name + ":" + f.ports.text()
	grant := fmt.Sprintf(`{"src": %s, "dst": %s, "ip": [%s]}`, quoteList(src), quoteList(dst), quote(entry))
	list := c.listFor(near)
	switch list {
	case nil:
		// Without rules everything is allowed; the first rule ends that, so what was allowed has to be said.
		all := `{"src": ["*"], "dst": ["*"], "ip": ["*"]}`
		return diag.Help{
			Message: "add grants: one for what is allowed without any, one for " + name,
			Edits:   c.p.setSection("grants", "[\n\t\t"+all+",\n\t\t"+grant+",\n\t]"),
		}
	case &c.p.ACLList:
		dstPorts := make([]string, len(dst))
		for i, d := range dst {
			if sel := parseSelector(d); sel.kind == selAddr && sel.addrs.From().Is6() {
				d = "[" + d + "]"
			}
			dstPorts[i] = d + ":" + f.ports.text()
		}
		acl := fmt.Sprintf(`{"action": "accept", "proto": %s, "src": %s, "dst": %s}`, quote(name), quoteList(src), quoteList(dstPorts))
		return diag.Help{Message: "add this acl", Edits: c.p.appendTo(list.Range, acl)}
	}
	if near != nil {
		g, _ := c.ruleText(near)
		// Widening a grant that is about others too would allow more than is needed.
		if g != nil && g.IP.Present && near.src.posture == nil && sameSet(g.Src.Values(), src) && sameSet(g.Dst.Values(), dst) {
			return diag.Help{Message: "name the protocol in this grant", Edits: c.p.appendTo(g.IP.Range, quote(entry))}
		}
	}
	return diag.Help{Message: "add this grant", Edits: c.p.appendTo(list.Range, grant)}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// ruleSelectors are a requirement's selectors as a rule can name them: a device by its addresses.
func (c *Compiled) ruleSelectors(selectors []string) []string {
	var out []string
	for _, s := range selectors {
		if !c.v.known(s) {
			if d := c.x.find(s); d != nil {
				out = append(out, d.ips...)
				continue
			}
		}
		out = append(out, s)
	}
	return out
}
