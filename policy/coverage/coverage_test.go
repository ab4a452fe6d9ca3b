package coverage

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

const inventory = `{"devices": [
	{"nodeId": "n1", "hostname": "web1", "name": "web1.x.ts.net", "addresses": ["100.64.0.1"], "tags": ["tag:web"], "authorized": true},
	{"nodeId": "n2", "hostname": "web2", "name": "web2.x.ts.net", "addresses": ["100.64.0.2"], "tags": ["tag:web"], "authorized": true},
	{"nodeId": "n3", "hostname": "db1", "name": "db1.x.ts.net", "addresses": ["100.64.0.3"], "tags": ["tag:db"], "authorized": true},
	{"nodeId": "n4", "hostname": "ada1", "name": "ada1.x.ts.net", "addresses": ["100.64.0.4"], "user": "ada@example.com", "authorized": true},
	{"nodeId": "n6", "hostname": "ada2", "name": "ada2.x.ts.net", "addresses": ["100.64.0.6"], "user": "ada@example.com", "authorized": true},
	{"nodeId": "n5", "hostname": "bob1", "name": "bob1.x.ts.net", "addresses": ["100.64.0.5"], "user": "bob@example.com", "authorized": true}],
	"users": [{"id": "1", "loginName": "ada@example.com", "role": "owner"}, {"id": "2", "loginName": "bob@example.com", "role": "member"}]}`

const names = `"groups": {"group:dev": ["ada@example.com", "bob@example.com"], "group:none": [], "group:gone": ["eve@example.com"], "group:new": ["eve@example.com", "bob@example.com"]},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:none": []}, "hosts": {"office": "10.1.0.0/16", "six": "fd00::2/128"}`

