package desired

import (
	"fmt"
	"net/netip"
	"slices"
)

// Changes lead from what the node has to what it must have, without a moment in which a packet is worse off than before
// or after: rules are added first, then the firewall changes, then old rules go.
type Changes struct {
	AddRules []Rule
	Firewall []FirewallChange
	DelRules []Rule
}

// Operations of a [FirewallChange].
const (
	AddTable      = "add table"
	DeleteTable   = "delete table"
	AddSet        = "add set"
	AddElement    = "add element"
	DeleteElement = "delete element"
	FlushSet      = "flush set"
	AddChain      = "add chain"
	FlushChain    = "flush chain"
	AddRule       = "add rule"
)

// FirewallChange is one step of the firewall's changes. The operations above are nftables', whose steps are one
// transaction; those of iptables stand beside its diff.
type FirewallChange struct {
	Backend  Backend
	Op       string
	Set      Set            // of an operation on a set, without elements
	Elements []netip.Prefix // of AddElement, DeleteElement, ReplaceElements
	Chain    Chain          // of an operation on a chain or a rule, without rules
	Rule     FirewallRule   // of AddRule, InsertRule
	Position int            // of InsertRule, DeleteRule; the first rule of a chain is 1
	Stray    string         // of DeleteStray
	Leftover bool           // it only takes away what is not wanted any more: whether it can be made, nothing else depends on
}

// String returns the step as a command of the backend's tool, quoted for a shell.
func (c FirewallChange) String() string {
	if c.Backend != NFTables {
		return c.iptables()
	}
	head := "nft " + c.Op + " inet " + TableName
	switch c.Op {
	case AddSet:
		return fmt.Sprintf("%s %s '{ %s }'", head, c.Set.Name, c.Set.spec())
	case AddElement, DeleteElement:
		return fmt.Sprintf("%s %s '{ %s }'", head, c.Set.Name, elements(c.Elements))
	case FlushSet:
		return head + " " + c.Set.Name
	case AddChain:
		return fmt.Sprintf("%s %s '{ %s }'", head, c.Chain.Name, c.Chain.spec())
	case FlushChain:
		return head + " " + c.Chain.Name
	case AddRule:
		return fmt.Sprintf("%s %s '%s'", head, c.Chain.Name, c.Rule)
	}
	return head
}

// Empty says whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.AddRules)+len(c.Firewall)+len(c.DelRules) == 0 }

// Apart divides the changes into those that the node needs, and those that only take away what it does not need any more.
func (c Changes) Apart() (needed Changes, leftover []FirewallChange) {
	needed = c
	needed.Firewall = nil
	for _, f := range c.Firewall {
		if f.Leftover {
			leftover = append(leftover, f)
		} else {
			needed.Firewall = append(needed.Firewall, f)
		}
	}
	return needed, leftover
}

// Lines returns each change as a command of a tool, in the order in which they are made.
func (c Changes) Lines() []string {
	var lines []string
	for _, r := range c.AddRules {
		lines = append(lines, r.Command("add"))
	}
	for _, f := range c.Firewall {
		lines = append(lines, f.String())
	}
	for _, r := range c.DelRules {
		lines = append(lines, r.Command("del"))
	}
	return lines
}

// Diff returns the changes that give the node what it must have. The zero State takes everything of the agent's away.
func Diff(have Facts, want State) Changes {
	own := have.OwnRules()
	return Changes{
		AddRules: without(want.Rules, own),
		Firewall: diffTables(have.Tables, want.Tables),
		DelRules: append(without(own, want.Rules), twins(have.Rules, want.Rules)...),
	}
}

const localTable = 255

