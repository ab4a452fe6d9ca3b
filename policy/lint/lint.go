// Package lint finds what is accepted in a policy and worth a second look: rules that give nothing, names that nothing
// uses, tests that prove nothing, rules that no test guards, and sources that are wider than their destination bears.
//
// What is said of access is found by set algebra on the compiled policy; protocols and ports are read from its rules, in
// any spelling. So that a finding does not hang on who happens to be in the tailnet today, the policy is compiled for the
// devices of the inventory and for made-up ones besides, one for each name.
//
// It is not for what the control plane refuses, which package policy reports, nor for layout, which Format mends.
package lint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/madeup"
)

// Rule is a kind of finding.
type Rule struct {
	ID    string // code of its findings
	Level diag.Severity
	// Fixes says that the first help of its findings is sure: it changes no device's filter.
	Fixes bool
	run   func(*linter)
}

// Rules lists all rules.
func Rules() []Rule {
	return []Rule{
		{"deprecated-spelling", diag.Warning, true, deprecatedSpellings},
		{"empty-rule", diag.Warning, false, nil}, // found with redundant-rule
		{"mesh-without-ip-in-ip", diag.Warning, false, meshes},
		{"mixed-rules", diag.Note, false, mixedRules},
		{"no-ssh-tests", diag.Note, false, nil}, // found with ssh-unreachable
		{"no-tests", diag.Warning, false, noTests},
		{"redundant-rule", diag.Warning, false, redundantRules},
		{"ssh-root-for-all", diag.Warning, false, nil}, // found with ssh-unreachable
		{"ssh-unreachable", diag.Warning, false, sshRules},
		{"tag-without-owner", diag.Note, false, tagsWithoutOwner},
		{"test-proves-nothing", diag.Warning, false, func(l *linter) { idleTests(l); idleSSHTests(l) }},
		{"untested-rule", diag.Note, false, untestedRules},
		{"unused-name", diag.Warning, false, unusedNames},
		{"wide-access", diag.Warning, false, wideAccess},
	}
}

// Lint runs every rule on a policy that the control plane would take the rules of: the Report that policy.Check made of it
// with the same inventory, which may be nil. A policy that could not be compiled has no findings here. They are sorted by
// position.
func Lint(file string, report *policy.Report, inv *policy.Inventory) diag.List {
	if report.Compiled == nil {
		return nil
	}
	l := &linter{file: file, report: report, p: report.Policy, inv: inv, level: map[string]diag.Severity{}}
	l.entries = entries(l.p)
	full, _ := madeup.Populate(l.p, inv, true)
	l.everybody = policy.Check("", l.p.Source(), full, nil)
	l.judged = report
	if inv == nil {
		// Tests and requirements are judged on made-up devices where there are no others.
		var reqs []policy.Requirement
		for _, r := range report.Requirements {
			reqs = append(reqs, r.Requirement)
		}
		l.judged = policy.Check("", l.p.Source(), full, reqs)
	}
	if l.everybody.Compiled == nil || l.judged.Compiled == nil {
		return nil
	}
	rules := Rules()
	for _, r := range rules {
		l.level[r.ID] = r.Level
	}
	for _, r := range rules {
		if r.run != nil {
			r.run(l)
		}
	}
	slices.SortStableFunc(l.found, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Range.Start.Offset, b.Range.Start.Offset), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message))
	})
	return l.found
}

// Fix carries out the first help of those findings whose rule has sure ones. fixed counts the findings that are gone.
func Fix(src []byte, found diag.List) (text []byte, fixed int, err error) {
	var edits []diag.Edit
	for _, d := range found {
		sure := slices.ContainsFunc(Rules(), func(r Rule) bool { return r.ID == d.Code && r.Fixes })
		if !sure || len(d.Help) == 0 || len(d.Help[0].Edits) == 0 {
			continue
		}
		fixed++
		edits = append(edits, d.Help[0].Edits...)
	}
	text, err = diag.Apply(src, edits)
	if err != nil {
		return nil, 0, fmt.Errorf("fix: %w", err)
	}
	return text, fixed, nil
}

// linter is one run.
type linter struct {
	file   string
	report *policy.Report
	p      *policy.Policy
	inv    *policy.Inventory
	level  map[string]diag.Severity
	found  diag.List

	entries   []entry
	everybody *policy.Report // compiled for the inventory and a device for each name
	judged    *policy.Report // where tests and requirements are judged
	redundant map[string]bool
}

func (l *linter) say(code string, n policy.Node, message, label string) *diag.Diagnostic {
	l.found = append(l.found, diag.Diagnostic{
		Severity: l.level[code], Code: code, Message: message, File: l.file, Path: n.Path, Range: n.Range, Label: label,
	})
	return &l.found[len(l.found)-1]
}

// entry is an acl or a grant.
type entry struct {
	policy.Node
	src     []string
	targets []target
	posture bool
	app     bool
	via     bool
}

// target is a destination with the ports of one protocol ("" is the default ones).
type target struct {
	selector, proto string
	ports           []string
}

// entries lists the rules in the order in which the control plane takes them.
func entries(p *policy.Policy) []entry {
	var out []entry
	for i := range p.Grants {
		g := &p.Grants[i]
		e := entry{Node: g.Node, src: g.Src.Values(), posture: len(g.SrcPosture.Items) > 0, app: len(g.App) > 0, via: len(g.Via.Items) > 0}
		ports := map[string][]string{}
		for _, s := range g.IP.Items {
			if proto, list, err := policy.SplitGrantIP(s.Value); err == nil {
				ports[proto] = append(ports[proto], list)
			}
		}
		for _, d := range g.Dst.Items {
			for _, proto := range sortedKeys(ports) {
				e.targets = append(e.targets, target{d.Value, proto, ports[proto]})
			}
		}
		out = append(out, e)
	}
	for i := range p.ACLs {
		a := &p.ACLs[i]
		e := entry{Node: a.Node, src: a.Src.Values(), posture: len(a.SrcPosture.Items) > 0}
		proto, err := policy.ProtocolText(a.Proto.Value)
		if err != nil {
			continue
		}
		for _, d := range a.Dst.Items {
			if selector, ports, err := policy.SplitACLDst(d.Value); err == nil {
				e.targets = append(e.targets, target{selector, proto, ports})
			}
		}
		out = append(out, e)
	}
	return out
}

// without returns the rules of the policy, those left out that drop says.
func (l *linter) without(drop func(path string) bool) ([]policy.ACL, []policy.Grant) {
	acls := slices.DeleteFunc(slices.Clone(l.p.ACLs), func(a policy.ACL) bool { return drop(a.Path) })
	grants := slices.DeleteFunc(slices.Clone(l.p.Grants), func(g policy.Grant) bool { return drop(g.Path) })
	return acls, grants
}
