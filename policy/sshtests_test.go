package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const sshTestRules = `"ssh": [
	{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]},
	{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["ubuntu"]},
	{"action": "check", "src": ["group:dev"], "dst": ["tag:box"], "users": ["autogroup:nonroot"], "checkPeriod": "1h"},
	{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:box"], "users": ["bob"]},
	{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self"], "users": ["root", "localpart:*@example.com"]},
	{"action": "accept", "src": ["tag:db"], "dst": ["tag:web"], "users": ["backup"]},
	{"action": "accept", "src": ["eve@example.com"], "dst": ["tag:unused"], "users": ["root"]},
	{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:web"], "users": ["vault"], "srcPosture": ["posture:win"]},
],`

func TestSSHTests(t *testing.T) {
	tests := []struct {
		name, entry string
		want        []string // "user@dst wanted got verdict rule"
	}{
		{
			"accepted", `{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root", "ubuntu"]}`,
			[]string{"root@tag:web accept accept pass ssh[0]", "ubuntu@tag:web accept accept pass ssh[1]"},
		},
		{
			"another account", `{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["mallory"], "deny": ["mallory"]}`,
			[]string{"mallory@tag:web accept drop fail", "mallory@tag:web drop drop pass"},
		},
		{
			"the same account to accept and to deny", `{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root"], "deny": ["root"]}`,
			[]string{"root@tag:web accept accept pass ssh[0]", "root@tag:web drop accept fail ssh[0]"},
		},
		{
			"a member of the group that the rule names", `{"src": "ada@example.com", "dst": ["tag:box"], "check": ["ubuntu"], "deny": ["root"]}`,
			[]string{"root@tag:box drop drop pass", "ubuntu@tag:box check check pass ssh[2]"},
		},
		{"the group itself", `{"src": "group:dev", "dst": ["tag:box"], "check": ["ubuntu"]}`, []string{"ubuntu@tag:box check check pass ssh[2]"}},
		{"a check is no accept", `{"src": "ada@example.com", "dst": ["tag:box"], "accept": ["ubuntu"]}`, []string{"ubuntu@tag:box accept check fail ssh[2]"}},
		{"an accept is no check", `{"src": "bob@example.com", "dst": ["tag:web"], "check": ["root"]}`, []string{"root@tag:web check accept fail ssh[0]"}},
		{"a check wins over an accept", `{"src": "bob@example.com", "dst": ["tag:box"], "check": ["bob"]}`, []string{"bob@tag:box check check pass ssh[2]"}},
		{"own devices", `{"src": "ada@example.com", "dst": ["ada@example.com", "autogroup:self"], "accept": ["root", "ada"]}`, []string{
			"root@ada@example.com accept accept pass ssh[4]", "ada@ada@example.com accept accept pass ssh[4]",
			"root@autogroup:self accept accept pass ssh[4]", "ada@autogroup:self accept accept pass ssh[4]",
		}},
		{"another's devices", `{"src": "ada@example.com", "dst": ["bob@example.com"], "deny": ["root", "ada"], "accept": ["root"]}`, []string{
			"root@bob@example.com accept drop fail", "root@bob@example.com drop drop pass", "ada@bob@example.com drop drop pass",
		}},
		{"own name of another domain", `{"src": "cy@example.org", "dst": ["cy@example.org"], "deny": ["cy"]}`, []string{"cy@cy@example.org drop drop pass"}},
		{"another's name", `{"src": "ada@example.com", "dst": ["ada@example.com"], "deny": ["bob"]}`, []string{"bob@ada@example.com drop drop pass"}},
		{
			"tags", `{"src": "tag:db", "dst": ["tag:web", "tag:web"], "accept": ["backup"]}`,
			[]string{"backup@tag:web accept accept pass ssh[5]", "backup@tag:web accept accept pass ssh[5]"},
		},
		{"a tag has no devices of its own", `{"src": "tag:db", "dst": ["autogroup:self"], "deny": ["root"]}`, []string{"root@autogroup:self drop invalid fail"}},
		{
			"addresses and hosts", `{"src": "100.64.0.3", "dst": ["webhost", "100.64.0.7"], "accept": ["root"]}`,
			[]string{"root@webhost accept accept pass ssh[0]", "root@100.64.0.7 accept accept pass ssh[0]"},
		},
		{"an address that is nobody's", `{"src": "bob@example.com", "dst": ["192.0.2.1"], "deny": ["root"]}`, []string{"root@192.0.2.1 drop drop pass"}},
		{
			"names that nobody bears yet", `{"src": "eve@example.com", "dst": ["tag:unused", "eve@example.com"], "accept": ["root"]}`,
			[]string{"root@tag:unused accept accept pass ssh[6]", "root@eve@example.com accept accept pass ssh[4]"},
		},
		{
			"some of the sources", `{"src": "group:dev", "dst": ["tag:web"], "accept": ["root"], "deny": ["root"]}`,
			[]string{"root@tag:web accept partial fail ssh[0]", "root@tag:web drop partial fail ssh[0]"},
		},
		{
			"posture that the test gives", `{"src": "ada@example.com", "srcPostureAttrs": {"node:os": "windows"}, "dst": ["tag:web"], "accept": ["vault"]}`,
			[]string{"vault@tag:web accept accept pass ssh[7]"},
		},
		{
			"posture that is not known", `{"src": "ada@example.com", "dst": ["tag:web"], "accept": ["vault"], "check": ["vault"]}`,
			[]string{"vault@tag:web accept undecided undecided ssh[7]", "vault@tag:web check undecided fail ssh[7]"},
		},
		{"blanks", `{"src": " bob@example.com", "dst": ["tag:web "], "accept": ["\troot"]}`, []string{"root@tag:web accept accept pass ssh[0]"}},
		{
			"empty account", `{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root", ""]}`,
			[]string{"root@tag:web accept accept pass ssh[0]", "@tag:web accept invalid fail"},
		},
		{"nothing asked", `{"src": "bob@example.com", "dst": ["tag:web"]}`, []string{"@  invalid fail"}},
		{"empty lists", `{"src": "bob@example.com", "dst": ["tag:web"], "accept": [], "deny": [], "check": []}`, []string{"@  invalid fail"}},
		{"no dst", `{"src": "bob@example.com", "dst": [], "deny": ["root"]}`, []string{"@  invalid fail"}},
		{"no src", `{"dst": ["tag:web"], "deny": ["root"]}`, []string{"@  invalid fail"}},
		{"unknown src", `{"src": "webhots", "dst": ["tag:web"], "deny": ["root"]}`, []string{"@  invalid fail"}},
		{"unknown user", `{"src": "bbo@example.com", "dst": ["tag:web"], "deny": ["root"]}`, []string{"@  invalid fail"}},
		{
			"unknown dst", `{"src": "bob@example.com", "dst": ["webhots", "group:dve", "tag:web"], "deny": ["mallory"]}`,
			[]string{"mallory@webhots drop invalid fail", "mallory@group:dve drop invalid fail", "mallory@tag:web drop drop pass"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(`{`+sshNames+sshTestRules+`"sshTests": [`+tt.entry+`]}`), sshTailnet(), nil)
			if r.Compiled == nil {
				t.Fatalf("not compiled: %s", r.Message)
			}
			var got []string
			failed := false
			for _, l := range r.SSHTests {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s@%s %s %s %s %s", l.User, l.Dst, l.Want, l.Got, l.Verdict, l.Rule)))
				failed = failed || l.Verdict == Fail
				if l.Verdict != Pass && (len(r.Diagnostics) == 0 || l.Range.IsZero()) {
					t.Errorf("%+v without a finding", l)
				}
				if (l.Got == "invalid") != (l.Reason != "") {
					t.Errorf("%+v: a reason belongs to what is invalid", l)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if want := map[bool]string{true: "test(s) failed"}[failed]; r.Message != want {
				t.Errorf("message %q, want %q", r.Message, want)
			}
		})
	}
}

func TestSSHTestRefusals(t *testing.T) {
	tests := []struct{ name, sections, message, code string }{
		{"network", `"sshTests": [{"src": "bob@example.com", "dst": ["10.0.0.0/8"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "10.0.0.0/8"`, "bad-ssh-test-dst"},
		{"network of one", `"sshTests": [{"src": "bob@example.com", "dst": ["100.64.0.5/32"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "100.64.0.5/32"`, "bad-ssh-test-dst"},
		{"host that is a network", `"sshTests": [{"src": "bob@example.com", "dst": ["office"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "office"`, "bad-ssh-test-dst"},
		{"internet", `"sshTests": [{"src": "bob@example.com", "dst": ["autogroup:internet"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "autogroup:internet"`, "bad-ssh-test-dst"},
		{"everything", `"sshTests": [{"src": "bob@example.com", "dst": ["*"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "*"`, "bad-ssh-test-dst"},
		{"everybody as src", `"sshTests": [{"src": "*", "dst": ["tag:web"], "deny": ["root"]}]`, `SSH tests src contains disallowed element "*"`, "bad-selector"},
		{"autogroup as src", `"sshTests": [{"src": "autogroup:admin", "dst": ["tag:web"], "check": ["root"]}]`, `SSH tests src contains disallowed element "autogroup:admin"`, "bad-selector"},
		{"tagged as dst", `"sshTests": [{"src": "bob@example.com", "dst": ["autogroup:tagged"], "deny": ["root"]}]`, `SSH tests dst contains disallowed element "autogroup:tagged"`, "bad-ssh-test-dst"},
		{"network as src", `"sshTests": [{"src": "office", "dst": ["tag:web"], "deny": ["root"]}]`, `SSH tests src contains disallowed element "office"`, "bad-selector"},
		{"own devices as src", `"sshTests": [{"src": "autogroup:self", "dst": ["tag:web"], "deny": ["root"]}]`, `SSH tests src contains disallowed element "autogroup:self"`, "bad-selector"},
		{"unknown tag as src", `"sshTests": [{"src": " tag:wbe", "dst": ["tag:web"], "deny": ["root"]}]`, `SSH tests src contains unknown tag "tag:wbe"`, "unknown-tag"},
		{"unknown tag", `"sshTests": [{"src": "bob@example.com", "dst": ["tag:wbe"], "deny": ["root"]}]`, `SSH tests dst contains unknown tag "tag:wbe"`, "unknown-tag"},
		{"tag with a port", `"sshTests": [{"src": "bob@example.com", "dst": ["tag:web:22"], "deny": ["root"]}]`, `SSH tests dst contains unknown tag "tag:web:22"`, "unknown-tag"},
		{"before any test runs", `"sshTests": [{"dst": ["tag:web"]}, {"src": "bob@example.com", "dst": ["tag:wbe"], "deny": ["root"]}],
			"tests": [{"src": "nobody", "accept": ["tag:web:22"]}]`, `SSH tests dst contains unknown tag "tag:wbe"`, "unknown-tag"},
		{"a rule that is wrong comes before", `"ssh": [{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["*"]}],
			"sshTests": [{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["mallory"]}]`, `user "*" is not valid`, "bad-ssh-user"},
		{"tests pass and sshTests do not", `"acls": [{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web:22"]}],
			"tests": [{"src": "bob@example.com", "accept": ["tag:web:22"]}],
			"sshTests": [{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root"]}]`, `test(s) failed`, "test-failed"},
		{"an open port is no ssh rule", `"ssh": [], "sshTests": [{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root"]}]`, `test(s) failed`, "test-failed"},
		{"a closed port is none of its business", `"acls": [], "ssh": [{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]}],
			"sshTests": [{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root"]}]`, ``, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := `{` + sshNames + tt.sections + `}`
			r := Check("p", []byte(text), sshTailnet(), nil)
			if r.Message != tt.message || r.Accepted != (tt.message == "") {
				t.Errorf("message %q, want %q", r.Message, tt.message)
			}
			if tt.message == "" {
				return
			}
			if len(r.Diagnostics) == 0 || r.Diagnostics[0].Code != tt.code || r.Diagnostics[0].Label == "" {
				t.Fatalf("findings %+v, want %s", r.Diagnostics, tt.code)
			}
		})
	}
}

