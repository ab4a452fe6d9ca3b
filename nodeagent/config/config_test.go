package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

var compareValues = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func compareAll() cmp.Options {
	return cmp.Options{
		compareValues,
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b Priority) bool { return a == b }),
	}
}

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func reference(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("reference.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := hujson.Standardize(text)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestReferenceFile(t *testing.T) {
	got, err := Parse(reference(t))
	if err != nil {
		t.Fatal(err)
	}
	want := New()
	want.Mesh = "futhark"
	want.Node = Node{Name: "ams1", ID: "n1CNTRL", Addresses: addrs("100.64.0.11", "fd7a:115c:a1e0::b"), Location: "ams"}
	want.PodCIDRs = prefixes("10.244.1.0/24")
	want.Peers = []Node{
		{Name: "fra1", ID: "n2CNTRL", Addresses: addrs("100.64.0.12", "fd7a:115c:a1e0::c"), Location: "fra"},
	}
	want.Discover.Tags = []string{"tag:node"}
	want.LocalCIDRs = prefixes("192.168.10.0/24", "10.7.0.0/16")
	if diff := cmp.Diff(want, got, compareAll()); diff != "" {
		t.Errorf("the reference file does not show the defaults (-want +got):\n%s", diff)
	}
}

// Every key that the parser takes must be explained in the reference file.
func TestReferenceFileIsComplete(t *testing.T) {
	var tree any
	if err := json.Unmarshal(reference(t), &tree); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				shown[key] = true
				collect(value)
			}
		case []any:
			for _, item := range v {
				collect(item)
			}
		}
	}
	collect(tree)
	// An unknown key makes the parser list those that it knows.
	for _, doc := range []string{
		`{"?":0}`, `{"node":{"?":0}}`, `{"discover":{"?":0}}`, `{"routing":{"?":0}}`, `{"firewall":{"?":0}}`, `{"overlay":{"?":0}}`,
	} {
		_, err := Parse([]byte(doc))
		parsed, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("Parse(%s) = %v, want an *Error", doc, err)
		}
		known := ""
		for _, p := range parsed.Problems {
			if _, list, ok := strings.Cut(p.Message, "unknown key; known here: "); ok {
				known = list
			}
		}
		if known == "" {
			t.Fatalf("Parse(%s) = %v, names no known keys", doc, err)
		}
		for key := range strings.SplitSeq(known, ", ") {
			if !shown[key] {
				t.Errorf("the key %q is not in reference.jsonc", key)
			}
		}
	}
}

const minimal = `{"version":1,"mesh":"m","node":{"name":"a","addresses":["100.64.0.1"]},"peers":[]}`

