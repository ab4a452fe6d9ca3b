package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Operations of a [FirewallChange] for iptables, beside AddSet, AddElement, DeleteElement and AddChain.
const (
	ReplaceElements = "replace elements" // all at once
	DeleteSet       = "delete set"
	InsertRule      = "insert rule"
	DeleteRule      = "delete rule"
	InsertJump      = "insert jump"
	DeleteJump      = "delete jump"
	DeleteStray     = "delete stray" // what leads to a chain like a jump of the agent's, and is none
	MoveJump        = "move jump"    // to the front, without a moment in which there is none
	DeleteChain     = "delete chain" // with its rules
)

// Spare ends the name of the set that is filled in ReplaceElements, and then takes the place of the one whose name it has
// beside that. One that is there at another time was left by an agent that was killed amid that.
const Spare = "-new"

// iptables returns the step as a command of the iptables or ipset tool, quoted for a shell.
func (c FirewallChange) iptables() string {
	set := c.Backend.SetName(c.Set.Name)
	switch c.Op {
	case AddSet:
		return "ipset create " + set + " " + c.Set.ipset()
	case AddElement, DeleteElement:
		verb := "add"
		if c.Op == DeleteElement {
			verb = "del"
		}
		return fmt.Sprintf("printf '%s %s %%s\\n' %s | ipset restore", verb, set, words(c.Elements))
	case ReplaceElements:
		return fmt.Sprintf("{ echo create %[4]s %[2]s; printf 'add %[4]s %%s\\n' %[3]s; echo swap %[4]s %[1]s; "+
			"echo destroy %[4]s; } | ipset restore", set, c.Set.ipset(), words(c.Elements), set+Spare)
	case DeleteSet:
		return "ipset destroy " + set
	}
	tool := c.Backend.Tool(c.Chain.Family)
	if c.Op == MoveJump { // of two commands the first would leave a moment without a jump
		return fmt.Sprintf("printf '%s' | %s-restore --noflush", strings.ReplaceAll(Restore([]FirewallChange{c}), "\n", `\n`), tool)
	}
	commands := c.restore()
	for i, arguments := range commands {
		commands[i] = tool + " -t " + c.Chain.Type + " " + arguments
	}
	return strings.Join(commands, " && ")
}

