package kernel

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// messageElements is how many elements go into one message, whose attributes have a length of 16 bits.
const messageElements = 1000

func ownTable() *nftables.Table {
	return &nftables.Table{Name: desired.TableName, Family: nftables.TableFamilyINet}
}

// Since this version of Linux, tables of both families can translate addresses.
const (
	inetNATMajor = 5
	inetNATMinor = 2
)

// lacksNFTables says why the kernel cannot have the agent's table, or "".
func lacksNFTables() string {
	conn, err := nftables.New()
	if err == nil {
		_, err = conn.ListTablesOfFamily(nftables.TableFamilyINet)
	}
	if noNFTables(err) {
		return "this kernel has no nf_tables"
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	release := unix.ByteSliceToString(name.Release[:])
	if !atLeast(release, inetNATMajor, inetNATMinor) {
		return fmt.Sprintf("this kernel, Linux %s, is older than %d.%d and cannot translate addresses in nftables' inet tables",
			release, inetNATMajor, inetNATMinor)
	}
	return ""
}

// atLeast says whether a release of Linux is a version or a later one. One that cannot be read is.
func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return true
	}
	return a > major || a == major && b >= minor
}

// noNFTables says whether an error means that the kernel has no nf_tables, or no netfilter at all.
func noNFTables(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// elements are what is in the table's sets, by the number of transactions that nftables had made. Without another one they
// are the same still, as nft itself takes for granted, so that thousands of peers need not be listed in every pass.
type elements struct {
	generation uint32
	sets       map[string][]netip.Prefix
}

// at returns what is known of a generation, to which a read adds what it finds, or nil where nothing is to be remembered.
// The first read of a generation is not: the kernel counts a transaction a moment before all of it is in force.
func (e *elements) at(generation uint32) map[string][]netip.Prefix {
	switch {
	case e == nil || generation == 0:
		return nil
	case e.generation != generation:
		*e = elements{generation: generation}
	case e.sets == nil:
		e.sets = map[string][]netip.Prefix{}
	}
	return e.sets
}

// readTable reads the agent's own table and what its rules have counted. A kernel without nf_tables has none. Elements of
// sets that are known are not read; those that are read are added.
func readTable(known map[string][]netip.Prefix) (*desired.Table, map[string]desired.Counter, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		if noNFTables(err) {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	defer func() { _ = conn.CloseLasting() }() // nothing was written

	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if noNFTables(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == desired.TableName })
	if i < 0 {
		return nil, nil, nil
	}
	table := ownTable()
	out := &desired.Table{}
	if out.Sets, err = readSets(known); err != nil {
		return nil, nil, err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, nil, err
	}
	counters := map[string]desired.Counter{}
	for _, c := range chains {
		if c.Table.Name != desired.TableName {
			continue
		}
		chain := readChain(c)
		if Dormant(tables[i]) {
			chain.Hook = ""
		}
		rules, err := conn.GetRules(table, c)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range rules {
			rule, counter := decompile(r.Exprs)
			rule.Comment, _ = userdata.GetString(r.UserData, userdata.TypeComment)
			chain.Rules = append(chain.Rules, rule)
			counters[rule.Comment] = counter
		}
		out.Chains = append(out.Chains, chain)
	}
	inside, err := countInside()
	if err != nil {
		return nil, nil, err
	}
	// Beside sets and chains that can be flowtables, and objects such as quotas.
	out.Foreign = inside > len(out.Sets)+len(out.Chains)
	return out, counters, nil
}

func readChain(c *nftables.Chain) desired.Chain {
	chain := desired.Chain{Name: c.Name, Type: string(c.Type)}
	if c.Hooknum != nil {
		for name, hook := range hooks() {
			if *hook == *c.Hooknum {
				chain.Hook = name
			}
		}
	}
	if c.Priority != nil {
		chain.Priority = int(*c.Priority)
	}
	chain.Drop = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	return chain
}

// Dormant says whether the kernel sends no packets through the table's chains.
func Dormant(t *nftables.Table) bool {
	const dormant = 1 // NFT_TABLE_F_DORMANT; the library gives the flags in the wrong order on little-endian machines
	return (t.Flags|bits.ReverseBytes32(t.Flags))&dormant != 0
}

func hooks() map[string]*nftables.ChainHook {
	return map[string]*nftables.ChainHook{
		"prerouting":  nftables.ChainHookPrerouting,
		"forward":     nftables.ChainHookForward,
		"postrouting": nftables.ChainHookPostrouting,
	}
}

// roomFor lets a socket send a transaction at once, as it must be: thousands of elements are more than the kernel's default
// lets through.
func roomFor(changes []desired.FirewallChange) nftables.SockOption {
	const element, rest = 64, 1 << 18 // bytes, generously
	size := rest
	for _, c := range changes {
		size += len(c.Elements) * element
	}
	return func(conn *netlink.Conn) error { return conn.SetWriteBuffer(size) }
}

// applyTable makes the changes in one transaction.
func applyTable(changes []desired.FirewallChange) error {
	if len(changes) == 0 {
		return nil
	}
	conn, err := nftables.New(nftables.WithSockOptions(roomFor(changes)))
	if err != nil {
		return err
	}
	table := ownTable()
	sets := map[string]*nftables.Set{}
	set := func(s desired.Set) *nftables.Set {
		if sets[s.Name] == nil {
			sets[s.Name] = &nftables.Set{
				Table: table, Name: s.Name, KeyType: nftables.TypeIPAddr, Interval: s.Interval, Size: uint32(s.Size),
			}
			if s.Family == desired.IPv6 {
				sets[s.Name].KeyType = nftables.TypeIP6Addr
			}
		}
		return sets[s.Name]
	}
	for _, c := range changes {
		chain := &nftables.Chain{Table: table, Name: c.Chain.Name}
		var err error
		switch c.Op {
		case desired.AddTable:
			conn.AddTable(table)
		case desired.DeleteTable:
			conn.DelTable(table)
			clear(sets)
		case desired.AddSet:
			err = conn.AddSet(set(c.Set), nil)
		case desired.FlushSet:
			conn.FlushSet(set(c.Set))
		case desired.AddElement:
			err = inPieces(toElements(c.Set, c.Elements), func(piece []nftables.SetElement) error {
				return conn.SetAddElements(set(c.Set), piece)
			})
		case desired.DeleteElement:
			err = inPieces(toElements(c.Set, c.Elements), func(piece []nftables.SetElement) error {
				return conn.SetDeleteElements(set(c.Set), piece)
			})
		case desired.AddChain:
			priority := nftables.ChainPriority(c.Chain.Priority)
			chain.Type, chain.Hooknum, chain.Priority = nftables.ChainType(c.Chain.Type), hooks()[c.Chain.Hook], &priority
			conn.AddChain(chain)
		case desired.FlushChain:
			conn.FlushChain(chain)
		case desired.AddRule:
			conn.AddRule(&nftables.Rule{
				Table: table, Chain: chain, Exprs: compile(c.Rule),
				UserData: userdata.AppendString(nil, userdata.TypeComment, c.Rule.Comment),
			})
		}
		if err != nil {
			return err
		}
	}
	return conn.Flush()
}

func inPieces(list []nftables.SetElement, send func([]nftables.SetElement) error) error {
	for piece := range slices.Chunk(list, messageElements) {
		if err := send(piece); err != nil {
			return err
		}
	}
	return nil
}

// toElements writes hosts as they are, and networks as the kernel keeps them: merged, each a first address and the one
// behind its last.
func toElements(s desired.Set, list []netip.Prefix) []nftables.SetElement {
	var out []nftables.SetElement
	if !s.Interval {
		for _, p := range list {
			out = append(out, nftables.SetElement{Key: p.Addr().AsSlice()})
		}
		return out
	}
	var b netipx.IPSetBuilder
	for _, p := range list {
		b.AddPrefix(p)
	}
	all, err := b.IPSet()
	if err != nil {
		return nil // only for prefixes that are not valid
	}
	for _, r := range all.Ranges() {
		out = append(out, nftables.SetElement{Key: r.From().AsSlice()})
		if end := r.To().Next(); end.IsValid() {
			out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}
