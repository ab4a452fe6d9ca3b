package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Mesh is what the documents of a mesh's nodes tell.
type Mesh struct {
	Names []string // of the meshes, sorted; more than one where documents of several are given
	Nodes []Node   // sorted by name
}

// Node is a node of a mesh.
type Node struct {
	Name      string
	Addresses []netip.Addr
	Location  string   // empty where the documents do not tell
	Protocol  string   // that its overlay uses, as a policy names it, or "none"
	Peers     []string // names of the nodes that it reaches through the mesh
}

// document is the part of a node's document that the page needs.
type document struct {
	Mesh    string         `json:"mesh"`
	Node    *documentNode  `json:"node"`
	Peers   []documentNode `json:"peers"`
	Overlay struct {
		Protocol string `json:"protocol"`
	} `json:"overlay"`
}

type documentNode struct {
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses"`
	Location  string       `json:"location"`
}

// ParseMesh reads the documents of a mesh's nodes by node name, each an object or its text, as `tofu output -json
// node_configs` prints them; or an object that has these under "node_configs". Peers that have no document are nodes too.
func ParseMesh(src []byte) (*Mesh, error) {
	var byName map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(src))
	if err := dec.Decode(&byName); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	if inner, ok := byName["node_configs"]; ok {
		byName = nil
		if err := json.Unmarshal(inner, &byName); err != nil {
			return nil, fmt.Errorf("node_configs: %w", err)
		}
	}
	if len(byName) == 0 {
		return nil, errors.New(`no documents: want an object with the document of each node by its name`)
	}
	out := &Mesh{}
	nodes := map[string]*Node{}
	type peer struct {
		documentNode
		protocol string
	}
	peers := map[string]peer{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		d, err := parseDocument(byName[name])
		if err != nil {
			return nil, fmt.Errorf("document of %q: %w", name, err)
		}
		if nodes[d.Node.Name] != nil {
			return nil, fmt.Errorf("document of %q: %q has another document already", name, d.Node.Name)
		}
		if d.Mesh != "" && !slices.Contains(out.Names, d.Mesh) {
			out.Names = append(out.Names, d.Mesh)
		}
		n := &Node{
			Name: d.Node.Name, Addresses: d.Node.Addresses, Location: d.Node.Location,
			Protocol: strings.ToLower(cmp.Or(d.Overlay.Protocol, "ip-in-ip")),
		}
		for _, p := range d.Peers {
			n.Peers = append(n.Peers, p.Name)
			peers[p.Name] = peer{p, n.Protocol}
		}
		nodes[n.Name] = n
	}
	for name, p := range peers {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name, Addresses: p.Addresses, Location: p.Location, Protocol: p.protocol}
		}
	}
	slices.Sort(out.Names)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		out.Nodes = append(out.Nodes, *nodes[name])
	}
	return out, nil
}

func parseDocument(raw json.RawMessage) (*document, error) {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		raw = json.RawMessage(text)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, fmt.Errorf("%s: %s does not belong there", cmp.Or(wrong.Field, "the whole"), wrong.Value)
		}
		return nil, err
	}
	if d.Node == nil || d.Node.Name == "" {
		return nil, errors.New(`no "node" with a "name": this is no document of a node`)
	}
	for i, p := range d.Peers {
		if p.Name == "" {
			return nil, fmt.Errorf("peers[%d]: no name", i)
		}
	}
	return &d, nil
}
