package accessdiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// names opens policies of these tests.
const names = `"tagOwners": {"tag:web": [], "tag:db": []}`

// tailnet has two devices of ada's, one each of bob's and cy's, two web servers, a database and a router of lan.
func tailnet() *policy.Inventory {
	inv := &policy.Inventory{}
	add := func(host, user string, tags []string, routes ...string) {
		n := len(inv.Devices) + 1
		inv.Devices = append(inv.Devices, policy.Device{
			NodeID: fmt.Sprintf("n%d", n), Hostname: host, Name: host + ".example.ts.net", Authorized: true, User: user, Tags: tags,
			Addresses: []string{fmt.Sprintf("100.64.0.%d", n), fmt.Sprintf("fd7a:115c:a1e0::%x", n)}, AdvertisedRoutes: routes, EnabledRoutes: routes,
		})
	}
	add("laptop", "ada@example.com", nil)
	add("phone", "ada@example.com", nil)
	add("desk", "bob@example.com", nil)
	add("pad", "cy@example.com", nil)
	add("web1", "", []string{"tag:web"})
	add("web2", "", []string{"tag:web"})
	add("db", "", []string{"tag:db"})
	add("gate", "", []string{"tag:router"}, "10.20.0.0/16")
	for i, u := range []string{"ada", "bob", "cy"} {
		inv.Users = append(inv.Users, policy.User{ID: fmt.Sprint(i + 1), LoginName: u + "@example.com", Role: []string{"owner", "member", "member"}[i], Status: "active", Type: "member"})
	}
	return inv
}

func report(t *testing.T, text string, inv *policy.Inventory) *policy.Report {
	t.Helper()
	r := policy.Check("p", []byte(text), inv, nil)
	if r.Compiled == nil {
		t.Fatalf("refused: %s\n%s", r.Message, text)
	}
	return r
}

