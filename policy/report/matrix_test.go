package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// testMatrix makes the matrix of a policy that has the names of the fixture, and rules of its own.
func testMatrix(t *testing.T, rules string) *matrix {
	t.Helper()
	f := newFixture(4, []string{"ams", "fra"})
	for i := range f.inventory.Devices { // a second way to the office
		if d := &f.inventory.Devices[i]; d.Hostname == "prometheus" {
			d.EnabledRoutes = []string{"192.168.10.0/24"}
		}
	}
	f.policy = `{"groups": {"group:platform": ["ana@example.com", "bo@example.com"], "group:dev": ["cleo@example.com", "dan@example.com"], "group:none": []},
		"tagOwners": {"tag:node": [], "tag:db": [], "tag:web": [], "tag:ci": [], "tag:router": [], "tag:monitor": []},
		"hosts": {"office": "192.168.10.0/24", "pg": "100.64.0.9", "branch": "10.9.0.0/16"},
		"ipsets": {"ipset:offices": ["192.168.10.0/24"]},
		"postures": {"posture:p": ["custom:tier == 'one'"], "posture:q": ["custom:rack == 'two'"]},
		` + rules + `}`
	in := f.input(t)
	if in.Report.Compiled == nil {
		t.Fatal(in.Report.Message)
	}
	return newMatrix(newFlows(in.Report.Compiled.Access(), in.Report.Policy), ruleLines{})
}

// show prints a cell as a reader sees it: its classes, its chips, and the rules of its card.
func (m *matrix) show(src, dst string) string {
	for _, r := range m.Rows {
		if r.Head.Name != src {
			continue
		}
		for i, c := range r.Cells {
			if m.Cols[i].Name != dst {
				continue
			}
			if c.Nobody {
				return "nobody"
			}
			if c.None {
				return "none"
			}
			var chips []string
			for _, p := range c.Chips {
				text := p.Text
				if p.Part {
					text = "part of " + text
				}
				chips = append(chips, text)
			}
			out := c.Class + " [" + strings.Join(chips, " | ") + "]"
			for _, k := range m.Cards {
				if k.Back != c.ID {
					continue
				}
				for _, l := range k.Admits {
					out += fmt.Sprintf(" %s: %s, %s", l.Rule.Path, l.What, l.Pairs)
					if l.Note != "" {
						out += ", " + l.Note
					}
					out += ";"
				}
				for _, n := range k.Needs {
					out += " needs " + n
				}
			}
			return out
		}
		return "no column"
	}
	return "no row"
}

