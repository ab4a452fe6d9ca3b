package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// TestRefusals holds the control plane's messages, and the code that we give each.
func TestRefusals(t *testing.T) {
	acl := func(body string) string { return `"acls": [{"action": "accept", ` + body + `}]` }
	grant := func(body string) string { return `"grants": [{` + body + `}]` }
	tests := []struct{ name, policy, message, code string }{
		{"action", `"acls": [{"action": "deny", "src": ["*"], "dst": ["*:*"]}]`, `action="deny" is not supported`, "bad-action"},
		{"no action", `"acls": [{"src": ["*"], "dst": ["*:*"]}]`, `action="" is not supported`, "bad-action"},
		{"action in capitals", `"acls": [{"action": "Accept", "src": ["*"], "dst": ["*:*"]}]`, `action="Accept" is not supported`, "bad-action"},
		{"src tag", acl(`"src": ["tag:wbe"], "dst": ["*:*"]`), `src=tag not found: "tag:wbe"`, "unknown-tag"},
		{"dst tag", acl(`"src": ["*"], "dst": ["tag:wbe:22"]`), `dst="tag:wbe": tag not found: "tag:wbe"`, "unknown-tag"},
		{"src group", acl(`"src": ["group:devs"], "dst": ["*:*"]`), `src=group not found: "group:devs"`, "unknown-group"},
		{"src host", acl(`"src": ["webhots"], "dst": ["*:*"]`), `src=unknown user or host: "webhots"`, "unknown-host"},
		{"dst host", grant(`"src": ["*"], "dst": ["webhots"], "ip": ["*"]`), `dst "webhots": unknown user or host: "webhots"`, "unknown-host"},
		{"dst tag in a grant", grant(`"src": ["*"], "dst": ["tag:wbe"], "ip": ["*"]`), `dst "tag:wbe": tag not found: "tag:wbe"`, "unknown-tag"},
		{"dst address with a port in a grant", grant(`"src": ["*"], "dst": ["10.1.0.6:3690"], "ip": ["*"]`), `dst "10.1.0.6:3690": host name must not contain colon (":") for "10.1.0.6:3690"`, "unknown-host"},
		{"dst v6 address with a port in a grant", grant(`"src": ["*"], "dst": ["[fd7a:115c:a1e0::1]:22"], "ip": ["*"]`), `dst "[fd7a:115c:a1e0::1]:22": host name must not contain colon (":") for "[fd7a:115c:a1e0::1]:22"`, "unknown-host"},
		{"dst user with a port in a grant", grant(`"src": ["*"], "dst": ["ada@example.com:22"], "ip": ["*"]`), `dst "ada@example.com:22": host name must not contain colon (":") for "ada@example.com:22"`, "unknown-host"},
		{"dst autogroup with a port in a grant", grant(`"src": ["*"], "dst": ["autogroup:member:443"], "ip": ["*"]`), `dst "autogroup:member:443": host name must not contain colon (":") for "autogroup:member:443"`, "unknown-autogroup"},
		{"one group by two names", `"acls": [{"action": "accept", "src": ["autogroup:members"], "dst": ["*:*"]}], "ssh": [{"action": "accept", "src": [" autogroup:member"], "dst": ["tag:web"], "users": ["root"]}]`, `cannot use both "autogroup:member" and "autogroup:members"`, "bad-selector"},
		{"one group by two names, in dst", acl(`"src": ["autogroup:member"], "dst": ["autogroup:members:22"]`), `cannot use both "autogroup:member" and "autogroup:members"`, "bad-selector"},
		{"host with an @", `"hosts": {"nas@home": "10.1.0.9"}`, `host names cannot include an @, please change the name for "nas@home"`, "bad-name"},
		{"named port", acl(`"src": ["*"], "dst": ["tag:web:ssh"]`), `dst="tag:web:ssh": port range "ssh": invalid first integer`, "bad-ports"},
		{"no port", acl(`"src": ["*"], "dst": ["tag:web"]`), `dst="tag:web": port range "web": invalid first integer`, "bad-ports"},
		{"self without a port", acl(`"src": ["*"], "dst": ["autogroup:self"]`), `dst="autogroup:self": port range "self": invalid first integer`, "bad-ports"},
		{"no colon at all", acl(`"src": ["*"], "dst": ["webhost"]`), `dst="webhost": hostport must contain a colon (":")`, "bad-ports"},
		{"port 0", acl(`"src": ["*"], "dst": ["webhost:0"]`), `dst="webhost:0": port range "0": first port must be >0, or use '*' for wildcard`, "bad-ports"},
		{"port too high", acl(`"src": ["*"], "dst": ["webhost:65536"]`), `dst="webhost:65536": port range "65536": invalid first integer`, "bad-ports"},
		{"range that ends in a word", acl(`"src": ["*"], "dst": ["webhost:1-x"]`), `dst="webhost:1-x": port range "1-x": invalid last integer`, "bad-ports"},
		{"inverted range", acl(`"src": ["*"], "dst": ["webhost:9-1"]`), `dst="webhost:9-1": port range "9-1": first port must be >= last port`, "bad-ports"},
		{"two dashes", acl(`"src": ["*"], "dst": ["webhost:1-2-3"]`), `dst="webhost:1-2-3": port range "1-2-3": too many dashes(-)`, "bad-ports"},
		{"empty port in a list", acl(`"src": ["*"], "dst": ["webhost:1,,2"]`), `dst="webhost:1,,2": invalid port list: "1,,2"`, "bad-ports"},
		{"self as src", acl(`"src": ["autogroup:self"], "dst": ["*:*"]`), `"autogroup:self" not valid on the src side of a rule`, "bad-selector"},
		{"self of a tag", acl(`"src": ["autogroup:member", "tag:web"], "dst": ["autogroup:self:*"]`), `autogroup:self can only be used with users, groups, or supported autogroups`, "bad-self"},
		{"self of a star in grants", grant(`"src": ["*"], "dst": ["autogroup:self"], "ip": ["*"]`), `autogroup:self can only be used with users, groups, or supported autogroups`, "bad-self"},
		{"service as src", acl(`"src": ["svc:db"], "dst": ["*:*"]`), `"svc:db" not valid on the src side of a rule`, "bad-selector"},
		{"range as src", grant(`"src": ["10.1.0.1-10.1.0.9"], "dst": ["*"], "ip": ["*"]`), `"10.1.0.1-10.1.0.9" not valid on the src side of a rule`, "bad-selector"},
		{"range as dst", acl(`"src": ["*"], "dst": ["10.1.0.1-10.1.0.9:22"]`), `"10.1.0.1-10.1.0.9" not valid on the dst side of a rule`, "bad-selector"},
		{"guests as dst", acl(`"src": ["*"], "dst": ["autogroup:shared:22"]`), `"autogroup:shared" not valid on the dst side of a rule`, "bad-selector"},
		{"guests as dst of a grant", grant(`"src": ["*"], "dst": ["autogroup:shared"], "ip": ["*"]`), `"autogroup:shared" not valid on the dst side of a rule`, "bad-selector"},
		{"guests as owners of a tag", `"tagOwners": {"tag:a": ["autogroup:shared"]}`, `tagOwners["tag:a"]: "autogroup:shared" is neither a user, a group, an autogroup nor a tag`, "bad-principal"},
		{"danger-all as dst", grant(`"src": ["*"], "dst": ["autogroup:danger-all"], "ip": ["*"]`), `cannot use autogroup:danger-all as a dst`, "bad-selector"},
		{"unknown autogroup", acl(`"src": ["autogroup:membr"], "dst": ["*:*"]`), `src=autogroup not found: "autogroup:membr"`, "unknown-autogroup"},
		{"capabilities on the internet", grant(`"src": ["*"], "dst": ["autogroup:internet"], "app": {"example.com/cap/a": [{}]}`), `cannot use app grants with autogroup:internet`, "app-internet"},
		{"capabilities on the devices of admins", grant(`"src": ["*"], "dst": ["tag:web", "autogroup:it-admin"], "app": {"example.com/cap/a": [{}]}`), `cannot use app grants with autogroup:it-admin`, "app-internet"},
		{"every v4 address", grant(`"src": ["*"], "dst": ["0.0.0.0/0"], "ip": ["*"]`), `dst "0.0.0.0/0": to allow all IP addresses, use "*" or "autogroup:internet"`, "whole-internet"},
		{"every v6 address", grant(`"src": ["*"], "dst": ["::/0"], "ip": ["*"]`), `dst "::/0": to allow all IP addresses, use "*" or "autogroup:internet"`, "whole-internet"},
		{"grants nothing", grant(`"src": ["*"], "dst": ["*"]`), `ip and app can not both be empty`, "empty-grant"},
		{"grants empty things", grant(`"src": ["*"], "dst": ["*"], "ip": [], "app": {}`), `ip and app can not both be empty`, "empty-grant"},
		{"scheme in a capability", grant(`"src": ["*"], "dst": ["*"], "app": {"https://example.com/cap/a": []}`), `capability name must have the form {domain}/{path}`, "bad-capability"},
		{"reserved capability", grant(`"src": ["*"], "dst": ["*"], "app": {"tailscale.com/cap/relay-target": []}`), `capability name must not be in the tailscale.com domain`, "bad-capability"},
		{"via a group", grant(`"src": ["*"], "dst": ["10.1.0.0/16"], "ip": ["*"], "via": ["group:dev"]`), `via can only be a tag`, "bad-via"},
		{"via an unknown tag", grant(`"src": ["*"], "dst": ["10.1.0.0/16"], "ip": ["*"], "via": ["tag:rooter"]`), `tag "tag:rooter" not found`, "unknown-tag"},
		{"protocol without ports", grant(`"src": ["*"], "dst": ["*"], "ip": ["icmp"]`), `port range "icmp": invalid first integer`, "port-not-protocol"},
		{"port 0 in a grant", grant(`"src": ["*"], "dst": ["*"], "ip": ["tcp:0"]`), `port range "0": first port must be >0, or use '*' for wildcard`, "bad-ports"},
		{"unknown protocol", acl(`"proto": "ipinip", "src": ["*"], "dst": ["*:*"]`), `proto name "ipinip" not known; use protocol number 0-255`, "bad-proto"},
		{"port of a portless protocol, acl", acl(`"proto": "ip-in-ip", "src": ["*"], "dst": ["*:22"]`), `"*:22": protocol "ip-in-ip" has no ports, use '*'`, "port-on-portless"},
		{"port of a portless protocol, grant", grant(`"src": ["*"], "dst": ["*"], "ip": ["icmp:8"]`), `"icmp:8": protocol "icmp" has no ports, use '*'`, "port-on-portless"},
		{"group in a group", `"groups": {"group:x": ["group:y"], "group:y": ["ada@example.com"]}`, `groups["group:x"]: "group:y": group members cannot be recursive`, "recursive-group"},
		{"of several groups in groups the last", `"groups": {"group:x": ["group:y"], "group:y": ["group:x"]}`, `groups["group:y"]: "group:x": group members cannot be recursive`, "recursive-group"},
		{"tag in a group", `"groups": {"group:x": ["ada@example.com", "tag:web"]}`, `groups["group:x"]: "tag:web": group members must be users`, "bad-principal"},
		{"autogroup in a group", `"groups": {"group:x": ["autogroup:admin"]}`, `groups["group:x"]: "autogroup:admin": group members must be users`, "bad-principal"},
		{"everybody in a group", `"groups": {"group:x": ["*"]}`, `groups["group:x"]: "*": group members must be users`, "bad-principal"},
		{"network in a group", `"groups": {"group:x": ["10.0.0.0/8"]}`, `groups["group:x"]: "10.0.0.0/8": group members must be users`, "bad-principal"},
		{"tag that starts with no letter", `"tagOwners": {"tag:1a": []}`, `tagOwners["tag:1a"]: tag names must start with a letter, after 'tag:'`, "bad-name"},
		{"tag in another script", `"tagOwners": {"tag:сервер": []}`, `tagOwners["tag:сервер"]: tag names must start with a letter, after 'tag:'`, "bad-name"},
		{"owner that is not there", `"tagOwners": {"tag:a": ["group:nobody"]}`, `tagOwners["tag:a"]: group not found: "group:nobody"`, "unknown-group"},
		{"ipset in itself", `"ipsets": {"ipset:a": ["ipset:b"], "ipset:b": ["add 10.0.0.0/8", "remove ipset:a"]}`, `ipsets["ipset:b"]: "ipset:a" is part of itself`, "ipset-cycle"},
		{"ipset of a tag", `"ipsets": {"ipset:a": ["tag:web"]}`, `ipsets["ipset:a"]: "tag:web" cannot be part of an ipset`, "bad-ipset"},
		{"ipset of an unknown host", `"ipsets": {"ipset:a": ["add host:webhots "]}`, `ipsets["ipset:a"]: host not found: "webhots"`, "unknown-host"},
		{"ipset of an unknown ipset", `"ipsets": {"ipset:a": ["remove ipset:bb"], "ipset:b": []}`, `ipsets["ipset:a"]: ipset not found: "ipset:bb"`, "unknown-ipset"},
		{"posture without an operator", `"postures": {"posture:a": ["node:os linux"]}`, `postures["posture:a"]: "node:os linux": no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET`, "bad-posture"},
		{"posture that is not there", grant(`"src": ["*"], "dst": ["*"], "ip": ["*"], "srcPosture": ["posture:x"]`), `posture not found: "posture:x"`, "unknown-posture"},
		{"unknown key", acl(`"src": ["*"], "dst": ["*:*"], "comment": "x"`), `json: unknown field "comment"`, "unknown-field"},
		{"unknown key in ssh", `"ssh": [{"action": "accept", "sorc": [], "users": ["root"]}]`, `json: unknown field "sorc"`, "unknown-field"},
		{"duplicate key", `"acls": [], "ACLs": []`, `duplicate key "ACLs"`, "duplicate-key"},
		{"number for a string", `"acls": [{"action": "accept", "proto": 4, "src": ["*"], "dst": ["*:*"]}]`, `acls[0].proto: want a string, got a number`, "wrong-type"},
		{"string for a list", `"acls": [{"action": "accept", "src": "*", "dst": ["*:*"]}]`, `acls[0].src: want a list of strings, got a string`, "wrong-type"},
		{"number for a rule", `"acls": [1]`, `acls[0]: want an object, got a number`, "wrong-type"},
		{"string for a posture", `"postures": {"posture:a": "x"}`, `postures["posture:a"]: want a list of strings, got a string`, "wrong-type"},
		{"host without an address", `"hosts": {"a": null}`, `hosts["a"]: "": invalid address`, "bad-address"},
		{"foreign domain", acl(`"src": ["user:*@example.org"], "dst": ["*:*"]`), `example.org is not associated with this Tailnet and cannot be used in user:*@<domain> expressions`, "foreign-domain"},
		{"tests of the wrong kind", `"tests": [{"src": "tag:web"}]`, `test(s) failed`, "invalid-test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := "{"
			for _, section := range [][2]string{
				{`"hosts"`, `"hosts": {"webhost": "100.64.0.4"}, `},
				{`"groups"`, `"groups": {"group:dev": ["ada@example.com"]}, `},
				{`"tagOwners"`, `"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": [], "tag:left": [], "tag:exit": []}, `},
			} {
				if !strings.Contains(tt.policy, section[0]) {
					text += section[1]
				}
			}
			text += tt.policy + "}"
			r := Check("p", []byte(text), smallTailnet(), nil)
			if r.Accepted || r.Status != 400 || r.Message != tt.message {
				t.Errorf("status %d, message %q, want %q", r.Status, r.Message, tt.message)
			}
			if len(r.Diagnostics) == 0 || r.Diagnostics[0].Code != tt.code {
				t.Fatalf("findings %+v, want the code %s", r.Diagnostics, tt.code)
			}
			if len(r.Diagnostics) > 1 && tt.name != "of several groups in groups the last" {
				t.Errorf("more than one finding for one mistake: %+v", r.Diagnostics)
			}
			d := r.Diagnostics[0]
			if d.Range.IsZero() || d.Range.End.Offset <= d.Range.Start.Offset || d.Severity != diag.Error || d.Label == "" {
				t.Errorf("finding without place or label: %+v", d)
			}
			// Each edit that is offered leaves the text readable and mends what it is about.
			for _, h := range d.Help {
				if len(h.Edits) == 0 {
					continue
				}
				mended := applyEdits([]byte(text), h.Edits)
				after := Check("p", mended, smallTailnet(), nil)
				for _, d2 := range after.Diagnostics {
					if d2.Code == d.Code && d2.Path == d.Path {
						t.Errorf("still there after the edit %q:\n%s", h.Message, mended)
					}
				}
			}
		})
	}
}

