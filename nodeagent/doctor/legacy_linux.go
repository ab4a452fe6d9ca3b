package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
)

// legacyTables reads the tables of legacy iptables that this namespace has: to read another would make the kernel add it.
func legacyTables() ([]LegacyTable, error) {
	var out []LegacyTable
	for _, of := range []struct {
		file, prefix string
		family       desired.Family
	}{{"ip_tables_names", "", desired.IPv4}, {"ip6_tables_names", "ip6 ", desired.IPv6}} {
		text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", of.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for name := range strings.FieldsSeq(string(text)) {
			t := LegacyTable{Name: of.prefix + name}
			if t.Rules, err = iptables.LegacyRules(of.family, name); err != nil {
				t.Err = reason(err)
			}
			if t.Err != "" || t.Rules > 0 {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b LegacyTable) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