func devices(t *testing.T) *policy.Inventory {
	t.Helper()
	inv, err := policy.ParseInventory([]byte(inventory))
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func measured(t *testing.T, text string, inv *policy.Inventory) (*policy.Report, *Result) {
	t.Helper()
	report := policy.Check("p", []byte(text), inv, nil)
	res, err := Measure(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return report, res
}

func TestMeasure(t *testing.T) {
	for _, tt := range []struct {
		name, rules, tests string
		want               []string // "path: proved by ...; shared by ...", of rules and of parts that a test passes by
	}{
		{
			"one rule, one test", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:5432"]}]`, `{"src": "tag:web", "accept": ["tag:db:5432"]}`,
			[]string{"grants[0]: tests[0].accept[0];"},
		},
		{
			"what is denied proves nothing", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:5432"]}]`, `{"src": "tag:db", "deny": ["tag:web:1"]}`,
			[]string{"grants[0]: ;"},
		},
		{
			"two rules that admit the same",
			`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:5432"]}], "acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:*"]}]`,
			`{"src": "tag:web", "accept": ["tag:db:5432"]}`,
			[]string{"grants[0]: ; tests[0].accept[0]", "acls[0]: ; tests[0].accept[0]"},
		},
		{
			"parts", `"acls": [{"action": "accept", "src": ["tag:web", "group:dev"], "dst": ["tag:db:5432", "tag:web:80"]}]`,
			`{"src": "tag:web", "accept": ["tag:db:5432"]}, {"src": "ada@example.com", "accept": ["tag:db:5432"]}`,
			[]string{
				"acls[0]: tests[0].accept[0],tests[1].accept[0];", "acls[0].src[0]: tests[0].accept[0];", "acls[0].src[1]: tests[1].accept[0];",
				"acls[0].dst[0]: tests[0].accept[0],tests[1].accept[0];",
			},
		},
		{
			"a test that fails proves nothing", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:5432"]}]`, `{"src": "tag:web", "accept": ["tag:db:5432", "tag:db:1"]}`,
			[]string{"grants[0]: tests[0].accept[0];"},
		},
		{
			"a half that another rule admits", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["100.64.0.1"], "dst": ["tag:db"], "ip": ["*"]}]`,
			`{"src": "tag:web", "accept": ["tag:db:1"]}`,
			[]string{"grants[0]: tests[0].accept[0];", "grants[1]: ; tests[0].accept[0]"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, res := measured(t, "{"+names+", "+tt.rules+`, "tests": [`+tt.tests+"]}", devices(t))
			var got []string
			for _, u := range append(slices.Clone(res.Rules), res.Parts...) {
				if strings.Count(u.Path, ".") == 0 || u.Proved() || len(u.SharedBy) > 0 {
					got = append(got, strings.TrimSpace(u.Path+": "+strings.Join(u.ProvedBy, ",")+"; "+strings.Join(u.SharedBy, ",")))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMeasureSSH(t *testing.T) {
	const rules = `"ssh": [
		{"action": "check", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]},
		{"action": "accept", "src": ["group:dev"], "dst": ["tag:db"], "users": ["autogroup:nonroot"]}]`
	_, res := measured(t, "{"+names+", "+rules+`, "sshTests": [{"src": "ada@example.com", "dst": ["tag:web"], "check": ["root"]}]}`, devices(t))
	if len(res.Rules) != 2 || !res.Rules[0].Proved() || res.Rules[1].Proved() || Percent(res.Rules) != 50 {
		t.Errorf("%+v", res.Rules)
	}
}

func TestSuggest(t *testing.T) {
	for _, tt := range []struct {
		name, rules string
		want        []string // entry, or "none: reason"
	}{
		{"tcp", `"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:5432"]}]`, []string{`{"src": "group:dev", "proto": "tcp", "accept": ["tag:db:5432"]}`}},
		{"every port", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:*"]}]`, []string{`{"src": "tag:web", "accept": ["tag:db:443"]}`}},
		{"no ports", `"grants": [{"src": ["tag:web"], "dst": ["tag:web"], "ip": ["ip-in-ip:*"]}]`, []string{`{"src": "tag:web", "proto": "ip-in-ip", "accept": ["tag:web:0"]}`}},
		{"a network", `"grants": [{"src": ["tag:web"], "dst": ["office"], "ip": ["udp:53"]}]`, []string{`{"src": "tag:web", "proto": "udp", "accept": ["10.1.0.1:53"]}`}},
		{"own devices", `"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["22"]}]`, []string{`{"src": "ada@example.com", "accept": ["100.64.0.4:22"]}`}},
		{"what only one of two admits", `"grants": [{"src": ["*"], "dst": ["tag:db"], "ip": ["80"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80", "81"]}]`, []string{
			`{"src": "ada@example.com", "accept": ["tag:db:80"]}`, `{"src": "tag:web", "accept": ["tag:db:81"]}`,
		}},
		{"twice the same", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80"]}]`, []string{
			"none: others admit what it admits, for everybody who was tried", "none: others admit what it admits, for everybody who was tried",
		}},
		{"capabilities", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "app": {"example.com/cap/x": [{}]}}]`, []string{"none: it grants capabilities alone, which tests do not ask about"}},
		{"one device alone", `"grants": [{"src": ["tag:db"], "dst": ["tag:db"], "ip": ["80"]}]`, []string{
			"none: it is sure to admit nobody of the inventory: devices, or attributes that a posture asks for, are missing",
		}},
		{"a source with nobody behind it", `"grants": [{"src": ["group:none", "tag:none", "group:gone", "tag:web"], "dst": ["tag:db"], "ip": ["80"]}]`, []string{`{"src": "tag:web", "accept": ["tag:db:80"]}`}},
		{"nobody behind any source", `"grants": [{"src": ["group:none", "tag:none"], "dst": ["tag:db"], "ip": ["80"]}], "ssh": [{"action": "accept", "src": ["group:gone"], "dst": ["tag:db"], "users": ["root"]}]`, []string{
			"none: nobody of the inventory is behind group:none, tag:none", "none: nobody of the inventory is behind group:gone",
		}},
		{"ssh by a member of a group who is there", `"ssh": [{"action": "accept", "src": ["group:new"], "dst": ["tag:db"], "users": ["root"]}]`, []string{`{"src": "bob@example.com", "dst": ["tag:db"], "accept": ["root"]}`}},
		{"a posture", `"postures": {"posture:mac": ["node:os == 'macos'", "node:tsVersion > '1.40'", "custom:tier IN ['a', 'b']", "custom:lost NOT SET"]},
			"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80"], "srcPosture": ["posture:mac"]}],
			"ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["tag:db"], "users": ["root"], "srcPosture": ["posture:mac"]}]`, []string{
			`{"src": "tag:web", "srcPostureAttrs": {"custom:tier": "a", "node:os": "macos", "node:tsVersion": "1.40.1"}, "accept": ["tag:db:80"]}`,
			`{"src": "ada@example.com", "srcPostureAttrs": {"custom:tier": "a", "node:os": "macos", "node:tsVersion": "1.40.1"}, "dst": ["tag:db"], "accept": ["root"]}`,
		}},
		{"a posture that nobody meets", `"postures": {"posture:no": ["node:os == 'macos'", "node:os == 'linux'"]},
			"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80"], "srcPosture": ["posture:no"]}]`, []string{"none: no attributes were found that meet its srcPosture"}},
		{"the default posture", `"postures": {"posture:mac": ["node:os == 'macos'"]}, "defaultSrcPosture": ["posture:mac"],
			"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}]`, []string{
			`{"src": "tag:web", "srcPostureAttrs": {"node:os": "macos"}, "accept": ["tag:db:80"]}`,
		}},
		{"ssh", `"ssh": [{"action": "check", "src": ["group:dev"], "dst": ["autogroup:self"], "users": ["autogroup:nonroot"]}]`, []string{`{"src": "ada@example.com", "dst": ["ada@example.com"], "check": ["ubuntu"]}`}},
		{"ssh to what is tagged", `"ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["autogroup:tagged"], "users": ["root"]}]`, []string{`{"src": "ada@example.com", "dst": ["tag:web"], "accept": ["root"]}`}},
		{"to an IPv6 address", `"grants": [{"src": ["fd00::9"], "dst": ["fd00::1"], "ip": ["80"]}, {"src": ["fd00::9"], "dst": ["host:six"], "ip": ["81"]}]`, []string{
			`{"src": "fd00::9", "accept": ["[fd00::1]:80"]}`, `{"src": "fd00::9", "accept": ["[fd00::2]:81"]}`,
		}},
		{"ssh of somebody who is not there", `"ssh": [{"action": "accept", "src": ["ghost@example.com"], "dst": ["tag:web"], "users": ["root"]}]`, []string{
			"none: nobody of the inventory is behind ghost@example.com",
		}},
		{"ssh of an unknown posture", `"postures": {"posture:p": ["custom:tier == 'one'"]}, "ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"], "srcPosture": ["posture:p"]}]`, []string{
			`{"src": "ada@example.com", "srcPostureAttrs": {"custom:tier": "one"}, "dst": ["tag:web"], "accept": ["root"]}`,
		}},
		{"ssh twice the same", `"ssh": [{"action": "accept", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]}, {"action": "accept", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]}]`, []string{
			"none: others admit what it admits, for everybody who was tried", "none: others admit what it admits, for everybody who was tried",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := devices(t)
			report, res := measured(t, "{"+names+", "+tt.rules+"}", inv)
			var got []string
			for _, s := range Suggest(report, res, inv) {
				if s.Entry == "" {
					s.Entry = "none: " + s.Reason
				}
				got = append(got, s.Entry)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is suggested for policies at large, put into their text, passes and is what the control plane takes; and each rule
// that got a test is then proved.
func TestSuggestionsHold(t *testing.T) {
	for seed := range uint64(12) {
		text, saved := bigtailnet.Make(40+int(rand.New(rand.NewPCG(seed, 1)).IntN(60)), 24, 0, seed)
		inv, err := policy.ParseInventory(saved)
		if err != nil {
			t.Fatal(err)
		}
		report, res := measured(t, string(text), inv)
		entries := map[string][]string{}
		tested := 0
		for _, s := range Suggest(report, res, inv) {
			if s.Entry != "" {
				entries[s.Section] = append(entries[s.Section], s.Entry)
				tested++
			}
		}
		if tested < len(res.Rules)/2 {
			t.Errorf("seed %d: tests for %d of %d rules", seed, tested, len(res.Rules))
		}
		for section, list := range entries {
			out, err := diag.Apply(text, report.Policy.AddTests(section, list))
			if err != nil {
				t.Fatal(err)
			}
			text = out
		}
		after, covered := measured(t, string(text), inv)
		if !after.Accepted {
			t.Fatalf("seed %d: %s\n%s", seed, after.Message, text)
		}
		if got := Proved(covered.Rules); got < tested {
			t.Errorf("seed %d: %d rules proved, want %d", seed, got, tested)
		}
	}
}
