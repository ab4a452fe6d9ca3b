package policy

import (
	"strconv"
	"strings"
)

// SplitACLDst splits the dst of an acl, "selector:ports", into the selector as a grant spells it and the ports one by one:
// "*", "22" or "80-443".
func SplitACLDst(text string) (selector string, ports []string, err error) {
	selector, list, err := splitHostPort(text)
	if err != nil {
		return "", nil, err
	}
	if _, err := parsePorts(list); err != nil {
		return "", nil, err
	}
	return selector, strings.Split(list, ","), nil
}

// SplitGrantIP splits an entry of a grant's ip into the protocol, as ProtocolText spells it, and the ports.
func SplitGrantIP(text string) (proto, ports string, err error) {
	pp, err := parseProtoPorts(text)
	if err != nil {
		return "", "", err
	}
	if pp.proto != 0 {
		proto = protoText(pp.proto)
	}
	return proto, text[strings.LastIndexByte(text, ':')+1:], nil
}

// ProtocolText spells a protocol in the one way that has a name where there is one: "6", "TCP" and "tcp" are "tcp", "ipv4"
// is "ip-in-ip", "89" stays. Empty, the default protocols, stays empty.
func ProtocolText(text string) (string, error) {
	n, err := parseProto(text)
	if err != nil || n == 0 {
		return "", err
	}
	return protoText(n), nil
}

// TakesPorts reports whether a rule for a protocol may name ports other than "*"; of the default protocols, empty, it may.
func TakesPorts(proto string) bool {
	n, err := parseProto(proto)
	return err == nil && (n == 0 || hasPorts(n))
}

func protoText(n int) string {
	if name := protoName(n); !strings.Contains(name, " ") {
		return name
	}
	return strconv.Itoa(n)
}
