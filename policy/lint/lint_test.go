package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/coverage"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
)

func tailnet() *policy.Inventory {
	dev := func(n int, host, user string, tags []string, routes ...string) policy.Device {
		return policy.Device{
			NodeID: fmt.Sprintf("n%d", n), Hostname: host, Name: host + ".example.ts.net", User: user, Tags: tags, Authorized: true,
			Addresses: []string{fmt.Sprintf("100.64.0.%d", n), fmt.Sprintf("fd7a:115c:a1e0::%x", n)}, EnabledRoutes: routes,
		}
	}
	return &policy.Inventory{
		Devices: []policy.Device{
			dev(1, "ada1", "ada@example.com", nil),
			dev(2, "bob1", "bob@example.com", nil),
			dev(3, "web", "", []string{"tag:web", "tag:node"}),
			dev(4, "db", "", []string{"tag:db"}),
			dev(5, "router", "", []string{"tag:router"}, "10.1.0.0/16"),
		},
		Users: []policy.User{
			{ID: "1", LoginName: "ada@example.com", Role: "owner"}, {ID: "2", LoginName: "bob@example.com", Role: "member"},
		},
	}
}

// owners and guard keep rules quiet that a case is not about.
const (
	owners = `"tagOwners": {"tag:web": ["ada@example.com"], "tag:db": ["ada@example.com"], "tag:node": ["ada@example.com"], "tag:router": ["ada@example.com"]},`
	groups = `"groups": {"group:dev": ["ada@example.com", "bob@example.com"], "group:none": []},`
)

