package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// sshTailnet has an owner with two devices, a user of the same domain, one of another, a user without devices, and
// tagged devices, one of them with two tags. The order of names is not the order of the users' ids.
func sshTailnet() *Inventory {
	dev := func(n int, host, user string, tags ...string) Device {
		return Device{
			NodeID: fmt.Sprintf("n%d", n), Hostname: host, Name: host + ".example.ts.net", User: user, Tags: tags, Authorized: true,
			Addresses: []string{fmt.Sprintf("100.64.0.%d", n)},
		}
	}
	guest := dev(9, "guest", "mia@elsewhere.net")
	guest.IsExternal = true
	windows := dev(3, "bob1", "bob@example.com")
	windows.OS = "windows"
	return &Inventory{
		Devices: []Device{
			dev(1, "ada1", "ada@example.com"), dev(2, "ada2", "ada@example.com"), windows, dev(4, "cy1", "cy@example.org"),
			dev(5, "web", "", "tag:web"), dev(6, "db", "", "tag:db"), dev(7, "both", "", "tag:web", "tag:db"),
			dev(8, "box", "", "tag:box"), guest,
		},
		Users: []User{
			{ID: "20", LoginName: "ada@example.com", Role: "owner"},
			{ID: "7", LoginName: "bob@example.com", Role: "admin"},
			{ID: "100", LoginName: "cy@example.org", Role: "member"},
			{ID: "8", LoginName: "eve@example.com", Role: "member"},
		},
	}
}

const sshNames = `"groups": {"group:dev": ["ada@example.com", "bob@example.com"], "group:none": []},
	"hosts": {"webhost": "100.64.0.5", "office": "10.0.0.0/8"},
	"postures": {"posture:win": ["node:os == 'windows'"]},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:box": [], "tag:unused": []},
`

// showSSH prints SSH rules one a line: the action, the last numbers of the principals and the accounts.
func showSSH(t *testing.T, rules []SSHRule) []string {
	t.Helper()
	var out []string
	for _, r := range rules {
		line := "accept"
		switch r.Action.HoldAndDelegate {
		case "":
			if want := (SSHAction{
				Accept: true, AllowAgentForwarding: true, AllowLocalPortForwarding: true, AllowRemotePortForwarding: true,
				Recorders: r.Action.Recorders,
			}); !cmp.Equal(r.Action, want) {
				t.Errorf("action %+v, want %+v", r.Action, want)
			}
		default:
			line = "check"
			if r.Action.Accept || r.Action.AllowAgentForwarding {
				t.Errorf("a check that accepts: %+v", r.Action)
			}
		}
		for _, p := range r.Principals {
			line += " " + p.NodeIP[strings.LastIndexByte(p.NodeIP, '.')+1:]
		}
		for _, user := range slices.Sorted(maps.Keys(r.SSHUsers)) {
			line += " " + user + ":" + r.SSHUsers[user]
		}
		if len(r.AcceptEnv) > 0 {
			line += fmt.Sprintf(" %q", r.AcceptEnv)
		}
		if len(r.Action.Recorders) > 0 {
			line += fmt.Sprint(" ", r.Action.Recorders)
		}
		out = append(out, line)
	}
	return out
}

