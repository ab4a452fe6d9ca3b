package policy

import "encoding/json"

// FilterRule is a rule of a device's packet filter, JSON-identical to what the control plane sends. A rule has either
// DstPorts (packets) or CapGrant (capabilities of peers).
type FilterRule struct {
	// SrcIPs are addresses, CIDRs, ranges "a-b" or "*", sorted as text.
	SrcIPs   []string
	DstPorts []NetPortRange `json:",omitempty"`
	// IPProto are the IP protocols; absent, a node reads it as tcp, udp, icmp and icmpv6.
	IPProto  []int      `json:",omitempty"`
	CapGrant []CapGrant `json:",omitempty"`
}

// NetPortRange is a destination: an address, CIDR, range or "*", and ports.
type NetPortRange struct {
	IP    string
	Ports PortRange
}

// PortRange is a range of ports, both ends included; 0-65535 is every port and what a protocol without ports has.
type PortRange struct {
	First, Last uint16
}

// CapGrant gives capabilities on the addresses Dsts of the device that receives the rule.
type CapGrant struct {
	Dsts   []string
	CapMap map[string][]json.RawMessage
}