func TestSyntaxErrors(t *testing.T) {
	tests := []struct{ name, text, message, code string }{
		{"missing brace", "{\n\t\"acls\": []\n", "line 3, column 1: parsing object after value: unexpected EOF", "unclosed"},
		{"missing bracket", "{\"acls\": [\n", "line 2, column 1: parsing value: unexpected EOF", "unclosed"},
		{"comma too many", "{,}", "line 1, column 2: invalid character ',' at start of value", "syntax"},
		{"characters, not bytes", "{\"é\": x}", "line 1, column 7: invalid literal: x", "syntax"},
		{"empty", "", "line 1, column 1: parsing value: unexpected EOF", "syntax"},
		{"two values", "{} {}", "line 1, column 4: invalid character '{' after top-level value", "syntax"},
		{"a list", "[]", "a policy file is an object, not a list", "wrong-type"},
		{"deep", strings.Repeat("[", 20000), "exceeded max depth", "syntax"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(tt.text), nil, []Requirement{meshRequirement()})
			if r.Accepted || r.Policy != nil || r.Message != tt.message {
				t.Errorf("message %q, want %q", r.Message, tt.message)
			}
			if len(r.Diagnostics) != 1 || r.Diagnostics[0].Code != tt.code || r.Diagnostics[0].Range.IsZero() {
				t.Fatalf("findings %+v, want one of code %s", r.Diagnostics, tt.code)
			}
			if r.Requirements[0].Verdict != Undecided {
				t.Errorf("requirement: %v", r.Requirements[0].Verdict)
			}
			for _, h := range r.Diagnostics[0].Help {
				if len(h.Edits) > 0 && Check("p", applyEdits([]byte(tt.text), h.Edits), nil, nil).Policy == nil {
					t.Errorf("the edit %q does not mend it", h.Message)
				}
			}
		})
	}
}

