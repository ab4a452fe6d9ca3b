package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Fake is a node in memory, with nftables alone. It places rules, looks up routes and refuses impossible changes as Linux
// does.
type Fake struct {
	Links  []desired.Link
	Rules  []desired.Rule
	Routes []FakeRoute
	Tables map[desired.Backend]*desired.Table

	NoIPTables string // why there is no iptables, of which a Fake can only have none

	Flows []FakeFlow

	Err     error // returned by every call, if set
	Applied int   // calls of Apply that changed something
}

// FakeRoute is a route of a [Fake].
type FakeRoute struct {
	Table uint32
	Dst   netip.Prefix
	Dev   string
}

// FakeFlow is a tracked connection of a [Fake]: who began it, who answers, and whom the answers go to.
type FakeFlow struct{ Source, Answers, To netip.Addr }

var _ Interface = (*Fake)(nil)

// NewFake returns a node that has loopback and the kernel's own rules.
func NewFake() *Fake {
	f := &Fake{NoIPTables: "there is no iptables here", Links: []desired.Link{{
		Name: "lo", Up: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")},
	}}}
	for _, family := range desired.Families() {
		f.AddRule(desired.Rule{Family: family, Priority: 0, Action: desired.Lookup, Table: 255, Protocol: syscall.RTPROT_KERNEL})
		f.AddRule(desired.Rule{Family: family, Priority: 32766, Action: desired.Lookup, Table: 254, Protocol: syscall.RTPROT_KERNEL})
	}
	return f
}

// AddRule places a rule behind those of its family with the same priority.
func (f *Fake) AddRule(r desired.Rule) {
	i := slices.IndexFunc(f.Rules, func(other desired.Rule) bool {
		return other.Family > r.Family || other.Family == r.Family && other.Priority > r.Priority
	})
	if i < 0 {
		i = len(f.Rules)
	}
	f.Rules = slices.Insert(f.Rules, i, r)
}

// Facts implements [Interface].
func (f *Fake) Facts(context.Context) (desired.Facts, error) {
	if f.Err != nil {
		return desired.Facts{}, f.Err
	}
	return desired.Facts{
		Links: slices.Clone(f.Links), Rules: slices.Clone(f.Rules), Tables: clone(f.Tables), IPTables: desired.IPTablesNFT, NoIPTables: f.NoIPTables,
	}, nil
}

// Apply implements [Interface].
func (f *Fake) Apply(_ context.Context, c desired.Changes) error {
	if f.Err != nil {
		return f.Err
	}
	if c.Empty() {
		return nil
	}
	f.Applied++
	for _, r := range c.AddRules {
		if !slices.Contains(f.Rules, r) {
			f.AddRule(r)
		}
	}
	tables := clone(f.Tables)
	for _, change := range c.Firewall {
		table := tables[change.Backend]
		if err := applyFake(&table, change); err != nil {
			return fmt.Errorf("%s: %w", change, err)
		}
		if tables[change.Backend] = table; table == nil {
			delete(tables, change.Backend)
		}
	}
	f.Tables = tables
	for _, r := range c.DelRules {
		f.Rules = slices.DeleteFunc(f.Rules, func(other desired.Rule) bool { return other == r })
	}
	return nil
}

