package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Parse reads one document. It takes nothing that it does not know: an unknown key, a key that appears twice, a value of
// another type and anything behind the document are errors, as is whatever [Document.Validate] refuses. Keys that are
// left out have the values of [New]. An error is an [*Error] that holds every problem with its path and its place.
func Parse(data []byte) (Document, error) {
	tree, err := parseTree(data)
	if err != nil {
		p := Problem{Message: err.Error()}
		if syntax, ok := errors.AsType[*syntaxError](err); ok && syntax.at >= 0 {
			p.Line, p.Column = position(data, syntax.at)
		}
		return Document{}, &Error{Problems: []Problem{p}}
	}
	doc := New()
	var d decoder
	d.document(&doc)(tree)
	refused := doc.validate()
	if len(d.found)+len(refused) == 0 {
		return doc, nil
	}
	return Document{}, d.error(data, tree, refused)
}

// decoder turns a tree into a document and notes what it could not use, each by its place.
type decoder struct{ found []finding }

type finding struct {
	at      int
	missing string // the key that an object lacks
	message string
}

// into reads a value.
type into func(v value)

func (d *decoder) add(at int, format string, args ...any) {
	d.found = append(d.found, finding{at: at, message: fmt.Sprintf(format, args...)})
}

// error puts the findings, and what validation refused, in the order of the text. What could not be read also looks as if
// it were missing: nothing more is said about it.
func (d *decoder) error(data []byte, tree value, refused problems) error {
	paths := map[int]string{}
	name(paths, "", tree)
	places := map[string]int{}
	for at, path := range paths {
		if first, known := places[path]; !known || at > first { // a value stands behind its key
			places[path] = at
		}
	}
	type placed struct {
		Problem
		at int
	}
	var all []placed
	said := map[string]bool{}
	for _, f := range d.found {
		path := paths[f.at]
		if f.missing != "" {
			path = join(path, f.missing)
		}
		said[path] = true
		all = append(all, placed{Problem{Path: path, Message: f.message}, f.at})
	}
	for _, p := range refused {
		known, at := false, tree.at
		for _, around := range around(p.Path) {
			known = known || said[around]
			at = max(at, places[around])
		}
		if !known {
			all = append(all, placed{p, at})
		}
	}
	slices.SortStableFunc(all, func(x, y placed) int { return cmp.Compare(x.at, y.at) })
	var out problems
	line, column, known := 1, 1, 0 // the place of the offset that is known
	for _, p := range all {
		if p.at != tree.at { // else it is about all of it
			lines, columns := position(data[known:], p.at-known)
			if lines > 1 {
				column = 1
			}
			line, column, known = line+lines-1, column+columns-1, p.at
			p.Line, p.Column = line, column
		}
		out = append(out, p.Problem)
	}
	return out.err()
}

// name notes the path of every value and of every key.
func name(paths map[int]string, path string, v value) {
	paths[v.at] = path
	switch inner := v.v.(type) {
	case object:
		for _, m := range inner {
			at := join(path, m.key)
			paths[m.at] = at
			name(paths, at, m.value)
		}
	case []value:
		for i, item := range inner {
			name(paths, fmt.Sprintf("%s[%d]", path, i), item)
		}
	}
}

// around returns the path itself and those of what it is in, with the document as a whole.
func around(path string) []string {
	out := []string{"", path}
	for i, c := range path {
		if c == '.' || c == '[' {
			out = append(out, path[:i])
		}
	}
	return out
}

func (d *decoder) document(doc *Document) into {
	return d.object(map[string]into{
		"version":     d.integer(&doc.Version),
		"mesh":        d.text(&doc.Mesh),
		"node":        d.node(&doc.Node),
		"pod_cidrs":   list(d, &doc.PodCIDRs, d.prefix),
		"peers":       list(d, &doc.Peers, d.node),
		"discover":    d.object(map[string]into{"tags": list(d, &doc.Discover.Tags, d.text)}),
		"local_cidrs": list(d, &doc.LocalCIDRs, d.prefix),
		"routing": d.object(map[string]into{
			"mode":        d.text(&doc.Routing.Mode),
			"mark":        d.mark(&doc.Routing.Mark),
			"priority":    d.priority(&doc.Routing.Priority),
			"table":       d.integer(&doc.Routing.Table),
			"fail_closed": d.boolean(&doc.Routing.FailClosed),
		}),
		"firewall": d.object(map[string]into{
			"backend": d.text(&doc.Firewall.Backend),
			"snat":    d.boolean(&doc.Firewall.SNAT),
		}),
		"overlay": d.object(map[string]into{"protocol": d.text(&doc.Overlay.Protocol)}),
	}, "version", "mesh", "node", "peers")
}

