// Package iptables is the agent's edge to iptables: chains of the agent's own in its tables, jumps to them, and sets of
// ipset. Both variants are read without a process as far as that goes: that a chain is there, where the jumps to it are,
// what its rules have counted, and whether they are still those that were read before. Only to read rules that have
// changed, and to change them, iptables itself is started, since nobody else knows how its rules look in the kernel.
package iptables

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Firewall is the iptables of the network namespace that the calling thread is in. It remembers the rules that it has
// read and is not safe for concurrent use.
type Firewall struct {
	rules    map[place]known
	patience time.Duration // with each program
}

type place struct {
	backend desired.Backend
	family  desired.Family
	chain   string
}

// known are the rules of a chain, and what they looked like in the kernel.
type known struct {
	print string
	rules []desired.FirewallRule
}

// New returns the iptables of the node.
func New() *Firewall {
	return &Firewall{rules: map[place]known{}, patience: patience}
}

// chain is what can be seen of one of the agent's chains without a process.
type chain struct {
	print    string            // other rules look otherwise
	counters []desired.Counter // of the rules, in order
	jumps    []int             // places of the agent's jumps to it
	strays   bool              // a rule with the comment of these leads to it in another way
}

// leads notes a rule of the hook that has the comment of the agent's jumps and leads to the chain.
func (c *chain) leads(place int, jump bool) {
	if jump {
		c.jumps = append(c.jumps, place)
	} else {
		c.strays = true
	}
}

// Read adds to the facts what there is of the agent's in either variant, which variant the node uses, and whether there
// are sets.
func (f *Firewall) Read(facts *desired.Facts) error {
	seen := newScanner()
	facts.IPTables = detect(seen)
	facts.NoIPTables = missing(facts.IPTables)
	facts.NoSets = !haveSets()
	for _, b := range []desired.Backend{desired.IPTablesNFT, desired.IPTablesLegacy} {
		table, err := f.table(seen, b, facts)
		if err != nil {
			return fmt.Errorf("read %s: %w", b, err)
		}
		if len(table.Sets)+len(table.Chains) > 0 {
			facts.Tables[b] = table
		}
	}
	return seen.err
}

func (f *Firewall) table(seen *scanner, b desired.Backend, facts *desired.Facts) (*desired.Table, error) {
	t := &desired.Table{}
	var err error
	if !facts.NoSets {
		if t.Sets, err = readSets(b); err != nil {
			return nil, err
		}
	}
	for _, family := range desired.Families() {
		for _, c := range desired.IPTablesChains(family) {
			at := place{b, family, c.Name}
			found, err := seen.chain(b, c)
			if err != nil {
				return nil, err
			}
			if found == nil {
				delete(f.rules, at)
				continue
			}
			if f.rules[at].print != found.print || f.rules[at].rules == nil {
				rules, err := f.list(b, c)
				switch {
				case errors.Is(err, errNotShown):
					// Nothing to remember: the tool may fail for a moment, and rules that are written anew look like before.
					f.rules[at] = known{rules: slices.Repeat([]desired.FirewallRule{{Foreign: true}}, len(found.counters))}
				case err != nil:
					return nil, err
				default:
					f.rules[at] = known{found.print, rules}
				}
			}
			c.Rules, c.Jumps = slices.Clone(f.rules[at].rules), found.jumps
			if found.strays {
				if c.Strays, err = f.strays(b, c); err != nil {
					return nil, err
				}
			}
			t.Chains = append(t.Chains, c)
			for i, r := range c.Rules {
				if i < len(found.counters) {
					sum := facts.Counters[r.Comment]
					sum.Packets += found.counters[i].Packets
					sum.Bytes += found.counters[i].Bytes
					facts.Counters[r.Comment] = sum
				}
			}
		}
	}
	return t, nil
}

// list reads the rules of a chain by the tool, or fails with errNotShown: somebody wrote them with another tool, or it is
// gone. They are foreign all the same.
func (f *Firewall) list(b desired.Backend, c desired.Chain) ([]desired.FirewallRule, error) {
	var lines []string
	err := again(func() (err error) {
		lines, err = f.show(b, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	rules := make([]desired.FirewallRule, 0, len(lines))
	for _, line := range lines {
		if text, is := strings.CutPrefix(line, "-A "+c.Name+" "); is {
			rules = append(rules, desired.ParseArgs(b, c.Family, split(text)))
		}
	}
	return rules, nil
}

// strays reads the rules of the hook that have the comment of the agent's jumps and lead to the chain, but under a condition
// or for good. Where the tool cannot show them there are none that it could delete.
func (f *Firewall) strays(b desired.Backend, c desired.Chain) (out []string, err error) {
	hook := c
	hook.Name = c.Hook
	lines, err := f.show(b, hook)
	if errors.Is(err, errNotShown) {
		return nil, nil
	}
	for _, line := range lines {
		text, is := strings.CutPrefix(line, "-A "+c.Hook+" ")
		words := split(text)
		comment := slices.Index(words, "--comment")
		if is && comment >= 0 && comment+1 < len(words) && words[comment+1] == desired.JumpComment &&
			words[len(words)-1] == c.Name && !slices.Equal(words, c.Jump()) {
			out = append(out, text)
		}
	}
	return out, err
}

var errNotShown = errors.New("iptables cannot show these rules")

// show has the tool print the rules of a chain.
func (f *Firewall) show(b desired.Backend, c desired.Chain) ([]string, error) {
	path, err := find(b, c.Family, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotShown, err)
	}
	said, err := f.start(path, "", "-t", c.Type, "-S", c.Name)
	if err == nil {
		return strings.Split(strings.TrimSpace(said), "\n"), nil
	}
	const versionProblem = 3 // the exit code of iptables for what it does not know
	ended, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case isHung(err):
		return nil, err
	case !ok || ended.ExitCode() == versionProblem || strings.Contains(said, "incompatible"):
		return nil, fmt.Errorf("%w: %w", errNotShown, err)
	}
	return nil, problem(said, fmt.Sprintf("%s -t %s -S %s", b, c.Type, c.Name))
}

// split takes apart what iptables prints: words, some of them in double quotes.
func split(line string) []string {
	var out []string
	var word strings.Builder
	quoted, open := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if word.Len() > 0 || open {
				out = append(out, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteByte(c)
		}
	}
	if word.Len() > 0 || open {
		out = append(out, word.String())
	}
	return out
}
