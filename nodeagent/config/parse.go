package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads one document. It takes nothing that it does not know: an unknown key, a key that appears twice, a value of
// another type and anything behind the document are errors, as is whatever [Document.Validate] refuses. Keys that are
// left out have the values of [New]. An error is an [*Error] that holds every problem with its path.
func Parse(data []byte) (Document, error) {
	if doc, ok := marshalled(data); ok && len(doc.validate()) == 0 {
		return doc, nil
	}
	if err := check(data); err != nil {
		return Document{}, &Error{Problems: []Problem{{Message: err.Error()}}}
	}
	doc := New()
	d := decoder{json: json.NewDecoder(bytes.NewReader(data))}
	d.json.UseNumber()
	d.document(&doc)
	for _, p := range doc.validate() {
		if !d.problems.covers(p.Path) {
			d.problems.append(p)
		}
	}
	if err := d.problems.err(); err != nil {
		return Document{}, err
	}
	return doc, nil
}

// marshalled reads a document that [Document.Marshal] wrote, as those of nodes are. A text that is another when it is
// written again has something that only the long look tells: a key left out, unknown, or there twice. What is wrong with a
// value only the long look tells, too, which still has what stands in the text.
func marshalled(data []byte) (Document, bool) {
	// There is a line for each comma, and no line is short. What is not so may be millions of peers of a byte each.
	const line = 12
	if bytes.Count(data, []byte(","))*line > len(data) {
		return Document{}, false
	}
	doc := New()
	if err := json.Unmarshal(data, &doc); err != nil {
		return Document{}, false
	}
	again, err := doc.Marshal()
	return doc, err == nil && bytes.Equal(again, data)
}

// check says what keeps a text from being one value of JSON.
func check(data []byte) error {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return errors.New("the document is empty")
	case !utf8.Valid(data):
		return errors.New("the document is not UTF-8 text")
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line, column := position(data, syntax.Offset)
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

// position turns the offset of a syntax error, which counts the bytes read, into a line and a column of the last of them.
func position(data []byte, offset int64) (line, column int) {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	return 1 + bytes.Count(before, []byte("\n")), 1 + len(before) - (bytes.LastIndexByte(before, '\n') + 1)
}

// decoder turns a text that was checked into a document, and notes what it could not use. It goes through the text and keeps
// nothing of what it does not use: what lies in the document's place may be anything, and large.
type decoder struct {
	json     *json.Decoder
	problems problems
}

// into reads the value at a path, of which the first token was read.
type into func(path string, first json.Token)

// next returns the next token. There is one: the text was checked.
func (d *decoder) next() json.Token {
	token, _ := d.json.Token()
	return token
}

// skip reads what is left of a value, of which the first token was read.
func (d *decoder) skip(first json.Token) {
	var err error
	for depth, token := 0, first; err == nil; token, err = d.json.Token() {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
	}
}

func (d *decoder) document(doc *Document) {
	d.object(map[string]into{
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
	}, "version", "mesh", "node", "peers")("", d.next())
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
	return func(path string, first json.Token) {
		if first != json.Delim('{') {
			d.wrongType(path, "an object", first)
			return
		}
		seen := map[string]bool{}
		for d.json.More() && !d.problems.full() {
			key, _ := d.next().(string)
			at := join(path, key)
			value := d.next()
			read, known := keys[key]
			switch {
			case !known:
				names := slices.Sorted(maps.Keys(keys))
				d.problems.add(at, "unknown key; known here: %s", strings.Join(names, ", "))
				d.skip(value)
			case seen[key]:
				d.problems.add(at, "the key appears twice")
				d.skip(value)
			default:
				read(at, value)
				seen[key] = true
			}
		}
		d.next()
		for _, key := range required {
			if !seen[key] {
				d.problems.add(join(path, key), "missing")
			}
		}
	}
}

func list[T any](d *decoder, to *[]T, element func(*T) into) into {
	return func(path string, first json.Token) {
		if first != json.Delim('[') {
			d.wrongType(path, "an array", first)
			return
		}
		items := []T{}
		for d.json.More() && !d.problems.full() {
			var item T
			element(&item)(fmt.Sprintf("%s[%d]", path, len(items)), d.next())
			items = append(items, item)
		}
		d.next()
		*to = items
	}
}

func (d *decoder) text(to *string) into {
	return func(path string, v json.Token) {
		s, ok := v.(string)
		if !ok {
			d.wrongType(path, "a string", v)
			return
		}
		*to = s
	}
}

func (d *decoder) boolean(to *bool) into {
	return func(path string, v json.Token) {
		b, ok := v.(bool)
		if !ok {
			d.wrongType(path, "true or false", v)
			return
		}
		*to = b
	}
}

func (d *decoder) integer(to *int) into {
	return func(path string, v json.Token) {
		n, ok := v.(json.Number)
		if !ok {
			d.wrongType(path, "a number", v)
			return
		}
		i, err := strconv.Atoi(n.String())
		if err != nil {
			d.problems.add(path, "%s is not a whole number that fits", n)
			return
		}
		*to = i
	}
}

func (d *decoder) mark(to *Mark) into {
	return func(path string, v json.Token) {
		s, ok := v.(string)
		if !ok {
			d.wrongType(path, fmt.Sprintf("a string such as %q", DefaultMark), v)
			return
		}
		if err := to.UnmarshalText([]byte(s)); err != nil {
			d.problems.add(path, "%v", err)
		}
	}
}

func (d *decoder) priority(to *Priority) into {
	return func(path string, v json.Token) {
		var s string
		switch v := v.(type) {
		case string:
			s = v
		case json.Number:
			s = v.String()
		default:
			d.wrongType(path, `"auto" or a number`, v)
			return
		}
		p, err := ParsePriority(s)
		if err != nil {
			d.problems.add(path, "%v", err)
			return
		}
		*to = p
	}
}

func (d *decoder) prefix(to *netip.Prefix) into {
	return func(path string, v json.Token) {
		s, ok := v.(string)
		if !ok {
			d.wrongType(path, "a string", v)
			return
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			d.problems.add(path, "%q is not a network: want an address and a length, as in %q", s, "10.244.1.0/24")
			return
		}
		*to = p
	}
}

// address reads one host. A prefix of one host, as the LocalAPI writes addresses, is that host.
func (d *decoder) address(to *netip.Addr) into {
	return func(path string, v json.Token) {
		s, ok := v.(string)
		if !ok {
			d.wrongType(path, "a string", v)
			return
		}
		if p, err := netip.ParsePrefix(s); err == nil {
			if !p.IsSingleIP() {
				d.problems.add(path, "%q is a network of many hosts: want the address of one", s)
				return
			}
			*to = p.Addr()
			return
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			d.problems.add(path, "%q is not an IP address", s)
			return
		}
		*to = a
	}
}

func (d *decoder) wrongType(path, want string, got json.Token) {
	d.problems.add(path, "want %s, got %s", want, describe(got))
	d.skip(got)
}

func describe(first json.Token) string {
	switch v := first.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + v.String()
	case string:
		return fmt.Sprintf("the string %q", v)
	}
	if first == json.Delim('[') {
		return "an array"
	}
	return "an object"
}

func join(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return strings.ContainsRune(".[]", r) || r <= ' ' }) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