func TestDefaults(t *testing.T) {
	got, err := Parse([]byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	want := New()
	want.Mesh, want.Node, want.Peers = "m", Node{Name: "a", Addresses: addrs("100.64.0.1")}, []Node{}
	if diff := cmp.Diff(want, got, compareAll()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// with returns the minimal document with one more part, or with a part replaced.
func with(part string) string {
	key, _, _ := strings.Cut(part, ":")
	switch key {
	case `"version"`:
		return strings.Replace(minimal, `"version":1`, part, 1)
	case `"mesh"`:
		return strings.Replace(minimal, `"mesh":"m"`, part, 1)
	case `"node"`:
		return strings.Replace(minimal, `"node":{"name":"a","addresses":["100.64.0.1"]}`, part, 1)
	case `"peers"`:
		return strings.Replace(minimal, `"peers":[]`, part, 1)
	}
	return strings.TrimSuffix(minimal, "}") + "," + part + "}"
}

func TestParseRefuses(t *testing.T) {
	const (
		peerB  = `{"name":"b","id":"nB","addresses":["100.64.0.2"]}`
		range4 = "is not a mesh address: it must lie in 100.64.0.0/10 or fd7a:115c:a1e0::/48"
	)
	tests := []struct {
		name, doc string
		want      []string
	}{
		{"nothing", "", []string{"the document is empty"}},
		{"only space", " \n\t", []string{"the document is empty"}},
		{"binary", "\xff\xfe{}", []string{"the document is not UTF-8 text"}},
		{"not JSON", "mesh: m", []string{"line 1, column 1: invalid character 'm' looking for beginning of value"}},
		{"cut off", `{"version":1,`, []string{"line 1, column 13: unexpected end of JSON input"}},
		{"comment", "{\n  // no\n}", []string{
			"line 2, column 3: invalid character '/' looking for beginning of object key string",
		}},
		{"trailing data", minimal + "\n{}", []string{"line 2, column 1: invalid character '{' after top-level value"}},
		{"array", "[]", []string{"want an object, got an array"}},
		{"null", "null", []string{"want an object, got null"}},

		{"unknown key", with(`"routing":{"colour":"red"}`), []string{
			"routing.colour: unknown key; known here: fail_closed, mark, mode, priority, table",
		}},
		{"unknown key in an element", with(`"peers":[` + peerB + `,{"name":"c","addr":["100.64.0.3"],"addresses":["100.64.0.3"]}]`), []string{
			"peers[1].addr: unknown key; known here: addresses, id, location, name",
		}},
		{"unknown key at the top", with(`"Mesh":"x"`), []string{
			"Mesh: unknown key; known here: discover, firewall, local_cidrs, mesh, node, overlay, peers, pod_cidrs, routing, version",
		}},
		{"unknown key with a dot", with(`"firewall":{"a.b":1}`), []string{
			`firewall["a.b"]: unknown key; known here: backend, snat`,
		}},
		{"duplicate key", with(`"mesh":"m","mesh":"n"`), []string{"mesh: the key appears twice"}},
		{"duplicate key deep", with(`"routing":{"table":52,"table":53}`), []string{"routing.table: the key appears twice"}},
		{"missing keys", `{}`, []string{"version: missing", "mesh: missing", "node: missing", "peers: missing"}},
		{"missing keys of a node", with(`"node":{}`), []string{"node.name: missing", "node.addresses: missing"}},

		{"wrong version", with(`"version":2`), []string{
			"version: version 2 is not known: this program reads version 1",
		}},
		{"version as string", with(`"version":"1"`), []string{`version: want a number, got the string "1"`}},
		{"fraction", with(`"routing":{"table":5.2}`), []string{"routing.table: 5.2 is not a whole number that fits"}},
		{"huge number", with(`"routing":{"table":1e99}`), []string{"routing.table: 1e99 is not a whole number that fits"}},
		{"string for boolean", with(`"firewall":{"snat":"yes"}`), []string{
			`firewall.snat: want true or false, got the string "yes"`,
		}},
		{"object for array", with(`"peers":{}`), []string{"peers: want an array, got an object"}},
		{"null for array", with(`"pod_cidrs":null`), []string{"pod_cidrs: want an array, got null"}},
		{"number for address", with(`"node":{"name":"a","addresses":[1]}`), []string{
			"node.addresses[0]: want a string, got the number 1",
		}},
		{"string for object", with(`"peers":["b"]`), []string{`peers[0]: want an object, got the string "b"`}},

		{"mesh name", with(`"mesh":""`), []string{"mesh: empty: want a name"}},
		{"escape sequence in a name", with(`"peers":[{"name":"b\u001b[31m","addresses":["100.64.0.2"]}]`), []string{
			`peers[0].name: "b\x1b[31m" is not a name: want at most 253 printable characters without spaces`,
		}},
		{"no address", with(`"node":{"name":"a","addresses":[]}`), []string{
			"node.addresses: empty: want at least one mesh address",
		}},
		{"address outside the mesh", with(`"node":{"name":"a","addresses":["192.168.1.1"]}`), []string{
			"node.addresses[0]: 192.168.1.1 " + range4,
		}},
		{"just below the range", with(`"node":{"name":"a","addresses":["100.63.255.255"]}`), []string{
			"node.addresses[0]: 100.63.255.255 " + range4,
		}},
		{"just above the range", with(`"node":{"name":"a","addresses":["100.128.0.0"]}`), []string{
			"node.addresses[0]: 100.128.0.0 " + range4,
		}},
		{"other unique local address", with(`"node":{"name":"a","addresses":["fd7a:115c:a1e1::1"]}`), []string{
			"node.addresses[0]: fd7a:115c:a1e1::1 " + range4,
		}},
		{"IPv4 in IPv6", with(`"node":{"name":"a","addresses":["::ffff:100.64.0.1"]}`), []string{
			"node.addresses[0]: ::ffff:100.64.0.1 " + range4,
		}},
		{"zone", with(`"node":{"name":"a","addresses":["fd7a:115c:a1e0::1%eth0"]}`), []string{
			"node.addresses[0]: fd7a:115c:a1e0::1%eth0 " + range4,
		}},
		{"Tailscale's service address", with(`"peers":[{"name":"b","addresses":["100.100.100.100"]}]`), []string{
			"peers[0].addresses[0]: 100.100.100.100 is the address of Tailscale's own name service on every node, not of a machine",
		}},
		{"garbage address", with(`"peers":[{"name":"b","addresses":["100.64.0"]}]`), []string{
			`peers[0].addresses[0]: "100.64.0" is not an IP address`,
		}},
		{"peer wider than a host", with(`"peers":[{"name":"b","addresses":["100.64.0.0/24"]}]`), []string{
			`peers[0].addresses[0]: "100.64.0.0/24" is a network of many hosts: want the address of one`,
		}},
		{"two addresses of one family", with(`"peers":[{"name":"b","addresses":["100.64.0.2","100.64.0.3"]}]`), []string{
			"peers[0].addresses[1]: 100.64.0.3: the node has 100.64.0.2 in this family already, and a mesh address is one per family",
		}},

		{"peer with this node's address", with(`"peers":[{"name":"b","addresses":["100.64.0.1"]}]`), []string{
			"peers[0].addresses[0]: 100.64.0.1 is an address of this node itself",
		}},
		{"peer with this node's name", with(`"peers":[{"name":"A","addresses":["100.64.0.2"]}]`), []string{
			`peers[0].name: "A" is this node itself`,
		}},
		{"peer with this node's id", `{"version":1,"mesh":"m","node":{"name":"a","id":"nA","addresses":["100.64.0.1"]},` +
			`"peers":[{"name":"b","id":"nA","addresses":["100.64.0.2"]}]}`, []string{
			`peers[0].id: "nA" is this node itself`,
		}},
		{"peer twice", with(`"peers":[` + peerB + `,` + peerB + `]`), []string{
			"peers[1].name: b is in peers[0] already",
			"peers[1].id: nB is in peers[0] already",
			"peers[1].addresses[0]: 100.64.0.2 is in peers[0] already",
		}},

		{"pod network with mesh addresses", with(`"pod_cidrs":["100.64.0.0/16"]`), []string{
			"pod_cidrs[0]: 100.64.0.0/16 contains mesh addresses (of 100.64.0.0/10): pods and nodes could not be told apart",
		}},
		{"pod network around the mesh", with(`"pod_cidrs":["::/0"]`), []string{
			"pod_cidrs[0]: ::/0 contains mesh addresses (of fd7a:115c:a1e0::/48): pods and nodes could not be told apart",
		}},
		{"pod network with host bits", with(`"pod_cidrs":["10.244.1.1/24"]`), []string{
			"pod_cidrs[0]: 10.244.1.1/24 has bits set behind its length: write 10.244.1.0/24",
		}},
		{"pod network without length", with(`"pod_cidrs":["10.244.1.0"]`), []string{
			`pod_cidrs[0]: "10.244.1.0" is not a network: want an address and a length, as in "10.244.1.0/24"`,
		}},
		{"pod network twice", with(`"pod_cidrs":["10.244.1.0/24","10.244.1.0/24"]`), []string{
			"pod_cidrs[1]: 10.244.1.0/24 is in pod_cidrs[0] already",
		}},
		{"local network with host bits", with(`"local_cidrs":["10.0.0.0/8","192.168.1.1/24"]`), []string{
			"local_cidrs[1]: 192.168.1.1/24 has bits set behind its length: write 192.168.1.0/24",
		}},

		{"tag without prefix", with(`"discover":{"tags":["node"]}`), []string{
			`discover.tags[0]: "node" is not a tag: want the form "tag:node"`,
		}},
		{"mode", with(`"routing":{"mode":"marks"}`), []string{
			`routing.mode: "marks" is not known: want one of ["mark" "rules"]`,
		}},
		{"mark zero", with(`"routing":{"mark":"0x0"}`), []string{
			`routing.mark: 0x0 has 0 bits set: want exactly one, as in "0x2000"`,
		}},
		{"mark of two bits", with(`"routing":{"mark":"0x3000"}`), []string{
			`routing.mark: 0x3000 has 2 bits set: want exactly one, as in "0x2000"`,
		}},
		{"mark that is none", with(`"routing":{"mark":"pods"}`), []string{
			`routing.mark: "pods" is not a mark: want a number of 32 bits such as "0x2000"`,
		}},
		{"mark as number", with(`"routing":{"mark":8192}`), []string{
			`routing.mark: want a string such as "0x2000", got the number 8192`,
		}},
		{"priority word", with(`"routing":{"priority":"first"}`), []string{
			`routing.priority: "first" is not a priority: want "auto" or a number from 0 to 32765`,
		}},
		{"priority behind main", with(`"routing":{"priority":32766}`), []string{
			`routing.priority: 32766 is out of range: want "auto" or a number from 0 to 32765`,
		}},
		{"priority below zero", with(`"routing":{"priority":-1}`), []string{
			`routing.priority: -1 is out of range: want "auto" or a number from 0 to 32765`,
		}},
		{"table zero", with(`"routing":{"table":0}`), []string{
			"routing.table: 0 is out of range: want a number from 1 to 4294967295",
		}},
		{"table main", with(`"routing":{"table":254}`), []string{
			"routing.table: 254 is one of the kernel's own tables: want the one that tailscaled fills, 52",
		}},
		{"backend", with(`"firewall":{"backend":"ipfw"}`), []string{
			`firewall.backend: "ipfw" is not known: want one of ["auto" "nftables" "iptables"]`,
		}},
		{"protocol", with(`"overlay":{"protocol":"ipip"}`), []string{
			`overlay.protocol: "ipip" is not known: want one of ["ip-in-ip" "gre" "esp" "udp" "none"]`,
		}},
		{"everything at once", with(`"colour":1,"routing":{"table":"52","mode":"x"}`), []string{
			"colour: unknown key; known here: discover, firewall, local_cidrs, mesh, node, overlay, peers, pod_cidrs, routing, version",
			`routing.table: want a number, got the string "52"`,
			`routing.mode: "x" is not known: want one of ["mark" "rules"]`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := Parse([]byte(tt.doc))
			parsed, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("Parse(%s) = %+v, %v; want an *Error", tt.doc, doc, err)
			}
			var got []string
			for _, p := range parsed.Problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%s) (-want +got):\n%s", tt.doc, diff)
			}
		})
	}
}

