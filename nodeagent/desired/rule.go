package desired

import (
	"fmt"
	"net/netip"
	"strings"
)

// Actions of a [Rule].
const (
	Lookup      = "lookup"
	Goto        = "goto"
	Nop         = "nop"
	Blackhole   = "blackhole"
	Unreachable = "unreachable"
	Prohibit    = "prohibit"
)

// Rule is a policy rule of the kernel, of the agent or of anybody else.
type Rule struct {
	Family   Family
	Priority uint32
	Invert   bool         // the rule applies to what its selectors do not match
	Src, Dst netip.Prefix // zero: all
	Iif, Oif string
	Mark     uint32
	Mask     uint32 // zero: the mark is not looked at
	Action   string
	Table    uint32 // of Lookup
	Target   uint32 // of Goto: a priority
	Protocol uint8  // who added it; RouteProtocol is the agent
	Other    string // selectors and options that only matter for printing, in ip-rule's syntax
}

// Own says whether the agent added the rule.
func (r Rule) Own() bool { return r.Protocol == RouteProtocol }

// String returns the rule as `ip rule` lists it.
func (r Rule) String() string {
	return fmt.Sprintf("%d: %s", r.Priority, r.text("from all", "proto"))
}

// Command returns the command that adds or deletes (the verb) the rule.
func (r Rule) Command(verb string) string {
	return fmt.Sprintf("%s rule %s pref %d %s", r.tool(), verb, r.Priority, r.text("", "protocol"))
}

func (r Rule) tool() string {
	if r.Family == IPv6 {
		return "ip -6"
	}
	return "ip"
}

func (r Rule) text(all, protocol string) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if r.Invert {
		add("not")
	}
	switch {
	case r.Src.IsValid():
		add("from %s", host(r.Src))
	case all != "":
		add("%s", all)
	}
	if r.Dst.IsValid() {
		add("to %s", host(r.Dst))
	}
	switch r.Mask {
	case 0:
	case ^uint32(0):
		add("fwmark %#x", r.Mark)
	default:
		add("fwmark %s/%#x", strings.Replace(fmt.Sprintf("%#x", r.Mark), "0x0", "0", 1), r.Mask)
	}
	if r.Iif != "" {
		add("iif %s", r.Iif)
	}
	if r.Oif != "" {
		add("oif %s", r.Oif)
	}
	if r.Other != "" {
		add("%s", r.Other)
	}
	switch r.Action {
	case Lookup:
		add("lookup %s", tableName(r.Table))
	case Goto:
		add("goto %d", r.Target)
	default:
		add("%s", r.Action)
	}
	if r.Protocol == RouteProtocol || (protocol == "protocol" && r.Protocol != 0) {
		add("%s %d", protocol, r.Protocol)
	}
	return strings.Join(words, " ")
}

// host writes a prefix as the ip tool does: a single host without its length.
func host(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func tableName(t uint32) string {
	switch t {
	case 253:
		return "default"
	case 254:
		return "main"
	case 255:
		return "local"
	}
	return fmt.Sprint(t)
}

// Packet is a packet on its way through the node, as far as policy rules look at it.
type Packet struct {
	Src, Dst netip.Addr
	Iif      string
	Mark     uint32
}

// Matches says whether the rule's selectors take the packet. Selectors in Other are taken to match.
func (r Rule) Matches(p Packet) bool {
	if r.Family != FamilyOf(p.Dst) {
		return false
	}
	ok := (!r.Src.IsValid() || r.Src.Contains(p.Src)) &&
		(!r.Dst.IsValid() || r.Dst.Contains(p.Dst)) &&
		(r.Iif == "" || r.Iif == p.Iif) &&
		r.Oif == "" && // a forwarded packet has no device to leave by yet
		p.Mark&r.Mask == r.Mark
	return ok != r.Invert
}

// Shadow returns the first of the rules, which are in the kernel's order, that somebody else placed before the agent's
// place at the priority, that takes the packet and that looks into the table. This is the rule that captures a packet
// where the kernel's answer for it, asked so that no rule of the agent's takes it, names the table.
func Shadow(rules []Rule, p Packet, priority, table uint32) (Rule, bool) {
	for _, r := range rules {
		if r.Family != FamilyOf(p.Dst) {
			continue
		}
		own := p // the packet as the agent's rule sees it
		own.Mark |= r.Mask
		if r.Priority > priority || r.Own() && r.Priority == priority && r.Matches(own) {
			break
		}
		if !r.Own() && r.Matches(p) && r.Action == Lookup && r.Table == table {
			return r, true
		}
	}
	return Rule{}, false
}
