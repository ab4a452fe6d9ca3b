package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// fieldsOfRules reports the keys of acls and grants that do not exist. The two are easily mixed up: an entry of one
// that stands in the other is explained as what it is, once; the paths of those are returned, for what else is wrong
// with them would be said of something that they are not.
func (v *validator) fieldsOfRules() map[string]bool {
	misplaced := map[string]bool{}
	for i := range v.p.Grants {
		g := &v.p.Grants[i]
		if len(g.Unknown) == 0 {
			continue
		}
		if !anyKey(g.Unknown, "action", "proto", "users", "ports") {
			v.unknownKeys(g.Unknown, "src", "dst", "ip", "app", "via", "srcPosture")
			continue
		}
		misplaced[g.Path] = true
		key := g.Unknown[0]
		d := v.refuse("unknown-field", key.Node, fmt.Sprintf("json: unknown field %q", key.Value), `belongs to acls, not to a grant`)
		if strings.EqualFold(key.Value, "action") {
			d.Label = `a grant always allows; "action" belongs to acls`
		}
		for _, s := range g.Dst.Items {
			if _, ports, err := splitHostPort(s.Value); err == nil && len(g.IP.Items) == 0 {
				if _, err := parsePorts(ports); err == nil {
					d.Related = append(d.Related, diag.Related{Message: `in a grant the ports go into "ip"`, Range: s.Range})
					break
				}
			}
		}
		d.Help = append(d.Help, v.asGrant(g))
	}
	for i := range v.p.ACLs {
		a := &v.p.ACLs[i]
		if len(a.Unknown) == 0 {
			continue
		}
		if !anyKey(a.Unknown, "ip", "app", "via") {
			v.unknownKeys(a.Unknown, "action", "src", "dst", "proto", "srcPosture")
			continue
		}
		misplaced[a.Path] = true
		key := a.Unknown[0]
		d := v.refuse("unknown-field", key.Node, fmt.Sprintf("json: unknown field %q", key.Value), "belongs to grants, not to an acl")
		d.Help = append(d.Help, diag.Help{Message: `this looks like a grant: move it to "grants", or give it "action" and dst with ports`})
	}
	return misplaced
}

func anyKey(keys []String, names ...string) bool {
	return slices.ContainsFunc(keys, func(k String) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, k.Value) })
	})
}

func (v *validator) unknownKeys(keys []String, known ...string) {
	for _, k := range keys {
		d := v.refuse("unknown-field", k.Node, fmt.Sprintf("json: unknown field %q", k.Value), "no such key here")
		v.suggest(d, k.Value, namesOnly(known), k, same)
	}
}

// asGrant rewrites an acl that stands among the grants. The edit is offered only where one grant says the same and no
// comment would be lost.
func (v *validator) asGrant(g *Grant) diag.Help {
	help := diag.Help{Message: "this looks like an entry of acls: move it there, or write it as a grant"}
	text := v.p.src[g.Range.Start.Offset:g.Range.End.Offset]
	a, diags := parseACL(text)
	if len(diags) > 0 || len(a.Unknown) > 0 || bytes.Contains(text, []byte("//")) || bytes.Contains(text, []byte("/*")) {
		return help
	}
	var hosts, ip []string
	for i, s := range a.Dst.Items {
		host, portText, err := splitHostPort(s.Value)
		if err != nil {
			return help
		}
		ports, err := parsePorts(portText)
		if err != nil {
			return help
		}
		var entries []string
		for _, p := range ports {
			entry := p.text()
			if a.Proto.Value != "" {
				entry = a.Proto.Value + ":" + entry
			}
			entries = append(entries, entry)
		}
		if i > 0 && !slices.Equal(entries, ip) {
			return help
		}
		hosts, ip = append(hosts, host), entries
	}
	if len(ip) == 0 {
		return help
	}
	out := fmt.Sprintf(`{"src": %s, "dst": %s, "ip": %s`, quoteList(a.Src.Values()), quoteList(hosts), quoteList(ip))
	if a.SrcPosture.Present {
		out += `, "srcPosture": ` + quoteList(a.SrcPosture.Values())
	}
	help.Message = "this looks like an entry of acls; as a grant it is"
	help.Edits = []diag.Edit{{Range: g.Range, NewText: out + "}"}}
	return help
}

// parseACL reads the text of one entry as an acl.
func parseACL(text []byte) (ACL, diag.List) {
	d := newDecoder("", text)
	root, ok := d.tree()
	if !ok {
		return ACL{}, d.diags
	}
	return d.acl(root, ""), d.diags
}

// quoteList writes a JSON list of strings.
func quoteList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
