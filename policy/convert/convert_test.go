package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
	"pgregory.net/rapid"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
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
			dev(2, "ada2", "ada@example.com", nil),
			dev(3, "bob1", "bob@example.com", nil),
			dev(4, "web", "", []string{"tag:web"}),
			dev(5, "db", "", []string{"tag:db"}),
			dev(6, "r1", "", []string{"tag:router"}, "10.1.0.0/16"),
			dev(7, "r2", "", []string{"tag:router"}, "10.1.2.0/24", "0.0.0.0/0", "::/0"),
		},
		Users: []policy.User{
			{ID: "1", LoginName: "ada@example.com", Role: "owner"},
			{ID: "2", LoginName: "bob@example.com", Role: "member"},
			{ID: "3", LoginName: "eve@example.com", Role: "member"},
		},
	}
}

const names = `"groups": {"group:dev": ["ada@example.com", "bob@example.com"], "group:eve": ["eve@example.com"]},
	"hosts": {"webhost": "100.64.0.4", "office": "10.1.0.0/16"},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": [], "tag:idle": []},
	"postures": {"posture:mac": ["node:os == 'macos'"]},
	`

func TestConvert(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		to             Form
		kept           []string
	}{
		{
			name: "the section is renamed where it stands",
			in: `// top
	"acls": [ // all of them
		// ops log in
		{"action": "accept", "src": ["group:dev"], "dst": ["tag:web:22,80-90"]}, // since May
		{
			"action": "accept", // always
			"proto":  "tcp", // no udp
			"src":    ["tag:web"], // who
			"dst":    ["tag:db:5432"], // what
		},
		// the end
	], // after`,
			to: Grants,
			want: `// top
	"grants": [ // all of them
		// ops log in
		{"src": ["group:dev"], "dst": ["tag:web"], "ip": ["22", "80-90"]}, // since May
		{
			// always
			// no udp
			"src":    ["tag:web"], // who
			"dst":    ["tag:db"], // what
			"ip":    ["tcp:5432"],
		},
		// the end
	], // after`,
		},
		{
			name: "several destinations with ports of their own become several grants",
			in: `"acls": [
		// web and its database
		{"action": "accept", "src": ["group:dev"], "dst": [
			"tag:web:80", // front
			"tag:db:5432", // back
			"webhost:80",
			"tag:web:443", // front again
		]},
	],`,
			to: Grants,
			want: `"grants": [
		// web and its database
		{"src": ["group:dev"], "dst": [
			"tag:web", // front
			// front again
		], "ip": ["80", "443"]},
		{"src": ["group:dev"], "dst": [
			"tag:db", // back
		], "ip": ["5432"]},
		{"src": ["group:dev"], "dst": [
			"webhost",
		], "ip": ["80"]},
	],`,
		},
		{
			name: "grants that are there stay in front",
			in: `"grants": [
		{"src": ["*"], "dst": ["tag:web"], "ip": ["443"]}
	],
	// the older rules
	"acls": [
		{"action": "accept", "src": ["tag:db"], "dst": ["tag:db:*"], "proto": "ip-in-ip"} // mesh
	],
	"ssh": [],`,
			to: Grants,
			want: `"grants": [
		{"src": ["*"], "dst": ["tag:web"], "ip": ["443"]},
		// the older rules
		{"src": ["tag:db"], "dst": ["tag:db"], "ip": ["ip-in-ip:*"]} // mesh
	],
	"ssh": [],`,
		},
		{
			name: "what grants refuse stays an acl",
			in: `// rules
	"acls": [
		{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*"]}, // own devices
		{"action": "accept", "src": ["*"], "dst": ["tag:web:443"]},
		{"action": "accept", "src": ["*"], "dst": ["0.0.0.0/0:*"]},
	],`,
			to: Grants,
			want: `// rules
	"grants": [
		{"src": ["*"], "dst": ["tag:web"], "ip": ["443"]},
	],
	"acls": [
		{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*"]}, // own devices
		{"action": "accept", "src": ["*"], "dst": ["0.0.0.0/0:*"]},
	],`,
			kept: []string{
				"acls[0]: as a grant it would be refused: autogroup:self can only be used with users, groups, or supported autogroups",
				`acls[2]: as a grant it would be refused: dst "0.0.0.0/0": to allow all IP addresses, use "*" or "autogroup:internet"`,
			},
		},
		{
			name: "nothing of what is kept moves",
			in:   `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*"]}],`,
			to:   Grants,
			want: `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*"]}],`,
			kept: []string{"acls[0]: as a grant it would be refused: autogroup:self can only be used with users, groups, or supported autogroups"},
		},
		{
			name: "old names, numbers, postures and IPv6",
			in: `"ACLs": [
		{"Action": "accept", "Users": ["tag:web"], "Proto": "6", "Ports": ["[fd7a:115c:a1e0::5]:22"], "srcPosture": ["posture:mac"]},
		{"action": "accept", "src": [], "proto": "89", "dst": ["tag:idle:*"]},
	],`,
			to: Grants,
			want: `"grants": [
		{"src": ["tag:web"], "dst": ["fd7a:115c:a1e0::5"], "ip": ["tcp:22"], "srcPosture": ["posture:mac"]},
		{"src": [], "dst": ["tag:idle"], "ip": ["89:*"]},
	],`,
		},
		{
			name: "own devices come after other destinations, as in a filter", to: Grants,
			in:   `"acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self:22", "*:80"]}],`,
			want: `"grants": [{"src": ["autogroup:member"], "dst": ["*"], "ip": ["80"]}, {"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["22"]}],`,
		},
		{
			name: "an acl that reaches nothing has no ports",
			in:   `"acls": [{"action": "accept", "src": ["*"], "dst": []}], "grants": [],`,
			to:   Grants,
			want: `"acls": [{"action": "accept", "src": ["*"], "dst": []}], "grants": [],`,
			kept: []string{"acls[0]: it has no destination, so a grant would have no ports"},
		},
		{
			name: "a grant that reaches nothing has no ports",
			in:   `"grants": [{"ip": ["80", "udp:53"]}, {"src": ["*"], "dst": [], "ip": ["22"]}],`,
			to:   ACLs,
			want: `"grants": [{"ip": ["80", "udp:53"]}, {"src": ["*"], "dst": [], "ip": ["22"]}],`,
			kept: []string{
				"grants[0]: it has no destination, so an acl would have no ports",
				"grants[1]: it has no destination, so an acl would have no ports",
			},
		},
		{
			name: "an empty section denies as much under the other name", to: Grants,
			in: `"acls": [ /* nothing */ ],`, want: `"grants": [ /* nothing */ ],`,
		},
		{
			name: "a section that is null is made", to: Grants,
			in:   `"grants": null, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}],`,
			want: `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}],`,
		},
		{
			name: "grants become acls, one for each protocol",
			in: `"grants": [
		// web
		{"src": ["*"], "dst": ["tag:web", "fd7a:115c:a1e0::5"], "ip": ["tcp:80", "udp:53", "tcp:443"]}, // both
		{"src": ["tag:db"], "dst": ["tag:db", "tag:db"], "ip": ["22", "*", "ip-in-ip:*"]},
		// files
		{"src": ["*"], "dst": ["tag:db"], "app": {"example.com/cap/x": []}},
	],`,
			to: ACLs,
			want: `"grants": [
		// files
		{"src": ["*"], "dst": ["tag:db"], "app": {"example.com/cap/x": []}},
	],
	"acls": [
		// web
		{"action": "accept", "proto": "tcp", "src": ["*"], "dst": ["tag:web:80,443", "[fd7a:115c:a1e0::5]:80,443"]}, // both
		{"action": "accept", "proto": "udp", "src": ["*"], "dst": ["tag:web:53", "[fd7a:115c:a1e0::5]:53"]},
		{"action": "accept", "src": ["tag:db"], "dst": ["tag:db:22", "tag:db:*"]},
		{"action": "accept", "proto": "ip-in-ip", "src": ["tag:db"], "dst": ["tag:db:*"]},
	],`,
			kept: []string{"grants[2]: acls cannot grant capabilities (app)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, err := Convert("p", []byte("{"+names+tt.in+"\n}"), tailnet(), tt.to)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSuffix(strings.TrimPrefix(string(res.Text), "{"+names), "\n}")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			var kept []string
			for _, k := range res.Kept {
				kept = append(kept, k.Path+": "+k.Reason)
			}
			if diff := cmp.Diff(tt.kept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if !res.Proof.Holds() || res.Proof.Same != 7 {
				t.Errorf("proof: %+v", res.Proof)
			}
		})
	}
}