// twins returns the rules of the agent's that stand there once more than they are wanted, as after `ip rule restore`. The
// kernel deletes the first of them: where somebody's rule of the same priority stands in between, that one would come first
// then, and the twin, which does no harm, stays.
func twins(rules, want []Rule) (out []Rule) {
	wanted := make(map[Rule]bool, len(want))
	for _, r := range want {
		wanted[r] = true
	}
	type place struct {
		family   Family
		priority uint32
	}
	seen := map[Rule]int{} // how many of somebody's stood at its place then
	others := map[place]int{}
	for _, r := range rules {
		at := place{r.Family, r.Priority}
		switch {
		case r.Action == Lookup && r.Table == localTable: // it takes no packet that is to leave
			continue
		case !r.Own():
			others[at]++
			continue
		}
		before, twin := seen[r]
		if twin && wanted[r] && before == others[at] {
			out = append(out, r)
		}
		seen[r] = others[at]
	}
	return out
}

func diffTable(have, want *Table) []FirewallChange {
	switch {
	case have == nil && want == nil:
		return nil
	case want == nil:
		return []FirewallChange{{Op: DeleteTable}}
	case have == nil:
		return create(want)
	case !sameShape(have, want):
		return append([]FirewallChange{{Op: DeleteTable}}, create(want)...)
	}
	var changes []FirewallChange
	for _, s := range want.Sets {
		changes = append(changes, diffSet(have.Set(s.Name), s)...)
	}
	for _, c := range want.Chains {
		if !slices.Equal(have.chain(c.Name).Rules, c.Rules) {
			changes = append(changes, FirewallChange{Op: FlushChain, Chain: c.bare()})
			changes = append(changes, addRules(c)...)
		}
	}
	return changes
}

// sameShape says whether the tables differ in elements and rules at most.
func sameShape(a, b *Table) bool {
	return a.Foreign == b.Foreign && len(a.Sets) == len(b.Sets) && len(a.Chains) == len(b.Chains) &&
		!slices.ContainsFunc(b.Sets, func(s Set) bool {
			other := a.Set(s.Name)
			return other.Name != s.Name || other.spec() != s.spec()
		}) &&
		!slices.ContainsFunc(b.Chains, func(c Chain) bool {
			other := a.chain(c.Name)
			return other.Name != c.Name || other.spec() != c.spec()
		})
}

func create(t *Table) []FirewallChange {
	changes := []FirewallChange{{Op: AddTable}}
	for _, s := range t.Sets {
		changes = append(changes, FirewallChange{Op: AddSet, Set: s.bare()})
		if len(s.Elements) > 0 {
			changes = append(changes, FirewallChange{Op: AddElement, Set: s.bare(), Elements: s.Elements})
		}
	}
	for _, c := range t.Chains {
		changes = append(changes, FirewallChange{Op: AddChain, Chain: c.bare()})
		changes = append(changes, addRules(c)...)
	}
	return changes
}

func addRules(c Chain) []FirewallChange {
	var changes []FirewallChange
	for _, r := range c.Rules {
		changes = append(changes, FirewallChange{Op: AddRule, Chain: c.bare(), Rule: r})
	}
	return changes
}

// diffSet changes single hosts one by one, and the few networks of an interval set all at once: a merged network has no
// element of its own that could be taken out.
func diffSet(have, want Set) []FirewallChange {
	if slices.Equal(have.Elements, want.Elements) {
		return nil
	}
	s := want.bare()
	var changes []FirewallChange
	change := func(op string, elements []netip.Prefix) {
		if len(elements) > 0 || op == FlushSet {
			changes = append(changes, FirewallChange{Op: op, Set: s, Elements: elements})
		}
	}
	if want.Interval {
		change(FlushSet, nil)
		change(AddElement, want.Elements)
		return changes
	}
	change(AddElement, without(want.Elements, have.Elements))
	change(DeleteElement, without(have.Elements, want.Elements))
	return changes
}

// without returns the elements of list that are not in remove, in order.
func without[T comparable](list, remove []T) []T {
	gone := make(map[T]bool, len(remove))
	for _, x := range remove {
		gone[x] = true
	}
	var out []T
	for _, x := range list {
		if !gone[x] {
			out = append(out, x)
		}
	}
	return out
}

func (s Set) bare() Set {
	s.Elements = nil
	return s
}

func (c Chain) bare() Chain {
	c.Rules, c.Strays = nil, nil
	return c
}
