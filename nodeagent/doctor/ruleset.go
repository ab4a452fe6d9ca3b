package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Hook is a place in the kernel where chains of the firewall are called.
type Hook string

// The hooks that a forwarded packet meets, and those of packets to the node itself and from it.
const (
	Prerouting  Hook = "prerouting"
	Forward     Hook = "forward"
	Input       Hook = "input"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Ruleset is every table of nftables, those included that iptables-nft manages. Legacy iptables is not part of it.
type Ruleset struct {
	Chains []*Chain
	Sets   []*Set

	// Back says by which interface the kernel would send a packet, "" for none, and whether that is known. Filters of
	// the firewall's own that look at the way back ask it.
	Back func(desired.Packet) (dev string, known bool)

	// outcomes remembers what [Ruleset.Filter] has found, where there are many rules; nil: it does not. A judgement
	// is made several times, and a node may have a rule for each of a thousand peers.
	outcomes map[at]Outcome
}

// Chain is a list of rules of a table.
type Chain struct {
	Family string // "ip", "ip6", "inet"; chains of other families are not kept
	Table  string
	Name   string
	// Type, Hook, Priority and Drop are those of a base chain; Hook is "" for the others.
	Type     string
	Hook     Hook
	Priority int
	Drop     bool // what happens to a packet that no rule decides on
	Rules    []*Rule
}

// Rule is a rule of a chain, as the kernel runs it.
type Rule struct {
	Chain   *Chain
	Handle  uint64
	Exprs   []expr.Any
	Comment string
	// Opaque says that the rule has a part that this program cannot read, so that it may or may not take a packet.
	Opaque bool
}

// Set is a named or an unnamed set, or a map, of a table.
type Set struct {
	Family, Table, Name string
	Interval            bool
	Length              int // of a key, in bytes
	Elements            []Element
	Opaque              bool // its elements cannot be compared with here

	index map[string]int // of Elements by key, made when it is first needed
}

// Element is an element of a set or a map. In a set of intervals, one begins an interval or (End) ends it.
type Element struct {
	Key     []byte
	End     bool
	Value   []byte
	Verdict *expr.Verdict
}

// Counter returns what the rule has counted, and whether it counts.
func (r *Rule) Counter() (packets uint64, ok bool) {
	for _, e := range r.Exprs {
		if c, is := e.(*expr.Counter); is {
			return c.Packets, true
		}
	}
	return 0, false
}

// String names the rule with its table and chain.
func (r *Rule) String() string {
	return fmt.Sprintf("%s %s %s: %s", r.Chain.Family, r.Chain.Table, r.Chain.Name, r.text())
}

func (s *Ruleset) chain(family, table, name string) *Chain {
	i := slices.IndexFunc(s.Chains, func(c *Chain) bool { return c.Family == family && c.Table == table && c.Name == name })
	if i < 0 {
		return nil
	}
	return s.Chains[i]
}

func (s *Ruleset) set(c *Chain, name string) *Set {
	i := slices.IndexFunc(s.Sets, func(x *Set) bool { return x.Family == c.Family && x.Table == c.Table && x.Name == name })
	if i < 0 {
		return nil
	}
	return s.Sets[i]
}

// base returns the base chains that packets of the family meet at the hook, in the order of their priority.
func (s *Ruleset) base(f desired.Family, hook Hook, types ...string) []*Chain {
	family := "ip"
	if f == desired.IPv6 {
		family = "ip6"
	}
	var out []*Chain
	for _, c := range s.Chains {
		if c.Hook == hook && (c.Family == family || c.Family == "inet") && slices.Contains(types, c.Type) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	return out
}

// find returns the element that has the key.
func (s *Set) find(key []byte) (Element, bool) {
	if !s.Interval {
		if s.index == nil {
			s.index = make(map[string]int, len(s.Elements))
			for i, e := range s.Elements {
				s.index[string(e.Key)] = i
			}
		}
		i, ok := s.index[string(key)]
		if !ok {
			return Element{}, false
		}
		return s.Elements[i], true
	}
	// The last border at or below the key decides. Where an interval ends another may begin: that one holds.
	best := -1
	for i, e := range s.Elements {
		if bytes.Compare(e.Key, key) > 0 {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		switch bytes.Compare(e.Key, s.Elements[best].Key) {
		case 1:
			best = i
		case 0:
			if !e.End {
				best = i
			}
		}
	}
	if best < 0 || s.Elements[best].End {
		return Element{}, false
	}
	return s.Elements[best], true
}
