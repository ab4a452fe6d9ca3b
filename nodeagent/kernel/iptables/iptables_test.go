package iptables

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func TestSplit(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{`-i lo -j RETURN`, []string{"-i", "lo", "-j", "RETURN"}},
		{`--comment "a b, c" -j X`, []string{"--comment", "a b, c", "-j", "X"}},
		{`--comment "say \"a\" \\ b"`, []string{"--comment", `say "a" \ b`}},
		{`--comment "" -j X`, []string{"--comment", "", "-j", "X"}},
		{`  a   b  `, []string{"a", "b"}},
		{`"open`, []string{"open"}},
		{``, nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, split(tt.line)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.line, diff)
		}
	}
}

// The program of a variant is found by its own name, or by the plain one where that leads to it: before iptables 1.8 there
// was only the legacy one.
func TestFind(t *testing.T) {
	tests := []struct {
		name        string
		links       map[string]string // what is on the PATH, and what it leads to
		nft, legacy string
	}{
		{"nothing", nil, "", ""},
		{"both, and a default", map[string]string{
			"xtables-nft-multi": "", "xtables-legacy-multi": "", "iptables-nft": "xtables-nft-multi", "iptables-legacy": "xtables-legacy-multi",
			"iptables": "iptables-nft",
		}, "iptables-nft", "iptables-legacy"},
		{"the default is nft", map[string]string{"xtables-nft-multi": "", "iptables": "xtables-nft-multi"}, "iptables", ""},
		{"the default is legacy", map[string]string{"xtables-legacy-multi": "", "iptables": "xtables-legacy-multi"}, "", "iptables"},
		{"before 1.8", map[string]string{"xtables-multi": "", "iptables": "xtables-multi"}, "", "iptables"},
		{"long before 1.8", map[string]string{"iptables": ""}, "", "iptables"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			for name, target := range tt.links {
				var err error
				if target == "" {
					err = os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/false\n"), 0o755)
				} else {
					err = os.Symlink(target, filepath.Join(dir, name))
				}
				if strings.HasPrefix(name, "iptables") {
					err = errors.Join(err, os.Symlink(name, filepath.Join(dir, name+"-restore")))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for b, want := range map[desired.Backend]string{desired.IPTablesNFT: tt.nft, desired.IPTablesLegacy: tt.legacy} {
				for _, which := range []string{"", "-restore"} {
					path, err := find(b, desired.IPv4, which)
					if (err == nil) != (want != "") || err == nil && filepath.Base(path) != want+which {
						t.Errorf("%s: %q, %v, want %q", b, path, err, want+which)
					}
				}
			}
		})
	}
}

// Whatever the kernel returns, or a later version of it, reading a table ends without harm.
func TestReadEntriesOfNonsense(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, f := range desired.Families() {
		l := layoutOf(f)
		for range 5000 {
			blob := make([]byte, random.IntN(1200))
			for i := range blob {
				blob[i] = byte(random.Uint32())
			}
			// Offsets that nearly add up lead further in.
			for at := 0; at+l.matches <= len(blob); {
				next := l.matches + random.IntN(120)
				blob[at+l.targetOffset], blob[at+l.targetOffset+1] = byte(l.matches+random.IntN(9)), 0
				blob[at+l.targetOffset+2], blob[at+l.targetOffset+3] = byte(next), byte(next>>8)
				at += next
			}
			info := make([]byte, infoSize)
			for i := range info {
				info[i] = byte(random.IntN(4))
			}
			entries := readEntries(l, blob, info)
			for _, c := range desired.IPTablesChains(f) {
				legacyChain(entries, c)
			}
		}
	}
}

func TestReadRuleOfNonsense(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		b := make([]byte, random.IntN(200))
		for i := range b {
			b[i] = byte(random.IntN(20))
		}
		readRule(parse(b))
		readRule(attributes{4: b, 7: slices.Clone(b)})
		readEntriesOfSet(b)
		readShape(&desired.Set{}, b)
		readShape(&desired.Set{}, slices.Concat([]byte{byte(4 + len(b)), 0, 7, 0}, b))
	}
}

// A program that does not end is ended, with what it has started, and is not tried again at once.
func TestProgramHangs(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	for _, which := range []string{"", restoring} {
		script := "#!/bin/sh\necho . >>" + calls + "\nsleep 1000 &\nwait\n"
		if err := os.WriteFile(filepath.Join(dir, "iptables-nft"+which), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	f := New()
	f.patience = 300 * time.Millisecond
	c := desired.IPTablesChains(desired.IPv4)[0]
	err := f.Apply([]desired.FirewallChange{{Backend: desired.IPTablesNFT, Op: desired.AddChain, Chain: c}})
	if hung, ok := errors.AsType[*HungError](err); !ok || hung.Program != filepath.Join(dir, "iptables-nft-restore") {
		t.Errorf("apply: %v", err)
	}
	if _, err := f.list(desired.IPTablesNFT, c); !isHung(err) {
		t.Errorf("list: %v", err)
	}
	if text, err := os.ReadFile(calls); err != nil || len(text) > len(".\n")*2 { // a machine at work may not come to write in time
		t.Errorf("called: %q, %v", text, err)
	}
}
