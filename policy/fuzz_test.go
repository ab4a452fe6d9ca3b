package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func fuzzSeeds() []string {
	return []string{
		`{}`, `{"acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]}`, "{\"acls\": [\n", `{"acls": null, "grants": {}}`,
		"{" + smallNames + `"grants": [{"src": ["tag:web"], "dst": ["office"], "ip": ["tcp:1-2"], "via": ["tag:left"]}], "tests": [{"src": "tag:web", "proto": "4", "accept": ["tag:db:0"]}]}`,
		`{"grants": [{"action": "accept", "src": ["*"], "dst": ["a:1", "[::1]:2"]}], /* x */ "ipsets": {"ipset:a": ["ipset:a"]},}`,
		`{"postures": {"posture:a": ["node:os IN ['a']"]}, "ssh": [{"action": "check", "checkPeriod": "1h", "src": ["autogroup:member"], "dst": ["autogroup:self"], "users": ["root"]}], "sshTests": [{"src": "a@b", "dst": ["tag:x"], "accept": ["root"]}], "nodeAttrs": [{"target": ["*"], "attr": ["funnel"], "app": {}}]}`,
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, diags := Parse("p", []byte(text))
		if p == nil && !diags.HasErrors() {
			t.Fatal("neither a policy nor an error")
		}
		for _, d := range diags {
			if d.Range.Start.Line < 1 || d.Range.Start.Column < 1 || d.Range.Start.Offset > len(text) || d.Range.End.Offset > len(text) {
				t.Fatalf("out of the text: %+v", d)
			}
		}
	})
}

func FuzzSelector(f *testing.F) {
	for _, s := range []string{"*", "tag:a", "group:a", "a@b", "user:*@b", "::1", "[::1]", "10.0.0.0/8", "1.1.1.1-2.2.2.2", "fe80::1%eth0", "host", "autogroup:members", "ipset:a", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := parseSelector(text)
		if s.kind == 0 || s.text != text {
			t.Fatalf("%q: %+v", text, s)
		}
		if s.addrs.IsValid() {
			again := rangeText(s.addrs)
			if r, _, ok := parseAddrs(again); !ok || r != s.addrs {
				t.Fatalf("%q prints as %q", text, again)
			}
		}
	})
}

func FuzzPorts(f *testing.F) {
	for _, s := range []string{"*", "22", "80-443", "tcp:443", "icmp:*", "ip-in-ip", "4", "1,2", "-", "65536", "a:b:c", "", "0", "9-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := parsePorts(text)
		if (err == nil) != (len(ranges) > 0) {
			t.Fatalf("%q: %v, %v", text, ranges, err)
		}
		for _, r := range ranges {
			if r.First > r.Last {
				t.Fatalf("%q: %v", text, r)
			}
		}
		if pp, err := parseProtoPorts(text); err == nil && (pp.ports.First > pp.ports.Last || pp.proto < 0 || pp.proto > 255) {
			t.Fatalf("%q: %+v", text, pp)
		}
		if _, err := parseAssertion(text); err != nil && err.Error() == "" {
			t.Fatal("an error without text")
		}
	})
}

func FuzzCheck(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add(s, "tag:web", "tag:db", "ip-in-ip", "")
	}
	f.Fuzz(func(t *testing.T, text, src, dst, proto, ports string) {
		req := Requirement{Name: "r", Src: []string{src}, Dst: []string{dst}, Proto: proto, Ports: ports}
		for _, inv := range []*Inventory{nil, smallTailnet()} {
			r := Check("p", []byte(text), inv, []Requirement{req})
			if r.Accepted != (r.Status == 200) || r.Accepted != (r.Message == "") {
				t.Fatalf("accepted %v, status %d, message %q", r.Accepted, r.Status, r.Message)
			}
			if !r.Accepted && !r.Diagnostics.HasErrors() {
				t.Fatalf("refused with %q and no finding", r.Message)
			}
			if len(r.Requirements) != 1 || r.Requirements[0].Verdict.String() == "invalid" {
				t.Fatalf("requirements %+v", r.Requirements)
			}
			for i, d := range r.Diagnostics {
				if i > 0 && d.Range.Start.Offset < r.Diagnostics[i-1].Range.Start.Offset {
					t.Fatal("findings out of order")
				}
				for _, h := range d.Help {
					applyEdits([]byte(text), h.Edits)
				}
			}
			if r.Compiled != nil {
				filters(t, r.Compiled)
			}
		}
	})
}

