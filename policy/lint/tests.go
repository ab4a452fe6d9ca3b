package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// noTests finds policies with rules and without tests.
func noTests(l *linter) {
	if len(l.entries) == 0 || len(l.p.Tests) > 0 {
		return
	}
	n := l.entries[0].Node
	d := l.say("no-tests", policy.Node{Path: n.Path, Range: n.Range}, "the policy has rules and no tests",
		"nothing says what it is for")
	d.Help = []diag.Help{{
		Message: `add a section such as "tests": [{"src": "group:eng", "accept": ["tag:web:443"], "deny": ["tag:db:5432"]}]`,
	}}
}

// idleTests finds tests that cannot fail: lines whose result is the same when everything is admitted and when nothing is,
// lines that another one says already, and a section that passes with no rules at all.
func idleTests(l *linter) {
	if len(l.p.Tests) == 0 {
		return
	}
	nothing, everything := l.judged.WithRules(nil, nil), l.judged.WithRules(allowAll(l.p), nil)
	first := map[string]policy.Node{}
	idle := map[string]bool{} // paths of lines
	for i, t := range l.judged.Tests {
		n := policy.Node{Path: t.Path, Range: t.Range}
		if t.Got == "invalid" {
			continue
		}
		if t.Verdict == policy.Pass && nothing.Tests[i].Verdict == policy.Pass && everything.Tests[i].Verdict == policy.Pass {
			idle[t.Path] = true
			l.say("test-proves-nothing", n, fmt.Sprintf("no rule could make this test of %q to %q fail", t.Src, t.Dst),
				"passes whatever the rules say")
			continue
		}
		key := l.line(t)
		if at, ok := first[key]; ok {
			idle[t.Path] = true
			d := l.say("test-proves-nothing", n, fmt.Sprintf("the same test of %q to %q stands at %s", t.Src, t.Dst, at.Path), "said already")
			d.Related = []diag.Related{{Message: "first here", Range: at.Range}}
			continue
		}
		first[key] = n
	}
	passes := func(t policy.TestResult) bool { return t.Verdict == policy.Pass }
	if len(idle) == 0 && slices.IndexFunc(nothing.Tests, func(t policy.TestResult) bool { return !passes(t) }) < 0 &&
		!slices.ContainsFunc(l.judged.Requirements, func(r policy.RequirementResult) bool { return r.Verdict == policy.Pass }) {
		d := l.say("test-proves-nothing", l.p.Tests[0].Node, "all tests pass with no rules at all", "the first of them")
		d.Help = []diag.Help{{Message: `say in "accept" what must be admitted`}}
	}
}

// line is equal for tests that say the same.
func (l *linter) line(t policy.TestResult) string {
	proto, err := policy.ProtocolText(t.Proto)
	if err != nil {
		proto = t.Proto
	}
	var attrs strings.Builder
	for i := range l.p.Tests {
		if e := &l.p.Tests[i]; strings.HasPrefix(t.Path, e.Path+".") && e.SrcPostureAttrs != nil {
			for _, k := range sortedKeys(e.SrcPostureAttrs) {
				fmt.Fprintf(&attrs, "%s=%s ", k, e.SrcPostureAttrs[k])
			}
			attrs.WriteString("given")
		}
	}
	return strings.Join([]string{t.Src, t.Dst, proto, t.Want, attrs.String()}, "\x00")
}

// allowAll is everything that the tests ask about, admitted: from every source, in every protocol that one of them names.
func allowAll(p *policy.Policy) []policy.ACL {
	list := func(values ...string) policy.Strings {
		out := policy.Strings{Present: true}
		for _, v := range values {
			out.Items = append(out.Items, policy.String{Value: v})
		}
		return out
	}
	protos := []string{""}
	for _, t := range p.Tests {
		if !slices.Contains(protos, t.Proto.Value) {
			protos = append(protos, t.Proto.Value)
		}
	}
	var out []policy.ACL
	for _, proto := range protos {
		out = append(out, policy.ACL{
			Action: policy.String{Value: "accept"}, Proto: policy.String{Value: proto},
			Src: list("*", "autogroup:danger-all"), Dst: list("*:*"),
		})
	}
	return out
}

// untestedRules finds rules that give access which no test and no requirement would miss. A rule that gives none, since
// others give the same, is not among them.
func untestedRules(l *linter) {
	if len(l.p.Tests) == 0 && len(l.judged.Requirements) == 0 {
		return
	}
	guarded := l.guarded()
	for _, e := range l.entries {
		if l.redundant[e.Path] || len(e.targets) == 0 || guarded(e) && l.missed(e) {
			continue
		}
		l.say("untested-rule", e.Node, "no test would miss "+e.Path, "could be deleted by mistake, and every test would pass")
	}
}

// missed reports whether a test or requirement that passes would not without the rule.
func (l *linter) missed(e entry) bool {
	after := l.judged.WithRules(l.without(func(path string) bool { return path == e.Path || l.redundant[path] }))
	for i, t := range after.Tests {
		if l.judged.Tests[i].Verdict == policy.Pass && t.Verdict != policy.Pass {
			return true
		}
	}
	for i, r := range after.Requirements {
		if l.judged.Requirements[i].Verdict == policy.Pass && r.Verdict != policy.Pass {
			return true
		}
	}
	return false
}

// guarded returns what says of a rule whether any test or requirement may miss it: those that pass by a rule are the only
// ones. It errs on the side of yes, which costs time; a policy of a thousand rules is not to be judged a thousand times.
func (l *linter) guarded() func(entry) bool {
	everything := func(entry) bool { return true }
	by := map[string]bool{}
	for i := range l.p.Tests {
		if l.p.Tests[i].SrcPostureAttrs != nil {
			return everything // it is judged by attributes that no device may have
		}
	}
	asked := map[[3]string]bool{}
	for _, t := range l.judged.Tests {
		i := strings.LastIndexByte(t.Dst, ':')
		if t.Verdict != policy.Pass || t.Want != "accept" || i < 0 || asked[[3]string{t.Src, t.Dst, t.Proto}] {
			continue
		}
		asked[[3]string{t.Src, t.Dst, t.Proto}] = true
		port, err := strconv.Atoi(t.Dst[i+1:])
		if err != nil {
			return everything
		}
		protos := []string{t.Proto}
		if t.Proto == "" {
			protos = []string{"tcp", "udp"}
		}
		for _, proto := range protos {
			x, err := l.judged.Compiled.Explain(t.Src, t.Dst[:i], proto, port)
			if err != nil {
				return everything
			}
			for _, touch := range x.Rules {
				by[touch.Rule] = by[touch.Rule] || touch.Admitted+touch.Undecided > 0
			}
		}
	}
	var protos []string // of requirements that pass
	for _, r := range l.judged.Requirements {
		if proto, err := policy.ProtocolText(r.Requirement.Proto); err == nil && r.Verdict == policy.Pass {
			protos = append(protos, proto)
		}
	}
	return func(e entry) bool {
		return by[e.Path] || slices.ContainsFunc(e.targets, func(t target) bool {
			return slices.Contains(protos, t.proto) || t.proto == "" && slices.ContainsFunc(protos, ordinary)
		})
	}
}

// ordinary reports whether a rule that names no protocol admits one.
func ordinary(proto string) bool {
	return slices.Contains([]string{"", "tcp", "udp", "icmp", "ipv6-icmp"}, proto)
}