// A section that nobody here has heard of may be new; one that is all but called as a known one is a slip, which the
// control plane refuses.
func TestUnknownSection(t *testing.T) {
	r := Check("p", []byte(`{"newThing": {"a": 1}}`), smallTailnet(), nil)
	if !r.Accepted || len(r.Diagnostics) != 1 || r.Diagnostics[0].Severity != diag.Warning || r.Diagnostics[0].Code != "unknown-section" {
		t.Fatalf("got %+v", r)
	}
	if len(r.Policy.Unknown) != 1 || string(r.Policy.Unknown[0].Raw.Value) != `{"a":1}` {
		t.Errorf("not carried through: %+v", r.Policy.Unknown)
	}
	for wrong, right := range map[string]string{"acl": "acls", "tagOwner": "tagOwners", "grnts": "grants", "test": "tests"} {
		text := []byte(`{"` + wrong + `": ` + map[bool]string{true: `{}`, false: `[]`}[right == "tagOwners"] + `}`)
		r := Check("p", text, smallTailnet(), nil)
		if want := `json: unknown field "` + wrong + `"`; r.Accepted || r.Status != 400 || r.Message != want {
			t.Errorf("%s: %v %d %q, want %q", wrong, r.Accepted, r.Status, r.Message, want)
			continue
		}
		help := r.Diagnostics[0].Help
		if len(help) != 1 || !Check("p", applyEdits(text, help[0].Edits), smallTailnet(), nil).Accepted {
			t.Errorf("%s: the help %+v does not mend it", wrong, help)
		}
	}
}