func TestSSH(t *testing.T) {
	tests := []struct {
		name, ssh string
		want      map[string][]string // by device; the others get none
	}{
		{"no rules", ``, nil},
		{
			"root alone", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["root"]}`,
			map[string][]string{"db": {"accept 3 root:root"}, "both": {"accept 3 root:root"}},
		},
		{
			"everything that is tagged as dst", `{"action": "check", "src": ["bob@example.com"], "dst": ["autogroup:tagged"], "users": ["root"]}`,
			map[string][]string{
				"web": {"check 3 root:root"}, "db": {"check 3 root:root"}, "both": {"check 3 root:root"}, "box": {"check 3 root:root"},
			},
		},
		{
			"everything that is tagged and own devices", `{"action": "accept", "src": ["bob@example.com"], "dst": ["autogroup:self", "autogroup:tagged"], "users": ["root"]}`,
			map[string][]string{
				"bob1": {"accept 3 root:root"}, "web": {"accept 3 root:root"}, "db": {"accept 3 root:root"}, "both": {"accept 3 root:root"}, "box": {"accept 3 root:root"},
			},
		},
		{
			"all but root", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["autogroup:nonroot"]}`,
			map[string][]string{"db": {"accept 3 *:= root:"}, "both": {"accept 3 *:= root:"}},
		},
		{
			"root and the others", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["autogroup:nonroot", "root"]}`,
			map[string][]string{"db": {"accept 3 *:= root:root"}, "both": {"accept 3 *:= root:root"}},
		},
		{
			"names, some of which only look like selectors",
			`{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["ubuntu", "group:dev", "autogroup:member", "localpart:*@", "localpart:x@example.com", "🚀"]}`,
			map[string][]string{
				"db":   {"accept 3 autogroup:member:autogroup:member group:dev:group:dev localpart:*@:localpart:*@ localpart:x@example.com:localpart:x@example.com root: ubuntu:ubuntu 🚀:🚀"},
				"both": {"accept 3 autogroup:member:autogroup:member group:dev:group:dev localpart:*@:localpart:*@ localpart:x@example.com:localpart:x@example.com root: ubuntu:ubuntu 🚀:🚀"},
			},
		},
		{
			"blanks around everything", `{"action": " accept", "src": ["bob@example.com\t"], "dst": [" tag:db "], "users": ["\troot"]}`,
			map[string][]string{"db": {"accept 3 root:root"}, "both": {"accept 3 root:root"}},
		},
		{
			"a group, a domain, members", `{"action": "accept", "src": ["group:dev"], "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "src": ["user:*@example.com"], "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "src": ["autogroup:member"], "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "src": ["autogroup:admin"], "dst": ["tag:db"], "users": ["root"]}`,
			map[string][]string{
				"db":   {"accept 1 2 3 root:root", "accept 1 2 3 root:root", "accept 1 2 3 4 root:root", "accept 1 2 3 root:root"},
				"both": {"accept 1 2 3 root:root", "accept 1 2 3 root:root", "accept 1 2 3 4 root:root", "accept 1 2 3 root:root"},
			},
		},
		{
			"one rule for several tags", `{"action": "accept", "src": ["tag:db"], "dst": ["tag:web", "tag:db"], "users": ["root"]}`,
			map[string][]string{"web": {"accept 6 7 root:root"}, "db": {"accept 6 7 root:root"}, "both": {"accept 6 7 root:root"}},
		},
		{
			"tagged devices once for each tag", `{"action": "accept", "src": ["autogroup:tagged"], "dst": ["tag:db"], "users": ["root"]}`,
			map[string][]string{"db": {"accept 5 6 7 7 8 root:root"}, "both": {"accept 5 6 7 7 8 root:root"}},
		},
		{
			"own devices", `{"action": "accept", "src": ["group:dev"], "dst": ["autogroup:self"], "users": ["root"]}`,
			map[string][]string{"ada1": {"accept 1 2 root:root"}, "ada2": {"accept 1 2 root:root"}, "bob1": {"accept 3 root:root"}},
		},
		{
			"own devices and a tag", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web", "autogroup:self"], "users": ["root"]}`,
			map[string][]string{"bob1": {"accept 3 root:root"}, "web": {"accept 3 root:root"}, "both": {"accept 3 root:root"}},
		},
		{
			"a user to the same user", `{"action": "accept", "src": ["ada@example.com"], "dst": ["ada@example.com"], "users": ["root"]}`,
			map[string][]string{"ada1": {"accept 1 2 root:root"}, "ada2": {"accept 1 2 root:root"}},
		},
		{"nobody", `{"action": "accept", "src": ["group:none"], "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "src": ["eve@example.com"], "dst": ["tag:db"], "users": ["root", "localpart:*@example.com"]},
			{"action": "accept", "src": [], "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "dst": ["tag:db"], "users": ["root"]},
			{"action": "accept", "src": ["bob@example.com"], "dst": [], "users": ["root"]},
			{"action": "accept", "src": ["bob@example.com"], "users": ["root"]},
			{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:unused"], "users": ["root"]}`, nil},
		{
			"checks come first, else the order of the text",
			`{"action": "accept", "src": ["cy@example.org"], "dst": ["tag:db"], "users": ["a"]},
			{"action": "check", "src": ["cy@example.org"], "dst": ["tag:db"], "users": ["b"], "checkPeriod": "1h"},
			{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["a"], "acceptEnv": ["**", "X?"]},
			{"action": "check", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["b"], "checkPeriod": null, "acceptEnv": null}`,
			map[string][]string{
				"db":   {"check 4 b:b root:", "check 3 b:b root:", "accept 4 a:a root:", `accept 3 a:a root: ["**" "X?"]`},
				"both": {"check 4 b:b root:", "check 3 b:b root:", "accept 4 a:a root:", `accept 3 a:a root: ["**" "X?"]`},
			},
		},
		{
			"equal rules are not merged", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["a"]},
			{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["a"]}`,
			map[string][]string{"db": {"accept 3 a:a root:", "accept 3 a:a root:"}, "both": {"accept 3 a:a root:", "accept 3 a:a root:"}},
		},
		{
			"users under their own names: by user in the order of ids, those of other domains with the common names alone",
			`{"action": "check", "src": ["autogroup:member"], "dst": ["tag:db"], "users": ["localpart:*@example.com", "ubuntu"]}`,
			map[string][]string{
				"db": {
					"check 3 root: ubuntu:ubuntu", "check 3 bob:bob", "check 1 2 root: ubuntu:ubuntu", "check 1 2 ada:ada",
					"check 4 root: ubuntu:ubuntu",
				},
				"both": {
					"check 3 root: ubuntu:ubuntu", "check 3 bob:bob", "check 1 2 root: ubuntu:ubuntu", "check 1 2 ada:ada",
					"check 4 root: ubuntu:ubuntu",
				},
				// A source that is no destination gets what concerns its own user.
				"ada1": {"check 1 2 root: ubuntu:ubuntu", "check 1 2 ada:ada"},
				"ada2": {"check 1 2 root: ubuntu:ubuntu", "check 1 2 ada:ada"},
				"bob1": {"check 3 root: ubuntu:ubuntu", "check 3 bob:bob"},
				"cy1":  {"check 4 root: ubuntu:ubuntu"},
			},
		},
		{
			"own names on own devices", `{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self"], "users": ["localpart:*@example.com"]}`,
			map[string][]string{
				"ada1": {"accept 1 2 root:", "accept 1 2 ada:ada"}, "ada2": {"accept 1 2 root:", "accept 1 2 ada:ada"},
				"bob1": {"accept 3 root:", "accept 3 bob:bob"}, "cy1": {"accept 4 root:"},
			},
		},
		{
			"own names of tagged devices are none", `{"action": "accept", "src": ["tag:web", "bob@example.com"], "dst": ["tag:db"], "users": ["localpart:*@example.com"]}`,
			map[string][]string{
				"db":   {"accept 3 root:", "accept 3 bob:bob", "accept 5 7 root:"},
				"both": {"accept 3 root:", "accept 3 bob:bob", "accept 5 7 root:"},
				"web":  {"accept 5 root:"}, "bob1": {"accept 3 root:", "accept 3 bob:bob"},
			},
		},
		{
			"posture", `{"action": "accept", "src": ["group:dev"], "dst": ["tag:db"], "users": ["root"], "srcPosture": ["posture:win"]}`,
			map[string][]string{"db": {"accept 3 root:root"}, "both": {"accept 3 root:root"}},
		},
		{
			"recorder", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["root"], "recorder": ["tag:web"]}`,
			map[string][]string{
				"db":   {"accept 3 root:root [100.64.0.7:80 100.64.0.5:80]"},
				"both": {"accept 3 root:root [100.64.0.7:80 100.64.0.5:80]"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(`{`+sshNames+`"ssh": [`+tt.ssh+`]}`), sshTailnet(), nil)
			if !r.Accepted {
				t.Fatalf("not accepted: %s", r.Message)
			}
			got := map[string][]string{}
			for _, d := range r.Compiled.Devices() {
				rules, err := r.Compiled.SSH(d)
				if err != nil {
					t.Fatal(err)
				}
				if l := showSSH(t, rules); l != nil {
					got[d] = l
				}
			}
			if tt.want == nil {
				tt.want = map[string][]string{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSSHOnTheWire(t *testing.T) {
	inv := sshTailnet()
	inv.Devices[2].Addresses = []string{"100.99.0.3", "fd7a:115c:a1e0::3", "100.100.0.3"}
	r := Check("p", []byte(`{`+sshNames+`"ssh": [
		{"action": "check", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["root"], "checkPeriod": "12h", "acceptEnv": ["TERM"]},
		{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:db"], "users": ["root"]}]}`), inv, nil)
	rules, err := r.Compiled.SSH("db")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(rules, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `[
 {
  "principals": [
   {
    "nodeIP": "100.100.0.3"
   },
   {
    "nodeIP": "100.99.0.3"
   },
   {
    "nodeIP": "fd7a:115c:a1e0::3"
   }
  ],
  "sshUsers": {
   "root": "root"
  },
  "action": {
   "holdAndDelegate": "https://unused/machine/ssh/action/$SRC_NODE_ID/to/$DST_NODE_ID?local_user=$LOCAL_USER"
  },
  "acceptEnv": [
   "TERM"
  ]
 },
 {
  "principals": [
   {
    "nodeIP": "100.100.0.3"
   },
   {
    "nodeIP": "100.99.0.3"
   },
   {
    "nodeIP": "fd7a:115c:a1e0::3"
   }
  ],
  "sshUsers": {
   "root": "root"
  },
  "action": {
   "accept": true,
   "allowAgentForwarding": true,
   "allowLocalPortForwarding": true,
   "allowRemotePortForwarding": true
  }
 }
]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if rules, err := r.Compiled.SSH("web"); rules != nil || err != nil {
		t.Errorf("web: got %v, %v, want null", rules, err)
	}
	if _, err := r.Compiled.SSH("nobody"); err == nil {
		t.Error("a device that is not there has rules")
	}
}

func TestSSHRefusals(t *testing.T) {
	rule := func(body string) string {
		return `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]` + body + `}`
	}
	tests := []struct{ name, ssh, message, code, at string }{
		{"no action", `{"src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]}`, `action must be specified`, "bad-action", "ssh[0]"},
		{"blank action", `{"action": " ", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]}`, `action must be specified`, "bad-action", "ssh[0].action"},
		{"deny", `{"action": "deny", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]}`, `"deny" is not a valid action`, "bad-action", "ssh[0].action"},
		{"case counts", `{"action": " Accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"]}`, `"Accept" is not a valid action`, "bad-action", "ssh[0].action"},
		{"no users", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"]}`, `users must be specified`, "no-ssh-users", "ssh[0]"},
		{"null users", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": null}`, `users must be specified`, "no-ssh-users", "ssh[0]"},
		{"empty users", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": []}`, `users must be specified`, "no-ssh-users", "ssh[0].users"},
		{"star beside a good user", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root", " *"]}`, `user "*" is not valid`, "bad-ssh-user", "ssh[0].users[1]"},
		{"blank user", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": [" "]}`, `user "" is not valid`, "bad-ssh-user", "ssh[0].users[0]"},
		{
			"a user's domain that is not ours", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["localpart:*@example.org"]}`,
			`example.org is not associated with this Tailnet and cannot be used in user:*@<domain> expressions`, "foreign-domain", "ssh[0].users[0]",
		},
		{
			"a domain in capitals", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["localpart:*@Example.com"]}`,
			`Example.com is not associated with this Tailnet and cannot be used in user:*@<domain> expressions`, "foreign-domain", "ssh[0].users[0]",
		},
		{
			"any domain", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["localpart:*@*"]}`,
			`* is not associated with this Tailnet and cannot be used in user:*@<domain> expressions`, "foreign-domain", "ssh[0].users[0]",
		},
		{
			"sources of a domain that is not ours", `{"action": "accept", "src": ["user:*@example.org"], "dst": ["tag:web"], "users": ["root"]}`,
			`[ssh] example.org is not associated with this Tailnet and cannot be used in user:*@<domain> expressions`, "foreign-domain", "ssh[0].src[0]",
		},
		{"empty variable", rule(`, "acceptEnv": ["TERM", ""]`), `acceptEnv values cannot be empty`, "bad-accept-env", "ssh[0].acceptEnv[1]"},
		{"negative period", `{"action": "check", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"], "checkPeriod": "-1m"}`, `checkPeriod -1m0s must be a positive duration`, "bad-check-period", "ssh[0].checkPeriod"},
		{"period of more than a week", `{"action": "check", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"], "checkPeriod": "168h0m1s"}`, `checkPeriod 168h0m1s is above the max (168h)`, "bad-check-period", "ssh[0].checkPeriod"},
		{"period of days", `{"action": "check", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"], "checkPeriod": "7d"}`, `time: unknown unit "d" in duration "7d"`, "bad-check-period", "ssh[0].checkPeriod"},
		{"no period", `{"action": "check", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"], "checkPeriod": "often"}`, `time: invalid duration "often"`, "bad-check-period", "ssh[0].checkPeriod"},
		{"host as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["webhost"], "users": ["root"]}`, `invalid dst "webhost"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"network as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["office"], "users": ["root"]}`, `invalid dst "office"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"address as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["100.64.0.5"], "users": ["root"]}`, `invalid dst "100.64.0.5"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"everything as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["*"], "users": ["root"]}`, `invalid dst "*"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"group as dst", `{"action": "accept", "src": ["group:dev"], "dst": ["group:dev"], "users": ["root"]}`, `invalid dst "group:dev"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"members as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["autogroup:member"], "users": ["root"]}`, `invalid dst "autogroup:member"`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"guests as src", `{"action": "accept", "src": ["autogroup:shared"], "dst": ["tag:web"], "users": ["root"]}`, `invalid src "autogroup:shared"`, "bad-ssh-end", "ssh[0].src[0]"},
		{"another user as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["ada@example.com"], "users": ["root"]}`, `users in dst are only allowed from the same user`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"a tag to a user's devices", `{"action": "accept", "src": ["tag:db"], "dst": ["ada@example.com"], "users": ["root"]}`, `users in dst are only allowed from the same user`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"the user and others as src", `{"action": "accept", "src": ["ada@example.com", "bob@example.com"], "dst": ["ada@example.com"], "users": ["root"]}`, `users in dst are only allowed from the same user`, "bad-ssh-end", "ssh[0].dst[0]"},
		{"unknown tag as dst", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:wbe"], "users": ["root"]}`, `[ssh] tag not found: "tag:wbe"`, "unknown-tag", "ssh[0].dst[0]"},
		{"tag with a port", `{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web:22"], "users": ["root"]}`, `[ssh] tag not found: "tag:web:22"`, "unknown-tag", "ssh[0].dst[0]"},
		{"unknown tag as src", `{"action": "accept", "src": ["tag:wbe"], "dst": ["tag:web"], "users": ["root"]}`, `[ssh] tag not found: "tag:wbe"`, "unknown-tag", "ssh[0].src[0]"},
		{"unknown group as src", `{"action": "accept", "src": ["group:dve"], "dst": ["tag:web"], "users": ["root"]}`, `[ssh] group not found: "group:dve"`, "unknown-group", "ssh[0].src[0]"},
		{"address as src", `{"action": "accept", "src": ["100.64.0.3"], "dst": ["tag:web"], "users": ["root"]}`, `invalid src "100.64.0.3"`, "bad-ssh-end", "ssh[0].src[0]"},
		{"everybody as src", `{"action": "accept", "src": ["*"], "dst": ["tag:web"], "users": ["root"]}`, `invalid src "*"`, "bad-ssh-end", "ssh[0].src[0]"},
		{"self as src", `{"action": "accept", "src": ["autogroup:self"], "dst": ["tag:web"], "users": ["root"]}`, `"autogroup:self" not valid on the src side of a rule`, "bad-selector", "ssh[0].src[0]"},
		{"a tag to own devices", `{"action": "accept", "src": ["bob@example.com", "tag:db"], "dst": ["autogroup:self"], "users": ["root"]}`, `autogroup:self can only be used with users, groups, or supported autogroups`, "bad-self", "ssh[0].src[1]"},
		{"a tag is not checked", `{"action": "check", "src": ["tag:db"], "dst": ["tag:web"], "users": ["root"]}`, `src "tag:db" cannot be checked`, "bad-action", "ssh[0].action"},
		{"unknown posture", rule(`, "srcPosture": ["posture:wni"]`), `posture not found: "posture:wni"`, "unknown-posture", "ssh[0].srcPosture[0]"},
		{"unknown recorder", rule(`, "recorder": ["tag:wbe"]`), `[ssh] tag not found: "tag:wbe"`, "unknown-tag", "ssh[0].recorder[0]"},
		{"the first rule that is wrong decides", rule("") + `, {"action": "deny", "users": ["*"]}, {"action": "x", "users": ["root"]}`, `"deny" is not a valid action`, "bad-action", "ssh[1].action"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := `{` + sshNames + `"ssh": [` + tt.ssh + `]}`
			r := Check("p", []byte(text), sshTailnet(), nil)
			if r.Status != 400 || r.Message != tt.message {
				t.Errorf("status %d, message %q, want %q", r.Status, r.Message, tt.message)
			}
			if len(r.Diagnostics) == 0 {
				t.Fatal("no finding")
			}
			d := r.Diagnostics[0]
			if d.Code != tt.code || d.Path != tt.at || d.Label == "" || d.Range.IsZero() {
				t.Errorf("finding %+v, want %s at %s", d, tt.code, tt.at)
			}
			fixed(t, text, d)
		})
	}
}

// fixed applies what a finding offers and expects the finding to be gone.
func fixed(t *testing.T, text string, d diag.Diagnostic) {
	t.Helper()
	for _, h := range d.Help {
		if len(h.Edits) == 0 {
			continue
		}
		mended := []byte(text)
		for _, e := range h.Edits {
			mended = slices.Concat(mended[:e.Range.Start.Offset], []byte(e.NewText), mended[e.Range.End.Offset:])
		}
		if again := Check("p", mended, sshTailnet(), nil); !again.Accepted {
			t.Errorf("%q does not help: %s", h.Message, again.Message)
		}
	}
}

func TestSSHWarnings(t *testing.T) {
	tests := []struct{ name, body, code string }{
		{"a group as account", `"users": ["group:dev"]`, "literal-ssh-user"},
		{"the part of one login", `"users": ["localpart:ada@example.com"]`, "literal-ssh-user"},
		{"period without check", `"users": ["root"], "checkPeriod": "1h"`, "bad-check-period"},
		{"nothing wrong", `"users": ["root", "autogroup:nonroot", "localpart:*@example.com"], "checkPeriod": "always"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(`{`+sshNames+`"ssh": [{"action": "accept", "src": ["bob@example.com"], "dst": ["tag:web"], `+tt.body+`}]}`), sshTailnet(), nil)
			if !r.Accepted {
				t.Fatalf("not accepted: %s", r.Message)
			}
			var codes []string
			for _, d := range r.Diagnostics {
				if d.Severity != diag.Warning {
					t.Errorf("%v is no warning", d)
				}
				codes = append(codes, d.Code)
			}
			if got := strings.Join(codes, " "); got != tt.code {
				t.Errorf("got %q, want %q", got, tt.code)
			}
		})
	}
	t.Run("periods that pass", func(t *testing.T) {
		for _, p := range []string{"0s", "30s", "1h", "168h", "always", "", " 12h"} {
			r := Check("p", fmt.Appendf(nil, `{%s"ssh": [{"action": "check", "src": ["bob@example.com"], "dst": ["tag:web"], "users": ["root"], "checkPeriod": %q}]}`, sshNames, p), sshTailnet(), nil)
			if !r.Accepted || len(r.Diagnostics) > 0 {
				t.Errorf("%q: %s %v", p, r.Message, r.Diagnostics)
			}
		}
	})
}

// TestNearest holds suggestions to the real distance: "deny" is no misspelt "check".
func TestNearest(t *testing.T) {
	tests := []struct{ name, want string }{{"acept", "accept"}, {"chekc", "check"}, {"ACCEPT", "accept"}, {"deny", ""}, {"drop", ""}, {"", ""}}
	for _, tt := range tests {
		if got := nearest(tt.name, []string{"accept", "check"}); got != tt.want {
			t.Errorf("nearest to %q: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestSSHWithoutInventory keeps what cannot be known from being refused.
func TestSSHWithoutInventory(t *testing.T) {
	r := Check("p", []byte(`{"ssh": [{"action": "accept", "src": ["user:*@example.org"], "dst": ["autogroup:self"], "users": ["localpart:*@example.org"]}]}`), nil, nil)
	if !r.Accepted {
		t.Errorf("refused: %s", r.Message)
	}
}
