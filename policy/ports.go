package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The protocols that the engine names.
const (
	protoICMP   = 1
	protoIPIP   = 4
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// protocolNames are the names that the control plane takes beside numbers (tailscale.com/types/ipproto).
func protocolNames() map[string]int {
	return map[string]int{
		"icmp": protoICMP, "icmpv4": protoICMP, "igmp": 2, "ipv4": protoIPIP, "ip-in-ip": protoIPIP, "tcp": protoTCP, "egp": 8,
		"igp": 9, "udp": protoUDP, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": protoICMPv6, "icmpv6": protoICMPv6,
		"tsmp": 99, "sctp": protoSCTP,
	}
}

// parseProto reads a protocol by name or number. An empty text and "0" give 0: the default protocols.
func parseProto(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	lower := strings.ToLower(text)
	if n, ok := protocolNames()[lower]; ok {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return int(n), nil
	}
	return 0, fmt.Errorf("proto name %q not known; use protocol number 0-255", text)
}

// protoName names a protocol as a person would write it.
func protoName(n int) string {
	switch n {
	case 0:
		return "tcp or udp"
	case protoIPIP:
		return "ip-in-ip"
	case protoICMP:
		return "icmp"
	case protoICMPv6:
		return "ipv6-icmp"
	}
	for name, number := range protocolNames() {
		if number == n {
			return name
		}
	}
	return "protocol " + strconv.Itoa(n)
}

// hasPorts reports whether a rule for the protocol may name ports other than "*".
func hasPorts(proto int) bool {
	switch proto {
	case 0, protoTCP, protoUDP, protoSCTP:
		return true
	}
	return false
}

// defaultProtos are what a node reads in a rule without protocols.
func isDefaultProto(proto int) bool {
	switch proto {
	case protoTCP, protoUDP, protoICMP, protoICMPv6:
		return true
	}
	return false
}

func allPorts() PortRange { return PortRange{First: 0, Last: 65535} }

func (r PortRange) isAll() bool { return r == allPorts() }

func (r PortRange) contains(port int) bool { return int(r.First) <= port && port <= int(r.Last) }

// text prints the range as a policy writes it.
func (r PortRange) text() string {
	switch {
	case r.isAll():
		return "*"
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// parsePortRange reads "22" or "80-443". The texts of its errors are the control plane's.
func parsePortRange(text string) (PortRange, error) {
	if strings.Count(text, "-") > 1 {
		return PortRange{}, fmt.Errorf("port range %q: too many dashes(-)", text)
	}
	a, b, isRange := strings.Cut(text, "-")
	first, err := strconv.ParseUint(a, 10, 16)
	if err != nil {
		return PortRange{}, fmt.Errorf("port range %q: invalid first integer", text)
	}
	last := first
	if isRange {
		if last, err = strconv.ParseUint(b, 10, 16); err != nil {
			return PortRange{}, fmt.Errorf("port range %q: invalid last integer", text)
		}
	}
	if first == 0 {
		return PortRange{}, fmt.Errorf("port range %q: first port must be >0, or use '*' for wildcard", text)
	}
	if first > last {
		// The control plane says ">=" here too.
		return PortRange{}, fmt.Errorf("port range %q: first port must be >= last port", text)
	}
	return PortRange{First: uint16(first), Last: uint16(last)}, nil
}

// parsePorts reads the ports of an acl's dst: "*" or a list of ports and ranges.
func parsePorts(text string) ([]PortRange, error) {
	if text == "*" {
		return []PortRange{allPorts()}, nil
	}
	parts := strings.Split(text, ",")
	out := make([]PortRange, 0, len(parts))
	for _, part := range parts {
		if part == "" {
			return nil, fmt.Errorf("invalid port list: %q", text)
		}
		r, err := parsePortRange(part)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// errComma is said of what stands before the ports in an acl's dst and in an entry of a grant's ip.
var errComma = errors.New(`host cannot contain a comma (",")`)

// splitHostPort splits "selector:ports" at the last colon; an IPv6 address may stand in brackets.
func splitHostPort(text string) (host, ports string, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.HasSuffix(text, "]") {
		return "", "", errors.New(`hostport must contain a colon (":")`)
	}
	host, ports = text[:i], text[i+1:]
	if strings.Contains(host, ",") {
		return "", "", errComma
	}
	if strings.HasPrefix(host, "[") {
		host = strings.Replace(host[1:], "]", "", 1)
	}
	return host, ports, nil
}

// protoPorts is an entry of a grant's ip; proto 0 is the default protocols.
type protoPorts struct {
	proto int
	ports PortRange
}

// parseProtoPorts reads an entry of a grant's ip: "*", "443", "80-443", "tcp:443", "icmp:*". A text without a colon is
// a port, also where it looks like a protocol. The order of the checks is that of tailscale.com/tailcfg, for the sake of
// what it says first of an entry with several faults.
func parseProtoPorts(text string) (protoPorts, error) {
	if text == "" {
		return protoPorts{}, errors.New("empty string")
	}
	text = strings.ToLower(text)
	proto, ports := "*", text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		proto, ports = text[:i], text[i+1:]
	}
	if strings.Contains(proto, ",") {
		return protoPorts{}, errComma
	}
	var out protoPorts
	switch ports {
	case "*":
		out.ports = allPorts()
	case "":
		return out, fmt.Errorf("invalid port list: %q", ports)
	default:
		r, err := parsePortRange(ports)
		if err != nil {
			return out, err
		}
		out.ports = r
	}
	if proto == "" {
		return out, errors.New("empty protocol")
	}
	if proto == "*" {
		return out, nil
	}
	n, err := parseProto(proto)
	out.proto = n
	return out, err
}