// TestIPSetWithoutAdd holds that a set which removes says what it adds, as documented, and that nothing is refused for it.
func TestIPSetWithoutAdd(t *testing.T) {
	const text = `{"ipsets": {"ipset:a": ["10.0.0.0/8", "remove 10.1.0.0/16", "add 10.1.2.0/24"], "ipset:b": ["10.0.0.0/8", "add 192.0.2.1"]}}`
	r := Check("p", []byte(text), smallTailnet(), nil)
	if !r.Accepted || len(r.Diagnostics) != 1 {
		t.Fatalf("got %q, %+v", r.Message, r.Diagnostics)
	}
	d := r.Diagnostics[0]
	if d.Severity != diag.Warning || d.Path != `ipsets["ipset:a"][0]` || d.Message != `ipsets["ipset:a"]: "10.0.0.0/8" does not say "add"` {
		t.Errorf("got %+v", d)
	}
	if after := Check("p", applyEdits([]byte(text), d.Help[0].Edits), smallTailnet(), nil); len(after.Diagnostics) != 0 {
		t.Errorf("mended: %+v", after.Diagnostics)
	}
}

func TestNearNames(t *testing.T) {
	const text = "{\n\t\"tagOwners\": {\"tag:production\": []},\n\t\"groups\": {\"group:prodution\": []},\n\t\"acls\": [\n\t\t{\"action\": \"accept\", \"src\": [\"tag:prodution\"], \"dst\": [\"tag:prodution:22\"]},\n\t],\n}"
	r := Check("p", []byte(text), nil, nil)
	if len(r.Diagnostics) != 2 {
		t.Fatalf("got %+v", r.Diagnostics)
	}
	for _, d := range r.Diagnostics {
		if len(d.Related) != 1 || d.Related[0].Range.Start.Line != 2 {
			t.Errorf("related %+v", d.Related)
		}
		if len(d.Help) != 1 || d.Help[0].Message != `did you mean "tag:production"?` {
			t.Errorf("help %+v", d.Help)
		}
	}
	var edits []diag.Edit
	for _, d := range r.Diagnostics {
		edits = append(edits, d.Help[0].Edits...)
	}
	if after := Check("p", applyEdits([]byte(text), edits), nil, nil); !after.Accepted {
		t.Errorf("after the edits: %s", after.Message)
	}
	if got := r.Diagnostics[0].Range; got.Start.Line != 5 || got.Start.Column != 32 {
		t.Errorf("range %+v", got)
	}
}

func TestUnknownUserIsAWarning(t *testing.T) {
	const text = `{"acls": [{"action": "accept", "src": ["adda@example.com"], "dst": ["bob@example.com:22"]}]}`
	r := Check("p", []byte(text), smallTailnet(), nil)
	if !r.Accepted || len(r.Diagnostics) != 1 {
		t.Fatalf("got %q, %+v", r.Message, r.Diagnostics)
	}
	d := r.Diagnostics[0]
	if d.Severity != diag.Warning || d.Message != `src=user not found: "adda@example.com"` || len(d.Help) != 1 || d.Help[0].Message != `did you mean "ada@example.com"?` {
		t.Errorf("got %+v", d)
	}
}

