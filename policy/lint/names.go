package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// unusedNames finds groups, hosts, ipsets, postures and tags that are defined and named nowhere else. A tag that a device
// bears is used; without an inventory that is not known, and tags are not looked at.
func unusedNames(l *linter) {
	used := namesInText(l.p.Source())
	check := func(kind string, name policy.String) {
		if !used[name.Value] {
			l.say("unused-name", name.Node, fmt.Sprintf("%s %q is not used", kind, name.Value), "nothing else names it")
		}
	}
	for _, g := range l.p.Groups {
		check("group", g.Name)
	}
	for _, h := range l.p.Hosts {
		check("host", h.Name)
	}
	for _, s := range l.p.IPSets {
		check("ipset", s.Name)
	}
	for _, p := range l.p.Postures {
		check("posture", p.Name)
	}
	if l.inv == nil {
		return
	}
	for _, d := range l.inv.Devices {
		for _, t := range d.Tags {
			used[t] = true
		}
	}
	for _, t := range l.p.TagOwners {
		check("tag", t.Name)
	}
}

// namesInText collects every string of the text and what it may name: itself, without ports behind it, without "add",
// "remove" or "host:" before it. The keys of sections that define names are left out, and a tag is not used by owning itself. Sections
// that the engine does not know are read like the others.
func namesInText(src []byte) map[string]bool {
	used := map[string]bool{}
	root, err := hujson.Parse(src)
	if err != nil {
		return used
	}
	take := func(text, except string) {
		for _, verb := range []string{"add ", "remove "} {
			if t, ok := strings.CutPrefix(text, verb); ok {
				text = strings.TrimSpace(t)
			}
		}
		text = policy.HostName(text)
		if text == except {
			return
		}
		used[text] = true
		if i := strings.LastIndexByte(text, ':'); i > 0 {
			used[text[:i]] = true
		}
	}
	var walk func(v *hujson.Value, except string)
	walk = func(v *hujson.Value, except string) {
		switch c := v.Value.(type) {
		case hujson.Literal:
			if c.Kind() == '"' {
				take(c.String(), except)
			}
		case *hujson.Array:
			for i := range c.Elements {
				walk(&c.Elements[i], except)
			}
		case *hujson.Object:
			for i := range c.Members {
				walk(&c.Members[i].Name, except)
				walk(&c.Members[i].Value, except)
			}
		}
	}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		return used
	}
	for i := range object.Members {
		m := &object.Members[i]
		defined, isObject := m.Value.Value.(*hujson.Object)
		switch strings.ToLower(m.Name.Value.(hujson.Literal).String()) {
		case "groups", "hosts", "ipsets", "postures", "tagowners":
			if !isObject {
				continue
			}
			for k := range defined.Members {
				walk(&defined.Members[k].Value, defined.Members[k].Name.Value.(hujson.Literal).String())
			}
		default:
			walk(&m.Value, "")
		}
	}
	return used
}

// tagsWithoutOwner finds tags that only admins can give to a device.
func tagsWithoutOwner(l *linter) {
	for _, t := range l.p.TagOwners {
		if len(t.Owners.Items) == 0 {
			l.say("tag-without-owner", t.Name.Node, fmt.Sprintf("tag %q has no owner", t.Name.Value), "only admins can assign it")
		}
	}
}

// deprecatedSpellings finds names that were replaced by others of the same meaning, and sections in a case of their own.
func deprecatedSpellings(l *linter) {
	root, err := hujson.Parse(l.p.Source())
	if err != nil {
		return
	}
	lines := diag.NewLines(l.p.Source())
	found := func(v *hujson.Value, path, old, now, kind string) {
		at := policy.Node{Path: path, Range: diag.Range{Start: lines.Pos(v.StartOffset), End: lines.Pos(v.EndOffset)}}
		d := l.say("deprecated-spelling", at, fmt.Sprintf("%q is %s spelling of %q", old, kind, now), strings.TrimPrefix(kind, "an ")+" spelling")
		d.Help = []diag.Help{{Message: fmt.Sprintf("write %q", now), Edits: []diag.Edit{{Range: at.Range, NewText: strconv.Quote(now)}}}}
	}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		return
	}
	for i := range object.Members {
		m := &object.Members[i]
		section := m.Name.Value.(hujson.Literal).String()
		if i := slices.IndexFunc(sections(), func(s string) bool { return strings.EqualFold(s, section) }); i >= 0 {
			now := sections()[i]
			switch {
			case now == section:
			case slices.Contains(oldSections(), section):
				found(&m.Name, section, section, now, "an old")
			default:
				found(&m.Name, section, section, now, "another")
			}
			section = now
		}
		fields := oldFields(section)
		var walk func(v *hujson.Value, path string, depth int)
		walk = func(v *hujson.Value, path string, depth int) {
			switch c := v.Value.(type) {
			case hujson.Literal:
				if c.Kind() != '"' {
					return
				}
				const old, now = "autogroup:members", "autogroup:member"
				if rest, ok := strings.CutPrefix(c.String(), old); ok && (rest == "" || rest[0] == ':') {
					found(v, path, c.String(), now+rest, "an old")
				}
			case *hujson.Array:
				for k := range c.Elements {
					walk(&c.Elements[k], fmt.Sprintf("%s[%d]", path, k), depth+1)
				}
			case *hujson.Object:
				for k := range c.Members {
					name := c.Members[k].Name.Value.(hujson.Literal).String()
					if now, ok := fields[strings.ToLower(name)]; ok && depth == 1 {
						found(&c.Members[k].Name, path+"."+name, name, now, "an old")
					}
					walk(&c.Members[k].Value, path+"."+name, depth+1)
				}
			}
		}
		switch section {
		case "acls", "tests", "tagOwners", "autoApprovers", "ssh", "nodeAttrs", "grants":
			walk(&m.Value, section, 0)
		}
	}
}

// sections are those whose names people write in more than one way; they are matched without regard to case.
func sections() []string {
	return []string{
		"acls", "autoApprovers", "grants", "groups", "hosts", "ipsets", "nodeAttrs", "postures", "ssh", "sshTests", "tagOwners", "tests",
	}
}

// oldSections are the capital spellings of the first policies.
func oldSections() []string {
	return []string{"ACLs", "AutoApprovers", "Groups", "Hosts", "NodeAttrs", "SSH", "TagOwners", "Tests"}
}

// oldFields are the former names of an entry's fields, in lower case.
func oldFields(section string) map[string]string {
	switch section {
	case "acls":
		return map[string]string{"users": "src", "ports": "dst"}
	case "tests":
		return map[string]string{"user": "src", "allow": "accept"}
	}
	return nil
}
