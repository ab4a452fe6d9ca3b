package policy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// maxDepth bounds the nesting of a text. encoding/json has the same bound; the HuJSON parser has none and recurses.
const maxDepth = 10000

// Parse reads the text of a policy file. The policy is nil only where the text is not a HuJSON object; what else is
// wrong with the shape of the text (keys that do not exist, a list where a string belongs, a key given twice) is in
// the list, and the policy then holds what could be read. Parse checks shapes, not meanings: see Check.
func Parse(file string, src []byte) (*Policy, diag.List) {
	d := newDecoder(file, src)
	root, ok := d.tree()
	if !ok {
		return nil, d.diags
	}
	p := d.policy(root)
	return p, d.diags
}

// decoder turns a HuJSON tree into a Policy and keeps what was wrong.
type decoder struct {
	file  string
	src   []byte
	pos   *positions
	diags diag.List
	// shapes are collected for edits.
	shapes map[int]shape
}

func newDecoder(file string, src []byte) *decoder {
	return &decoder{file: file, src: src, pos: newPositions(src), shapes: map[int]shape{}}
}

func (d *decoder) report(sev diag.Severity, code string, n Node, message, label string) *diag.Diagnostic {
	d.diags = append(d.diags, diag.Diagnostic{
		Severity: sev, Code: code, Message: message, File: d.file, Path: n.Path, Range: n.Range, Label: label,
	})
	return &d.diags[len(d.diags)-1]
}

var hujsonError = regexp.MustCompile(`^hujson: line (\d+), column (\d+): (.*)$`)

// tree parses the text and reports the one syntax error that the parser finds.
func (d *decoder) tree() (*hujson.Value, bool) {
	if off, ok := tooDeep(d.src); ok {
		d.report(diag.Error, "syntax", Node{Range: d.pos.span(off, off+1)}, "exceeded max depth", "nested too deeply")
		return nil, false
	}
	root, err := hujson.Parse(d.src)
	if err != nil {
		d.syntaxError(err)
		return nil, false
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		d.report(diag.Error, "wrong-type", d.node(&root, ""), "a policy file is an object, not "+kindName(&root),
			"an object in braces belongs here")
		return nil, false
	}
	return &root, true
}

// syntaxError words the parser's error as the control plane does, "line 7, column 3: invalid character …".
func (d *decoder) syntaxError(err error) {
	m := hujsonError.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		d.report(diag.Error, "syntax", Node{Range: d.pos.span(0, 0)}, err.Error(), "")
		return
	}
	line, _ := strconv.Atoi(m[1])
	col, _ := strconv.Atoi(m[2])
	off := min(d.pos.lines[min(line, len(d.pos.lines))-1]+col-1, len(d.src))
	text := m[3]
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	diagnostic := d.report(diag.Error, "syntax", Node{Range: d.pos.span(off, min(off+1, len(d.src)))},
		fmt.Sprintf("line %d, column %d: %s", line, d.pos.at(off).Column, text), "")
	if !strings.HasSuffix(text, "unexpected EOF") {
		diagnostic.Label = "not valid here"
		return
	}
	diagnostic.Label = "the text ends here"
	open, closer := unclosed(d.src)
	if len(open) == 0 {
		return
	}
	diagnostic.Code = "unclosed"
	for i := len(open) - 1; i >= 0 && len(diagnostic.Related) < 3; i-- {
		diagnostic.Related = append(diagnostic.Related, diag.Related{
			Message: fmt.Sprintf("this %q is never closed", d.src[open[i]]), Range: d.pos.span(open[i], open[i]+1),
		})
	}
	if strings.Contains(text, "parsing string") || strings.Contains(text, "parsing comment") {
		return
	}
	// Only where every missing bracket belongs at the end is it sure that adding them there mends the text.
	help := diag.Help{Message: fmt.Sprintf("add %q at the end", closer)}
	if len(open) == 1 {
		help.Edits = []diag.Edit{{Range: d.pos.span(len(d.src), len(d.src)), NewText: closer + "\n"}}
	}
	diagnostic.Help = append(diagnostic.Help, help)
}

// scan calls f for each bracket outside of strings and comments until f returns false.
func scan(src []byte, f func(off int, c byte) bool) {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '/':
			switch {
			case i+1 < len(src) && src[i+1] == '/':
				for i < len(src) && src[i] != '\n' {
					i++
				}
			case i+1 < len(src) && src[i+1] == '*':
				for i += 2; i < len(src) && (src[i] != '/' || src[i-1] != '*'); i++ {
				}
			}
		case '{', '[', '}', ']':
			if !f(i, c) {
				return
			}
		}
	}
}