func TestParseTakes(t *testing.T) {
	tests := []struct {
		name, doc string
		check     func(Document) bool
	}{
		{"fixed priority", with(`"routing":{"priority":100}`), func(d Document) bool {
			n, ok := d.Routing.Priority.Fixed()
			return ok && n == 100
		}},
		{"priority zero is not auto", with(`"routing":{"priority":0}`), func(d Document) bool {
			n, ok := d.Routing.Priority.Fixed()
			return ok && n == 0
		}},
		{"priority in quotes", with(`"routing":{"priority":"100"}`), func(d Document) bool {
			return d.Routing.Priority == PriorityOf(100)
		}},
		{"other bit", with(`"routing":{"mark":"0x1"}`), func(d Document) bool { return d.Routing.Mark == 1 }},
		{"one default changed keeps the others", with(`"firewall":{"backend":"iptables"}`), func(d Document) bool {
			return d.Firewall == Firewall{Backend: BackendIPTables, SNAT: true}
		}},
		{"snat off", with(`"firewall":{"snat":false}`), func(d Document) bool { return !d.Firewall.SNAT }},
		{
			"host with its length", with(`"peers":[{"name":"b","addresses":["100.64.0.2/32","fd7a:115c:a1e0::2/128"]}]`),
			func(d Document) bool {
				return slices.Equal(d.Peers[0].Addresses, addrs("100.64.0.2", "fd7a:115c:a1e0::2"))
			},
		},
		{"edges of the range", with(`"peers":[{"name":"b","addresses":["100.127.255.255"]}]`), func(Document) bool { return true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := Parse([]byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(doc) {
				t.Errorf("Parse(%s) = %+v", tt.doc, doc)
			}
		})
	}
}

// Whoever follows the tables of the other residents of a node (Tailscale, kube-proxy and so on) must not be let through.
func TestMarksOfOthers(t *testing.T) {
	var free []string
	for bit := range 32 {
		if m := Mark(1) << bit; markOwner(m) == "" {
			free = append(free, m.String())
		}
	}
	want := []string{"0x1", "0x2", "0x4", "0x8", "0x10", "0x80", "0x1000", "0x2000"}
	if diff := cmp.Diff(want, free); diff != "" {
		t.Errorf("free bits (-want +got):\n%s", diff)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	full, err := Parse(reference(t))
	if err != nil {
		t.Fatal(err)
	}
	fixed := full
	fixed.Routing.Priority, fixed.Routing.Mark, fixed.Firewall.SNAT = PriorityOf(0), 1, false
	bare := New()
	bare.Mesh, bare.Node = "m", Node{Name: "a", Addresses: addrs("fd7a:115c:a1e0::1")}
	for name, doc := range map[string]Document{"full": full, "fixed": fixed, "bare": bare} {
		t.Run(name, func(t *testing.T) {
			text, err := doc.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(text)
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if doc.Peers == nil {
				doc.Peers = []Node{}
			}
			if diff := cmp.Diff(doc, again, compareAll()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			readAlike(t, text)
			second, err := again.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, second) {
				t.Errorf("not the same bytes:\n%s\n%s", text, second)
			}
		})
	}
}

// readAlike checks that a document says the same in another layout, which is read in another way.
func readAlike(t *testing.T, text []byte) {
	t.Helper()
	if !json.Valid(text) {
		return // and the end may be where that shows
	}
	one, err := Parse(text)
	other, otherErr := Parse(append(bytes.Clone(text), '\n'))
	if diff := cmp.Diff(fmt.Sprint(err), fmt.Sprint(otherErr)); diff != "" {
		t.Errorf("errors with another end (-one +other):\n%s\nof %q", diff, text)
	}
	if diff := cmp.Diff(one, other, compareAll()); diff != "" {
		t.Errorf("with another end (-one +other):\n%s\nof %q", diff, text)
	}
}

func TestInvalidAsMarshalled(t *testing.T) {
	doc := New()
	doc.Mesh, doc.Node = "m", Node{Name: "a", Addresses: addrs("100.64.0.1")}
	doc.Peers = []Node{{Name: "b", Addresses: addrs("100.64.0.2")}, {Name: "B", Addresses: addrs("100.64.0.2", "192.0.2.1")}}
	text, err := doc.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := marshalled(text); !ok {
		t.Error("is not read as it was marshalled")
	}
	if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), "3 problems") {
		t.Errorf("want three problems, got %v", err)
	}
	readAlike(t, text)
}

