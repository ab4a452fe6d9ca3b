package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// legacyTables reads the tables of legacy iptables that this namespace has: to read another would make the kernel add it.
func legacyTables(ctx context.Context, rules bool) ([]LegacyTable, error) {
	var out []LegacyTable
	for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
		text, err := os.ReadFile(filepath.Join("/proc/thread-self/net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		family := ""
		if name == "ip6_tables_names" {
			family = "ip6 "
		}
		for line := range strings.FieldsSeq(string(text)) {
			t := LegacyTable{Name: family + line}
			if rules {
				t.save(ctx)
			} else {
				t.Err = "to read it takes a process"
			}
			if t.Err != "" || len(t.Rules) > 0 {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b LegacyTable) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (t *LegacyTable) save(ctx context.Context) {
	const long = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	command := t.saveCommand()
	printed, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if err != nil {
		t.Err = err.Error()
		return
	}
	t.read(string(printed))
}
