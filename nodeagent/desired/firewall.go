package desired

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Table is the agent's own firewall table, of both families (nftables calls that inet).
type Table struct {
	Sets    []Set
	Chains  []Chain
	Foreign bool // of nftables: there is more in the table in the kernel than sets and chains
}

// Set is a named set of networks that rules look up.
type Set struct {
	Name     string
	Family   Family
	Interval bool           // false: elements are single hosts, and the lookup is one hash
	Elements []netip.Prefix // sorted and disjoint
	Size     int            // of single hosts in nftables: how many have room; the kernel then looks them up faster
	Foreign  bool           // the set in the kernel is of a kind that the agent does not make, or has such elements
}

// Chain is a list of rules at one of the kernel's hooks.
type Chain struct {
	Name     string
	Type     string // "filter" or "nat"; of iptables, the table: "mangle", "filter" or "nat"
	Hook     string // "prerouting", "forward" or "postrouting"; "": none, as in a dormant table; of iptables, the chain that jumps to this one
	Priority int    // not of iptables, where the table decides
	Drop     bool   // the policy, which the agent's chains have not
	Rules    []FirewallRule

	Family Family // of iptables; nftables has both families in one chain
	Jumps  []int  // of iptables: the places of the agent's jumps to this chain in Hook, the first being 1
	// Strays, of iptables, are rules of Hook with the comment of the agent's jumps that lead to this chain in a way that the
	// agent's do not: as the tool lists them, without the chain.
	Strays []string
}

// Verdicts of a [FirewallRule].
const (
	SetMark = "mark"   // set the bit in the packet's mark; in nftables no further rule of the chain is looked at
	SNAT    = "snat"   // translate the source
	Return  = "return" // leave the packet to others
	Reject  = "reject" // refuse the packet and tell its sender
)

// FirewallRule is a rule of a chain: conditions that must all hold, and a verdict. Every rule counts what it takes.
type FirewallRule struct {
	Family    Family
	In        string // interface by which the packet came
	Out       string // interface by which it leaves
	NotOut    string
	Src, Dst  string // names of sets, or networks
	Direction string // Original or Reply; "" is not looked at
	Marked    uint32 // a bit of the mark that must be set; 0 is not looked at
	Verdict   string
	Bit       uint32     // of SetMark
	To        netip.Addr // of SNAT
	Comment   string
	Foreign   bool // the rule in the kernel says something that the agent does not
}

// String returns the rule in nftables' syntax.
func (r FirewallRule) String() string {
	if r.Foreign {
		return "(a rule that is not the agent's)"
	}
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	// Packets of the other family, and those between pods, which are most, are done with soonest: the family comes first, and
	// the destination before the source.
	add("meta nfproto ipv%d", r.Family)
	for _, c := range []struct{ key, value string }{
		{"iifname", r.In}, {"oifname", r.Out}, {"oifname !=", r.NotOut},
	} {
		if c.value != "" {
			add("%s %q", c.key, c.value)
		}
	}
	if r.Dst != "" {
		add("%s daddr %s", r.Family.ip(), within(r.Dst))
	}
	if r.Src != "" {
		add("%s saddr %s", r.Family.ip(), within(r.Src))
	}
	if r.Direction != "" {
		add("ct direction %s", r.Direction)
	}
	if r.Marked != 0 {
		add("meta mark & %#x != 0", r.Marked)
	}
	add("counter")
	switch r.Verdict {
	case SetMark:
		add("meta mark set meta mark | %#x accept", r.Bit)
	case SNAT:
		add("snat %s to %s", r.Family.ip(), r.To)
	case Reject:
		add("reject with icmpx admin-prohibited")
	default:
		add("%s", r.Verdict)
	}
	add("comment %q", r.Comment)
	return strings.Join(words, " ")
}

