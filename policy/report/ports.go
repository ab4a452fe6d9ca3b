package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// The protocols that have a lane of their own. Every other protocol's lane is its number.
const (
	laneICMP = nodefilter.ICMP
	laneIPIP = 4
	laneTCP  = nodefilter.TCP
	laneUDP  = nodefilter.UDP
)

// span is a range of ports, both included.
type span = spans.Span

func everyPort(s []span) bool {
	return len(s) == 0 || len(s) == 1 && s[0] == span{First: 1, Last: 65535}
}

// holdsPort reports whether a port is in one of the spans.
func holdsPort(s []span, port int) bool {
	return slices.ContainsFunc(s, func(x span) bool { return x.First <= port && port <= x.Last })
}

// laneOrder sorts lanes as they are shown.
func laneOrder(lane int) int {
	if i := slices.Index([]int{laneTCP, laneUDP, laneICMP, laneIPIP}, lane); i >= 0 {
		return i
	}
	return 10 + lane
}

func laneName(lane int) string { return policy.ProtocolName(lane) }

// portsText prints ports as a policy would, the first few of them where they are many; every port is "".
func portsText(s []span, most int) string {
	if everyPort(s) {
		return ""
	}
	texts := make([]string, len(s))
	for i, p := range s {
		texts[i] = fmt.Sprint(p.First)
		if p.First < p.Last {
			texts[i] = fmt.Sprintf("%d-%d", p.First, p.Last)
		}
	}
	if len(texts) > most {
		return strings.Join(texts[:most], ", ") + fmt.Sprintf(" +%d", len(texts)-most)
	}
	return strings.Join(texts, ", ")
}

// shortPorts prints as many ports as a cell has room for on one line.
func shortPorts(s []span) string {
	const room = 11
	for most := 3; most > 1; most-- {
		if text := portsText(s, most); len(text) <= room {
			return text
		}
	}
	return portsText(s, 1)
}