// TestSSHTestsWithoutInventory decides by names what names decide, and refuses nothing for what it does not know.
func TestSSHTestsWithoutInventory(t *testing.T) {
	r := Check("p", []byte(`{`+sshNames+sshTestRules+`"sshTests": [
		{"src": "bob@example.com", "dst": ["tag:web"], "accept": ["root"], "deny": ["mallory"]},
		{"src": "group:sre@example.com", "dst": ["tag:web"], "deny": ["root"]},
	]}`), nil, nil)
	var got []Verdict
	for _, l := range r.SSHTests {
		got = append(got, l.Verdict)
		if (l.Verdict == Undecided) != (len(l.Missing) > 0) {
			t.Errorf("%+v: what is undecided says what is missing", l)
		}
	}
	if diff := cmp.Diff([]Verdict{Pass, Undecided, Undecided}, got); diff != "" || !r.Accepted {
		t.Error(r.Message, diff)
	}
}

// TestSSHTestsAgreeWithTheDevices compares the judgement of a test with what a device makes of the rules it gets: the
// first rule that has the source among its principals and an account for the user decides.
func TestSSHTestsAgreeWithTheDevices(t *testing.T) {
	users := []string{"root", "ubuntu", "ada", "bob", "cy", "backup"}
	src := []string{
		`"bob@example.com"`, `"group:dev"`, `"tag:db"`, `"autogroup:tagged"`, `"autogroup:member"`, `"user:*@example.com", "tag:web"`,
	}
	dst := []string{`"tag:web"`, `"tag:db", "tag:box"`, `"tag:unused"`, `"autogroup:self"`, `"tag:web", "autogroup:self"`, `"autogroup:tagged"`}
	accounts := []string{
		`"root"`, `"autogroup:nonroot"`, `"ubuntu", "root"`, `"localpart:*@example.com"`, `"localpart:*@example.com", "autogroup:nonroot"`,
	}
	rapid.Check(t, func(rt *rapid.T) {
		var rules []string
		for range rapid.IntRange(0, 4).Draw(rt, "rules") {
			rules = append(rules, fmt.Sprintf(`{"action": %q, "src": [%s], "dst": [%s], "users": [%s]}`,
				rapid.SampledFrom([]string{"accept", "check"}).Draw(rt, "action"), rapid.SampledFrom(src).Draw(rt, "src"),
				rapid.SampledFrom(dst).Draw(rt, "dst"), rapid.SampledFrom(accounts).Draw(rt, "users")))
		}
		r := Check("p", []byte(`{`+sshNames+`"ssh": [`+strings.Join(rules, ",")+`]}`), sshTailnet(), nil)
		if !r.Accepted {
			rt.Skip(r.Message)
		}
		c := r.Compiled
		for _, to := range c.x.devices {
			if to.IsExternal {
				continue
			}
			got, err := c.SSH(to.key)
			if err != nil {
				rt.Fatal(err)
			}
			for _, from := range c.x.devices {
				if from == to && from.tagged() {
					continue // a device to itself
				}
				for _, user := range users {
					want := onDevice(got, from.ips[0], user)
					o := c.sshJudge(endpoint{dev: from, addr: from.addrs[0]}, endpoint{dev: to, addr: to.addrs[0]}, user)
					if diff := cmp.Diff([]string{want}, o.possible); diff != "" {
						rt.Fatalf("%s to %s as %s: %s\n%s", from.key, to.key, user, diff, strings.Join(rules, "\n"))
					}
				}
			}
		}
	})
}

func onDevice(rules []SSHRule, from, user string) string {
	for _, r := range rules {
		if !slices.Contains(r.Principals, SSHPrincipal{NodeIP: from}) {
			continue
		}
		as, ok := r.SSHUsers[user]
		if !ok {
			as = r.SSHUsers["*"]
		}
		switch {
		case as == "":
		case r.Action.HoldAndDelegate != "":
			return "check"
		default:
			return "accept"
		}
	}
	return "drop"
}