// Restore returns steps that change rules and chains of one table and family as iptables-restore takes them, all at once.
func Restore(steps []FirewallChange) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", steps[0].Chain.Type)
	for _, c := range steps {
		for _, line := range c.restore() {
			b.WriteString(line + "\n")
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// restore returns the step as the arguments that iptables takes, a line for each command. It is nil for a step on a set.
func (c FirewallChange) restore() []string {
	name, hook := c.Chain.Name, c.Chain.Hook
	remove, jump := "-D "+hook+" "+quote(c.Chain.Jump()), "-I "+hook+" 1 "+quote(c.Chain.Jump())
	switch c.Op {
	case AddChain:
		return []string{"-N " + name}
	case InsertRule:
		return []string{fmt.Sprintf("-I %s %d %s", name, c.Position, quote(c.Rule.Args(c.Backend)))}
	case DeleteRule:
		return []string{fmt.Sprintf("-D %s %d", name, c.Position)}
	case InsertJump:
		return []string{jump}
	case MoveJump:
		return []string{remove, jump}
	case DeleteJump:
		return []string{remove}
	case DeleteStray:
		return []string{"-D " + hook + " " + c.Stray}
	case DeleteChain:
		return []string{"-F " + name, "-X " + name}
	}
	return nil
}

// OfSet says whether the step is on a set, of which iptables knows nothing.
func (c FirewallChange) OfSet() bool { return c.restore() == nil }

// Jump returns the agent's jump to the chain, as arguments of iptables.
func (c Chain) Jump() []string {
	return []string{"-m", "comment", "--comment", JumpComment, "-j", c.Name}
}

// ipset returns the set's type and family as ipset takes them.
func (s Set) ipset() string {
	family := "inet"
	if s.Family == IPv6 {
		family = "inet6"
	}
	return s.IPSetType() + " family " + family
}

// IPSetType returns ipset's type for the set.
func (s Set) IPSetType() string {
	if s.Interval {
		return "hash:net"
	}
	return "hash:ip"
}

func words(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		for _, half := range Halves(p) {
			out = append(out, host(half))
		}
	}
	return strings.Join(out, " ")
}

func quote(args []string) string {
	out := slices.Clone(args)
	for i, a := range out {
		if strings.ContainsAny(a, " ,'") {
			out[i] = `"` + a + `"`
		}
	}
	return strings.Join(out, " ")
}

// diffIPTables has no transaction, so the order makes each step harmless: sets before the rules that look them up, new
// rules before old ones go, jumps to a chain once it is whole; and the other way round for what goes. Between two steps
// a packet meets the old rules, the new ones, or both.
func diffIPTables(have, want *Table) []FirewallChange {
	if have == nil {
		have = &Table{}
	}
	if want == nil {
		want = &Table{}
	}
	var first, last []FirewallChange
	if !sameSets(have, want) {
		// A set of another shape cannot take the place of one that rules look up. Nobody but a person makes one.
		first = diffIPTables(have, &Table{})
		for i := range first {
			first[i].Leftover = false
		}
		have = &Table{}
	}
	for _, s := range want.Sets {
		old := have.Set(s.Name)
		if old.Name == "" {
			first = append(first, FirewallChange{Op: AddSet, Set: s.bare()})
		}
		first = append(first, diffIPSet(old, s)...)
	}
	for _, c := range want.Chains {
		old, exists := have.find(c)
		if !exists {
			first = append(first, FirewallChange{Op: AddChain, Chain: c.bare()})
		}
		first = append(first, diffRules(c.bare(), old.Rules, c.Rules)...)
		if !slices.Equal(old.Jumps, c.Jumps) {
			op := InsertJump
			if len(old.Jumps) > 0 {
				op = MoveJump
				for range old.Jumps[1:] {
					first = append(first, FirewallChange{Op: DeleteJump, Chain: c.bare()})
				}
			}
			first = append(first, FirewallChange{Op: op, Chain: c.bare()})
		}
		first = append(first, deleteStrays(old)...)
	}
	for _, c := range have.Chains {
		if _, wanted := want.find(c); wanted {
			continue
		}
		for range c.Jumps {
			last = append(last, FirewallChange{Op: DeleteJump, Chain: c.bare()})
		}
		last = append(last, deleteStrays(c)...)
		last = append(last, FirewallChange{Op: DeleteChain, Chain: c.bare()})
	}
	for _, s := range have.Sets {
		remove := FirewallChange{Op: DeleteSet, Set: s.bare()}
		switch {
		case want.Set(s.Name).Name != "":
		case strings.HasSuffix(s.Name, Spare): // no rule looks it up, and its name may be wanted
			first = slices.Insert(first, 0, remove)
		default:
			last = append(last, remove)
		}
	}
	for i := range last {
		last[i].Leftover = true
	}
	return append(first, last...)
}

func deleteStrays(c Chain) (changes []FirewallChange) {
	for _, stray := range c.Strays {
		changes = append(changes, FirewallChange{Op: DeleteStray, Chain: c.bare(), Stray: stray})
	}
	return changes
}

func sameSets(have, want *Table) bool {
	return !slices.ContainsFunc(want.Sets, func(s Set) bool {
		old := have.Set(s.Name)
		return old.Name != "" && (old.Foreign || old.Family != s.Family || old.Interval != s.Interval)
	})
}

func (t *Table) find(c Chain) (Chain, bool) {
	i := slices.IndexFunc(t.Chains, func(other Chain) bool { return other.Name == c.Name && other.Family == c.Family })
	if i < 0 {
		return Chain{}, false
	}
	return t.Chains[i], true
}

func diffIPSet(have, want Set) []FirewallChange {
	s := want.bare()
	switch {
	case slices.Equal(have.Elements, want.Elements):
		return nil
	case have.Name == "" || !want.Interval:
		var changes []FirewallChange
		if more := without(want.Elements, have.Elements); len(more) > 0 {
			changes = append(changes, FirewallChange{Op: AddElement, Set: s, Elements: more})
		}
		if gone := without(have.Elements, want.Elements); len(gone) > 0 {
			changes = append(changes, FirewallChange{Op: DeleteElement, Set: s, Elements: gone})
		}
		return changes
	}
	return []FirewallChange{{Op: ReplaceElements, Set: s, Elements: want.Elements}}
}

// diffRules keeps what is in its order, adds what is missing at its place and then deletes the rest from behind, so that
// a rule is never missing.
func diffRules(c Chain, have, want []FirewallRule) []FirewallChange {
	place := make(map[FirewallRule]int, len(want))
	for i, r := range want {
		place[r] = i
	}
	var changes []FirewallChange
	var gone []int
	next, position := 0, 1
	insert := func(end int) {
		for ; next < end; next++ {
			changes = append(changes, FirewallChange{Op: InsertRule, Chain: c, Rule: want[next], Position: position})
			position++
		}
	}
	for _, r := range have {
		if i, wanted := place[r]; wanted && i >= next {
			insert(i)
			next++
		} else {
			gone = append(gone, position)
		}
		position++
	}
	insert(len(want))
	for _, at := range slices.Backward(gone) {
		changes = append(changes, FirewallChange{Op: DeleteRule, Chain: c, Position: at})
	}
	return changes
}
