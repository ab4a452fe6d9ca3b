package coverage

import (
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// place is a rule, or an element of one of its lists.
type place struct {
	section string // acls, grants, ssh
	index   int
	list    string // src, dst, ip, users; empty for the rule itself
	element int
	node    policy.Node
	text    string
}

// rule is the path of the rule.
func (at place) rule() string { return entryOf(at.node.Path) }

// entryOf is the path of the entry that a path is in: tests[4] of tests[4].accept[0].
func entryOf(path string) string {
	entry, _, _ := strings.Cut(path, ".")
	return entry
}

// places lists the rules as the control plane takes them, each before its parts.
func places(p *policy.Policy) []place {
	var out []place
	add := func(section string, index int, rule policy.Node, names []string, lists ...policy.Strings) {
		out = append(out, place{section: section, index: index, node: rule})
		for i, l := range lists {
			if len(l.Items) < 2 {
				continue
			}
			for k, s := range l.Items {
				out = append(out, place{section: section, index: index, list: names[i], element: k, node: s.Node, text: s.Value})
			}
		}
	}
	for i, g := range p.Grants {
		add("grants", i, g.Node, []string{"src", "dst", "ip"}, g.Src, g.Dst, g.IP)
	}
	for i, a := range p.ACLs {
		add("acls", i, a.Node, []string{"src", "dst"}, a.Src, a.Dst)
	}
	for i, s := range p.SSH {
		add("ssh", i, s.Node, []string{"src", "dst", "users"}, s.Src, s.Dst, s.Users)
	}
	return out
}

// only is the rule alone, and of a part's list the part alone.
func (at place) only(p *policy.Policy) (acls []policy.ACL, grants []policy.Grant) {
	switch at.section {
	case "acls":
		a := p.ACLs[at.index]
		at.keep(map[string]*policy.Strings{"src": &a.Src, "dst": &a.Dst})
		return []policy.ACL{a}, nil
	case "grants":
		g := p.Grants[at.index]
		at.keep(map[string]*policy.Strings{"src": &g.Src, "dst": &g.Dst, "ip": &g.IP})
		return nil, []policy.Grant{g}
	}
	return nil, nil
}

// without are the rules of the network without this one or this part.
func (at place) without(p *policy.Policy) (acls []policy.ACL, grants []policy.Grant) {
	acls, grants = slices.Clone(p.ACLs), slices.Clone(p.Grants)
	switch {
	case at.section == "acls" && at.list == "":
		acls = slices.Delete(acls, at.index, at.index+1)
	case at.section == "grants" && at.list == "":
		grants = slices.Delete(grants, at.index, at.index+1)
	case at.section == "acls":
		a := &acls[at.index]
		at.drop(map[string]*policy.Strings{"src": &a.Src, "dst": &a.Dst})
	case at.section == "grants":
		g := &grants[at.index]
		at.drop(map[string]*policy.Strings{"src": &g.Src, "dst": &g.Dst, "ip": &g.IP})
	}
	return acls, grants
}

func (at place) onlySSH(p *policy.Policy) []policy.SSH {
	s := p.SSH[at.index]
	at.keep(map[string]*policy.Strings{"src": &s.Src, "dst": &s.Dst, "users": &s.Users})
	return []policy.SSH{s}
}

func (at place) withoutSSH(p *policy.Policy) []policy.SSH {
	rules := slices.Clone(p.SSH)
	if at.list == "" {
		return slices.Delete(rules, at.index, at.index+1)
	}
	s := &rules[at.index]
	at.drop(map[string]*policy.Strings{"src": &s.Src, "dst": &s.Dst, "users": &s.Users})
	return rules
}

func (at place) keep(lists map[string]*policy.Strings) {
	if l := lists[at.list]; l != nil {
		l.Items = l.Items[at.element : at.element+1 : at.element+1]
	}
}

func (at place) drop(lists map[string]*policy.Strings) {
	l := lists[at.list]
	l.Items = slices.Delete(slices.Clone(l.Items), at.element, at.element+1)
}