// within returns a set, or a network, as the right side of a comparison. A network is written with its mask, from which
// nft makes what the kernel compares fastest.
func within(name string) string {
	p, err := netip.ParsePrefix(name)
	switch {
	case err != nil:
		return "@" + name
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return fmt.Sprintf("& %s == %s", Mask(p), p.Addr())
}

// Mask returns the mask of a network, as an address: 255.255.255.0 of one with 24 bits of IPv4.
func Mask(p netip.Prefix) netip.Addr {
	ones := slices.Repeat([]byte{0xff}, p.Addr().BitLen()/8)
	all, _ := netip.AddrFromSlice(ones)
	return netip.PrefixFrom(all, p.Bits()).Masked().Addr()
}

// String returns the table as `nft list table` would, as far as the agent cares.
func (t *Table) String() string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", TableName)
	for _, s := range t.Sets {
		fmt.Fprintf(&b, "\tset %s { %s", s.Name, s.spec())
		if len(s.Elements) > 0 {
			fmt.Fprintf(&b, " elements = { %s }", elements(s.Elements))
		}
		b.WriteString(" }\n")
	}
	for _, c := range t.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n\t\t%s\n", c.Name, c.spec())
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (s Set) spec() string {
	spec := fmt.Sprintf("type ipv%d_addr;", s.Family)
	if s.Interval {
		spec += " flags interval;"
	}
	if s.Size > 0 {
		spec += fmt.Sprintf(" size %d;", s.Size)
	}
	if s.Foreign {
		spec += " (a set that is not the agent's)"
	}
	return spec
}

// room returns the size of a set of hosts: so much more than it has that peers come and go without another set, in which
// case all of the table is made anew.
func room(hosts int) int {
	const least = 12 // bits
	return 1 << max(least, bits.Len(uint(2*hosts)))
}

func (c Chain) spec() string {
	policy := "accept"
	if c.Drop {
		policy = "drop"
	}
	if c.Hook == "" {
		return ""
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy %s;", c.Type, c.Hook, c.Priority, policy)
}

func elements(list []netip.Prefix) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = host(p)
	}
	return strings.Join(words, ", ")
}

// Set returns the set of a name, which may be a network, or an empty one.
func (t *Table) Set(name string) Set {
	if p, err := netip.ParsePrefix(name); err == nil {
		return Set{Name: name, Family: FamilyOf(p.Addr()), Interval: true, Elements: []netip.Prefix{p}}
	}
	if t != nil {
		if i := slices.IndexFunc(t.Sets, func(s Set) bool { return s.Name == name }); i >= 0 {
			return t.Sets[i]
		}
	}
	return Set{}
}

func (t *Table) chain(name string) Chain {
	if i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name }); i >= 0 {
		return t.Chains[i]
	}
	return Chain{}
}

// Contains says whether the address is in the set.
func (s Set) Contains(a netip.Addr) bool {
	// The elements are sorted and disjoint: only the last that begins at or before the address can contain it.
	i, found := slices.BinarySearchFunc(s.Elements, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && s.Elements[i-1].Contains(a)
}

// Directions of a packet within its connection.
const (
	Original = "original"
	Reply    = "reply"
)

// MarkOf returns the bit that the table sets on a packet of a connection's direction, or 0: what is in force, which is
// not always what is wanted.
func (t *Table) MarkOf(p Packet, direction string) uint32 {
	if t == nil {
		return 0
	}
	for _, c := range t.Chains {
		if c.Hook == "" || c.Family != 0 && len(c.Jumps) == 0 {
			continue
		}
		for _, r := range c.Rules {
			if r.Verdict == SetMark && r.Family == FamilyOf(p.Dst) && r.Direction == direction &&
				(r.In == "" || r.In == p.Iif) &&
				t.Set(r.Src).Contains(p.Src) && t.Set(r.Dst).Contains(p.Dst) {
				return r.Bit
			}
		}
	}
	return 0
}

// KeepsSource says whether the state translates sources, and a packet of a pod to a peer is excepted from that, as traffic
// within this location.
func (s State) KeepsSource(p Packet) bool {
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if (r.Verdict == Return || r.Verdict == SNAT) && r.Family == FamilyOf(p.Dst) && t.Set(r.Src).Contains(p.Src) && t.Set(r.Dst).Contains(p.Dst) {
					return r.Verdict == Return
				}
			}
		}
	}
	return false
}
