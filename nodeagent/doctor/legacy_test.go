package doctor

import "testing"

func TestLegacyTable(t *testing.T) {
	for want, table := range map[string]LegacyTable{
		"2 rules in its table filter (iptables-legacy-save -t filter)": {Name: "filter", Rules: 2},
		"a rule in its table ip6 nat (ip6tables-legacy-save -t nat)":   {Name: "ip6 nat", Rules: 1},
		"a table nat that could not be read (operation not permitted)": {Name: "nat", Err: "operation not permitted"},
	} {
		if got := table.String(); got != want {
			t.Errorf("%+v: %s, want %s", table, got, want)
		}
	}
}
