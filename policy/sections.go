package policy

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// policy reads the whole object, section by section.
func (d *decoder) policy(root *hujson.Value) *Policy {
	p := &Policy{Node: d.node(root, ""), src: d.src, lines: d.lines, shapes: d.shapes}
	obj := root.Value.(*hujson.Object)
	whole := shape{lastStart: -1, lastEnd: -1}
	for i := range obj.Members {
		m := &obj.Members[i]
		whole = shape{m.Name.StartOffset, m.Value.EndOffset, m.Value.AfterExtra != nil}
		if isNull(&m.Value) {
			p.empty = append(p.empty, d.node(&m.Value, m.Name.Value.(hujson.Literal).String()))
		}
	}
	d.shapes[root.StartOffset] = whole
	into := func(dst *Strings) func(*hujson.Value, string) {
		return func(v *hujson.Value, path string) { *dst = d.strings(v, path) }
	}
	flag := func(dst *Bool) func(*hujson.Value, string) {
		return func(v *hujson.Value, path string) { *dst = d.boolean(v, path) }
	}
	raw := func(dst *Raw) func(*hujson.Value, string) {
		return func(v *hujson.Value, path string) { *dst = d.raw(v, path) }
	}
	table := map[string]func(*hujson.Value, string){
		"acls": func(v *hujson.Value, path string) {
			acls := []ACL{}
			if d.list(v, path, func(v *hujson.Value, path string) { acls = append(acls, d.acl(v, path)) }) {
				p.ACLs, p.ACLList = acls, d.node(v, path)
			}
		},
		"grants": func(v *hujson.Value, path string) {
			grants := []Grant{}
			if d.list(v, path, func(v *hujson.Value, path string) { grants = append(grants, d.grant(v, path)) }) {
				p.Grants, p.GrantList = grants, d.node(v, path)
			}
		},
		"groups": func(v *hujson.Value, path string) {
			d.named(v, path, func(n String, l Strings) { p.Groups = append(p.Groups, Group{n, l}) })
		},
		"hosts": func(v *hujson.Value, path string) {
			d.members(v, path, false, func(n String, v *hujson.Value) {
				if s, ok := d.str(v, n.Path); ok {
					s.Node = d.node(v, n.Path) // of a null too
					p.Hosts = append(p.Hosts, Host{n, s})
				}
			})
		},
		"ipsets": func(v *hujson.Value, path string) {
			d.named(v, path, func(n String, l Strings) { p.IPSets = append(p.IPSets, IPSet{n, l}) })
		},
		"tagOwners": func(v *hujson.Value, path string) {
			d.named(v, path, func(n String, l Strings) { p.TagOwners = append(p.TagOwners, TagOwner{n, l}) })
		},
		"postures": func(v *hujson.Value, path string) {
			d.named(v, path, func(n String, l Strings) { p.Postures = append(p.Postures, Posture{n, l}) })
		},
		"autoApprovers": func(v *hujson.Value, path string) { p.AutoApprovers = d.autoApprovers(v, path) },
		"ssh": func(v *hujson.Value, path string) {
			d.list(v, path, func(v *hujson.Value, path string) { p.SSH = append(p.SSH, d.ssh(v, path)) })
		},
		"tests": func(v *hujson.Value, path string) {
			d.list(v, path, func(v *hujson.Value, path string) { p.Tests = append(p.Tests, d.test(v, path)) })
		},
		"sshTests": func(v *hujson.Value, path string) {
			d.list(v, path, func(v *hujson.Value, path string) { p.SSHTests = append(p.SSHTests, d.sshTest(v, path)) })
		},
		"nodeAttrs": func(v *hujson.Value, path string) {
			d.list(v, path, func(v *hujson.Value, path string) { p.NodeAttrs = append(p.NodeAttrs, d.nodeAttr(v, path)) })
		},
		"defaultSrcPosture":   into(&p.DefaultSrcPosture),
		"randomizeClientPort": flag(&p.RandomizeClientPort),
		"disableIPv4":         flag(&p.DisableIPv4),
		"OneCGNATRoute":       func(v *hujson.Value, path string) { p.OneCGNATRoute, _ = d.str(v, path) },
		"derpMap":             raw(&p.DERPMap),
		"attrConfig":          raw(&p.AttrConfig),
		"externalTailnets":    raw(&p.ExternalTailnets),
	}
	d.fields(root, "", table, func(name String, v *hujson.Value) {
		// The service gains sections faster than this engine does; what is all but the name of a known one is no new one.
		p.Unknown = append(p.Unknown, Section{Name: name, Raw: d.raw(v, name.Path)})
		near := nearest(name.Value, keysOf(table))
		severity := diag.Warning
		if near != "" {
			severity = diag.Error
		}
		dg := d.report(severity, "unknown-section", name.Node, fmt.Sprintf("json: unknown field %q", name.Value),
			"not a section that this version knows")
		if near == "" {
			dg.Notes = []string{"the section is carried through unread; the control plane refuses keys that it does not know either"}
		} else {
			dg.Help = []diag.Help{{
				Message: fmt.Sprintf("did you mean %q?", near),
				Edits:   []diag.Edit{{Range: name.Range, NewText: strconv.Quote(near)}},
			}}
		}
	})
	return p
}