// What is wrong with a document is said alike whatever its layout: what stands there, not what was made of it.
func TestInvalidInEachLayout(t *testing.T) {
	doc := New()
	doc.Mesh, doc.Node = "m", Node{Name: "a", Addresses: addrs("100.64.0.1")}
	for name, change := range map[string]func(*Document){
		"no address":       func(d *Document) { d.Node.Addresses = []netip.Addr{{}} },
		"null for a list":  func(d *Document) { d.Node.Addresses, d.Peers = nil, nil },
		"no network":       func(d *Document) { d.PodCIDRs = []netip.Prefix{{}} },
		"an address twice": func(d *Document) { d.Peers = []Node{{Name: "b", Addresses: addrs("100.64.0.1")}} },
		"a null list":      func(d *Document) { d.LocalCIDRs, d.PodCIDRs, d.Discover.Tags = nil, nil, nil },
		"a mode of none":   func(d *Document) { d.Routing.Mode, d.Routing.Mark = "", 0 },
	} {
		t.Run(name, func(t *testing.T) {
			doc := doc
			change(&doc)
			text, err := doc.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := marshalled(text); !ok {
				t.Errorf("is not read as it was marshalled: %s", text)
			}
			readAlike(t, text)
		})
	}
}

// Whatever lies in a document's place, and however large, is refused in few words, and what that allocates grows no faster
// than its size.
func TestNothingLikeADocument(t *testing.T) {
	const size = 1 << 20
	many := func(piece string) string { return strings.TrimSuffix(strings.Repeat(piece, size/len(piece)), ",") }
	rest := func(keys string) string { return strings.Replace(minimal, `"peers":[]`, keys, 1) }
	for name, text := range map[string]string{
		"numbers":             "[" + many("0,") + "]",
		"objects":             "[" + many("{},") + "]",
		"keys that repeat":    "{" + many(`"version":1,`) + "}",
		"keys unknown":        "{" + many(`"a":0,`) + "}",
		"a long key":          `{"` + many("k") + `":1}`,
		"a deep value":        rest(`"peers":[],"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)),
		"deeper":              rest(`"peers":` + many("[")),
		"peers of numbers":    rest(`"peers":[` + many("0,") + "]"),
		"in lines":            rest("\"peers\":[" + many("0,             \n") + "]"),
		"peers of nothing":    rest(`"peers":[` + many("{},") + "]"),
		"lists":               rest(`"peers":[` + many("[],") + "]"),
		"addresses":           rest(`"peers":[{"name":"b","addresses":[` + many(`"::",`) + "]}]"),
		"one address":         rest(`"peers":[{"name":"b","addresses":[` + many(`"100.64.0.2",`) + "]}]"),
		"one network":         rest(`"peers":[],"pod_cidrs":[` + many(`"10.0.0.0/8",`) + "]"),
		"tags":                rest(`"peers":[],"discover":{"tags":[` + many(`"x",`) + "]}"),
		"a long name":         strings.Replace(minimal, `"m"`, `"`+many("m")+`"`, 1),
		"a long number":       strings.Replace(minimal, `1,`, many("9")+`,`, 1),
		"a string for a list": rest(`"peers":"` + many("p") + `"`),
		"a long mark":         rest(`"peers":[],"routing":{"mark":"` + many("1") + `"}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse([]byte(text))
		runtime.ReadMemStats(&after)
		parsed, ok := errors.AsType[*Error](err)
		switch {
		case !ok:
			t.Errorf("%s: %v", name, err)
		case len(parsed.Problems) > 101 || len(err.Error()) > 101*600:
			t.Errorf("%s: %d problems, %d bytes", name, len(parsed.Problems), len(err.Error()))
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 100*size {
			t.Errorf("%s: %d bytes allocated for %d", name, cost, len(text))
		}
	}
}

// The provider and the agent share this package, so it must not bring either's libraries to the other.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if !strings.HasSuffix(path, "/nodeagent/config") {
			t.Errorf("imports %s", path)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(with(`"routing":{"priority":7}`)))
	f.Add([]byte(`{"peers":[{"addresses":["100.64.0.1/32"]},[{}]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		readAlike(t, data)
		doc, err := Parse(data)
		if err != nil {
			if parsed, ok := errors.AsType[*Error](err); !ok || len(parsed.Problems) == 0 {
				t.Fatalf("Parse(%q): %v is not an *Error with problems", data, err)
			}
			return
		}
		if err := doc.Validate(); err != nil {
			t.Fatalf("Parse(%q) gave a document that is not valid: %v", data, err)
		}
		text, err := doc.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err != nil {
			t.Fatalf("Parse(%q), marshaled, is refused: %v", data, err)
		}
	})
}
