//go:build linux

package doctor

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
)

// maxElements is how many elements of a set are looked at. Larger sets are taken to be unreadable.
const maxElements = 100_000

// readRuleset reads the tables of the families ip, ip6 and inet. A kernel without nf_tables has none.
func readRuleset(uint32) (*Ruleset, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return &Ruleset{}, nil
		}
		return nil, err
	}
	defer func() { _ = conn.CloseLasting() }() // nothing was written
	tables, err := conn.ListTables()
	if err != nil {
		return nil, err
	}
	out := &Ruleset{}
	count := 0
	chains := map[nftables.TableFamily][]*nftables.Chain{}
	for _, t := range tables {
		family := familyName(t.Family)
		if family == "" || kernel.Dormant(t) {
			continue
		}
		sets, err := conn.GetSets(t)
		if err != nil {
			return nil, fmt.Errorf("sets of table %s %s: %w", family, t.Name, err)
		}
		for _, s := range sets {
			out.Sets = append(out.Sets, readSet(conn, family, s))
		}
		if _, ok := chains[t.Family]; !ok {
			if chains[t.Family], err = conn.ListChainsOfTableFamily(t.Family); err != nil {
				return nil, fmt.Errorf("chains of family %s: %w", family, err)
			}
		}
		for _, c := range chains[t.Family] {
			if c.Table.Name != t.Name {
				continue
			}
			chain := readChain(family, c)
			rules, err := conn.GetRules(t, c)
			if err != nil {
				return nil, fmt.Errorf("rules of %s %s %s: %w", family, t.Name, c.Name, err)
			}
			for _, r := range rules {
				rule := &Rule{Chain: chain, Handle: r.Handle, Exprs: r.Exprs}
				rule.Comment, _ = userdata.GetString(r.UserData, userdata.TypeComment)
				chain.Rules = append(chain.Rules, rule)
			}
			out.Chains = append(out.Chains, chain)
			count += len(rules)
		}
	}
	// What is found of thousands of packets takes megabytes, of which the service has few: few rules are followed anew.
	const many = 500
	if count >= many {
		out.outcomes = map[at]Outcome{}
	}
	return out, markOpaque(out)
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	case nftables.TableFamilyINet:
		return "inet"
	}
	return ""
}

func readSet(conn *nftables.Conn, family string, s *nftables.Set) *Set {
	set := &Set{Family: family, Table: s.Table.Name, Name: s.Name, Interval: s.Interval, Length: int(s.KeyType.Bytes)}
	elements, err := conn.GetSetElements(s)
	if err != nil || len(elements) > maxElements || s.Concatenation && s.Interval || set.Length == 0 {
		set.Opaque = true
		return set
	}
	for _, e := range elements {
		if len(e.KeyEnd) > 0 {
			set.Opaque = true
		}
		set.Elements = append(set.Elements, Element{Key: e.Key, End: e.IntervalEnd, Value: e.Val, Verdict: e.VerdictData})
	}
	return set
}

func readChain(family string, c *nftables.Chain) *Chain {
	chain := &Chain{Family: family, Table: c.Table.Name, Name: c.Name, Type: string(c.Type)}
	if c.Hooknum != nil {
		switch *c.Hooknum {
		case *nftables.ChainHookPrerouting:
			chain.Hook = Prerouting
		case *nftables.ChainHookInput:
			chain.Hook = Input
		case *nftables.ChainHookForward:
			chain.Hook = Forward
		case *nftables.ChainHookOutput:
			chain.Hook = Output
		case *nftables.ChainHookPostrouting:
			chain.Hook = Postrouting
		}
	}
	if c.Priority != nil {
		chain.Priority = int(*c.Priority)
	}
	chain.Drop = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	return chain
}

// markOpaque finds the rules of which the library left out an expression that it does not know.
func markOpaque(s *Ruleset) error {
	type key struct {
		family, table, chain string
		handle               uint64
	}
	count := map[key]int{}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, m := range messages {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		family := familyName(nftables.TableFamily(m[0]))
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		k, n := key{family: family}, 0
		for _, a := range attrs {
			switch a.Attr.Type &^ unix.NLA_F_NESTED {
			case unix.NFTA_RULE_TABLE:
				k.table = cString(a.Value)
			case unix.NFTA_RULE_CHAIN:
				k.chain = cString(a.Value)
			case unix.NFTA_RULE_HANDLE:
				for _, b := range a.Value {
					k.handle = k.handle<<8 | uint64(b)
				}
			case unix.NFTA_RULE_EXPRESSIONS:
				list, err := nl.ParseRouteAttr(a.Value)
				if err != nil {
					return fmt.Errorf("list rules: %w", err)
				}
				n = len(list)
			}
		}
		count[k] = n
	}
	for _, c := range s.Chains {
		for _, r := range c.Rules {
			if n, ok := count[key{c.Family, c.Table, c.Name, r.Handle}]; ok && n != len(r.Exprs) {
				r.Opaque = true
			}
		}
	}
	return nil
}