func (d *decoder) rule(into map[string]*Strings, text map[string]*String) map[string]func(*hujson.Value, string) {
	table := make(map[string]func(*hujson.Value, string), len(into)+len(text))
	for k, dst := range into {
		table[k] = func(v *hujson.Value, path string) {
			if dst.Present {
				d.report(diag.Error, "duplicate-key", d.node(v, path), "the key "+strconv.Quote(k)+" is another name of one given already", "given twice")
				return
			}
			*dst = d.strings(v, path)
		}
	}
	for k, dst := range text {
		table[k] = func(v *hujson.Value, path string) { *dst, _ = d.str(v, path) }
	}
	return table
}

func (d *decoder) acl(v *hujson.Value, path string) ACL {
	a := ACL{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{
		"src": &a.Src, "users": &a.Src, "dst": &a.Dst, "ports": &a.Dst, "srcPosture": &a.SrcPosture,
	}, map[string]*String{"action": &a.Action, "proto": &a.Proto})
	d.fields(v, path, table, func(name String, _ *hujson.Value) { a.Unknown = append(a.Unknown, name) })
	return a
}

func (d *decoder) grant(v *hujson.Value, path string) Grant {
	g := Grant{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{
		"src": &g.Src, "dst": &g.Dst, "ip": &g.IP, "via": &g.Via, "srcPosture": &g.SrcPosture,
	}, nil)
	table["app"] = func(v *hujson.Value, path string) { g.App, g.AppNode = d.capabilities(v, path), d.node(v, path) }
	d.fields(v, path, table, func(name String, _ *hujson.Value) { g.Unknown = append(g.Unknown, name) })
	return g
}

func (d *decoder) capabilities(v *hujson.Value, path string) []Capability {
	var out []Capability
	d.members(v, path, false, func(name String, v *hujson.Value) {
		c := Capability{Name: name}
		if d.list(v, name.Path, func(v *hujson.Value, path string) { c.Values = append(c.Values, d.raw(v, path).Value) }) && c.Values == nil {
			c.Values = []json.RawMessage{}
		}
		out = append(out, c)
	})
	return out
}

func (d *decoder) autoApprovers(v *hujson.Value, path string) AutoApprovers {
	out := AutoApprovers{Node: d.node(v, path)}
	approvers := func(dst *[]Approver) func(*hujson.Value, string) {
		return func(v *hujson.Value, path string) {
			d.named(v, path, func(n String, l Strings) { *dst = append(*dst, Approver{n, l}) })
		}
	}
	d.strict(v, path, map[string]func(*hujson.Value, string){
		"routes":   approvers(&out.Routes),
		"services": approvers(&out.Services),
		"exitNode": func(v *hujson.Value, path string) { out.ExitNode = d.strings(v, path) },
	})
	return out
}

func (d *decoder) ssh(v *hujson.Value, path string) SSH {
	s := SSH{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{
		"src": &s.Src, "dst": &s.Dst, "users": &s.Users, "acceptEnv": &s.AcceptEnv, "srcPosture": &s.SrcPosture, "recorder": &s.Recorder,
	}, map[string]*String{"action": &s.Action, "checkPeriod": &s.CheckPeriod})
	table["enforceRecorder"] = func(v *hujson.Value, path string) { s.EnforceRecorder = d.boolean(v, path) }
	d.strict(v, path, table)
	return s
}

func (d *decoder) attrs(dst *map[string]json.RawMessage) func(*hujson.Value, string) {
	return func(v *hujson.Value, path string) {
		*dst = map[string]json.RawMessage{}
		d.members(v, path, false, func(name String, v *hujson.Value) { (*dst)[name.Value] = d.raw(v, name.Path).Value })
	}
}

func (d *decoder) test(v *hujson.Value, path string) Test {
	t := Test{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{"accept": &t.Accept, "allow": &t.Accept, "deny": &t.Deny},
		map[string]*String{"src": &t.Src, "user": &t.Src, "proto": &t.Proto})
	table["srcPostureAttrs"] = d.attrs(&t.SrcPostureAttrs)
	d.strict(v, path, table)
	return t
}

func (d *decoder) sshTest(v *hujson.Value, path string) SSHTest {
	t := SSHTest{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{"dst": &t.Dst, "accept": &t.Accept, "deny": &t.Deny, "check": &t.Check},
		map[string]*String{"src": &t.Src})
	table["srcPostureAttrs"] = d.attrs(&t.SrcPostureAttrs)
	d.strict(v, path, table)
	return t
}

func (d *decoder) nodeAttr(v *hujson.Value, path string) NodeAttr {
	n := NodeAttr{Node: d.node(v, path)}
	table := d.rule(map[string]*Strings{"target": &n.Target, "attr": &n.Attr, "ipPool": &n.IPPool}, nil)
	table["app"] = func(v *hujson.Value, path string) { n.App = d.capabilities(v, path) }
	d.strict(v, path, table)
	return n
}