func TestMisplacedRules(t *testing.T) {
	const names = `"tagOwners": {"tag:web": [], "tag:db": []}, `
	tests := []struct{ name, text, message, help, mended string }{
		{
			"an acl among grants", `"grants": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:5432"]}]`, `json: unknown field "action"`,
			"this looks like an entry of acls; as a grant it is", `{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["5432"]}`,
		},
		{
			"with a protocol", `"grants": [{"src": ["tag:web"], "proto": "udp", "dst": ["tag:db:53,54", "tag:web:53,54"]}]`, `json: unknown field "proto"`,
			"this looks like an entry of acls; as a grant it is", `{"src": ["tag:web"], "dst": ["tag:db", "tag:web"], "ip": ["udp:53", "udp:54"]}`,
		},
		{
			"that is more than one grant", `"grants": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:1", "tag:web:2"]}]`, `json: unknown field "action"`,
			"this looks like an entry of acls: move it there, or write it as a grant", "",
		},
		{
			"a grant among acls", `"acls": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["5432"]}]`, `json: unknown field "ip"`,
			`this looks like a grant: move it to "grants", or give it "action" and dst with ports`, "",
		},
		{
			"a port in a grant's dst", `"grants": [{"src": ["tag:web"], "dst": ["tag:db:5432"], "ip": ["*"]}]`, `dst "tag:db:5432": tag not found: "tag:db:5432"`,
			`write "tag:db" here and "5432" into ip`, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte("{"+names+tt.text+"}"), nil, nil)
			if r.Message != tt.message {
				t.Errorf("message %q, want %q", r.Message, tt.message)
			}
			if len(r.Diagnostics) != 1 || len(r.Diagnostics[0].Help) != 1 || r.Diagnostics[0].Help[0].Message != tt.help {
				t.Fatalf("want one finding with the help %q, got %+v", tt.help, r.Diagnostics)
			}
			edits := r.Diagnostics[0].Help[0].Edits
			if (tt.mended != "") != (len(edits) > 0) {
				t.Fatalf("edits %+v", edits)
			}
			if tt.mended != "" {
				if edits[0].NewText != tt.mended {
					t.Errorf("mended %s, want %s", edits[0].NewText, tt.mended)
				}
				if after := Check("p", applyEdits([]byte("{"+names+tt.text+"}"), edits), nil, nil); !after.Accepted {
					t.Errorf("after the edit: %s", after.Message)
				}
			}
		})
	}
}

func TestPortMeantAsProtocol(t *testing.T) {
	const text = `{"grants": [{"src": ["*"], "dst": ["*"], "ip": ["443", "4"]}]}`
	r := Check("p", []byte(text), nil, nil)
	if !r.Accepted || len(r.Diagnostics) != 1 {
		t.Fatalf("got %q, %+v", r.Message, r.Diagnostics)
	}
	d := r.Diagnostics[0]
	if want := `"4" is port 4 of tcp and udp, not protocol 4 (ip-in-ip)`; d.Severity != diag.Warning || d.Message != want || d.Path != "grants[0].ip[1]" {
		t.Errorf("got %+v", d)
	}
	if got := string(applyEdits([]byte(text), d.Help[0].Edits)); !strings.Contains(got, `"ip-in-ip:*"`) {
		t.Errorf("mended: %s", got)
	}
}