func tooDeep(src []byte) (int, bool) {
	depth, at := 0, -1
	scan(src, func(off int, c byte) bool {
		if c == '{' || c == '[' {
			depth++
		} else {
			depth--
		}
		if depth > maxDepth {
			at = off
		}
		return at < 0
	})
	return at, at >= 0
}

// unclosed returns the offsets of the brackets that have no partner, and the text that closes them.
func unclosed(src []byte) (open []int, closer string) {
	scan(src, func(off int, c byte) bool {
		switch {
		case c == '{' || c == '[':
			open = append(open, off)
		case len(open) > 0:
			open = open[:len(open)-1]
		}
		return true
	})
	if len(open) > 8 {
		return open, ""
	}
	for i := len(open) - 1; i >= 0; i-- {
		if src[open[i]] == '{' {
			closer += "}"
		} else {
			closer += "]"
		}
	}
	return open, closer
}

func kindName(v *hujson.Value) string {
	switch v.Value.Kind() {
	case 'n':
		return "null"
	case 'f', 't':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "a list"
	}
	return "an object"
}

func (d *decoder) node(v *hujson.Value, path string) Node {
	return Node{Range: d.pos.span(v.StartOffset, v.EndOffset), Path: path}
}

func isNull(v *hujson.Value) bool { return v.Value.Kind() == 'n' }

func (d *decoder) wrongType(v *hujson.Value, path, want string) *diag.Diagnostic {
	return d.report(diag.Error, "wrong-type", d.node(v, path),
		fmt.Sprintf("%s: want %s, got %s", path, want, kindName(v)), "this is "+kindName(v))
}

// members calls f with each member of an object, in the order of the text, a key that repeats reported and left out.
// fold says whether keys are names of fields, which the control plane matches without regard to case, or free text.
func (d *decoder) members(v *hujson.Value, path string, fold bool, f func(name String, v *hujson.Value)) {
	if isNull(v) {
		return
	}
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		d.wrongType(v, path, "an object")
		return
	}
	seen := make(map[string]Node, len(obj.Members))
	for i := range obj.Members {
		m := &obj.Members[i]
		name := String{Value: m.Name.Value.(hujson.Literal).String()}
		name.Node = d.node(&m.Name, join(path, name.Value, fold))
		key := name.Value
		if fold {
			key = strings.ToLower(key)
		}
		if first, dup := seen[key]; dup {
			dg := d.report(diag.Error, "duplicate-key", name.Node, fmt.Sprintf("duplicate key %q", name.Value), "given twice")
			dg.Related = []diag.Related{{Message: "first given here", Range: first.Range}}
			dg.Notes = []string{"of two equal keys a JSON reader keeps one and drops the other without a word"}
			continue
		}
		seen[key] = name.Node
		f(name, &m.Value)
	}
}

