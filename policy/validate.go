package policy

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// validator checks the meaning of a policy, section by section. The control plane answers with the first thing that
// it finds wrong; the validator keeps that as message and goes on, so that a user sees everything at once.
type validator struct {
	file  string
	p     *Policy
	x     *index
	diags diag.List

	// message and status are the control plane's answer; message is empty while nothing is wrong.
	message string
	status  int

	suggested int // how many mistakes were compared with the known names

	groups    map[string]*Group
	hosts     map[string]*Host
	ipsets    map[string]*IPSet
	tagOwners map[string]*TagOwner
	postures  map[string]*Posture
}

func newValidator(file string, p *Policy, x *index) *validator {
	v := &validator{
		file: file, p: p, x: x,
		groups: make(map[string]*Group, len(p.Groups)), hosts: make(map[string]*Host, len(p.Hosts)),
		ipsets: make(map[string]*IPSet, len(p.IPSets)), tagOwners: make(map[string]*TagOwner, len(p.TagOwners)),
		postures: make(map[string]*Posture, len(p.Postures)),
	}
	for i := range p.Groups {
		v.groups[p.Groups[i].Name.Value] = &p.Groups[i]
	}
	for i := range p.Hosts {
		v.hosts[p.Hosts[i].Name.Value] = &p.Hosts[i]
	}
	for i := range p.IPSets {
		v.ipsets[p.IPSets[i].Name.Value] = &p.IPSets[i]
	}
	for i := range p.TagOwners {
		v.tagOwners[p.TagOwners[i].Name.Value] = &p.TagOwners[i]
	}
	for i := range p.Postures {
		v.postures[p.Postures[i].Name.Value] = &p.Postures[i]
	}
	return v
}

// run checks every section, those first that others refer to.
func (v *validator) run() {
	misplaced := v.fieldsOfRules()
	v.checkGroups()
	v.checkHosts()
	v.checkTagOwners()
	v.checkIPSets()
	v.checkPostures()
	v.checkAutoApprovers()
	for i := range v.p.ACLs {
		if a := &v.p.ACLs[i]; !misplaced[a.Path] {
			v.acl(a)
		}
	}
	for i := range v.p.Grants {
		if g := &v.p.Grants[i]; !misplaced[g.Path] {
			v.grant(g)
		}
	}
	v.ssh()
	v.nodeAttrs()
	v.sshTests()
	v.testAutogroups()
	v.oneSpelling()
}

// refuse reports an error at n that makes the control plane refuse the policy with 400 and message.
// The pointer is good until the next report.
func (v *validator) refuse(code string, n Node, message, label string) *diag.Diagnostic {
	if v.message == "" {
		v.message, v.status = message, http.StatusBadRequest
	}
	return v.report(diag.Error, code, n, message, label)
}

// report adds a finding that does not change the control plane's answer.
func (v *validator) report(sev diag.Severity, code string, n Node, message, label string) *diag.Diagnostic {
	v.diags = append(v.diags, diag.Diagnostic{
		Severity: sev, Code: code, Message: message, File: v.file, Path: n.Path, Range: n.Range, Label: label,
	})
	return &v.diags[len(v.diags)-1]
}

// quote writes s as a JSON string.
func quote(s string) string { return string(hujson.String(s)) }

// replace is the edit that puts text, quoted, in the place of a string.
func replace(s String, text string) diag.Edit { return diag.Edit{Range: s.Range, NewText: quote(text)} }

// maxSuggestions bounds the search for near names, whose cost is the product of mistakes and names. Nobody reads more.
const maxSuggestions = 200

// definitions are names of one kind with the place that defines each.
type definitions map[string]diag.Range

func (v *validator) tagNames() definitions {
	return define(v.p.TagOwners, func(t TagOwner) String { return t.Name })
}

func (v *validator) groupNames() definitions {
	return define(v.p.Groups, func(g Group) String { return g.Name })
}

func (v *validator) hostNames() definitions {
	return define(v.p.Hosts, func(h Host) String { return h.Name })
}

func (v *validator) ipsetNames() definitions {
	return define(v.p.IPSets, func(s IPSet) String { return s.Name })
}

func (v *validator) postureDefs() definitions {
	return define(v.p.Postures, func(p Posture) String { return p.Name })
}

func define[T any](list []T, name func(T) String) definitions {
	out := make(definitions, len(list))
	for _, d := range list {
		n := name(d)
		out[n.Value] = n.Range
	}
	return out
}