func TestMatrixCells(t *testing.T) {
	for name, tc := range map[string]struct {
		rules, src, dst, want string
	}{
		"nothing":               {`"grants": []`, "tag:web", "tag:db", "none"},
		"no rules":              {`"tests": []`, "tag:web", "tag:db", "a3 t3 u3 i3 [all] no rules: everything is admitted: tcp; udp; icmp, 6 of 6;"},
		"all":                   {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["*"]}]`, "tag:web", "tag:db", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 6 of 6;"},
		"one way":               {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["*"]}]`, "tag:db", "tag:web", "none"},
		"ports of both":         {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["22", "80-90"]}]`, "tag:web", "tag:db", "a2 t2 u2 i3 [22, 80-90] grants[0]: tcp 22, 80-90; udp 22, 80-90; icmp, 6 of 6;"},
		"tcp alone":             {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:*"]}]`, "tag:web", "tag:db", "a2 t3 i3 [tcp] grants[0]: tcp; icmp, 6 of 6;"},
		"ping alone":            {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["icmp:*"]}]`, "tag:web", "tag:db", "a2 i3 [icmp] grants[0]: icmp, 6 of 6;"},
		"ip-in-ip":              {`"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]`, "tag:node", "tag:node", "a2 i3 p3 [ip-in-ip] grants[0]: icmp; ip-in-ip, 12 of 12;"},
		"not ip-in-ip":          {`"acls": [{"action": "accept", "proto": "ip-in-ip", "src": ["tag:node"], "dst": ["tag:node:*"]}]`, "tag:node", "tag:node", "a2 i3 p3 [ip-in-ip] acls[0]: icmp; ip-in-ip, 12 of 12;"},
		"other":                 {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["gre:*", "sctp:7"]}]`, "tag:web", "tag:db", "a2 i3 o3 [gre | sctp 7] grants[0]: icmp; gre; sctp 7, 6 of 6;"},
		"part":                  {`"grants": [{"src": ["ana@example.com"], "dst": ["tag:db"], "ip": ["tcp:22"]}]`, "group:platform", "tag:db", "a1 t1 i1 [part of tcp 22] grants[0]: tcp 22; icmp, 4 of 6;"},
		"parts add up":          {`"grants": [{"src": ["ana@example.com"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["bo@example.com"], "dst": ["tag:db"], "ip": ["*"]}]`, "group:platform", "tag:db", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 4 of 6; grants[1]: tcp; udp; icmp, 2 of 6;"},
		"ports add up":          {`"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["1-99"]}, {"src": ["tag:web"], "dst": ["tag:db"], "ip": ["100-65535"]}]`, "tag:web", "tag:db", "a3 t3 u3 i3 [all] grants[0]: tcp 1-99; udp 1-99; icmp, 6 of 6; grants[1]: tcp 100-65535; udp 100-65535; icmp, 6 of 6;"},
		"own devices":           {`"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]}]`, "group:platform", "group:platform", "a1 t1 u1 i1 [part of all] grants[0]: tcp; udp; icmp, 2 of 6, one's own devices only;"},
		"one device":            {`"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]`, "tag:ci", "tag:ci", "nobody"},
		"one address":           {`"grants": [{"src": ["tag:web"], "dst": ["pg"], "ip": ["tcp:5432"]}]`, "tag:web", "pg", "a2 t2 i3 [tcp 5432] grants[0]: tcp 5432; icmp, 3 of 3;"},
		"of one device":         {`"grants": [{"src": ["tag:web"], "dst": ["pg"], "ip": ["tcp:5432"]}]`, "tag:web", "tag:db", "a1 t1 i1 [part of tcp 5432] grants[0]: tcp 5432; icmp, 3 of 6, 3 of them in one address family only;"},
		"network":               {`"grants": [{"src": ["tag:web"], "dst": ["office"], "ip": ["*"]}]`, "tag:web", "office", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 3 of 3;"},
		"ipset":                 {`"grants": [{"src": ["tag:web"], "dst": ["ipset:offices"], "ip": ["*"]}]`, "tag:web", "ipset:offices", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 3 of 3;"},
		"part of network":       {`"grants": [{"src": ["tag:web"], "dst": ["192.168.10.0/28"], "ip": ["*"]}, {"src": ["tag:ci"], "dst": ["office"], "ip": ["*"]}]`, "tag:web", "office", "a1 t1 u1 i1 [part of all] grants[0]: tcp; udp; icmp, 3 of 3, a part of the network;"},
		"by one router":         {`"grants": [{"src": ["tag:web"], "dst": ["office"], "ip": ["*"], "via": ["tag:router"]}]`, "tag:web", "office", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 3 of 3;"},
		"not the router":        {`"grants": [{"src": ["tag:web"], "dst": ["office"], "ip": ["*"]}]`, "tag:web", "tag:router", "none"},
		"from a network":        {`"grants": [{"src": ["office"], "dst": ["tag:db"], "ip": ["*"]}]`, "office", "tag:db", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 2 of 2;"},
		"internet":              {`"grants": [{"src": ["group:dev"], "dst": ["autogroup:internet"], "ip": ["*"]}]`, "group:dev", "autogroup:internet", "a3 t3 u3 i3 [all] grants[0]: tcp; udp; icmp, 2 of 2;"},
		"no router":             {`"grants": [{"src": ["tag:web"], "dst": ["branch"], "ip": ["*"]}]`, "tag:web", "branch", "no column"},
		"empty group":           {`"grants": [{"src": ["group:none"], "dst": ["tag:db"], "ip": ["*"]}]`, "group:none", "tag:db", "no row"},
		"posture not told":      {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["*"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "open [part of ?] needs posture custom:tier == one"},
		"more by posture":       {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:22"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "a2 t2 i3 open [tcp 22 | part of ?] grants[0]: tcp 22; icmp, 4 of 4; needs posture custom:tier == one"},
		"more ports by posture": {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["20-30"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:25-31"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "a2 t2 u2 i3 open [20-30 | part of ?] grants[0]: tcp 20-30; udp 20-30; icmp, 4 of 4; needs posture custom:tier == one"},
		"no more by posture":    {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:1-442"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443-500"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:440-450"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "a2 t2 i3 [tcp 1-500] grants[0]: tcp 1-442; icmp, 4 of 4; grants[1]: tcp 443-500; icmp, 4 of 4;"},
		"more for some":         {`"grants": [{"src": ["cleo@example.com"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "a1 t1 u1 i1 open [part of all | part of ?] grants[0]: tcp; udp; icmp, 2 of 4; needs posture custom:tier == one"},
		"protocol by posture":   {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["*"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["ip-in-ip:*"], "srcPosture": ["posture:p"]}]`, "group:dev", "tag:db", "a3 t3 u3 i3 open [all | part of ?] grants[0]: tcp; udp; icmp, 4 of 4; needs posture custom:tier == one"},
		"own conditions":        {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443"], "srcPosture": ["posture:p"]}, {"src": ["group:platform"], "dst": ["tag:db"], "ip": ["*"], "srcPosture": ["posture:q"]}]`, "group:platform", "tag:db", "open [part of ?] needs posture custom:rack == two"},
		"conditions of others":  {`"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443"], "srcPosture": ["posture:p"]}, {"src": ["group:platform"], "dst": ["tag:db"], "ip": ["*"]}]`, "group:platform", "tag:db", "a3 t3 u3 i3 [all] grants[1]: tcp; udp; icmp, 6 of 6;"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.TrimSpace(testMatrix(t, tc.rules).show(tc.src, tc.dst))
			if got != tc.want {
				t.Errorf("%s -> %s\n got %s\nwant %s", tc.src, tc.dst, got, tc.want)
			}
		})
	}
}

// TestMatrixViews shows in the view of a protocol what is not known of it, and in no other's.
func TestMatrixViews(t *testing.T) {
	m := testMatrix(t, `"grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["udp:53", "tcp:22"]},
		{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:443", "ip-in-ip:*"], "srcPosture": ["posture:p"]}]`)
	got := map[string]string{}
	for _, r := range m.Rows {
		for i, c := range r.Cells {
			if r.Head.Name == "group:dev" && m.Cols[i].Name == "tag:db" {
				for _, v := range c.Texts {
					got[v.View] = v.Text
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"t": "22, ?", "u": "53", "i": "yes", "p": "?"}, got); diff != "" {
		t.Errorf("texts by view (-want +got):\n%s", diff)
	}
}

func TestMatrixAxes(t *testing.T) {
	m := testMatrix(t, `"grants": [{"src": ["fay@example.com", "group:dev"], "dst": ["office", "branch", "tag:db"], "ip": ["*"]}]`)
	var rows, cols []string
	for _, r := range m.Rows {
		rows = append(rows, r.Head.Name)
	}
	for _, c := range m.Cols {
		cols = append(cols, c.Name)
	}
	names := []string{"tag:ci", "tag:db", "tag:monitor", "tag:node", "tag:router", "tag:web", "group:dev", "group:platform", "autogroup:member", "fay@example.com"}
	if diff := cmp.Diff(names, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append(names, "office"), cols); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"group:none", "branch"}, m.Absent); diff != "" {
		t.Errorf("absent (-want +got):\n%s", diff)
	}
}

// TestMatrixCut has more tags than a table can show: those that rules name stay.
func TestMatrixCut(t *testing.T) {
	f := newFixture(1, []string{"ams"})
	var tags, rules []string
	for i := range 3 * maxAxis {
		tag := fmt.Sprintf("tag:t%03d", i)
		tags = append(tags, fmt.Sprintf("%q: []", tag))
		if i%3 == 0 {
			rules = append(rules, fmt.Sprintf(`{"src": [%q], "dst": [%q], "ip": ["22"]}`, tag, tag))
		}
		for range 2 {
			n := len(f.inventory.Devices)
			f.inventory.Devices = append(f.inventory.Devices, policy.Device{
				NodeID: fmt.Sprint(n), Hostname: fmt.Sprint("d", n), Tags: []string{tag}, Authorized: true, Addresses: []string{fmt.Sprintf("100.65.%d.%d", n/200, n%200)},
			})
		}
	}
	for _, tag := range []string{"tag:node", "tag:db", "tag:web", "tag:ci", "tag:monitor", "tag:router"} {
		tags = append(tags, fmt.Sprintf("%q: []", tag))
	}
	f.policy = `{"tagOwners": {` + strings.Join(tags, ",") + `}, "grants": [` + strings.Join(rules, ",") + `]}`
	in := f.input(t)
	m := newMatrix(newFlows(in.Report.Compiled.Access(), in.Report.Policy), ruleLines{})
	if len(m.Rows) != maxAxis || len(m.Cols) != maxAxis {
		t.Fatalf("%d rows and %d columns", len(m.Rows), len(m.Cols))
	}
	if !strings.Contains(m.Cut, fmt.Sprintf("%d of 127 sources", maxAxis)) {
		t.Errorf("cut: %s", m.Cut)
	}
	if !slices.ContainsFunc(m.Rows, func(r row) bool { return r.Head.Name == "tag:t117" }) {
		t.Error("a tag that a rule names is cut before those that none names")
	}
	if got, want := m.show("tag:t117", "tag:t117"), "a2 t2 u2 i3 [22] grants[39]: tcp 22; udp 22; icmp, 2 of 2;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
