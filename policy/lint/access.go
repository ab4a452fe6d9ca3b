package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
)

// sensitivePorts are those that give a shell, a desktop, a cluster or a database, by what listens there.
func sensitivePorts() map[int]string {
	return map[int]string{
		22: "ssh", 23: "telnet", 445: "smb", 1433: "sql server", 2375: "docker", 2379: "etcd", 2380: "etcd", 3306: "mysql",
		3389: "rdp", 5432: "postgres", 5900: "vnc", 5985: "winrm", 5986: "winrm", 6379: "redis", 6443: "kubernetes api",
		9200: "elasticsearch", 10250: "kubelet", 27017: "mongodb",
	}
}

// wideAccess finds rules that admit everybody to what is sensitive: to every port, or to one on which machines are
// administered or data is kept. A posture narrows a rule, and so does autogroup:self.
func wideAccess(l *linter) {
	if l.p.ACLs == nil && l.p.Grants == nil {
		n := l.p.Node
		n.Range.End = n.Range.Start
		n.Range.End.Offset, n.Range.End.Column = n.Range.End.Offset+1, n.Range.End.Column+1
		d := l.say("wide-access", n, "the policy has neither acls nor grants, and so admits everybody to everything", "no rules")
		d.Help = []diag.Help{{Message: `an empty list, "grants": [], admits nobody to anything`}}
		return
	}
	w := newWidth(l.everybody.Compiled.Access())
	for _, e := range l.entries {
		if e.posture || len(l.p.DefaultSrcPosture.Items) > 0 {
			continue
		}
		src := w.wide(e.src)
		if len(src) == 0 {
			continue
		}
		what, where := "", ""
		for _, t := range e.targets {
			if t.selector == "autogroup:self" || t.selector == "autogroup:internet" {
				continue
			}
			if s := sensitive(t); s != "" {
				what, where = s, t.selector
				if s == everyPort {
					break
				}
			}
		}
		if what == "" {
			continue
		}
		names := make([]string, len(src))
		for i, s := range src {
			names[i] = strconv.Quote(s)
		}
		d := l.say("wide-access", e.Node, fmt.Sprintf("%s admits %s to %s of %q", e.Path, strings.Join(names, ", "), what, where),
			"wider than its destination bears")
		switch src[0] {
		case "*":
			d.Notes = []string{`as a source "*" is every device of the tailnet, those shared into it, and all that subnet routers carry`}
		case "autogroup:danger-all":
			d.Notes = []string{"autogroup:danger-all is every address there is, whether it belongs to the tailnet or not"}
		case agShared:
		default:
			d.Notes = []string{"the addresses that are named hold every one that the tailnet gives out, in IPv4 or in IPv6"}
		}
	}
}

const agShared = "autogroup:shared"

// width tells sources that are everybody, however they are spelled.
type width struct {
	access *policy.Access
	whole  []*netipx.IPSet // what the tailnet gives out, by family
	ranges map[string]*netipx.IPSet
}

func newWidth(a *policy.Access) *width {
	w := &width{access: a, ranges: map[string]*netipx.IPSet{}}
	star := w.rangesOf("*") // subnet routes are in it too
	for _, family := range []string{"100.64.0.0/10", "fd7a:115c:a1e0::/48"} {
		w.whole = append(w.whole, build(func(b *netipx.IPSetBuilder) { b.AddSet(star); b.Intersect(nodefilter.Set(family)) }))
	}
	return w
}

// rangesOf are the ranges that a selector stands for. Single addresses, of which a selector for devices has many, are left
// out: together they are not everybody.
func (w *width) rangesOf(sel string) *netipx.IPSet {
	got, ok := w.ranges[sel]
	if !ok {
		texts := slices.Clone(w.access.Select(sel).IPs)
		got = nodefilter.Set(slices.DeleteFunc(texts, func(t string) bool { return !strings.ContainsAny(t, "*/-") })...)
		w.ranges[sel] = got
	}
	return got
}

func (w *width) everybody(s *netipx.IPSet) bool {
	return slices.ContainsFunc(w.whole, func(family *netipx.IPSet) bool { return holds(s, family) })
}

// wide returns the first of the sources that is everybody, or those that are it together; none where they are not.
func (w *width) wide(src []string) []string {
	var parts []string
	for _, s := range src {
		ranges := w.rangesOf(s)
		if s == agShared || w.everybody(ranges) {
			return []string{s}
		}
		if !ranges.Equal(&netipx.IPSet{}) {
			parts = append(parts, s)
		}
	}
	if len(parts) > 1 && w.everybody(build(func(b *netipx.IPSetBuilder) {
		for _, s := range parts {
			b.AddSet(w.rangesOf(s))
		}
	})) {
		return parts
	}
	return nil
}

const everyPort = "every port"

// sensitive says what of a target needs a narrow source, "" for nothing.
func sensitive(t target) string {
	if t.proto != "" && t.proto != "tcp" && t.proto != "udp" {
		return ""
	}
	best := ""
	for _, p := range t.ports {
		if p == "*" {
			return everyPort
		}
		first, last, isRange := strings.Cut(p, "-")
		a, err := strconv.Atoi(first)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(last)
		}
		if err != nil {
			continue
		}
		if a == 1 && b == 65535 {
			return everyPort
		}
		for _, port := range slices.Sorted(maps.Keys(sensitivePorts())) {
			if a <= port && port <= b && best == "" {
				best = fmt.Sprintf("port %d (%s)", port, sensitivePorts()[port])
			}
		}
	}
	return best
}

