package doctor

import (
	"fmt"
	"strings"
)

// LegacyTable is a table of legacy iptables that may decide on packets: one with rules, or one that could not be read.
type LegacyTable struct {
	Name  string   // as "nat", or "ip6 nat"
	Rules []string // as iptables-legacy-save prints them, and chains whose policy is not to accept
	Err   string   // why it could not be read; "" if it was
}

// saveCommand prints the table.
func (t LegacyTable) saveCommand() []string {
	if name, six := strings.CutPrefix(t.Name, "ip6 "); six {
		return []string{"ip6tables-legacy-save", "-t", name}
	}
	return []string{"iptables-legacy-save", "-t", t.Name}
}

// read takes what the command printed.
func (t *LegacyTable) read(printed string) {
	for line := range strings.Lines(printed) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":") && strings.Contains(line, " DROP ") {
			t.Rules = append(t.Rules, line)
		}
	}
}

// String says what is known of the table, in a few words.
func (t LegacyTable) String() string {
	command := strings.Join(t.saveCommand(), " ")
	switch {
	case t.Err != "":
		return fmt.Sprintf("a table %s that could not be read (%s)", t.Name, t.Err)
	case len(t.Rules) == 1:
		return fmt.Sprintf("`%s` in its table %s", t.Rules[0], t.Name)
	}
	return fmt.Sprintf("%d rules in its table %s (%s)", len(t.Rules), t.Name, command)
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