// namesOnly are names that the text does not define.
func namesOnly(names []string) func() definitions {
	return func() definitions {
		out := make(definitions, len(names))
		for _, n := range names {
			out[n] = diag.Range{}
		}
		return out
	}
}

// suggest adds to d the known name that is nearest to name. at is the string to mend and put makes its new value of the
// right name.
func (v *validator) suggest(d *diag.Diagnostic, name string, known func() definitions, at String, put func(string) string) {
	if v.suggested++; v.suggested > maxSuggestions {
		return
	}
	defs := known()
	names := make([]string, 0, len(defs))
	for n := range defs {
		names = append(names, n)
	}
	near := nearest(name, names)
	if near == "" {
		return
	}
	if r := defs[near]; !r.IsZero() {
		d.Related = append(d.Related, diag.Related{Message: "similar name defined here", Range: r})
	}
	d.Help = append(d.Help, diag.Help{Message: fmt.Sprintf("did you mean %q?", near), Edits: []diag.Edit{replace(at, put(near))}})
}

func same(s string) string { return s }

// oneSpelling refuses a policy that calls the members both autogroup:member and by the older name, which the policy file's
// reference rules out. How the control plane words it is not recorded.
func (v *validator) oneSpelling() {
	lists := []Strings{v.p.AutoApprovers.ExitNode}
	for _, a := range v.p.ACLs {
		lists = append(lists, a.Src, mapStrings(a.Dst, func(s String) String {
			if host, _, err := splitHostPort(s.Value); err == nil {
				s.Value = host
			}
			return s
		}))
	}
	for _, g := range v.p.Grants {
		lists = append(lists, g.Src, g.Dst)
	}
	for _, s := range v.p.SSH {
		lists = append(lists, mapStrings(s.Src, trimmed))
	}
	for _, n := range v.p.NodeAttrs {
		lists = append(lists, n.Target)
	}
	for _, t := range v.p.TagOwners {
		lists = append(lists, t.Owners)
	}
	for _, a := range slices.Concat(v.p.AutoApprovers.Routes, v.p.AutoApprovers.Services) {
		lists = append(lists, a.Who)
	}
	var first String
	for _, list := range lists {
		for _, s := range list.Items {
			switch {
			case s.Value != agMember && s.Value != agMembers:
			case first.Value == "":
				first = s
			case first.Value != s.Value:
				d := v.refuse("bad-selector", s.Node, fmt.Sprintf("cannot use both %q and %q", agMember, agMembers), "the same group by another name")
				d.Related = []diag.Related{{Message: fmt.Sprintf("called %q here", first.Value), Range: first.Range}}
				d.Help = []diag.Help{{Message: fmt.Sprintf("write %q everywhere; %q is its older name", agMember, agMembers)}}
				return
			}
		}
	}
}

// checkGroups finds groups in groups, and what else the documentation does not take for a user. Of several groups the
// control plane names the last.
func (v *validator) checkGroups() {
	var nested []func()
	for _, g := range v.p.Groups {
		if !strings.HasPrefix(g.Name.Value, "group:") {
			v.refuse("bad-name", g.Name.Node, fmt.Sprintf("groups[%q]: group names must start with 'group:'", g.Name.Value), "no group name")
		}
		for _, m := range g.Members.Items {
			if strings.HasPrefix(m.Value, "group:") {
				nested = append(nested, func() {
					v.refuse("recursive-group", m.Node, fmt.Sprintf("groups[%q]: %q: group members cannot be recursive", g.Name.Value, m.Value),
						"a group cannot hold a group").Help = []diag.Help{{Message: "list the members of " + m.Value + " instead"}}
				})
				break
			}
			switch parseSelector(m.Value).kind {
			case selUser, selDomain, selHost:
			default:
				v.refuse("bad-principal", m.Node, fmt.Sprintf("groups[%q]: %q: group members must be users", g.Name.Value, m.Value), "no user")
			}
			if v.x.known && len(v.x.users) > 0 && strings.Contains(m.Value, "@") && !strings.HasPrefix(m.Value, "user:*@") && !v.x.knowsUser(m.Value) {
				v.report(diag.Warning, "unknown-user", m.Node, fmt.Sprintf("groups[%q]: user not found: %q", g.Name.Value, m.Value), "not in the inventory")
			}
		}
	}
	for _, n := range slices.Backward(nested) {
		n()
	}
}