// join appends a key to a path: a field as ".name", free text as ["name"].
func join(path, key string, field bool) string {
	switch {
	case !field:
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// unknownField reports a key as the control plane refuses it.
func (d *decoder) unknownField(name String, known []string) {
	dg := d.report(diag.Error, "unknown-field", name.Node, fmt.Sprintf("json: unknown field %q", name.Value), "no such key here")
	if near := nearest(name.Value, known); near != "" {
		dg.Help = append(dg.Help, diag.Help{
			Message: fmt.Sprintf("did you mean %q?", near),
			Edits:   []diag.Edit{{Range: name.Range, NewText: strconv.Quote(near)}},
		})
	}
}

// fields reads an object by a table of its keys. A key that is not in the table goes to unknown.
func (d *decoder) fields(v *hujson.Value, path string, table map[string]func(*hujson.Value, string), unknown func(String, *hujson.Value)) {
	lower := make(map[string]string, len(table))
	for k := range table {
		lower[strings.ToLower(k)] = k
	}
	d.members(v, path, true, func(name String, v *hujson.Value) {
		if k, ok := lower[strings.ToLower(name.Value)]; ok {
			table[k](v, join(path, k, true))
			return
		}
		unknown(name, v)
	})
}

func keysOf(table map[string]func(*hujson.Value, string)) []string {
	out := make([]string, 0, len(table))
	for k := range table {
		out = append(out, k)
	}
	return out
}

// strict reads an object that has no other keys than those of the table.
func (d *decoder) strict(v *hujson.Value, path string, table map[string]func(*hujson.Value, string)) {
	d.fields(v, path, table, func(name String, _ *hujson.Value) { d.unknownField(name, keysOf(table)) })
}

// list calls f for each element of a list.
func (d *decoder) list(v *hujson.Value, path string, f func(v *hujson.Value, path string)) bool {
	if isNull(v) {
		return false
	}
	arr, ok := v.Value.(*hujson.Array)
	if !ok {
		d.wrongType(v, path, "a list")
		return false
	}
	last := shape{lastStart: -1, lastEnd: -1}
	if n := len(arr.Elements); n > 0 {
		e := &arr.Elements[n-1]
		last = shape{e.StartOffset, e.EndOffset, e.AfterExtra != nil}
	}
	d.shapes[v.StartOffset] = last
	for i := range arr.Elements {
		f(&arr.Elements[i], path+"["+strconv.Itoa(i)+"]")
	}
	return true
}

func (d *decoder) str(v *hujson.Value, path string) (String, bool) {
	s := String{Node: d.node(v, path)}
	if isNull(v) {
		return String{}, true
	}
	lit, ok := v.Value.(hujson.Literal)
	if !ok || lit.Kind() != '"' {
		dg := d.wrongType(v, path, "a string")
		if ok && lit.Kind() == '0' {
			dg.Help = []diag.Help{{
				Message: "put it in quotes",
				Edits:   []diag.Edit{{Range: s.Range, NewText: strconv.Quote(string(lit))}},
			}}
		}
		return s, false
	}
	s.Value = lit.String()
	return s, true
}

func (d *decoder) strings(v *hujson.Value, path string) Strings {
	out := Strings{Node: d.node(v, path)}
	if lit, ok := v.Value.(hujson.Literal); ok && lit.Kind() == '"' {
		dg := d.wrongType(v, path, "a list of strings")
		dg.Help = []diag.Help{{
			Message: "put it in brackets",
			Edits: []diag.Edit{
				{Range: d.pos.span(v.StartOffset, v.StartOffset), NewText: "["},
				{Range: d.pos.span(v.EndOffset, v.EndOffset), NewText: "]"},
			},
		}}
		out.Present = true
		out.Items = []String{{Node: out.Node, Value: lit.String()}}
		return out
	}
	out.Present = d.list(v, path, func(v *hujson.Value, path string) {
		if s, ok := d.str(v, path); ok {
			if s.Range.IsZero() { // null decodes to the empty string
				s.Node = d.node(v, path)
			}
			out.Items = append(out.Items, s)
		}
	})
	if !out.Present {
		return Strings{}
	}
	return out
}

func (d *decoder) boolean(v *hujson.Value, path string) Bool {
	if isNull(v) {
		return Bool{}
	}
	lit, ok := v.Value.(hujson.Literal)
	if !ok || lit.Kind() != 't' && lit.Kind() != 'f' {
		d.wrongType(v, path, "a boolean")
		return Bool{}
	}
	return Bool{Node: d.node(v, path), Present: true, Value: lit.Bool()}
}

func (d *decoder) raw(v *hujson.Value, path string) Raw {
	c := v.Clone()
	c.Minimize()
	return Raw{Node: d.node(v, path), Present: !isNull(v), Value: json.RawMessage(c.Pack())}
}

// named reads an object of free keys with lists of strings.
func (d *decoder) named(v *hujson.Value, path string, f func(name String, list Strings)) {
	d.members(v, path, false, func(name String, v *hujson.Value) { f(name, d.strings(v, name.Path)) })
}

func (d *decoder) policy(root *hujson.Value) *Policy {
	p := &Policy{Node: d.node(root, ""), src: d.src, pos: d.pos, shapes: d.shapes}
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
		p.Unknown = append(p.Unknown, Section{Name: name, Raw: d.raw(v, name.Path)})
		dg := d.report(diag.Warning, "unknown-section", name.Node, fmt.Sprintf("json: unknown field %q", name.Value),
			"not a section that this version knows")
		dg.Notes = []string{"the section is carried through unread; the control plane refuses keys that it does not know either"}
		if near := nearest(name.Value, keysOf(table)); near != "" {
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
