// Package nodefilter reads admissions as the packet filter of a node does, for whoever counts, compares or draws them.
package nodefilter

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/spans"
)

// IP protocols that the filter treats in a way of their own.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Lane is one protocol of what an admission lets through. ICMP stands for that of both families.
type Lane struct {
	Proto int
	Ports []spans.Span // sorted and joined; nil for a protocol without ports
}

// Lanes lists what an admission lets through, by protocol, pings last. One without ports passes only by a rule that lists it and every
// port, and pings wherever anything does: wgengine/filter of tailscale.com says so. Capabilities let nothing through.
func Lanes(a *policy.Admission) []Lane {
	if len(a.Ports) == 0 {
		return nil
	}
	protos := a.Proto
	if protos == nil {
		protos = []int{TCP, UDP}
	}
	var out []Lane
	for _, p := range slices.Compact(slices.Sorted(slices.Values(protos))) {
		switch p {
		case ICMP, ICMPv6:
		case TCP, UDP, SCTP:
			if s := spans.Of(a.Ports); len(s) > 0 {
				out = append(out, Lane{p, s})
			}
		default:
			if slices.Contains(a.Ports, policy.PortRange{First: 0, Last: 65535}) {
				out = append(out, Lane{Proto: p})
			}
		}
	}
	return append(out, Lane{Proto: ICMP})
}

// Ranges reads an address, CIDR, range or "*" as filters spell them. What is none of these is no range.
func Ranges(text string) []netipx.IPRange {
	if text == "*" {
		return []netipx.IPRange{
			netipx.RangeOfPrefix(netip.MustParsePrefix("0.0.0.0/0")), netipx.RangeOfPrefix(netip.MustParsePrefix("::/0")),
		}
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return []netipx.IPRange{netipx.IPRangeFrom(a, a)}
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return []netipx.IPRange{netipx.RangeOfPrefix(p)}
	}
	if r, err := netipx.ParseIPRange(text); err == nil {
		return []netipx.IPRange{r}
	}
	return nil
}

// Set is the union of texts that Ranges reads.
func Set(texts ...string) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, t := range texts {
		for _, r := range Ranges(t) {
			b.AddRange(r)
		}
	}
	out, err := b.IPSet()
	if err != nil { // a range that is none, and Ranges gives none such
		return &netipx.IPSet{}
	}
	return out
}
