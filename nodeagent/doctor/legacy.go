package doctor

import (
	"fmt"
	"strings"
)

// LegacyTable is a table of legacy iptables that may decide on packets: one with rules, or one that could not be read.
type LegacyTable struct {
	Name  string // as "nat", or "ip6 nat"
	Rules int    // of others, and chains whose policy is not to accept
	Err   string // why it could not be read; "" if it was
}

// String says what is known of the table, in a few words, and what shows it.
func (t LegacyTable) String() string {
	name, six := strings.CutPrefix(t.Name, "ip6 ")
	command := "iptables-legacy-save -t " + name
	if six {
		command = "ip6tables-legacy-save -t " + name
	}
	switch {
	case t.Err != "":
		return fmt.Sprintf("a table %s that could not be read (%s)", t.Name, t.Err)
	case t.Rules == 1:
		return fmt.Sprintf("a rule in its table %s (%s)", t.Name, command)
	}
	return fmt.Sprintf("%d rules in its table %s (%s)", t.Rules, t.Name, command)
}

// legacyOf returns the tables of the name, of both families, in words; "" if there is none.
func (j *judgement) legacyOf(name string) string {
	var words []string
	for _, t := range j.e.Legacy {
		if name == "" || strings.TrimPrefix(t.Name, "ip6 ") == name {
			words = append(words, t.String())
		}
	}
	if j.e.LegacyErr != "" {
		words = append(words, "perhaps rules, which is not known ("+j.e.LegacyErr+")")
	}
	return strings.Join(words, " and ")
}