func applyFake(table **desired.Table, c desired.FirewallChange) error {
	t := *table
	switch {
	case c.Backend != desired.NFTables:
		return syscall.EOPNOTSUPP
	case c.Op == desired.AddTable:
		if t == nil {
			*table = &desired.Table{}
		}
		return nil
	case t == nil:
		return syscall.ENOENT
	case c.Op == desired.DeleteTable:
		*table = nil
		return nil
	}
	set := slices.IndexFunc(t.Sets, func(s desired.Set) bool { return s.Name == c.Set.Name })
	chain := slices.IndexFunc(t.Chains, func(x desired.Chain) bool { return x.Name == c.Chain.Name })
	switch c.Op {
	case desired.AddSet:
		if set >= 0 {
			return syscall.EEXIST
		}
		t.Sets = append(t.Sets, c.Set)
		return nil
	case desired.AddChain:
		if chain >= 0 {
			return syscall.EEXIST
		}
		t.Chains = append(t.Chains, c.Chain)
		return nil
	case desired.AddElement, desired.DeleteElement, desired.FlushSet:
		if set < 0 {
			return syscall.ENOENT
		}
		return changeElements(&t.Sets[set], c)
	}
	if chain < 0 {
		return syscall.ENOENT
	}
	if c.Op == desired.FlushChain {
		t.Chains[chain].Rules = nil
		return nil
	}
	for _, name := range []string{c.Rule.Src, c.Rule.Dst} {
		if name != "" && t.Set(name).Name == "" {
			return syscall.ENOENT
		}
	}
	t.Chains[chain].Rules = append(t.Chains[chain].Rules, c.Rule)
	return nil
}

func changeElements(s *desired.Set, c desired.FirewallChange) error {
	switch c.Op {
	case desired.FlushSet:
		s.Elements = nil
	case desired.AddElement:
		s.Elements = append(s.Elements, c.Elements...)
		slices.SortFunc(s.Elements, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
		s.Elements = slices.Compact(s.Elements)
	case desired.DeleteElement:
		for _, e := range c.Elements {
			if !slices.Contains(s.Elements, e) {
				return syscall.ENOENT
			}
			s.Elements = slices.DeleteFunc(s.Elements, func(p netip.Prefix) bool { return p == e })
		}
	}
	return nil
}

// Ways implements [Interface].
func (f *Fake) Ways(_ context.Context, packets []desired.Packet) ([]desired.Answer, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	out := make([]desired.Answer, len(packets))
	for i, p := range packets {
		out[i] = f.way(p)
	}
	return out, nil
}

// way finds the way of a packet: the first rule that takes it and whose table has a route decides.
func (f *Fake) way(p desired.Packet) desired.Answer {
	for _, r := range f.Rules {
		switch {
		case !r.Matches(p):
		case r.Action == desired.Unreachable:
			return desired.Answer{Reason: "network is unreachable"}
		case r.Action == desired.Lookup:
			best := -1
			for i, route := range f.Routes {
				if route.Table == r.Table && route.Dst.Contains(p.Dst) && (best < 0 || route.Dst.Bits() > f.Routes[best].Dst.Bits()) {
					best = i
				}
			}
			if best >= 0 {
				return desired.Answer{Dev: f.Routes[best].Dev, Table: r.Table}
			}
		}
	}
	return desired.Answer{Reason: "network is unreachable"}
}

// DropFlows implements [Interface].
func (f *Fake) DropFlows(_ context.Context, stale desired.Flows) (int, error) {
	before := len(f.Flows)
	f.Flows = slices.DeleteFunc(f.Flows, func(flow FakeFlow) bool { return stale.Stale(flow.Source, flow.Answers, flow.To) })
	return before - len(f.Flows), f.Err
}

// Dump returns the rules and the table, as text in the tools' own syntax.
func (f *Fake) Dump() string {
	var b strings.Builder
	for _, r := range f.Rules {
		fmt.Fprintf(&b, "ipv%d %s\n", r.Family, r)
	}
	for _, backend := range desired.Backends() {
		b.WriteString(f.Tables[backend].String())
	}
	return b.String()
}

func clone(tables map[desired.Backend]*desired.Table) map[desired.Backend]*desired.Table {
	all := map[desired.Backend]*desired.Table{}
	for backend, t := range tables {
		out := &desired.Table{Sets: slices.Clone(t.Sets), Chains: slices.Clone(t.Chains)}
		for i := range out.Sets {
			out.Sets[i].Elements = slices.Clone(out.Sets[i].Elements)
		}
		for i := range out.Chains {
			out.Chains[i].Rules = slices.Clone(out.Chains[i].Rules)
		}
		all[backend] = out
	}
	return all
}