// meshes finds tags whose devices reach each other on every port but not by IP-in-IP, although something else of the policy
// says that they carry a network: another rule gives them IP-in-IP, or their routes are approved without review.
func meshes(l *linter) {
	for _, e := range l.entries {
		for _, t := range e.targets {
			tag := t.selector
			if !strings.HasPrefix(tag, "tag:") || t.proto != "" || !slices.Contains(t.ports, "*") || !slices.Contains(e.src, tag) {
				continue
			}
			why, at := l.carries(tag, e)
			if why == "" {
				continue
			}
			got, err := l.everybody.Compiled.Can(tag, tag, "ip-in-ip", 0)
			if err != nil || got.Verdict != policy.Fail || slices.ContainsFunc(l.found, func(d diag.Diagnostic) bool {
				return d.Code == "mesh-without-ip-in-ip" && strings.Contains(d.Message, strconv.Quote(tag))
			}) {
				continue
			}
			d := l.say("mesh-without-ip-in-ip", e.Node, fmt.Sprintf("devices with %q reach each other on every port, but not by ip-in-ip", tag),
				"names no protocol: tcp, udp and icmp only")
			d.Related = []diag.Related{{Message: why, Range: at.Range}}
			d.Notes = []string{"ip-in-ip is IP protocol 4, which carries the overlay of some Kubernetes networks; " +
				"a rule that names no protocol never matches it"}
			help := `if the devices carry such an overlay, add an acl with "proto": "ip-in-ip" and "dst": ["` + tag + `:*"]`
			if strings.HasPrefix(e.Path, "grants") {
				help = `if the devices carry such an overlay, add "ip-in-ip:*" to ip`
			}
			d.Help = []diag.Help{{Message: help}}
			d.Help[0].Edits = l.admit(policy.Requirement{Name: tag, Src: []string{tag}, Dst: []string{tag}, Proto: "ip-in-ip"})
		}
	}
}

// admit returns the edits that the engine proposes for meeting a requirement, nil where the inventory has no pair to judge.
func (l *linter) admit(req policy.Requirement) []diag.Edit {
	if l.inv == nil {
		return nil
	}
	for _, r := range policy.Check(l.file, l.p.Source(), l.inv, []policy.Requirement{req}).Requirements {
		if r.Verdict == policy.Fail && len(r.Diagnostics) > 0 && len(r.Diagnostics[0].Help) > 0 {
			return r.Diagnostics[0].Help[0].Edits
		}
	}
	return nil
}

// carries says what shows that the devices of a tag, which a rule admits to each other, carry a network of their own.
func (l *linter) carries(tag string, rule entry) (why string, at policy.Node) {
	if word := overlayWords().FindString(l.comment(rule.Range)); word != "" {
		return fmt.Sprintf("its comment speaks of %q", strings.ToLower(word)), rule.Node
	}
	for _, e := range l.entries {
		for _, t := range e.targets {
			if t.proto == "ip-in-ip" && (t.selector == tag || slices.Contains(e.src, tag)) {
				return fmt.Sprintf("%s gives %q ip-in-ip", e.Path, tag), e.Node
			}
		}
	}
	for _, r := range l.p.AutoApprovers.Routes {
		for _, who := range r.Who.Items {
			if who.Value == tag {
				return fmt.Sprintf("routes of %q are approved here", tag), who.Node
			}
		}
	}
	return "", policy.Node{}
}

// overlayWords finds what people call the network that nodes carry for their pods.
func overlayWords() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(overlay|ip-?in-?ip|ipip|tunnels?|pod[ -]networks?|pod[ -]to[ -]pod|kube-router|calico|flannel|cni)\b`)
}

// comment is the comment that stands above a part of the text, up to a line without one, or behind it on its line.
func (l *linter) comment(at diag.Range) string {
	lines := diag.NewLines(l.p.Source())
	var out []string
	for n := at.Start.Line - 1; n > 0; n-- {
		text := strings.TrimSpace(lines.Text(n))
		if !strings.HasPrefix(text, "//") && !strings.HasPrefix(text, "/*") && !strings.HasPrefix(text, "*") {
			break
		}
		out = append(out, text)
	}
	if _, text, ok := strings.Cut(string(l.p.Source()[at.End.Offset:lines.Start(at.End.Line)+len(lines.Text(at.End.Line))]), "//"); ok {
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

// mixedRules finds policies whose text has acls in front of grants, while the control plane takes grants first.
func mixedRules(l *linter) {
	if len(l.p.ACLs) == 0 || len(l.p.Grants) == 0 || l.p.ACLList.Range.Start.Offset > l.p.GrantList.Range.Start.Offset {
		return
	}
	d := l.say("mixed-rules", l.p.ACLs[0].Node, "acls stand before grants, which come first in every filter", "the first acl")
	d.Related = []diag.Related{{Message: "comes before it in filters", Range: l.p.Grants[0].Range}}
	d.Notes = []string{"nothing denies, so the order gives and takes no access; it only misleads readers"}
	d.Help = []diag.Help{{Message: "tailmesh-policy convert makes all of them grants"}}
}
