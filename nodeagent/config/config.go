// Package config is the contract between the provider, which writes one document per node, and the node agent, which
// carries it out: types, strict parse, validation. It is neither the planner nor the agent, and depends on the
// standard library only.
package config

import "net/netip"

// Document is what one node is told.
type Document struct {
	Version    int            `json:"version"`
	Mesh       string         `json:"mesh"`
	Node       Node           `json:"node"`
	PodCIDRs   []netip.Prefix `json:"pod_cidrs,omitempty"`
	Peers      []Node         `json:"peers"`
	Discover   Discover       `json:"discover,omitzero"`
	LocalCIDRs []netip.Prefix `json:"local_cidrs,omitempty"`
	Routing    Routing        `json:"routing,omitzero"`
	Firewall   Firewall       `json:"firewall,omitzero"`
	Overlay    Overlay        `json:"overlay,omitzero"`
}

// Node is a machine of the mesh: this one, or a peer.
type Node struct {
	Name      string       `json:"name"`
	ID        string       `json:"id,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
	Location  string       `json:"location,omitempty"`
}

// Discover adds peers that the document does not list.
type Discover struct {
	Tags []string `json:"tags,omitempty"`
}

// Routing says how packets to peers are taken out of the CNI's hands.
type Routing struct {
	Mode       string `json:"mode"`        // "mark" or "rules"
	Mark       string `json:"mark"`        // "0x2000" (typed by the package's author)
	Priority   string `json:"priority"`    // "auto" or a number (typed by the package's author)
	Table      int    `json:"table"`
	FailClosed bool   `json:"fail_closed"`
}

// Firewall says where and whether sources are translated.
type Firewall struct {
	Backend string `json:"backend"` // "auto", "nftables", "iptables"
	SNAT    bool   `json:"snat"`
}

// Overlay names what carries pod-to-pod packets.
type Overlay struct {
	Protocol string `json:"protocol"`
}
