package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

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
	return Node{Range: d.lines.Range(v.StartOffset, v.EndOffset), Path: path}
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
				{Range: d.lines.Range(v.StartOffset, v.StartOffset), NewText: "["},
				{Range: d.lines.Range(v.EndOffset, v.EndOffset), NewText: "]"},
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