// TestPolicyTests judges tests sections in a tailnet of our own.
func TestPolicyTests(t *testing.T) {
	const overlay = `"acls": [{"action": "accept", "proto": "ip-in-ip", "src": ["tag:router"], "dst": ["tag:router:*"]},
		{"action": "accept", "src": ["group:dev"], "dst": ["tag:web:80,443", "10.1.0.0/16:22"]},
		{"action": "accept", "proto": "udp", "src": ["tag:web"], "dst": ["tag:db:53"]}], `
	tests := []struct {
		name, rules, test string
		want              Verdict
		got               string
	}{
		{"protocol without ports", overlay, `"src": "tag:router", "proto": "ip-in-ip", "accept": ["tag:router:0"]`, Pass, "accept"},
		{"by number", overlay, `"src": "tag:router", "proto": "4", "accept": ["tag:router:0"]`, Pass, "accept"},
		{"another protocol without ports", overlay, `"src": "tag:router", "proto": "gre", "deny": ["tag:router:0"]`, Pass, "drop"},
		{"a rule of all ports is not every protocol", `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}], `, `"src": "tag:web", "proto": "ip-in-ip", "accept": ["tag:db:0"]`, Fail, "drop"},
		{"star for a protocol without ports", overlay, `"src": "tag:router", "proto": "ip-in-ip", "accept": ["tag:router:*"]`, Fail, "invalid"},
		{"port for a protocol without ports", overlay, `"src": "tag:router", "proto": "ip-in-ip", "accept": ["tag:router:1"]`, Fail, "invalid"},
		{"port 0 for tcp", overlay, `"src": "group:dev", "proto": "tcp", "accept": ["tag:web:0"]`, Fail, "invalid"},
		{"group", overlay, `"src": "group:dev", "accept": ["tag:web:443"]`, Pass, "accept"},
		{"user of a group", overlay, `"src": "bob@example.com", "accept": ["webhost:80"]`, Pass, "accept"},
		{"user without a device", `"acls": [{"action": "accept", "src": ["eve@example.com", "autogroup:tagged"], "dst": ["webhost:80"]}], `, `"src": "eve@example.com", "accept": ["webhost:80"]`, Pass, "accept"},
		{"tag without a device", overlay, `"src": "tag:unused", "deny": ["webhost:80"]`, Pass, "drop"},
		{"behind a router", overlay, `"src": "ada@example.com", "accept": ["printer:22"]`, Pass, "accept"},
		{"address that nobody has", overlay, `"src": "ada@example.com", "deny": ["10.9.0.1:22"]`, Pass, "drop"},
		{"v6 in brackets", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["[fd7a:115c:a1e0::5]:53"]}], `, `"src": "tag:web", "accept": ["[fd7a:115c:a1e0::5]:53"]`, Pass, "accept"},
		{"v6 without brackets", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["fd7a:115c:a1e0::5:53"]}], `, `"src": "tag:web", "accept": ["fd7a:115c:a1e0::5:53"]`, Fail, "invalid"},
		{"deny of v6 without brackets", overlay, `"src": "tag:web", "deny": ["fd7a:115c:a1e0::99:53"]`, Fail, "invalid"},
		{"host with its prefix", overlay, `"src": "host:webhost", "accept": ["host:printer:22"]`, Fail, "drop"},
		{"without proto udp will do", overlay, `"src": "tag:web", "accept": ["tag:db:53"]`, Pass, "accept"},
		{"but not where tcp is asked", overlay, `"src": "tag:web", "proto": "tcp", "accept": ["tag:db:53"]`, Fail, "drop"},
		{"deny of what is allowed", overlay, `"src": "ada@example.com", "deny": ["tag:web:443"]`, Fail, "accept"},
		{"only some of a tag", `"acls": [{"action": "accept", "src": ["100.64.0.6"], "dst": ["tag:web:1"]}], `, `"src": "tag:router", "accept": ["tag:web:1"]`, Fail, "partial"},
		{"deny of some of a tag", `"acls": [{"action": "accept", "src": ["100.64.0.6"], "dst": ["tag:web:1"]}], `, `"src": "tag:router", "deny": ["tag:web:1"]`, Fail, "partial"},
		{"own devices", `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:22"]}], `, `"src": "ada@example.com", "accept": ["ada@example.com:22"], "deny": ["bob@example.com:22"]`, Pass, "accept"},
		{"list of ports", overlay, `"src": "ada@example.com", "accept": ["tag:web:80,443"]`, Fail, "invalid"},
		{"range of ports", overlay, `"src": "ada@example.com", "deny": ["tag:web:1-2"]`, Fail, "invalid"},
		{"cidr", overlay, `"src": "ada@example.com", "accept": ["10.1.0.0/16:22"]`, Fail, "invalid"},
		{"cidr of one address", overlay, `"src": "ada@example.com", "accept": ["10.1.0.1/32:22"]`, Fail, "invalid"},
		{"host that is a cidr", overlay, `"src": "ada@example.com", "accept": ["office:22"]`, Fail, "invalid"},
		{"star as dst", overlay, `"src": "ada@example.com", "deny": ["*:22"]`, Fail, "invalid"},
		{"internet as dst", overlay, `"src": "ada@example.com", "deny": ["autogroup:internet:22"]`, Fail, "invalid"},
		{"unknown src", overlay, `"src": "nobody@example.com", "deny": ["tag:web:22"]`, Fail, "invalid"},
		{"unknown dst", overlay, `"src": "ada@example.com", "deny": ["tag:wbe:22"]`, Fail, "invalid"},
		{"no src", overlay, `"deny": ["tag:web:22"]`, Fail, "invalid"},
		{"v4 to v6", `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}], `, `"src": "100.64.0.1", "accept": ["[fd7a:115c:a1e0::5]:53"]`, Fail, "invalid"},
		{"deny of v4 to v6", overlay, `"src": "webhost", "deny": ["[2001:db8::1]:80"]`, Fail, "invalid"},
		{"deny of both families to v6", overlay, `"src": "tag:unused", "deny": ["[2001:db8::1]:80"]`, Pass, "drop"},
		{"an account that a device is shared with is no member", `"grants": [{"src": ["autogroup:member", "user:*@example.com"], "dst": ["tag:web"], "ip": ["1"]}], `, `"src": "guest@example.com", "deny": ["tag:web:1"]`, Pass, "drop"},
		{"but shared", `"grants": [{"src": ["autogroup:shared"], "dst": ["tag:web"], "ip": ["1"]}], `, `"src": "guest@example.com", "accept": ["tag:web:1"]`, Pass, "accept"},
		{"and whom it is said to be", `"groups": {"group:x": ["guest@example.com"]}, "grants": [{"src": ["group:x"], "dst": ["tag:web"], "ip": ["1"]}], `, `"src": "guest@example.com", "accept": ["tag:web:1"]`, Pass, "accept"},
		{"legacy keys", overlay, `"user": "ada@example.com", "allow": ["tag:web:443"]`, Pass, "accept"},
		{"synced group", `"acls": [{"action": "accept", "src": ["group:ops@example.com"], "dst": ["tag:web:1"]}], `, `"src": "ada@example.com", "accept": ["tag:web:1"]`, Undecided, "undecided"},
		{"posture", `"postures": {"posture:x": ["custom:a == 'b'"]}, "acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:1"], "srcPosture": ["posture:x"]}], `, `"src": "ada@example.com", "accept": ["tag:web:1"]`, Undecided, "undecided"},
		{"posture that the test gives", `"postures": {"posture:x": ["custom:a == 'b'"]}, "acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:1"], "srcPosture": ["posture:x"]}], `, `"src": "ada@example.com", "srcPostureAttrs": {"custom:a": "b"}, "accept": ["tag:web:1"]`, Pass, "accept"},
		{"posture that the test gives otherwise", `"postures": {"posture:x": ["custom:a == 'b'"]}, "acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:1"], "srcPosture": ["posture:x"]}], `, `"src": "ada@example.com", "srcPostureAttrs": {"custom:c": 1}, "deny": ["tag:web:1"]`, Pass, "drop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			names, inv := smallNames, smallTailnet()
			inv.Users = append(inv.Users, User{ID: "9", LoginName: "guest@example.com", Type: "shared"})
			if strings.Contains(tt.rules, `"groups"`) {
				names = names[strings.Index(names, `"hosts"`):]
			}
			r := Check("p", []byte("{"+names+tt.rules+`"tests": [{`+tt.test+`}]}`), inv, nil)
			if len(r.Tests) == 0 {
				t.Fatalf("no result: %s", r.Message)
			}
			if got := r.Tests[0]; got.Verdict != tt.want || got.Got != tt.got {
				t.Errorf("got %s, %v (%s), want %s, %v", got.Got, got.Verdict, got.Reason, tt.got, tt.want)
			}
			if wantMessage := tt.want == Fail; (r.Message == "test(s) failed") != wantMessage || r.Accepted == wantMessage {
				t.Errorf("message %q", r.Message)
			}
			if tt.want == Undecided && len(r.Tests[0].Missing) == 0 {
				t.Error("undecided, and it does not say what was missing")
			}
			if len(r.Diagnostics) == 0 && tt.want != Pass {
				t.Error("no finding")
			}
		})
	}
}