func (d *decoder) node(n *Node) into {
	return d.object(map[string]into{
		"name":      d.text(&n.Name),
		"id":        d.text(&n.ID),
		"addresses": list(d, &n.Addresses, d.address),
		"location":  d.text(&n.Location),
	}, "name", "addresses")
}

// object reads an object that may have the given keys and must have the required ones.
func (d *decoder) object(keys map[string]into, required ...string) into {
	return func(v value) {
		obj, ok := v.v.(object)
		if !ok {
			d.wrongType("an object", v)
			return
		}
		for i, m := range obj {
			read, known := keys[m.key]
			switch {
			case !known:
				names := slices.Sorted(maps.Keys(keys))
				d.add(m.at, "unknown key; known here: %s", strings.Join(names, ", "))
			case obj[:i].has(m.key):
				d.add(m.at, "the key appears twice")
			default:
				read(m.value)
			}
		}
		for _, key := range required {
			if !obj.has(key) {
				d.found = append(d.found, finding{at: v.at, missing: key, message: "missing"})
			}
		}
	}
}

func (o object) has(key string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.key == key })
}

func list[T any](d *decoder, to *[]T, element func(*T) into) into {
	return func(v value) {
		items, ok := v.v.([]value)
		if !ok {
			d.wrongType("an array", v)
			return
		}
		*to = make([]T, len(items))
		for i, item := range items {
			element(&(*to)[i])(item)
		}
	}
}

func (d *decoder) text(to *string) into {
	return func(v value) {
		s, ok := v.v.(string)
		if !ok {
			d.wrongType("a string", v)
			return
		}
		*to = s
	}
}

func (d *decoder) boolean(to *bool) into {
	return func(v value) {
		b, ok := v.v.(bool)
		if !ok {
			d.wrongType("true or false", v)
			return
		}
		*to = b
	}
}

func (d *decoder) integer(to *int) into {
	return func(v value) {
		n, ok := v.v.(number)
		if !ok {
			d.wrongType("a number", v)
			return
		}
		i, err := strconv.Atoi(string(n))
		if err != nil {
			d.add(v.at, "%s is not a whole number that fits", short(string(n)))
			return
		}
		*to = i
	}
}

func (d *decoder) mark(to *Mark) into {
	return func(v value) {
		s, ok := v.v.(string)
		if !ok {
			d.wrongType(fmt.Sprintf("a string such as %q", DefaultMark), v)
			return
		}
		if err := to.UnmarshalText([]byte(s)); err != nil {
			d.add(v.at, "%v", err)
		}
	}
}

func (d *decoder) priority(to *Priority) into {
	return func(v value) {
		var s string
		switch written := v.v.(type) {
		case string:
			s = written
		case number:
			s = string(written)
		default:
			d.wrongType(`"auto" or a number`, v)
			return
		}
		p, err := ParsePriority(s)
		if err != nil {
			d.add(v.at, "%v", err)
			return
		}
		*to = p
	}
}

func (d *decoder) prefix(to *netip.Prefix) into {
	return func(v value) {
		s, ok := v.v.(string)
		if !ok {
			d.wrongType("a string", v)
			return
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			d.add(v.at, "%q is not a network: want an address and a length, as in %q", short(s), "10.244.1.0/24")
			return
		}
		*to = p
	}
}

// address reads one host. A prefix of one host, as the LocalAPI writes addresses, is that host.
func (d *decoder) address(to *netip.Addr) into {
	return func(v value) {
		s, ok := v.v.(string)
		if !ok {
			d.wrongType("a string", v)
			return
		}
		bare, _, isPrefix := strings.Cut(s, "/")
		a, err := netip.ParseAddr(bare)
		if isPrefix && err == nil {
			var p netip.Prefix
			p, err = netip.ParsePrefix(s)
			if err == nil && !p.IsSingleIP() {
				d.add(v.at, "%q is a network of many hosts: want the address of one", s)
				return
			}
		}
		if err != nil {
			d.add(v.at, "%q is not an IP address", short(s))
			return
		}
		*to = a
	}
}

func (d *decoder) wrongType(want string, got value) {
	d.add(got.at, "want %s, got %s", want, describe(got.v))
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case number:
		return "the number " + short(string(v))
	case string:
		return fmt.Sprintf("the string %q", short(v))
	case []value:
		return "an array"
	}
	return "an object"
}

func join(path, key string) string {
	key = short(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return strings.ContainsRune(".[]", r) || r <= ' ' }) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