func (v *validator) checkHosts() {
	for _, h := range v.p.Hosts {
		if strings.Contains(h.Name.Value, "@") {
			v.refuse("bad-name", h.Name.Node, fmt.Sprintf("host names cannot include an @, please change the name for %q", h.Name.Value), "no host name")
		}
		if _, kind, ok := parseAddrs(h.Value.Value); !ok || kind == selRange {
			v.refuse("bad-address", h.Value.Node, fmt.Sprintf("hosts[%q]: %q: invalid address", h.Name.Value, h.Value.Value), "want an address or a CIDR")
		}
	}
}

// checkTag says what is wrong with the form of a tag, in the words of tailscale.com/tailcfg.
func checkTag(tag string) string {
	name, ok := strings.CutPrefix(tag, "tag:")
	switch {
	case !ok:
		return "tags must start with 'tag:'"
	case name == "":
		return "tag names must not be empty"
	case !isAlpha(name[0]):
		return "tag names must start with a letter, after 'tag:'"
	}
	for i := range len(name) {
		if c := name[i]; !isAlpha(c) && (c < '0' || c > '9') && c != '-' {
			return "tag names can only contain numbers, letters, or dashes"
		}
	}
	return ""
}

func isAlpha(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (v *validator) checkTagOwners() {
	for _, t := range v.p.TagOwners {
		if wrong := checkTag(t.Name.Value); wrong != "" {
			v.refuse("bad-name", t.Name.Node, fmt.Sprintf("tagOwners[%q]: %s", t.Name.Value, wrong), "no tag name")
		}
		for _, o := range t.Owners.Items {
			v.principal(o, fmt.Sprintf("tagOwners[%q]: ", t.Name.Value))
		}
	}
}

// principal checks a name for somebody outside of src and dst: an owner of a tag, an approver.
func (v *validator) principal(s String, prefix string) {
	switch sel := parseSelector(s.Value); {
	case sel.kind == selTag && v.tagOwners[sel.name] == nil:
		v.unknownTag(s, prefix+fmt.Sprintf("tag not found: %q", sel.name), sel.name, same)
	case sel.kind == selGroup && v.groups[sel.name] == nil && !strings.Contains(sel.name, "@"):
		v.unknownGroup(s, prefix+fmt.Sprintf("group not found: %q", sel.name), sel.name, same)
	case sel.kind == selTag, sel.kind == selGroup, sel.kind == selUser:
	case sel.kind == selDomain:
		v.ownDomain(s, sel.name, prefix)
	case sel.kind == selAutogroup && !knownAutogroup(sel.name):
		v.selector(s, sel, prefix, same)
	case sel.kind == selAutogroup && sel.name != agSelf && sel.name != agInternet && sel.name != agDangerAll && sel.name != agShared:
	default:
		v.refuse("bad-principal", s.Node, prefix+fmt.Sprintf("%q is neither a user, a group, an autogroup nor a tag", s.Value), "stands for nobody")
	}
}

func (v *validator) unknownTag(s String, message, tag string, put func(string) string) *diag.Diagnostic {
	d := v.refuse("unknown-tag", s.Node, message, "not in tagOwners")
	v.suggest(d, tag, v.tagNames, s, put)
	return d
}

func (v *validator) unknownGroup(s String, message, group string, put func(string) string) {
	v.suggest(v.refuse("unknown-group", s.Node, message, "not in groups"), group, v.groupNames, s, put)
}

func (v *validator) checkAutoApprovers() {
	a := &v.p.AutoApprovers
	for _, r := range a.Routes {
		if _, err := netip.ParsePrefix(r.Name.Value); err != nil {
			v.refuse("bad-address", r.Name.Node, fmt.Sprintf("autoApprovers.routes: %q: invalid address", r.Name.Value), "want a CIDR")
		}
		for _, w := range r.Who.Items {
			v.principal(w, "autoApprovers: ")
		}
	}
	for _, s := range a.Services {
		for _, w := range s.Who.Items {
			v.principal(w, "autoApprovers: ")
		}
	}
	for _, w := range a.ExitNode.Items {
		v.principal(w, "autoApprovers: ")
	}
}

// ipsetEntry splits an entry of an ipset into what it does and its target.
func ipsetEntry(text string) (remove bool, target string) {
	if t, ok := strings.CutPrefix(text, "remove "); ok {
		return true, strings.TrimSpace(t)
	}
	return false, strings.TrimSpace(strings.TrimPrefix(text, "add "))
}

func (v *validator) checkIPSets() {
	for _, s := range v.p.IPSets {
		if !strings.HasPrefix(s.Name.Value, "ipset:") {
			v.refuse("bad-name", s.Name.Node, fmt.Sprintf("ipsets[%q]: ipset names must start with 'ipset:'", s.Name.Value), "no ipset name")
		}
		removes := slices.ContainsFunc(s.Entries.Items, func(e String) bool { remove, _ := ipsetEntry(e.Value); return remove })
		for _, e := range s.Entries.Items {
			remove, target := ipsetEntry(e.Value)
			prefix := fmt.Sprintf("ipsets[%q]: ", s.Name.Value)
			if removes && !remove && !strings.HasPrefix(e.Value, "add ") {
				d := v.report(diag.Warning, "bad-ipset", e.Node, prefix+fmt.Sprintf("%q does not say \"add\"", e.Value), "in a set that removes")
				d.Notes = []string{"the documentation lets only sets that remove nothing leave it out"}
				d.Help = []diag.Help{{Message: "say it", Edits: []diag.Edit{replace(e, "add "+target)}}}
			}
			sel := parseSelector(target)
			put := func(near string) string { return e.Value[:strings.LastIndex(e.Value, sel.name)] + near }
			switch {
			case sel.kind == selAddr, sel.kind == selCIDR, sel.kind == selRange, sel.name == agInternet:
			case sel.kind == selHost && v.hosts[sel.name] == nil:
				v.suggest(v.refuse("unknown-host", e.Node, prefix+fmt.Sprintf("host not found: %q", sel.name), "not in hosts"), sel.name, v.hostNames, e, put)
			case sel.kind == selHost:
			case sel.kind == selIPSet && v.ipsets[target] == nil:
				v.suggest(v.refuse("unknown-ipset", e.Node, prefix+fmt.Sprintf("ipset not found: %q", target), "not in ipsets"), target, v.ipsetNames, e, put)
			case sel.kind == selIPSet:
			default:
				v.refuse("bad-ipset", e.Node, prefix+fmt.Sprintf("%q cannot be part of an ipset", target), "want an address, CIDR, range, host or ipset")
			}
		}
	}
	v.ipsetCycles()
}

// ipsetCycles reports each ipset that is part of itself, once for each cycle.
func (v *validator) ipsetCycles() {
	const open, done = 1, 2
	state := make(map[string]int, len(v.ipsets))
	type frame struct {
		set  *IPSet
		next int
	}
	for i := range v.p.IPSets {
		if state[v.p.IPSets[i].Name.Value] != 0 {
			continue
		}
		// A stack of our own: a chain of a hundred thousand sets must not be a recursion of that depth.
		stack := []frame{{set: &v.p.IPSets[i]}}
		state[v.p.IPSets[i].Name.Value] = open
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.next == len(f.set.Entries.Items) {
				state[f.set.Name.Value] = done
				stack = stack[:len(stack)-1]
				continue
			}
			e := f.set.Entries.Items[f.next]
			f.next++
			_, target := ipsetEntry(e.Value)
			sub := v.ipsets[target]
			if sub == nil {
				continue
			}
			switch state[target] {
			case open:
				v.refuse("ipset-cycle", e.Node, fmt.Sprintf("ipsets[%q]: %q is part of itself", f.set.Name.Value, target), "closes a cycle")
			case 0:
				state[target] = open
				stack = append(stack, frame{set: sub})
			}
		}
	}
}

func (v *validator) checkPostures() {
	for _, p := range v.p.Postures {
		if !strings.HasPrefix(p.Name.Value, "posture:") {
			v.refuse("bad-name", p.Name.Node, fmt.Sprintf("postures[%q]: posture names must start with 'posture:'", p.Name.Value), "no posture name")
		}
		for _, a := range p.Assertions.Items {
			if _, err := parseAssertion(a.Value); err != nil {
				v.refuse("bad-posture", a.Node, fmt.Sprintf("postures[%q]: %v", p.Name.Value, err), "want \"attribute operator value\"")
			}
		}
	}
	v.postureNames(v.p.DefaultSrcPosture)
}

// postureNames checks references to postures. One may also be written out in place of a name.
func (v *validator) postureNames(list Strings) {
	for _, s := range list.Items {
		if !strings.HasPrefix(s.Value, "posture:") {
			if _, err := parseAssertion(s.Value); err == nil {
				continue
			}
		}
		if v.postures[s.Value] == nil {
			d := v.refuse("unknown-posture", s.Node, fmt.Sprintf("posture not found: %q", s.Value), "not in postures")
			v.suggest(d, s.Value, v.postureDefs, s, same)
		}
	}
}