func TestRefusedPolicy(t *testing.T) {
	if _, err := Convert("p", []byte(`{"acls": [{"action": "accept", "src": ["tag:no"], "dst": ["*:*"]}]}`), tailnet(), Grants); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// TestProofFindsDifferences gives the proof policies that are not the same.
func TestProofFindsDifferences(t *testing.T) {
	const before = `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:5432", "tag:idle:80"]},
		{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:*"], "srcPosture": ["posture:mac"]}]`
	for _, tt := range []struct{ name, after, differs string }{
		{"wider ports", strings.Replace(before, "5432", "5432-5433", 1), "the filter of db"},
		{"a tag that no device bears", strings.Replace(before, "idle:80", "idle:81", 1), "the filter that a device with tag:idle would get"},
		{"a posture that is not known to hold", strings.Replace(before, "db:*", "db:22", 1), "what the inventory leaves open"},
		{"another answer", before + `, "tests": [{"src": "tag:web", "accept": ["tag:web:22"]}]`, `the control plane's answer: "test(s) failed", was ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := policy.Check("", []byte("{"+names+before+"}"), tailnet(), nil)
			b := policy.Check("", []byte("{"+names+tt.after+"}"), tailnet(), nil)
			p := Prove(a, b, tailnet(), true)
			if !slices.Contains(p.Differs, tt.differs) {
				t.Errorf("differs: %q", p.Differs)
			}
		})
	}
}

// drawPolicy draws a policy with a comment wherever one may stand.
func drawPolicy(t *rapid.T) string {
	src := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "tag:idle", "group:dev", "group:eve", "ada@example.com", "autogroup:member", "office", "10.1.0.0/16", "group:far@example.com"})
	dst := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "tag:router", "tag:idle", "group:dev", "bob@example.com", "webhost", "office", "10.0.0.0/8", "autogroup:internet", "0.0.0.0/0", "autogroup:self"})
	ports := rapid.SampledFrom([]string{"*", "22", "80-90", "443,22", "22,22"})
	extra := func() string {
		return rapid.SampledFrom([]string{"", "", "", " ", "\n\t\t", "/* a */", " // b\n", "\r\n\t// c\r\n\t", "\n"}).Draw(t, "extra")
	}
	join := func(parts []string) string {
		var b strings.Builder
		for i, p := range parts {
			b.WriteString(extra() + p + extra())
			if i < len(parts)-1 || rapid.Bool().Draw(t, "comma") {
				b.WriteString(",")
			}
		}
		return b.String() + extra()
	}
	quoted := func(values []string) string {
		out := make([]string, len(values))
		for i, v := range values {
			out[i] = fmt.Sprintf("%q", v)
		}
		return "[" + join(out) + "]"
	}
	object := func(members ...string) string { return "{" + join(rapid.Permutation(members).Draw(t, "order")) + "}" }
	posture := func(members []string) []string {
		if rapid.IntRange(0, 4).Draw(t, "posture") == 0 {
			members = append(members, `"srcPosture":`+extra()+`["posture:mac"]`)
		}
		return members
	}
	userlike := []string{"group:dev", "ada@example.com", "autogroup:member", "*"}
	rule := func(wildcard bool) (srcs, dsts []string) {
		srcs = rapid.SliceOfN(src, 0, 3).Draw(t, "src")
		dsts = rapid.SliceOfN(dst, 0, 4).Draw(t, "dst")
		if slices.Contains(dsts, "autogroup:self") {
			if !wildcard {
				userlike = userlike[:3]
			}
			srcs = rapid.SliceOfN(rapid.SampledFrom(userlike), 0, 3).Draw(t, "users")
		}
		return srcs, dsts
	}
	var acls, grants []string
	for range rapid.IntRange(0, 4).Draw(t, "acls") {
		proto := rapid.SampledFrom([]string{"", "tcp", "17", "icmp", "ip-in-ip", "ipv4", "47"}).Draw(t, "proto")
		srcs, dsts := rule(true)
		for i := range dsts {
			p := "*"
			if proto == "" || proto == "tcp" || proto == "17" {
				p = ports.Draw(t, "ports")
			}
			dsts[i] += ":" + p
		}
		members := []string{`"action":` + extra() + `"accept"`, `"src":` + quoted(srcs), `"dst":` + quoted(dsts)}
		if proto != "" {
			members = append(members, `"proto"`+extra()+`: "`+proto+`"`)
		}
		acls = append(acls, object(posture(members)...))
	}
	for range rapid.IntRange(0, 4).Draw(t, "grants") {
		ip := rapid.SliceOfN(rapid.SampledFrom([]string{"*", "22", "tcp:80-90", "udp:53", "icmp:*", "ip-in-ip:*", "6:*"}), 1, 3).Draw(t, "ip")
		srcs, dsts := rule(false)
		dsts = slices.DeleteFunc(dsts, func(d string) bool { return d == "0.0.0.0/0" })
		members := []string{`"src":` + quoted(srcs), `"dst":` + quoted(dsts), `"ip":` + quoted(ip)}
		switch rapid.IntRange(0, 5).Draw(t, "more") {
		case 0:
			members = append(members, `"via": ["tag:router"]`)
		case 1:
			if !slices.Contains(dsts, "autogroup:internet") {
				members = append(members, `"app": {"example.com/cap/x": [{"a": 1}], "tailscale.com/cap/drive": []}`)
			}
		}
		grants = append(grants, object(posture(members)...))
	}
	sections := []string{
		strings.TrimRight(strings.TrimSpace(names), ","),
		`"tests": [{"src": "tag:web", "deny": ["tag:db:1234"]}]`,
	}
	for _, section := range []struct {
		name  string
		rules []string
	}{{"acls", acls}, {"grants", grants}} {
		name, rules := section.name, section.rules
		switch {
		case len(rules) > 0 || rapid.Bool().Draw(t, name):
			sections = append(sections, `"`+name+`":`+extra()+"["+join(rules)+"]")
		case rapid.IntRange(0, 3).Draw(t, name) == 0:
			sections = append(sections, `"`+name+`": null`)
		}
	}
	return extra() + "{" + join(rapid.Permutation(sections).Draw(t, "sections")) + "}" + extra()
}

// TestRoundTrip converts drawn policies to grants and back: every device has the same filter at each step, each comment is
// still there, and converting again changes nothing.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawPolicy(t))
		for _, to := range []Form{Grants, ACLs, Grants} {
			res, err := Convert("p", text, tailnet(), to)
			if err != nil {
				t.Fatalf("to %s: %v\n%s", to, err, text)
			}
			if !res.Proof.Holds() || res.Proof.Same != res.Proof.Devices {
				t.Fatalf("to %s: %+v\n%s\n%s", to, res.Proof, text, res.Text)
			}
			if was, is := sortedComments(t, text), sortedComments(t, res.Text); !slices.Equal(was, is) {
				t.Fatalf("to %s: comments %q, were %q\n%s\n%s", to, is, was, text, res.Text)
			}
			again, err := Convert("p", res.Text, tailnet(), to)
			if err != nil || again.Converted != 0 || len(again.Kept) != len(res.Kept) {
				t.Fatalf("to %s again: %v, %+v\n%s", to, err, again, res.Text)
			}
			text = res.Text
		}
	})
}

func sortedComments(t interface{ Fatalf(string, ...any) }, text []byte) []string {
	v, err := hujson.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := allComments(v)
	slices.Sort(out)
	return out
}

func FuzzConvert(f *testing.F) {
	f.Add("{" + names + `"acls": [{"action": "accept", "src": ["*"], "dst": ["tag:web:1,2", "office:*"]}], "grants": null}`)
	f.Add("{" + names + `"grants": [{"src": ["group:dev"], "dst": ["::1", "tag:db"], "ip": ["*", "22", "icmp:*"]}] /* a */, // b` + "\n}")
	f.Fuzz(func(t *testing.T, text string) {
		for _, to := range []Form{Grants, ACLs} {
			res, err := Convert("p", []byte(text), tailnet(), to)
			if errors.Is(err, ErrRefused) {
				continue
			}
			if err != nil || !res.Proof.Holds() {
				t.Errorf("to %s: %v, %+v\n%s", to, err, res, text)
			} else if was, is := sortedComments(t, []byte(text)), sortedComments(t, res.Text); !slices.Equal(was, is) {
				t.Errorf("to %s: comments %q, were %q\n%s\n%s", to, is, was, text, res.Text)
			}
		}
	})
}

func FuzzExtras(f *testing.F) {
	f.Add(" // a\n\t/* b */ // c")
	f.Add("/* a */ /* // */\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		x := hujson.Extra(text)
		if !x.IsValid() {
			t.Skip()
		}
		tail, rest := splitTail(x)
		if string(tail)+string(rest) != text {
			t.Errorf("%q is split into %q and %q", text, tail, rest)
		}
		if whole := closed(glue(tail, x, rest)); !whole.IsValid() {
			t.Errorf("%q is no extra", whole)
		}
		if !blank(x).IsValid() || len(comments(blank(x))) > 0 {
			t.Errorf("blank of %q: %q", text, blank(x))
		}
	})
}
