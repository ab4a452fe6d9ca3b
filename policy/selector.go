package policy

import (
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// selectorKind says what a selector in src or dst names.
type selectorKind int

const (
	selAny       selectorKind = iota + 1 // *
	selUser                              // alice@example.com
	selDomain                            // user:*@example.com
	selGroup                             // group:eng
	selTag                               // tag:prod
	selAutogroup                         // autogroup:member
	selIPSet                             // ipset:name
	selService                           // svc:name
	selAddr                              // 100.64.0.1
	selCIDR                              // 10.0.0.0/8
	selRange                             // 10.0.0.1-10.0.0.9
	selHost                              // a name from hosts
)

// The autogroups that stand for something else than users of one role.
const (
	agMember    = "autogroup:member"
	agMembers   = "autogroup:members" // legacy spelling of agMember
	agTagged    = "autogroup:tagged"
	agSelf      = "autogroup:self"
	agInternet  = "autogroup:internet"
	agShared    = "autogroup:shared"
	agDangerAll = "autogroup:danger-all"
)

// roleAutogroups are the autogroups that stand for users of a role, with the roles that each includes.
func roleAutogroups(name string) ([]string, bool) {
	switch name {
	case "autogroup:owner":
		return []string{"owner"}, true
	case "autogroup:admin":
		return []string{"owner", "admin"}, true
	case "autogroup:it-admin", "autogroup:network-admin", "autogroup:billing-admin", "autogroup:auditor":
		return []string{strings.TrimPrefix(name, "autogroup:")}, true
	}
	return nil, false
}

// autogroups lists every name that is known, for suggestions.
func autogroups() []string {
	return []string{
		agMember, agTagged, agSelf, agInternet, agShared, agDangerAll, "autogroup:owner", "autogroup:admin",
		"autogroup:it-admin", "autogroup:network-admin", "autogroup:billing-admin", "autogroup:auditor",
	}
}

// selector is the text of one src or dst, told apart by its form alone: nothing is looked up.
type selector struct {
	text  string
	kind  selectorKind
	name  string // the domain of selDomain, else text
	addrs netipx.IPRange
}

func parseSelector(text string) selector {
	s := selector{text: text, name: text}
	switch {
	case text == "*":
		s.kind = selAny
	case strings.HasPrefix(text, "autogroup:"):
		s.kind = selAutogroup
		if text == agMembers {
			s.name = agMember
		}
	case strings.HasPrefix(text, "tag:"):
		s.kind = selTag
	case strings.HasPrefix(text, "group:"):
		s.kind = selGroup
	case strings.HasPrefix(text, "ipset:"):
		s.kind = selIPSet
	case strings.HasPrefix(text, "svc:"):
		s.kind = selService
	case strings.HasPrefix(text, "user:*@"):
		s.kind, s.name = selDomain, strings.TrimPrefix(text, "user:*@")
	case strings.Contains(text, "@"):
		s.kind = selUser
	case HostName(text) != text:
		s.kind, s.name = selHost, HostName(text)
	default:
		s.kind = selHost
		if r, kind, ok := parseAddrs(text); ok {
			s.kind, s.addrs = kind, r
		}
	}
	return s
}

// HostName takes the "host:" away that may stand before the name of a host: Tailscale's documentation writes host:name in
// ipsets and name in rules.
func HostName(text string) string { return strings.TrimPrefix(text, "host:") }

// onlyDst reports whether a selector cannot be a source of a rule, as the documentation of selectors lists it.
func (s selector) onlyDst() bool {
	return s.name == agSelf || s.name == agInternet || s.kind == selService || s.kind == selRange
}

// onlySrc reports whether a selector cannot be a destination of a rule. A range of addresses can be neither.
func (s selector) onlySrc() bool { return s.name == agShared || s.kind == selRange }

// parseAddrs reads an address, a CIDR or a range. Brackets are taken around an IPv6 address; with a port behind them it
// is none.
func parseAddrs(text string) (netipx.IPRange, selectorKind, bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		addr, rest, _ := strings.Cut(inner, "]")
		if rest != "" && rest[0] != '/' {
			return netipx.IPRange{}, 0, false
		}
		text = addr + rest
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netipx.IPRangeFrom(a, a), selAddr, true
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return netipx.RangeOfPrefix(p), selCIDR, true
	}
	if r, err := netipx.ParseIPRange(text); err == nil {
		return r, selRange, true
	}
	return netipx.IPRange{}, 0, false
}

// rangeText prints a range as the control plane does: an address, a CIDR where it is one, else "a-b".
func rangeText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.String()
}