// TestAutogroupsInTests holds that they are judged, and warned of where they may be meant.
func TestAutogroupsInTests(t *testing.T) {
	const text = `{"tagOwners": {"tag:web": []}, "grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}], "tests": [
		{"src": "autogroup:member", "accept": ["tag:web:1", "autogroup:tagged:1"], "deny": ["autogroup:self:1"]}]}`
	r := Check("p", []byte(text), smallTailnet(), nil)
	var got []string
	for _, d := range r.Diagnostics {
		got = append(got, fmt.Sprintf("%v %s: %s", d.Severity, d.Path, d.Message))
	}
	if diff := cmp.Diff([]string{
		`warning tests[0].src: a test whose src is "autogroup:member" may fail`,
		`warning tests[0].accept[1]: a test whose dst is "autogroup:tagged" may fail`,
		`error tests[0].deny[0]: "autogroup:self" stands for nobody in particular`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyTestDiagnostics(t *testing.T) {
	const text = `{"tagOwners": {"tag:router": []}, "grants": [], "tests": [{"src": "tag:router", "proto": "ip-in-ip", "accept": ["tag:router:*", "tag:router:0"]}]}`
	r := Check("p", []byte(text), smallTailnet(), nil)
	if len(r.Diagnostics) != 2 {
		t.Fatalf("got %+v", r.Diagnostics)
	}
	if d := r.Diagnostics[0]; d.Message != `invalid port "*"` || d.Path != "tests[0].accept[0]" {
		t.Errorf("got %+v", d)
	} else if got := string(applyEdits([]byte(text), d.Help[0].Edits)); !strings.Contains(got, `["tag:router:0", "tag:router:0"]`) {
		t.Errorf("mended: %s", got)
	}
	if d := r.Diagnostics[1]; d.Message != `address "tag:router:0" (protocol "ip-in-ip"): want: Accept, got: Drop` {
		t.Errorf("got %+v", d)
	} else if len(d.Help) != 1 || len(d.Help[0].Edits) == 0 {
		t.Errorf("no text to add: %+v", d)
	}
}

// A destination of a test without a port is told from one with a wrong port, whatever its name looks like.
func TestHelpForATestWithoutAPort(t *testing.T) {
	for _, tt := range []struct{ proto, dst, help, edit string }{
		{"icmp", "tag:web", "a test of icmp, which has no ports, names port 0", `"tag:web:0"`},
		{"4", "group:dev", "a test of ip-in-ip, which has no ports, names port 0", `"group:dev:0"`},
		{"icmp", "tag:web:*", "a test of icmp, which has no ports, names port 0", `"tag:web:0"`},
		{"tcp", "tag:web", "a test names one port, such as tag:web:443", ""},
		{"tcp", "tag:web:*", "a test names one port, such as tag:web:443", ""},
		{"tcp", "webhost:ssh", "a test names one port by number, from 1 to 65535", ""},
	} {
		text := "{" + smallNames + `"grants": [], "tests": [{"src": "tag:web", "proto": "` + tt.proto + `", "deny": ["` + tt.dst + `"]}]}`
		r := Check("p", []byte(text), smallTailnet(), nil)
		if len(r.Diagnostics) != 1 || len(r.Diagnostics[0].Help) != 1 || r.Diagnostics[0].Help[0].Message != tt.help {
			t.Errorf("%s %s: %+v", tt.proto, tt.dst, r.Diagnostics)
			continue
		}
		if edits := r.Diagnostics[0].Help[0].Edits; len(edits) > 0 != (tt.edit != "") {
			t.Errorf("%s %s: edits %+v", tt.proto, tt.dst, edits)
		} else if got := string(applyEdits([]byte(text), edits)); !strings.Contains(got, tt.edit) {
			t.Errorf("%s %s: mended: %s", tt.proto, tt.dst, got)
		}
	}
}

// TestHelpForAFailedTest adds the text that a failed test offers, which makes it pass.
func TestHelpForAFailedTest(t *testing.T) {
	for name, rules := range map[string]string{
		"grants": `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`,
		"acls":   `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:22"]}]`,
		"none":   `"grants": []`,
	} {
		for _, test := range []string{
			`{"src": "tag:web", "accept": ["tag:db:5432"]}`, `{"src": "tag:web", "proto": "4", "accept": ["tag:db:0"]}`,
			`{"src": "group:dev", "proto": "udp", "accept": ["printer:53"]}`, `{"src": "tag:unused", "accept": ["[fd7a:115c:a1e0::5]:1"]}`,
		} {
			t.Run(name+"/"+test, func(t *testing.T) {
				text := "{" + smallNames + rules + `, "tests": [` + test + "]}"
				before := Check("p", []byte(text), smallTailnet(), nil)
				if len(before.Diagnostics) != 1 || len(before.Diagnostics[0].Help) != 1 {
					t.Fatalf("got %+v", before.Diagnostics)
				}
				mended := applyEdits([]byte(text), before.Diagnostics[0].Help[0].Edits)
				if after := Check("p", mended, smallTailnet(), nil); !after.Accepted {
					t.Errorf("after the edit: %s %+v\n%s", after.Message, after.Diagnostics, mended)
				}
			})
		}
	}
}

func TestMissing(t *testing.T) {
	const text = `{"acls": [{"action": "accept", "src": ["group:ops@example.com", "autogroup:admin"], "dst": ["*:*"]}]}`
	inv := smallTailnet()
	inv.Users = nil
	r := Check("p", []byte(text), inv, nil)
	if diff := cmp.Diff([]string{"group:ops@example.com"}, r.Compiled.SyncedGroups()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"members of group:ops@example.com", "users and their roles"}, r.Compiled.Missing()); diff != "" {
		t.Error(diff)
	}
	if d, err := r.Compiled.Can("ada1", "db", "tcp", 1); err != nil || d.Verdict != Undecided || len(d.Missing) != 2 {
		t.Errorf("got %+v, %v", d, err)
	}
	if r := Check("p", []byte(text), nil, nil); len(r.Compiled.Missing()) == 0 || r.Compiled.Devices() == nil {
		t.Errorf("without an inventory: %v, %v", r.Compiled.Missing(), r.Compiled.Devices())
	}
}

func TestCanByRouter(t *testing.T) {
	can := func(via, dst string) Verdict {
		text := fmt.Sprintf(`{%s"grants": [{"src": ["webhost"], "dst": ["*"], "via": [%q], "ip": ["*"]}]}`, smallNames, via)
		d, err := Check("p", []byte(text), smallTailnet(), nil).Compiled.Can("web", dst, "tcp", 22)
		if err != nil {
			t.Fatal(err)
		}
		return d.Verdict
	}
	tests := []struct {
		name, via, dst string
		want           Verdict
	}{
		{"a router with the tag carries it", "tag:left", "10.1.2.3", Pass},
		{"others carry it, none with the tag", "tag:db", "10.1.2.3", Fail},
		{"nobody carries it", "tag:db", "10.77.0.1", Pass}, // as without via: a rule is about access, not about routes
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := can(tt.via, tt.dst); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCan(t *testing.T) {
	const policy = `{` + smallNames + `"acls": [
		{"action": "accept", "src": ["group:ada"], "dst": ["tag:web:80-90"]},
		{"action": "accept", "proto": "ip-in-ip", "src": ["tag:router"], "dst": ["tag:router:*"]}]}`
	r := Check("p", []byte(policy), smallTailnet(), nil)
	tests := []struct {
		name, src, dst, proto string
		port                  int
		want                  Verdict
		rule                  string
	}{
		{"host names", "ada1", "web", "", 85, Pass, "acls[0]"},
		{"selectors", "ada@example.com", "tag:web", "tcp", 80, Pass, "acls[0]"},
		{"address", "100.64.0.1", "100.64.0.4", "udp", 80, Pass, "acls[0]"},
		{"wrong port", "ada1", "web", "tcp", 91, Fail, ""},
		{"reverse", "web", "ada1", "tcp", 80, Fail, ""},
		{"icmp wherever anything passes", "ada1", "web", "icmp", 0, Pass, "acls[0]"},
		{"protocol without ports", "r1", "r2", "ip-in-ip", 0, Pass, "acls[1]"},
		{"not listed", "ada1", "web", "ip-in-ip", 0, Fail, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := r.Compiled.Can(tt.src, tt.dst, tt.proto, tt.port)
			if err != nil || d.Verdict != tt.want || d.Rule != tt.rule {
				t.Errorf("got %+v, %v", d, err)
			}
		})
	}
	for _, bad := range [][3]string{{"nobody", "web", "tcp"}, {"web", "tag:nothing", "tcp"}, {"web", "autogroup:internet", "tcp"}, {"web", "db", "tpc"}, {"web", "office", "tcp"}} {
		if d, err := r.Compiled.Can(bad[0], bad[1], bad[2], 1); err == nil {
			t.Errorf("can %q: %+v, want an error", bad, d)
		}
	}
	if _, err := r.Compiled.Can("web", "db", "tcp", 0); err == nil {
		t.Error("port 0 of tcp is taken")
	}
	if _, err := r.Compiled.Can("web", "db", "gre", 1); err == nil {
		t.Error("port 1 of gre is taken")
	}
}

func TestParseInventory(t *testing.T) {
	bad := map[string]string{
		"not JSON":    `{`,
		"empty":       ``,
		"no devices":  `{"users": []}`,
		"two values":  `{"devices": []} {}`,
		"address":     `{"devices": [{"hostname": "a", "addresses": ["100.64.0.x"]}]}`,
		"route":       `{"devices": [{"hostname": "a", "enabledRoutes": ["10.0.0.1"]}]}`,
		"wrong shape": `{"devices": {"a": 1}}`,
	}
	for name, text := range bad {
		t.Run(name, func(t *testing.T) {
			if inv, err := ParseInventory([]byte(text)); err == nil {
				t.Errorf("taken: %+v", inv)
			} else if !strings.HasPrefix(err.Error(), "inventory: ") {
				t.Errorf("error %v", err)
			}
		})
	}
	inv, err := ParseInventory([]byte(`{"devices": [{"hostname": "a"}, {"hostname": "b", "authorized": false}], "more": 1}`))
	if err != nil || !inv.Devices[0].Authorized || inv.Devices[1].Authorized {
		t.Errorf("got %+v, %v", inv, err)
	}
	text, err := json.Marshal(smallTailnet())
	if err != nil {
		t.Fatal(err)
	}
	inv, err = ParseInventory(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(smallTailnet(), inv); diff != "" {
		t.Error(diff)
	}
}

// TestDomainUnknown checks that a domain is refused only where it is known that the tailnet has another.
func TestDomainUnknown(t *testing.T) {
	const text = `{"acls": [{"action": "accept", "src": ["user:*@example.org"], "dst": ["*:*"]}]}`
	for _, tt := range []struct {
		name  string
		users []User
		ok    bool
	}{
		{"no users", nil, true},
		{"users without a login", []User{{ID: "0", Role: "admin"}}, true},
		{"a login without a domain", []User{{ID: "1", LoginName: "ada", Role: "owner"}}, true},
		{"the owner's domain", []User{{ID: "1", LoginName: "ada@example.org", Role: "owner"}}, true},
		{"an invited user's domain", []User{{ID: "1", LoginName: "ada@example.com", Role: "owner"}, {ID: "2", LoginName: "bob@example.org"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := Check("", []byte(text), &Inventory{Devices: smallTailnet().Devices, Users: tt.users}, nil); r.Accepted != tt.ok {
				t.Errorf("accepted %t, message %q, want %t", r.Accepted, r.Message, tt.ok)
			}
		})
	}
}

func TestGrantableCapabilities(t *testing.T) {
	for name, ok := range map[string]bool{
		"example.com/cap/a/b": true, "tailscale.com/cap/relay": true, "tailscale.com/cap/tailsql": true, "tailscale.com/cap/aperture": true,
		"tailscale.com/relay": false, "tailscale.com/cap/drive-sharer": false, "tailscale.com/cap/ingress": false, "login.tailscale.com/cap/drive": false,
	} {
		r := Check("", []byte(`{"grants": [{"src": ["*"], "dst": ["*"], "app": {"`+name+`": [{}]}}]}`), nil, nil)
		if r.Accepted != ok {
			t.Errorf("%s: accepted %t, message %q", name, r.Accepted, r.Message)
		}
	}
}