func TestLint(t *testing.T) {
	tested := map[string]bool{} // rules that found something
	for _, tt := range []struct {
		name, id, text string
		want           []string
	}{
		{"old names", "deprecated-spelling", `"ACLs": [{"action": "accept", "users": ["autogroup:members"], "ports": ["autogroup:members:80"]}], "tests": [{"user": "tag:web", "allow": []}],`, []string{
			`ACLs: "ACLs" is an old spelling of "acls"`,
			`acls[0].users: "users" is an old spelling of "src"`,
			`acls[0].users[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
			`acls[0].ports: "ports" is an old spelling of "dst"`,
			`acls[0].ports[0]: "autogroup:members:80" is an old spelling of "autogroup:member:80"`,
			`tests[0].user: "user" is an old spelling of "src"`,
			`tests[0].allow: "allow" is an old spelling of "accept"`,
		}},
		{"old names in other case", "deprecated-spelling", `"Acls": [{"action": "accept", "users": ["autogroup:members"], "Ports": ["autogroup:members:80"]}], "TESTS": [{"User": "tag:web", "allow": []}], "sSh": [{"action": "check", "src": ["autogroup:members"], "dst": ["tag:web"], "users": ["x"]}],`, []string{
			`Acls: "Acls" is another spelling of "acls"`,
			`acls[0].users: "users" is an old spelling of "src"`,
			`acls[0].users[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
			`acls[0].Ports: "Ports" is an old spelling of "dst"`,
			`acls[0].Ports[0]: "autogroup:members:80" is an old spelling of "autogroup:member:80"`,
			`TESTS: "TESTS" is another spelling of "tests"`,
			`tests[0].User: "User" is an old spelling of "src"`,
			`tests[0].allow: "allow" is an old spelling of "accept"`,
			`sSh: "sSh" is another spelling of "ssh"`,
			`ssh[0].src[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
		}},
		{"every section in other case", "deprecated-spelling", `"GROUPS": {}, "HOSTS": {}, "IPSETS": {}, "Grants": [{"SRC": ["autogroup:members"], "dst": ["tag:web"], "ip": ["80"]}], "AUTOAPPROVERS": {"exitNode": ["autogroup:members"]}, "Postures": {}, "NODEATTRS": [{"target": ["autogroup:members"], "attr": ["x"]}], "SSHTests": [], "somethingElse": 1,`, []string{
			`GROUPS: "GROUPS" is another spelling of "groups"`, `HOSTS: "HOSTS" is another spelling of "hosts"`, `IPSETS: "IPSETS" is another spelling of "ipsets"`,
			`Grants: "Grants" is another spelling of "grants"`, `grants[0].SRC[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
			`AUTOAPPROVERS: "AUTOAPPROVERS" is another spelling of "autoApprovers"`,
			`autoApprovers.exitNode[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
			`Postures: "Postures" is another spelling of "postures"`,
			`NODEATTRS: "NODEATTRS" is another spelling of "nodeAttrs"`, `nodeAttrs[0].target[0]: "autogroup:members" is an old spelling of "autogroup:member"`,
			`SSHTests: "SSHTests" is another spelling of "sshTests"`,
		}},
		{"the words elsewhere", "deprecated-spelling", `"grants": [{"src": ["*"], "dst": ["tag:web"], "app": {"example.com/cap/x": [{"users": ["autogroup:member"]}]}}],`, nil},
		{"a group of nobody", "empty-rule", groups + `"acls": [{"action": "accept", "src": ["group:none"], "dst": ["*:*"]}],`, []string{"acls[0]: acls[0] admits nothing"}},
		{"empty lists", "empty-rule", `"acls": [{"action": "accept", "src": [], "dst": ["*:*"]}, {"action": "accept", "src": ["*"], "dst": []}],`, []string{
			"acls[0]: acls[0] admits nothing", "acls[1]: acls[1] admits nothing",
		}},
		{
			"what is reached by nobody today", "empty-rule",
			`"grants": [{"src": ["tag:router"], "dst": ["eve@example.com"], "ip": ["22"]}, {"src": ["group:far@example.com"], "dst": ["svc:api"], "ip": ["22"]},
			{"src": ["autogroup:admin"], "dst": ["autogroup:internet"], "ip": ["*"]}, {"src": ["tag:db"], "dst": ["10.99.0.0/16"], "ip": ["*"], "via": ["tag:web"]},
			{"src": ["*"], "dst": ["203.0.113.9"], "ip": ["22"]}, {"src": ["group:none"], "dst": ["*"], "app": {"example.com/cap/x": []}}],` + groups, nil,
		},
		{"no ip-in-ip where routes are approved", "mesh-without-ip-in-ip", `"autoApprovers": {"routes": {"10.0.0.0/8": ["tag:node"]}}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}],`, []string{
			`grants[0]: devices with "tag:node" reach each other on every port, but not by ip-in-ip`,
		}},
		{"ip-in-ip to others alone", "mesh-without-ip-in-ip", `"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*", "tag:web:*"]}, {"action": "accept", "src": ["tag:node"], "proto": "4", "dst": ["tag:db:*"]}],`, []string{
			`acls[0]: devices with "tag:node" reach each other on every port, but not by ip-in-ip`,
		}},
		{"ip-in-ip is admitted", "mesh-without-ip-in-ip", `"autoApprovers": {"routes": {"10.0.0.0/8": ["tag:node"]}}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]}],`, nil},
		{"a comment speaks of the overlay", "mesh-without-ip-in-ip", "\n// nodes, and their Overlay\n// since 2024\n" + `"grants": [` + "\n// the tunnels of pods\n" + `{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}],`, []string{
			`grants[0]: devices with "tag:node" reach each other on every port, but not by ip-in-ip`,
		}},
		{"a comment behind the rule", "mesh-without-ip-in-ip", `"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*"]}], // kube-router` + "\n", []string{
			`acls[0]: devices with "tag:node" reach each other on every port, but not by ip-in-ip`,
		}},
		{"a comment of another rule", "mesh-without-ip-in-ip", `"acls": [` + "\n// the overlay\n" + `{"action": "accept", "src": ["tag:node"], "dst": ["tag:db:*"]},` + "\n\n" + `{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*"]}],`, nil},
		{"ssh that no packet reaches", "ssh-unreachable", `"grants": [{"src": ["group:dev"], "dst": ["tag:web"], "ip": ["80"]}, {"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["22"]}],
			"ssh": [{"action": "check", "src": ["group:dev"], "dst": ["tag:web"], "users": ["root"]}, {"action": "check", "src": ["group:dev"], "dst": ["tag:db"], "users": ["root"]},
			{"action": "check", "src": ["autogroup:member"], "dst": ["autogroup:self"], "users": ["root"]}],` + groups, []string{
			"ssh[0]: no rule lets a source of ssh[0] reach port 22 of a destination",
		}},
		{"root for everybody", "ssh-root-for-all", `"ssh": [{"action": "accept", "src": ["autogroup:member"], "dst": ["tag:web"], "users": ["root"]},
			{"action": "check", "src": ["autogroup:member"], "dst": ["tag:web"], "users": ["root"]}, {"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self"], "users": ["root"]},
			{"action": "accept", "src": ["autogroup:member"], "dst": ["tag:web"], "users": ["autogroup:nonroot"]}],`, []string{
			"ssh[0]: ssh[0] lets everybody in as root, without a check",
		}},
		{"ssh without tests", "no-ssh-tests", `"ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:web"], "users": ["root"]}],`, []string{"ssh[0]: the policy has rules of ssh and no sshTests"}},
		{"ssh with tests", "no-ssh-tests", `"ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:web"], "users": ["root"]}], "sshTests": [{"src": "ada@example.com", "dst": ["tag:web"], "accept": ["root"]}],`, nil},
		{"an ssh test said twice", "test-proves-nothing", `"ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:web"], "users": ["root"]}], "sshTests": [{"src": "ada@example.com", "dst": ["tag:web"], "accept": ["root"]}, {"src": "ada@example.com", "dst": ["tag:web", "tag:db"], "accept": ["root"], "deny": ["x"]}],`, []string{
			`sshTests[1].accept[0]: the same test of "ada@example.com" to "tag:web" stands at sshTests[0].accept[0]`,
		}},
		{"servers that carry nothing", "mesh-without-ip-in-ip", `"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}],`, nil},
		{"acls first", "mixed-rules", `"acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:80"]}], "grants": [{"src": ["*"], "dst": ["tag:web"], "ip": ["81"]}],`, []string{
			"acls[0]: acls stand before grants, which come first in every filter",
		}},
		{"grants first", "mixed-rules", `"grants": [{"src": ["*"], "dst": ["tag:web"], "ip": ["81"]}], "acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:80"]}],`, nil},
		{"none", "no-tests", `"acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:80"]}],`, []string{"acls[0]: the policy has rules and no tests"}},
		{"no rules either", "no-tests", `"acls": [],`, nil},
		{"one of two equal rules", "redundant-rule", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}, {"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}],`, []string{
			"acls[1]: acls[1] admits nothing that other rules do not admit",
		}},
		{"a member of a group, in ports of a range", "redundant-rule", groups + `"grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:85"]}, {"src": ["group:dev"], "dst": ["*"], "ip": ["80-90"]}],`, []string{
			"grants[0]: grants[0] admits nothing that other rules do not admit",
		}},
		{
			"several rules together", "redundant-rule", groups + `"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:80-90"]},
			{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:80-84", "tcp:85-95"]}, {"src": ["bob@example.com"], "dst": ["tag:db"], "ip": ["*"]}],`,
			[]string{"grants[0]: grants[0] admits nothing that other rules do not admit"},
		},
		{
			"wider by something", "redundant-rule", groups + `"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["80"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:1-100"]},
			{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["udp:80-81"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["ip-in-ip:*"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["*"]},
			{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"], "via": ["tag:router"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"], "app": {"example.com/cap/x": []}}],`, nil,
		},
		{"tags that one device happens to have both", "redundant-rule", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["80"]}, {"src": ["tag:node"], "dst": ["tag:db"], "ip": ["80"]}],`, nil},
		{"all users of today", "redundant-rule", groups + `"grants": [{"src": ["autogroup:member"], "dst": ["tag:db"], "ip": ["80"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["81"]}, {"src": ["group:dev"], "dst": ["autogroup:member"], "ip": ["81"]}, {"src": ["group:dev"], "dst": ["group:dev"], "ip": ["81-82"]}],`, nil},
		{"a posture that is not known to hold", "redundant-rule", `"postures": {"posture:mac": ["node:os == 'macos'"]}, "grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["80"], "srcPosture": ["posture:mac"]}],`, nil},
		{"ports that overlap", "redundant-rule", `"grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:20-25"]}, {"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:22-30"]}],`, nil},
		{"a part of a network", "redundant-rule", `"grants": [{"src": ["tag:db"], "dst": ["10.1.0.0/24"], "ip": ["22"]}, {"src": ["tag:db"], "dst": ["10.1.0.0/16"], "ip": ["*"]}],`, []string{
			"grants[0]: grants[0] admits nothing that other rules do not admit",
		}},
		{"more of a network", "redundant-rule", `"grants": [{"src": ["tag:db"], "dst": ["10.1.0.0/24"], "ip": ["*"]}, {"src": ["tag:db"], "dst": ["10.1.0.0/16"], "ip": ["22"]}],`, nil},
		{"the same under a posture", "redundant-rule", `"postures": {"posture:mac": ["node:os == 'macos'"]}, "grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["80"], "srcPosture": ["posture:mac"]}, {"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["80"]}],`, []string{
			"grants[0]: grants[0] admits nothing that other rules do not admit",
		}},
		{"nobody", "tag-without-owner", `"acls": [], "tagOwners": {"tag:web": [], "tag:db": ["tag:web"]}`, []string{`tagOwners["tag:web"]: tag "tag:web" has no owner`}},
		{
			"a deny of what has no posture", "test-proves-nothing",
			`"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}], "postures": {"posture:any": ["node:os IS SET"]}, "defaultSrcPosture": ["posture:any"],
			"tests": [{"src": "192.0.2.1", "deny": ["tag:db:80"]}, {"src": "tag:web", "srcPostureAttrs": {"node:os": "linux"}, "accept": ["tag:db:80"]}],`,
			[]string{`tests[0].deny[0]: no rule could make this test of "192.0.2.1" to "tag:db:80" fail`},
		},
		{
			"twice the same", "test-proves-nothing",
			`"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}], "tests": [{"src": "tag:web", "accept": ["tag:db:80"], "deny": ["tag:db:81"]}, {"src": "tag:web", "proto": "6", "accept": ["tag:db:80"]}, {"src": "tag:web", "proto": "tcp", "accept": ["tag:db:80"]}],`,
			[]string{`tests[2].accept[0]: the same test of "tag:web" to "tag:db:80" stands at tests[1].accept[0]`},
		},
		{"only denies", "test-proves-nothing", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}], "tests": [{"src": "tag:web", "deny": ["tag:db:81"]}, {"src": "tag:db", "proto": "ip-in-ip", "deny": ["tag:db:0"]}],`, []string{
			"tests[0]: all tests pass with no rules at all",
		}},
		{
			"rules that tests miss, and rules they do not", "untested-rule",
			`"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}, {"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}, {"action": "accept", "src": ["tag:web"], "dst": ["tag:node:80"]}],
			"tests": [{"src": "tag:web", "accept": ["tag:db:80"]}],`,
			[]string{"acls[2]: no test would miss acls[2]"},
		},
		{"no tests at all", "untested-rule", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:80"]}],`, nil},
		{
			"defined and forgotten", "unused-name",
			`"groups": {"group:a": [], "group:b": [], "group:c": []}, "hosts": {"w": "10.0.0.4", "x": "10.0.0.1", "y": "10.0.0.2", "z": "10.0.0.3"}, "ipsets": {"ipset:p": ["add y", "add host:w"], "ipset:q": ["ipset:p"]},
			"postures": {"posture:o": ["node:os IS SET"], "posture:u": ["node:os IS SET"]}, "defaultSrcPosture": ["posture:u"],
			"tagOwners": {"tag:web": ["group:a"], "tag:own": ["tag:own"]}, "acls": [{"action": "accept", "src": ["group:b"], "dst": ["host:z:22"]}],`,
			[]string{
				`groups["group:c"]: group "group:c" is not used`, `hosts["x"]: host "x" is not used`, `ipsets["ipset:q"]: ipset "ipset:q" is not used`,
				`postures["posture:o"]: posture "posture:o" is not used`, `tagOwners["tag:own"]: tag "tag:own" is not used`,
			},
		},
		{"no rules at all", "wide-access", owners, []string{": the policy has neither acls nor grants, and so admits everybody to everything"}},
		{"rules that are empty", "wide-access", `"grants": [],`, nil},
		{
			"everybody", "wide-access",
			`"acls": [{"action": "accept", "src": ["tag:web", "*"], "dst": ["tag:web:443", "tag:db:20-30"]}, {"action": "accept", "src": ["*"], "dst": ["*:*"]}, {"action": "accept", "src": ["*"], "dst": ["tag:web:443,8080"]},
			{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*", "autogroup:internet:*"]}, {"action": "accept", "src": ["autogroup:member"], "dst": ["tag:db:22"]}, {"action": "accept", "src": ["*"], "dst": ["tag:db:*"], "proto": "icmp"},
			{"action": "accept", "src": ["*"], "dst": ["tag:db:22"], "srcPosture": ["posture:mac"]}], "postures": {"posture:mac": ["node:os == 'macos'"]},
			"grants": [{"src": ["autogroup:danger-all"], "dst": ["tag:db"], "ip": ["tcp:5432"]}],`,
			[]string{
				`acls[0]: acls[0] admits "*" to port 22 (ssh) of "tag:db"`, `acls[1]: acls[1] admits "*" to every port of "*"`,
				`grants[0]: grants[0] admits "autogroup:danger-all" to port 5432 (postgres) of "tag:db"`,
			},
		},
		{
			"everybody by another name", "wide-access",
			`"hosts": {"any": "0.0.0.0/0", "tailnet": "100.64.0.0/10", "six": "fd7a:115c:a1e0::/48", "low": "100.64.0.0/11", "high": "100.96.0.0/11", "rack": "100.64.0.0/16", "lan": "10.0.0.0/8"},
			"ipsets": {"ipset:all": ["100.64.0.0/10"], "ipset:some": ["add 100.64.0.0/10", "remove 100.64.0.0/16"], "ipset:sum": ["low", "high"]},
			"grants": [
				{"src": ["any"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["rack", "tailnet"], "dst": ["tag:db"], "ip": ["6:22"]},
				{"src": ["six"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["100.64.0.0/10"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["100.0.0.0/8"], "dst": ["tag:db"], "ip": ["1-65535"]},
				{"src": ["low", "high"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["ipset:all"], "dst": ["tag:db"], "ip": ["22"]},
				{"src": ["ipset:sum"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["autogroup:shared"], "dst": ["tag:db"], "ip": ["22"]},
				{"src": ["low"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["rack", "lan"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["ipset:some"], "dst": ["tag:db"], "ip": ["22"]},
				{"src": ["autogroup:member", "autogroup:tagged"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["any"], "dst": ["tag:db"], "ip": ["443"]},
				{"src": ["any"], "dst": ["tag:db"], "ip": ["22"], "srcPosture": ["posture:mac"]}],
			"postures": {"posture:mac": ["node:os == 'macos'"]},`,
			[]string{
				`grants[0]: grants[0] admits "any" to every port of "tag:db"`, `grants[1]: grants[1] admits "tailnet" to port 22 (ssh) of "tag:db"`,
				`grants[2]: grants[2] admits "six" to port 22 (ssh) of "tag:db"`, `grants[3]: grants[3] admits "100.64.0.0/10" to port 22 (ssh) of "tag:db"`,
				`grants[4]: grants[4] admits "100.0.0.0/8" to every port of "tag:db"`, `grants[5]: grants[5] admits "low", "high" to port 22 (ssh) of "tag:db"`,
				`grants[6]: grants[6] admits "ipset:all" to port 22 (ssh) of "tag:db"`, `grants[7]: grants[7] admits "ipset:sum" to port 22 (ssh) of "tag:db"`,
				`grants[8]: grants[8] admits "autogroup:shared" to port 22 (ssh) of "tag:db"`,
			},
		},
		{
			"everybody in a posture", "wide-access",
			`"grants": [{"src": ["*"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["*"], "dst": ["tag:db"], "ip": ["22"], "srcPosture": []}],
			"postures": {"posture:mac": ["node:os == 'macos'"]}, "defaultSrcPosture": ["posture:mac"],`, nil,
		},
	} {
		t.Run(tt.id+"/"+tt.name, func(t *testing.T) {
			text := "{" + tt.text + "}"
			if !strings.Contains(tt.text, `"tagOwners"`) {
				text = "{" + owners + tt.text + "}"
			}
			report := policy.Check("p", []byte(text), tailnet(), nil)
			if report.Compiled == nil {
				t.Fatal(report.Message)
			}
			var got []string
			for _, d := range Lint("p", report, tailnet()) {
				if d.Code != tt.id {
					continue
				}
				got = append(got, d.Path+": "+d.Message)
				tested[d.Code] = true
				if d.Range.IsZero() || d.Label == "" {
					t.Errorf("%s has no place or label", d.Message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	var ids []string
	for _, r := range Rules() {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff(ids, sortedKeys(tested)); diff != "" {
		t.Errorf("rules (-listed +seen to find something):\n%s", diff)
	}
}

func TestRequirementsGuardRules(t *testing.T) {
	text := "{" + owners + `"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}, {"src": ["tag:node"], "dst": ["tag:db"], "ip": ["22"]}]}`
	req := []policy.Requirement{{Name: "overlay", Src: []string{"tag:node"}, Dst: []string{"tag:node"}, Proto: "ip-in-ip"}}
	inv := tailnet()
	inv.Devices[3].Tags = []string{"tag:db", "tag:node"}
	var got []string
	for _, d := range Lint("p", policy.Check("p", []byte(text), inv, req), inv) {
		if d.Code == "untested-rule" {
			got = append(got, d.Path)
		}
	}
	if diff := cmp.Diff([]string{"grants[1]"}, got); diff != "" {
		t.Errorf("untested (-want +got):\n%s", diff)
	}
}

// TestMeshHelp: the text that is proposed admits the mesh.
func TestMeshHelp(t *testing.T) {
	inv := tailnet()
	inv.Devices[3].Tags = []string{"tag:node"}
	for _, rules := range []string{
		`"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}],`,
		`"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*"]}],`,
	} {
		src := []byte("{" + owners + `"autoApprovers": {"routes": {"10.0.0.0/8": ["tag:node"]}}, ` + rules + "}")
		var help []diag.Edit
		for _, d := range Lint("p", policy.Check("p", src, inv, nil), inv) {
			if d.Code == "mesh-without-ip-in-ip" {
				help = d.Help[0].Edits
			}
		}
		text, err := diag.Apply(src, help)
		if err != nil {
			t.Fatal(err)
		}
		after := policy.Check("p", text, inv, nil)
		if after.Compiled == nil {
			t.Fatalf("%s\n%s", after.Message, text)
		}
		if got, err := after.Compiled.Can("web", "db", "ip-in-ip", 0); err != nil || got.Verdict != policy.Pass {
			t.Errorf("%v, %v: %s", got, err, text)
		}
		for _, d := range Lint("p", after, inv) {
			if d.Code == "mesh-without-ip-in-ip" {
				t.Errorf("still found: %s", text)
			}
		}
		if again, n, err := Fix(src, Lint("p", policy.Check("p", src, inv, nil), inv)); err != nil || n != 0 || string(again) != string(src) {
			t.Errorf("a fix widened access: %d, %v, %s", n, err, again)
		}
	}
}

func TestFix(t *testing.T) {
	want := `{` + owners + `
	"acls": [ // rules
		{"action": "accept", "src": ["autogroup:member"], "dst": ["tag:web:80"]}, // old
	],
}`
	for _, section := range []string{"ACLs", "Acls", "acLS"} {
		src := []byte(`{` + owners + `
	"` + section + `": [ // rules
		{"action": "accept", "Users": ["autogroup:members"], "ports": ["tag:web:80"]}, // old
	],
}`)
		text, fixed, err := Fix(src, Lint("p", policy.Check("p", src, nil, nil), nil))
		if err != nil || fixed != 4 {
			t.Fatalf("%s: fixed %d: %v", section, fixed, err)
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s: %s", section, diff)
		}
		if _, again, err := Fix(text, Lint("p", policy.Check("p", text, nil, nil), nil)); err != nil || again != 0 {
			t.Errorf("%s: fixed %d more: %v", section, again, err)
		}
	}
}

func TestRefusedPolicyHasNoFindings(t *testing.T) {
	if got := Lint("p", policy.Check("p", []byte(`{"acls": [{"action": "accept", "src": ["tag:no"], "dst": ["*:*"]}]}`), nil, nil), nil); got != nil {
		t.Errorf("%+v", got)
	}
}

// TestRedundantRulesGiveNothing takes every rule out of drawn policies that is said to give nothing: each pair of devices
// can then reach the same as before.
func TestRedundantRulesGiveNothing(t *testing.T) {
	src := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "group:dev", "group:none", "ada@example.com", "autogroup:member", "10.1.0.0/16", "100.64.0.1"})
	dst := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "tag:router", "bob@example.com", "100.64.0.4", "10.1.0.0/24", "autogroup:self"})
	ip := rapid.SampledFrom([]string{"*", "22", "tcp:20-25", "tcp:22-30", "tcp:22", "udp:22-30", "icmp:*", "ip-in-ip:*"})
	rapid.Check(t, func(t *rapid.T) {
		var rules []string
		for range rapid.IntRange(1, 6).Draw(t, "rules") {
			srcs, dsts := rapid.SliceOfN(src, 1, 2).Draw(t, "src"), rapid.SliceOfN(dst, 1, 2).Draw(t, "dst")
			if slices.Contains(dsts, "autogroup:self") {
				srcs = []string{"autogroup:member"}
			}
			rules = append(rules, fmt.Sprintf(`{"src": %s, "dst": %s, "ip": %s}`, list(srcs), list(dsts), list(rapid.SliceOfN(ip, 1, 2).Draw(t, "ip"))))
		}
		text := "{" + owners + groups + `"grants": [` + strings.Join(rules, ",\n") + "]}"
		before := policy.Check("p", []byte(text), tailnet(), nil)
		if before.Compiled == nil {
			t.Fatalf("%s\n%s", before.Message, text)
		}
		gone := map[string]bool{}
		for _, d := range Lint("p", before, tailnet()) {
			if d.Code == "redundant-rule" || d.Code == "empty-rule" {
				gone[d.Path] = true
			}
		}
		after := before.WithRules(nil, slices.DeleteFunc(slices.Clone(before.Policy.Grants), func(g policy.Grant) bool { return gone[g.Path] }))
		ends := append(before.Compiled.Devices(), "10.1.0.9", "100.64.0.1", "fd7a:115c:a1e0::4")
		for _, from := range ends {
			for _, to := range ends {
				for _, f := range []struct {
					proto string
					port  int
				}{{"tcp", 20}, {"tcp", 22}, {"tcp", 80}, {"udp", 22}, {"udp", 30}, {"icmp", 0}, {"ip-in-ip", 0}} {
					was, err1 := before.Compiled.Can(from, to, f.proto, f.port)
					is, err2 := after.Compiled.Can(from, to, f.proto, f.port)
					if err1 != nil || err2 != nil || was.Verdict != is.Verdict {
						t.Fatalf("%s to %s by %v: was %v, is %v (%v, %v) without %v\n%s", from, to, f, was.Verdict, is.Verdict, err1, err2, gone, text)
					}
				}
			}
		}
	})
}

func list(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprintf("%q", v)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// TestLevels: nothing that lint finds is an error, which would say that the policy is wrong.
func TestLevels(t *testing.T) {
	for _, r := range Rules() {
		if r.Level != diag.Warning && r.Level != diag.Note {
			t.Errorf("%s: level %s", r.ID, r.Level)
		}
	}
}

func FuzzLint(f *testing.F) {
	f.Add(`{"acls": [{"action": "accept", "users": ["*"], "ports": ["*:*"]}], "tests": [{"user": "tag:x", "allow": ["*:1"]}]}`)
	f.Add("{" + owners + groups + `"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["1-65535", "4:*"]}], "ssh": [{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := policy.Check("p", []byte(text), tailnet(), nil)
		found := Lint("p", report, tailnet())
		fixed, n, err := Fix([]byte(text), found)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && policy.Check("p", fixed, tailnet(), nil).Message != report.Message {
			t.Errorf("fixing changes the answer: %s", fixed)
		}
	})
}

// TestGuarded: no rule that a test or requirement would miss is passed over.
func TestGuarded(t *testing.T) {
	for seed := range uint64(8) {
		text, saved := bigtailnet.Make(60, 20, 0, seed)
		inv, err := policy.ParseInventory(saved)
		if err != nil {
			t.Fatal(err)
		}
		// A test for every other rule, and one requirement.
		report := policy.Check("p", text, inv, nil)
		res, err := coverage.Measure(report)
		if err != nil {
			t.Fatal(err)
		}
		var added []string
		for i, s := range coverage.Suggest(report, res, inv) {
			if s.Section == "tests" && i%2 == 0 {
				added = append(added, s.Entry)
			}
		}
		if text, err = diag.Apply(text, report.Policy.AddTests("tests", added)); err != nil {
			t.Fatal(err)
		}
		reqs := []policy.Requirement{{Name: "overlay", Src: []string{"tag:t0"}, Dst: []string{"tag:t0"}, Proto: "ip-in-ip"}}
		report = policy.Check("p", text, inv, reqs)
		l := &linter{file: "p", report: report, judged: report, p: report.Policy, inv: inv, redundant: map[string]bool{}}
		l.entries = entries(l.p)
		guarded, missed := l.guarded(), 0
		for _, e := range l.entries {
			if l.missed(e) {
				missed++
				if !guarded(e) {
					t.Errorf("seed %d: %s would be missed", seed, e.Path)
				}
			}
		}
		if missed < 5 {
			t.Errorf("seed %d: only %d rules would be missed", seed, missed)
		}
	}
}