// lines is a result as text: + for gained, - for lost, ? for undecided, = for edited.
func lines(r *Result) []string {
	var out []string
	for _, s := range r.sections() {
		for _, c := range s.list {
			out = append(out, s.sign+" "+c.String())
		}
	}
	for _, e := range r.Edited {
		out = append(out, "= "+e.String())
	}
	return out
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name, old, new string
		want           []string
	}{
		{
			"rule added", `"grants": []`, `"grants": [{"src": ["ada@example.com"], "dst": ["tag:web"], "ip": ["tcp:22", "tcp:443"]}]`,
			[]string{"+ ada@example.com -> tag:web: tcp 22,443; icmp (2 x 2 devices; grants[0] added)"},
		},
		{
			"rule removed", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:5432"], "proto": "tcp"}]`, `"acls": []`,
			[]string{"- tag:web -> tag:db: tcp 5432; icmp (2 x 1 devices; acls[0] removed)"},
		},
		{
			"ports widened", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:443"]}]`, `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:*"]}]`,
			[]string{`+ tag:web -> tag:db: tcp 1-442,444-65535 (2 x 1 devices; grants[0].ip "tcp:443" -> "tcp:*")`},
		},
		{
			"protocol without ports added", `"grants": [{"src": ["tag:web"], "dst": ["tag:web"], "ip": ["*"]}]`,
			`"grants": [{"src": ["tag:web"], "dst": ["tag:web"], "ip": ["*", "ip-in-ip:*"]}]`,
			[]string{`+ tag:web -> tag:web: ip-in-ip (2 x 2 devices; grants[0].ip + "ip-in-ip:*")`},
		},
		{
			"member added to a group", `"groups": {"group:eng": ["ada@example.com"]}, "grants": [{"src": ["group:eng"], "dst": ["tag:db"], "ip": ["22"]}]`,
			`"groups": {"group:eng": ["ada@example.com", "bob@example.com"]}, "grants": [{"src": ["group:eng"], "dst": ["tag:db"], "ip": ["22"]}]`,
			[]string{`+ bob@example.com -> tag:db: tcp,udp 22; icmp (1 x 1 devices; grants[0]: groups["group:eng"] + "bob@example.com")`},
		},
		{
			"host moved", `"hosts": {"box": "100.64.0.5"}, "grants": [{"src": ["tag:db"], "dst": ["box"], "ip": ["22"]}]`,
			`"hosts": {"box": "100.64.0.7"}, "grants": [{"src": ["tag:web"], "dst": ["box"], "ip": ["22"]}]`,
			[]string{
				`+ tag:web -> box: tcp,udp 22; icmp (2 x 1 devices; grants[0].src "tag:db" -> "tag:web", hosts["box"] "100.64.0.5" -> "100.64.0.7")`,
				`- tag:db -> box: tcp,udp 22; icmp (1 x 1 devices; grants[0].src "tag:db" -> "tag:web", hosts["box"] "100.64.0.5" -> "100.64.0.7")`,
			},
		},
		{
			"everybody but", `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]`, `"grants": [{"src": ["ada@example.com"], "dst": ["*"], "ip": ["*"]}]`,
			[]string{`- * except ada@example.com -> *: tcp,udp *; icmp (6 x 8 devices; grants[0].src "*" -> "ada@example.com")`},
		},
		{
			"subnet narrowed", `"grants": [{"src": ["tag:web"], "dst": ["lan"], "ip": ["*"]}]`, `"grants": [{"src": ["tag:web"], "dst": ["part"], "ip": ["*"]}]`,
			[]string{`- tag:web -> lan except part: tcp,udp *; icmp (2 x subnet; grants[0].dst "lan" -> "part")`},
		},
		{
			"own devices", `"grants": []`, `"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]}]`,
			[]string{`+ ada@example.com -> autogroup:self: tcp,udp *; icmp (2 x 2 devices; grants[0] added)`},
		},
		{
			"one family only", `"grants": [{"src": ["tag:web"], "dst": ["100.64.0.7"], "ip": ["22"]}]`, `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`,
			[]string{`+ tag:web -> fd7a:115c:a1e0::7: tcp,udp 22; icmp (2 x 1 devices; grants[0].dst "100.64.0.7" -> "tag:db")`},
		},
		{
			"first rules", `"ssh": []`, `"grants": [{"src": ["*"], "dst": ["tag:db"], "ip": ["*"]}]`,
			[]string{`- * -> * except tag:db: tcp,udp *; icmp (8 x 7 devices; acls or grants added to a policy that had neither, which allowed everything)`},
		},
		{
			"last rules", `"grants": []`, `"ssh": []`,
			[]string{`+ * -> *: tcp,udp *; icmp (8 x 8 devices; neither acls nor grants are left, which allows everything)`},
		},
		{
			"acls to grants", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:22"]}]`, `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`,
			[]string{
				"= grants[0] added: it lets nothing through that was not before",
				"= acls[0] removed: what it let through others still do",
			},
		},
		{
			"rule for nobody", `"grants": []`, `"grants": [{"src": ["tag:web"], "dst": ["tag:none"], "ip": ["22"]}]`,
			[]string{"= grants[0] added: it reaches no device of the inventory"},
		},
		{
			"order of rules", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["tag:db"], "dst": ["tag:db"], "ip": ["22"]}]`,
			`"grants": [{"src": ["tag:db"], "dst": ["tag:db"], "ip": ["22"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`,
			[]string{"= grants in another order"},
		},
		{
			"comments", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`, `"grants": [/* why */ {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22"]}]`,
			[]string{"= text comments, layout or the order of keys only"},
		},
		{"nothing", `"grants": []`, `"grants": []`, nil},
		{
			"who may assign a tag", `"grants": []`, `"grants": [], "tagOwners": {"tag:web": ["ada@example.com"], "tag:db": [], "tag:router": [], "tag:none": []}`,
			[]string{`= tagOwners["tag:web"] set to "ada@example.com"`},
		},
		{
			"ssh no longer checked", `"grants": [], "ssh": [{"action": "check", "src": ["ada@example.com"], "dst": ["tag:db"], "users": ["root", "autogroup:nonroot"], "checkPeriod": "12h"}]`,
			`"grants": [], "ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:db"], "users": ["root", "autogroup:nonroot"]}]`,
			[]string{
				`+ ada@example.com -> tag:db: ssh as autogroup:nonroot,root (2 x 1 devices; ssh[0].action "check" -> "accept", ssh[0].checkPeriod no longer "12h")`,
				`- ada@example.com -> tag:db: ssh as autogroup:nonroot,root (check 12h) (2 x 1 devices; ssh[0].action "check" -> "accept", ssh[0].checkPeriod no longer "12h")`,
			},
		},
		{
			"ssh account of all others", `"grants": [], "ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:db"], "users": ["deploy"]}]`,
			`"grants": [], "ssh": [{"action": "accept", "src": ["ada@example.com"], "dst": ["tag:db"], "users": ["autogroup:nonroot"]}]`,
			[]string{`+ ada@example.com -> tag:db: ssh as autogroup:nonroot (2 x 1 devices; ssh[0].users "deploy" -> "autogroup:nonroot")`},
		},
		{
			"capability", `"grants": []`, `"grants": [{"src": ["ada@example.com"], "dst": ["tag:web"], "app": {"example.com/cap/x": [{"role": "admin"}]}}]`,
			[]string{`+ ada@example.com -> tag:web: capability example.com/cap/x {"role":"admin"} (2 x 2 devices; grants[0] added)`},
		},
		{
			"capabilities after others keep their grant", `"grants": [{"src": ["tag:db"], "dst": ["tag:web"], "app": {"tailscale.com/cap/drive": []}}]`,
			`"grants": [{"src": ["tag:db"], "dst": ["tag:web"], "app": {"tailscale.com/cap/drive": []}},
				{"src": ["ada@example.com"], "dst": ["autogroup:self"], "app": {"example.com/cap/x": []}},
				{"src": ["tag:web"], "dst": ["tag:db"], "app": {"example.com/cap/x": []}}]`,
			[]string{
				"+ ada@example.com -> autogroup:self: capability example.com/cap/x (2 x 2 devices; grants[1] added)",
				"+ tag:web -> tag:db: capability example.com/cap/x (2 x 1 devices; grants[2] added)",
			},
		},
		{
			"attribute", `"grants": [], "nodeAttrs": [{"target": ["tag:web"], "attr": ["funnel"]}]`, `"grants": [], "nodeAttrs": [{"target": ["*"], "attr": ["funnel"]}]`,
			[]string{`+ * except tag:web: attribute funnel (6 devices; nodeAttrs[0].target "tag:web" -> "*")`},
		},
		{
			"settings", `"grants": []`, `"grants": [], "disableIPv4": true, "derpMap": {"OmitDefaultRegions": true}`,
			[]string{"+ *: attribute disable-ipv4 (8 devices; disableIPv4 added)", "= derpMap added"},
		},
		{
			"routes", `"grants": [], "autoApprovers": {"routes": {"10.0.0.0/8": ["tag:router"]}}`,
			`"grants": [], "autoApprovers": {"routes": {"10.20.0.0/16": ["tag:router"]}, "exitNode": ["tag:router"]}`,
			[]string{
				"+ tag:router: approval as exit node (1 device; autoApprovers.exitNode added)",
				`- tag:router: approval of 10.0.0.0/8 (1 device; autoApprovers.routes["10.0.0.0/8"] removed)`,
				`= autoApprovers.routes["10.20.0.0/16"] added`,
			},
		},
		{
			"hosts named with the prefix", `"hosts": {"a": "10.20.1.1", "b": "10.20.2.1"}, "ipsets": {"ipset:s": ["add host:b"]}, "grants": [{"src": ["ada@example.com"], "dst": ["host:a", "ipset:s"], "ip": ["tcp:22"]}]`,
			`"hosts": {"a": "10.20.1.2", "b": "10.20.2.2"}, "ipsets": {"ipset:s": ["add host:b"]}, "grants": [{"src": ["ada@example.com"], "dst": ["host:a", "ipset:s"], "ip": ["tcp:22"]}]`,
			[]string{
				`+ ada@example.com -> host:a, ipset:s: tcp 22; icmp (2 x subnet; grants[0]: hosts["a"] "10.20.1.1" -> "10.20.1.2", hosts["b"] "10.20.2.1" -> "10.20.2.2")`,
				`- ada@example.com -> host:a, ipset:s: tcp 22; icmp (2 x subnet; grants[0]: hosts["a"] "10.20.1.1" -> "10.20.1.2", hosts["b"] "10.20.2.1" -> "10.20.2.2")`,
			},
		},
		{
			"synced group", `"grants": []`, `"grants": [{"src": ["group:eng@example.com", "ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"]}]`,
			[]string{
				"+ ada@example.com -> tag:db: tcp 22; icmp (2 x 1 devices; grants[0] added)",
				"? group:eng@example.com -> tag:db: tcp 22; icmp (up to 2 x 1 devices; grants[0] added); cannot be decided without members of group:eng@example.com",
			},
		},
		{
			"synced group in both", `"grants": [{"src": ["group:eng@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"]}]`,
			`"grants": [{"src": ["group:eng@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:22"]}]`,
			[]string{"+ tag:web -> tag:db: tcp 22; icmp (2 x 1 devices; grants[1] added)"},
		},
		{
			"posture that the inventory lacks", `"grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"]}]`,
			`"postures": {"posture:p": ["custom:tier == 'high'"]}, "grants": [{"src": ["ada@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"], "srcPosture": ["posture:p"]}]`,
			[]string{`? ada@example.com -> tag:db: tcp 22; icmp (up to 2 x 1 devices; grants[0].srcPosture set to "posture:p", postures["posture:p"] added); cannot be decided without posture custom:tier == high`},
		},
		{
			"hosts of a service", `"grants": []`, `"grants": [{"src": ["ada@example.com"], "dst": ["svc:web"], "ip": ["tcp:443"]}]`,
			[]string{"? ada@example.com -> svc:web: tcp 443; icmp (up to 2 x unknown devices; grants[0] added); cannot be decided without hosts of svc:web"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := tailnet()
			text := func(body string) string {
				out := "{" + body
				for _, def := range []string{
					`"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": [], "tag:none": []}`,
					`"hosts": {"lan": "10.20.0.0/16", "part": "10.20.4.0/24"}`,
				} {
					if key, _, _ := strings.Cut(def, ":"); !strings.Contains(body, key) {
						out += ", " + def
					}
				}
				return out + "}"
			}
			r, err := Compare(report(t, text(tt.old), inv), report(t, text(tt.new), inv))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, lines(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A change that concerns many devices by a name is one line, and so is one that falls into many pieces.
func TestFold(t *testing.T) {
	const devices, rules = 2_000, 200
	base, inv := big(t, devices, rules, 1)
	for _, tt := range []struct{ name, rule, want string }{
		{"a tag", `{"action": "accept", "src": ["u1@example.com"], "dst": ["tag:t1:9"]}`, "+ u1@example.com -> tag:t1: tcp,udp 9"},
		{"everything", `{"action": "accept", "src": ["*"], "dst": ["*:*"]}`, "+ * -> *: tcp,udp *; icmp, in part (3998"},
		{"each user's own", `{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self:*"]}`, "+ autogroup:member -> autogroup:self: tcp,udp *"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Compare(report(t, base, inv), report(t, strings.Replace(base, "\"acls\": [\n", "\"acls\": [\n"+tt.rule+",\n", 1), inv))
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(r); len(got) != 1 || !strings.HasPrefix(got[0], tt.want) {
				t.Errorf("got %q, want one line that begins with %q", got, tt.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	inv := tailnet()
	old := report(t, `{`+names+`, "grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:1"]}]}`, inv)
	new := report(t, `{`+names+`, "grants": [{"src": ["tag:db"], "dst": ["tag:web"], "ip": ["tcp:1"]}, {"src": ["group:x@example.com"], "dst": ["tag:db"], "ip": ["tcp:1"]}]}`, inv)
	r, err := Compare(old, new)
	if err != nil {
		t.Fatal(err)
	}
	gained, lost := r.Lines()
	want := []string{
		"tag:db -> tag:web: tcp 1; icmp (1 x 2 devices; grants[0] added)",
		"group:x@example.com -> tag:db: tcp 1; icmp (up to 4 x 1 devices; grants[1].src \"tag:web\" -> \"group:x@example.com\"); cannot be decided without members of group:x@example.com",
	}
	if diff := cmp.Diff(want, gained); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"tag:web -> tag:db: tcp 1; icmp (2 x 1 devices; grants[1].src \"tag:web\" -> \"group:x@example.com\")"}, lost); diff != "" {
		t.Error(diff)
	}
	// The order of the inventory is nobody's business.
	slices.Reverse(inv.Devices)
	again, err := Compare(report(t, string(old.Policy.Source()), inv), report(t, string(new.Policy.Source()), inv))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines(r), lines(again)); diff != "" {
		t.Error(diff)
	}
	empty, err := Compare(old, old)
	if err != nil {
		t.Fatal(err)
	}
	if gained, lost := empty.Lines(); gained == nil || lost == nil || len(gained)+len(lost) > 0 {
		t.Errorf("same policies: %q and %q", gained, lost)
	}
	b, err := json.Marshal(empty)
	if err != nil || string(b) != `{"gained":[],"lost":[],"undecided":[],"edited":[]}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCompareRefuses(t *testing.T) {
	inv := tailnet()
	good := report(t, "{"+names+"}", inv)
	bad := policy.Check("bad", []byte(`{"grants": [{"src": ["tag:nope"], "dst": ["*"], "ip": ["*"]}]}`), inv, nil)
	if _, err := Compare(bad, good); err == nil || !strings.Contains(err.Error(), `the old policy would be refused with 400: src=tag not found: "tag:nope"`) {
		t.Errorf("old refused: %v", err)
	}
	if _, err := Compare(good, bad); err == nil || !strings.Contains(err.Error(), "the new policy") {
		t.Errorf("new refused: %v", err)
	}
	if _, err := Compare(good, policy.Check("", []byte("{"+names+"}"), nil, nil)); !errors.Is(err, ErrNoInventory) {
		t.Errorf("no inventory: %v", err)
	}
	other := tailnet()
	other.Devices = other.Devices[1:]
	if _, err := Compare(good, report(t, "{"+names+"}", other)); err == nil || !strings.Contains(err.Error(), "different inventories") {
		t.Errorf("other inventory: %v", err)
	}
	foreign := report(t, `{"tagOwners": {"tag:x": []}, "grants": [{"src": ["tag:x"], "dst": ["tag:x"], "ip": ["*"]}]}`, inv)
	if r, err := Compare(foreign, foreign); err != nil || r.Named {
		t.Errorf("an inventory of another tailnet: %+v, %v", r, err)
	}
}

// What others wrote into a policy must not act on a terminal or in a review comment.
func TestRenderHostile(t *testing.T) {
	c := Change{
		Kind: Network, Effect: gainedText, Src: Party{Names: []string{"a|b`c\n<img src=x>"}, Devices: 1}, Dst: Party{Names: []string{"\x1b[2J"}, Devices: 1},
		Items: []Item{{"tcp", "1"}}, Cause: Cause{Text: "grants[0] ``x``\u202e"},
	}
	r := &Result{Gained: []Change{c}, Edited: []Edit{{"text", "a\nb"}}}
	var text, markdown bytes.Buffer
	if err := WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteMarkdown(&markdown, r); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), markdown.String(), c.String()} {
		if strings.ContainsAny(out, "\x1b\u202e") {
			t.Errorf("control characters in %q", out)
		}
	}
	for line := range strings.Lines(markdown.String()) {
		if strings.HasPrefix(line, "| +") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 7 {
			t.Errorf("not a row of six cells: %s", line)
		}
	}
	if n := strings.Count(text.String(), "\n"); n != 6 {
		t.Errorf("%d lines:\n%s", n, text.String())
	}
}