// TestHostileInput holds the engine to a bounded time on inputs that are made to hurt.
func TestHostileInput(t *testing.T) {
	groups := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"groups": {`)
		for i := range n {
			fmt.Fprintf(&b, `"group:g%d": ["u%d@example.com", "group:g%d"],`, i, i, i+1)
		}
		b.WriteString("}}")
		return b.String()
	}
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"ipsets": {`)
		for i := range n {
			fmt.Fprintf(&b, `"ipset:s%d": ["add ipset:s%d", "ipset:s%d"],`, i, (i+1)%n, (i+2)%n)
		}
		b.WriteString(`}, "acls": [{"action": "accept", "src": ["ipset:s0"], "dst": ["ipset:s0:*"]}]}`)
		return b.String()
	}
	ladder := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"ipsets": {`)
		for i := range n {
			fmt.Fprintf(&b, `"ipset:s%d": ["add ipset:s%d", "ipset:s%d"],`, i, i+1, i+1)
		}
		fmt.Fprintf(&b, `"ipset:s%d": ["10.0.0.0/8"]}, "acls": [{"action": "accept", "src": ["ipset:s0"], "dst": ["ipset:s0:*"]}]}`, n)
		return b.String()
	}
	manyNames := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"tagOwners": {`)
		for i := range n {
			fmt.Fprintf(&b, `"tag:name%d": [],`, i)
		}
		b.WriteString(`}, "acls": [`)
		for i := range n {
			fmt.Fprintf(&b, `{"action": "accept", "src": ["tag:nam%d"], "dst": ["*:*"]},`, i)
		}
		b.WriteString("]}")
		return b.String()
	}
	tests := map[string]string{
		"ten megabytes of brackets": strings.Repeat("[", 10<<20),
		"ten megabytes of braces":   strings.Repeat(`{"a":`, 2<<20),
		"one line without an end":   `{"acls": [` + strings.Repeat(`{"action": "accept", "src": ["x"], "dst": ["y"]},`, 50000),
		"many mistakes in one line": `{"tagOwners": {"tag:abc": []}, "acls": [` + strings.Repeat(`{"action": "accept", "src": ["tag:abd"], "dst": ["*:*"]},`, 20000) + `]}`,
		"many mistakes and names":   manyNames(20000),
		"many failing tests": `{"tagOwners": {"tag:web": [], "tag:db": []}, "grants": [` + strings.Repeat("{\"src\": [\"tag:web\"], \"dst\": [\"tag:db\"], \"ip\": [\"1\"]},\n", 2000) + `], "tests": [` +
			strings.Repeat("{\"src\": \"tag:web\", \"proto\": \"4\", \"accept\": [\"tag:db:0\"]},\n", 2000) + `]}`,
		"unclosed comment": `{"a": 1} /*` + strings.Repeat("*", 1<<20),
		"unclosed string":  `{"` + strings.Repeat(`\\`, 1<<20),
		"groups in groups": groups(100000),
		"ipsets in a ring": chain(5000),
		"ipsets doubled":   ladder(5000),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			r := Check("p", []byte(text), smallTailnet(), []Requirement{meshRequirementOf("tag:abc")})
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if !r.Accepted && len(r.Diagnostics) == 0 {
				t.Error("refused without a finding")
			}
		})
	}
}
