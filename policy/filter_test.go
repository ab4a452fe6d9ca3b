package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// smallTailnet has two users with devices, two servers, two routers of one subnet, one of another and an exit node.
func smallTailnet() *Inventory {
	dev := func(n int, host, user string, tags []string, routes ...string) Device {
		return Device{
			NodeID: fmt.Sprintf("n%d", n), Hostname: host, Name: host + ".example.ts.net", User: user, Tags: tags, Authorized: true,
			Addresses: []string{fmt.Sprintf("100.64.0.%d", n), fmt.Sprintf("fd7a:115c:a1e0::%x", n)}, EnabledRoutes: routes,
		}
	}
	return &Inventory{
		Devices: []Device{
			dev(1, "ada1", "ada@example.com", nil),
			dev(2, "ada2", "ada@example.com", nil),
			dev(3, "bob1", "bob@example.com", nil),
			dev(4, "web", "", []string{"tag:web"}),
			dev(5, "db", "", []string{"tag:db"}),
			dev(6, "r1", "", []string{"tag:router", "tag:left"}, "10.1.0.0/16"),
			dev(7, "r2", "", []string{"tag:router"}, "10.1.0.0/16", "10.1.2.0/24"),
			dev(8, "r3", "", []string{"tag:router"}, "172.16.0.0/24"),
			dev(9, "exit", "", []string{"tag:exit"}, "0.0.0.0/0", "::/0"),
		},
		Users: []User{
			{ID: "1", LoginName: "ada@example.com", Role: "owner"},
			{ID: "2", LoginName: "bob@example.com", Role: "member"},
			{ID: "3", LoginName: "eve@example.com", Role: "member"},
		},
	}
}

const smallNames = `
	"groups": {"group:dev": ["ada@example.com", "bob@example.com"], "group:ada": ["ada@example.com"], "group:none": []},
	"hosts": {"webhost": "100.64.0.4", "office": "10.1.0.0/16", "printer": "10.1.2.9"},
	"ipsets": {"ipset:nets": ["add 10.1.0.0/16", "add 172.16.0.0/24", "remove 10.1.128.0/17"],
		"ipset:hosts": ["add host:webhost", "printer"], "ipset:rest": ["add ipset:hosts", "remove host:printer"]},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": [], "tag:left": [], "tag:exit": [], "tag:unused": []},
`

// show prints a filter one destination a line, to be read in a test.
func show(rules []FilterRule) []string {
	var out []string
	for i, r := range rules {
		src := strings.Join(r.SrcIPs, " ")
		for _, d := range r.DstPorts {
			line := fmt.Sprintf("%d: %s -> %s %s", i, src, d.IP, d.Ports.text())
			if r.IPProto != nil {
				line += fmt.Sprint(" ", r.IPProto)
			}
			out = append(out, line)
		}
		for _, g := range r.CapGrant {
			caps, err := json.Marshal(g.CapMap)
			if err != nil {
				caps = []byte(err.Error())
			}
			out = append(out, fmt.Sprintf("%d: %s => %s %s", i, src, strings.Join(g.Dsts, " "), caps))
		}
	}
	return out
}

func TestFilter(t *testing.T) {
	const (
		wild = "10.1.0.0/16 10.1.2.0/24 100.115.94.0-100.127.255.255 100.64.0.0-100.115.91.255 172.16.0.0/24 fd7a:115c:a1e0::/48"
		ada  = "100.64.0.1 100.64.0.2 fd7a:115c:a1e0::1 fd7a:115c:a1e0::2"
		bob  = "100.64.0.3 fd7a:115c:a1e0::3"
		web  = "100.64.0.4 fd7a:115c:a1e0::4"
	)
	tests := []struct {
		name, policy, device string
		want                 []string
	}{
		{"neither acls nor grants allows all", ``, "db", []string{"0: " + wild + " -> * *"}},
		{"an empty list of grants denies all", `"grants": []`, "db", nil},
		{"an empty list of acls denies all", `"acls": []`, "db", nil},
		{
			"only the device's own addresses", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:22", "tag:web:22"]}]`, "db",
			[]string{"0: " + web + " -> 100.64.0.5 22", "0: " + web + " -> fd7a:115c:a1e0::5 22"},
		},
		{
			"ports in the order written", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["webhost:443,22,80-90"]}]`, "web",
			[]string{"0: " + web + " -> 100.64.0.4 443", "0: " + web + " -> 100.64.0.4 22", "0: " + web + " -> 100.64.0.4 80-90"},
		},
		{
			"entries of one selector come together", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:db:22", "tag:db:80"]}]`, "db",
			[]string{"0: " + web + " -> 100.64.0.5 22", "0: " + web + " -> 100.64.0.5 80", "0: " + web + " -> fd7a:115c:a1e0::5 22", "0: " + web + " -> fd7a:115c:a1e0::5 80"},
		},
		{
			"sources sort as text and nothing is absorbed", `"acls": [{"action": "accept", "src": ["*", "tag:web", "10.9.0.0/16", "webhost"], "dst": ["webhost:1"]}]`, "web",
			[]string{"0: 10.1.0.0/16 10.1.2.0/24 10.9.0.0/16 100.115.94.0-100.127.255.255 100.64.0.0-100.115.91.255 100.64.0.4 172.16.0.0/24 fd7a:115c:a1e0::/48 fd7a:115c:a1e0::4 -> 100.64.0.4 1"},
		},
		{
			"an address never grows to the other family", `"acls": [{"action": "accept", "src": ["webhost"], "dst": ["100.64.0.5:1"]}]`, "db",
			[]string{"0: 100.64.0.4 -> 100.64.0.5 1"},
		},
		{"danger-all is a star", `"grants": [{"src": ["autogroup:danger-all"], "dst": ["webhost"], "ip": ["1"]}]`, "web", []string{"0: * -> 100.64.0.4 1"}},
		{"an empty group gives no rule", `"acls": [{"action": "accept", "src": ["group:none"], "dst": ["*:*"]}]`, "db", nil},
		{
			"members are those without tags", `"acls": [{"action": "accept", "src": ["autogroup:member"], "dst": ["webhost:1"]}]`, "web",
			[]string{"0: 100.64.0.1 100.64.0.2 100.64.0.3 fd7a:115c:a1e0::1 fd7a:115c:a1e0::2 fd7a:115c:a1e0::3 -> 100.64.0.4 1"},
		},
		{
			"the legacy spelling of member", `"acls": [{"action": "accept", "users": ["autogroup:members"], "ports": ["webhost:1"]}]`, "web",
			[]string{"0: 100.64.0.1 100.64.0.2 100.64.0.3 fd7a:115c:a1e0::1 fd7a:115c:a1e0::2 fd7a:115c:a1e0::3 -> 100.64.0.4 1"},
		},
		{"a role", `"acls": [{"action": "accept", "src": ["autogroup:admin"], "dst": ["webhost:1"]}]`, "web", []string{"0: " + ada + " -> 100.64.0.4 1"}},
		{"users of a domain", `"acls": [{"action": "accept", "src": ["user:*@example.com"], "dst": ["bob@example.com:1"]}]`, "bob1", []string{
			"0: 100.64.0.1 100.64.0.2 100.64.0.3 fd7a:115c:a1e0::1 fd7a:115c:a1e0::2 fd7a:115c:a1e0::3 -> 100.64.0.3 1",
			"0: 100.64.0.1 100.64.0.2 100.64.0.3 fd7a:115c:a1e0::1 fd7a:115c:a1e0::2 fd7a:115c:a1e0::3 -> fd7a:115c:a1e0::3 1",
		}},
		{
			"a router gets what overlaps its routes, as written", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["10.0.0.0/8:1", "printer:2", "10.1.3.0/24:3", "172.16.0.1:4"]}]`, "r2",
			[]string{"0: " + web + " -> 10.0.0.0/8 1", "0: " + web + " -> 10.1.2.9 2", "0: " + web + " -> 10.1.3.0/24 3"},
		},
		{
			"a tag is not the subnet behind it", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["tag:router:1"]}]`, "r3",
			[]string{"0: " + web + " -> 100.64.0.8 1", "0: " + web + " -> fd7a:115c:a1e0::8 1"},
		},
		{
			"an ipset", `"acls": [{"action": "accept", "src": ["ipset:nets"], "dst": ["ipset:nets:1"]}]`, "r3",
			[]string{"0: 10.1.0.0/17 172.16.0.0/24 -> 172.16.0.0/24 1"},
		},
		{
			"a host with its prefix", `"grants": [{"src": ["host:printer"], "dst": ["host:webhost"], "ip": ["1"]}], "acls": [{"action": "accept", "src": ["printer"], "dst": ["host:webhost:2"]}]`, "web",
			[]string{"0: 10.1.2.9 -> 100.64.0.4 1", "0: 10.1.2.9 -> 100.64.0.4 2"},
		},
		{
			"a host in an ipset, with its prefix and without", `"grants": [
				{"src": ["ipset:hosts"], "dst": ["*"], "ip": ["1"]}, {"src": ["ipset:rest"], "dst": ["*"], "ip": ["2"]}]`, "db",
			[]string{"0: 10.1.2.9 100.64.0.4 -> * 1", "1: 100.64.0.4 -> * 2"},
		},
		{"a range that holds the device", `"acls": [{"action": "accept", "src": ["tag:web"], "dst": ["100.64.0.0/29:1"]}]`, "db", []string{"0: " + web + " -> 100.64.0.0/29 1"}},
		{
			"protocol by name and number", `"acls": [{"action": "accept", "proto": "icmp", "src": ["webhost"], "dst": ["*:*"]}, {"action": "accept", "proto": "4", "src": ["webhost"], "dst": ["*:*"]}]`, "db",
			[]string{"0: 100.64.0.4 -> * * [1]", "1: 100.64.0.4 -> * * [4]"},
		},
		{
			"grants come before acls", `"acls": [{"action": "accept", "src": ["webhost"], "dst": ["*:1"]}], "grants": [{"src": ["printer"], "dst": ["*"], "ip": ["2"]}]`, "db",
			[]string{"0: 10.1.2.9 -> * 2", "1: 100.64.0.4 -> * 1"},
		},
		{"equal sources merge, however they are spelled", `"acls": [{"action": "accept", "src": ["group:ada"], "dst": ["*:1"]}, {"action": "accept", "src": ["webhost"], "dst": ["*:2"]},
			{"action": "accept", "src": ["ada@example.com"], "dst": ["*:3"]}]`, "db", []string{"0: " + ada + " -> * 1", "0: " + ada + " -> * 3", "1: 100.64.0.4 -> * 2"}},
		{
			"another protocol does not merge", `"grants": [{"src": ["webhost"], "dst": ["*"], "ip": ["1", "tcp:2"]}, {"src": ["webhost"], "dst": ["*"], "ip": ["3"]}]`, "db",
			[]string{"0: 100.64.0.4 -> * 1", "0: 100.64.0.4 -> * 3", "1: 100.64.0.4 -> * 2 [6]"},
		},
		{"the merge comes before the reduction", `"acls": [{"action": "accept", "src": ["webhost"], "dst": ["tag:exit:1"]}, {"action": "accept", "src": ["printer"], "dst": ["*:2"]},
			{"action": "accept", "src": ["webhost"], "dst": ["*:3"]}]`, "db", []string{"0: 100.64.0.4 -> * 3", "1: 10.1.2.9 -> * 2"}},
		{
			"duplicates stay", `"acls": [{"action": "accept", "src": ["webhost"], "dst": ["*:1"]}, {"action": "accept", "src": ["webhost"], "dst": ["*:1"]}]`, "db",
			[]string{"0: 100.64.0.4 -> * 1", "0: 100.64.0.4 -> * 1"},
		},
		{
			"ip entries group by protocol", `"grants": [{"src": ["webhost"], "dst": ["*"], "ip": ["tcp:80", "udp:53", "tcp:443"]}]`, "db",
			[]string{"0: 100.64.0.4 -> * 80 [6]", "0: 100.64.0.4 -> * 443 [6]", "1: 100.64.0.4 -> * 53 [17]"},
		},
		{"a bare number is a port", `"grants": [{"src": ["webhost"], "dst": ["*"], "ip": ["47"]}]`, "db", []string{"0: 100.64.0.4 -> * 47"}},
		{
			"self is each user's own", `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:22"]}]`, "ada2",
			[]string{"0: " + ada + " -> 100.64.0.2 22", "0: " + ada + " -> fd7a:115c:a1e0::2 22"},
		},
		{"self is nothing to a tagged device", `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:22"]}]`, "db", nil},
		{"self of those among the sources", `"grants": [{"src": ["group:ada"], "dst": ["autogroup:self"], "ip": ["22"]}]`, "bob1", nil},
		{
			"self beside others is a rule of its own", `"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:1", "bob@example.com:2"]}]`, "bob1",
			[]string{"0: " + wild + " -> 100.64.0.3 2", "0: " + wild + " -> fd7a:115c:a1e0::3 2", "1: " + bob + " -> 100.64.0.3 1", "1: " + bob + " -> fd7a:115c:a1e0::3 1"},
		},
		{"via opens the subnet on the named router", `"grants": [{"src": ["webhost"], "dst": ["office"], "via": ["tag:left"], "ip": ["*"]}]`, "r1", []string{"0: 100.64.0.4 -> 10.1.0.0/16 *"}},
		{"and on no other", `"grants": [{"src": ["webhost"], "dst": ["office"], "via": ["tag:left"], "ip": ["*"]}]`, "r2", nil},
		{"via opens nothing that is not routed", `"grants": [{"src": ["webhost"], "dst": ["tag:left", "10.9.0.0/16"], "via": ["tag:left"], "ip": ["*"]}]`, "r1", nil},
		{"via drops capabilities", `"grants": [{"src": ["webhost"], "dst": ["office"], "via": ["tag:left"], "app": {"example.com/cap/a": [{}]}}]`, "r1", nil},
		{
			"and of a grant with both leaves the network", `"grants": [{"src": ["webhost"], "dst": ["office"], "via": ["tag:left", "tag:db"], "ip": ["tcp:22"], "app": {"example.com/cap/a": [{}]}}]`, "r1",
			[]string{"0: 100.64.0.4 -> 10.1.0.0/16 22 [6]"},
		},
		{
			"via keeps of its destinations those that the router carries", `"grants": [{"src": ["webhost"], "dst": ["172.16.0.0/24", "10.0.0.0/8", "printer"], "via": ["tag:left"], "ip": ["*"]}]`, "r1",
			[]string{"0: 100.64.0.4 -> 10.0.0.0/8 *", "0: 100.64.0.4 -> 10.1.2.9 *"},
		},
		{
			"via does not add to what the router's own addresses admit", `"grants": [{"src": ["webhost"], "dst": ["tag:left"], "ip": ["22"]}, {"src": ["webhost"], "dst": ["office"], "via": ["tag:left"], "ip": ["22"]}]`, "r1",
			[]string{"0: 100.64.0.4 -> 100.64.0.6 22", "0: 100.64.0.4 -> fd7a:115c:a1e0::6 22", "0: 100.64.0.4 -> 10.1.0.0/16 22"},
		},
		{"an exit node forwards the internet", `"grants": [{"src": ["webhost"], "dst": ["8.8.8.0/24", "10.1.0.0/16"], "ip": ["53"]}]`, "exit", []string{"0: 100.64.0.4 -> 8.8.8.0/24 53"}},
		{"and nobody else does", `"grants": [{"src": ["webhost"], "dst": ["autogroup:internet", "8.8.8.0/24"], "ip": ["53"]}]`, "r1", nil},
		{
			"capabilities", `"grants": [{"src": ["webhost"], "dst": ["tag:db"], "ip": ["1"], "app": {"example.com/cap/a": [{"b": [1]}], "example.com/cap/b": []}}]`, "db",
			[]string{
				"0: 100.64.0.4 -> 100.64.0.5 1", "0: 100.64.0.4 -> fd7a:115c:a1e0::5 1",
				`1: 100.64.0.4 => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"example.com/cap/a":[{"b":[1]}],"example.com/cap/b":[]}`,
			},
		},
		{
			"capabilities never merge", `"grants": [{"src": ["webhost"], "dst": ["*"], "app": {"example.com/cap/a": [1]}}, {"src": ["webhost"], "dst": ["*"], "app": {"example.com/cap/a": [2]}}]`, "db",
			[]string{`0: 100.64.0.4 => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"example.com/cap/a":[1]}`, `1: 100.64.0.4 => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"example.com/cap/a":[2]}`},
		},
		{
			"capabilities from nobody", `"grants": [{"src": ["group:none"], "dst": ["*"], "app": {"example.com/cap/a": [1]}}]`, "db",
			[]string{`0:  => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"example.com/cap/a":[1]}`},
		},
		{"an empty src gives nothing at all", `"grants": [{"src": [], "dst": ["*"], "app": {"example.com/cap/a": [1]}}]`, "db", nil},
		{
			"drive and relay have companions on the sources", `"grants": [{"src": ["tag:web"], "dst": ["tag:db"], "app": {"tailscale.com/cap/relay": [{}], "tailscale.com/cap/drive": [{}]}}]`, "web",
			[]string{
				`0: 100.64.0.5 fd7a:115c:a1e0::5 => 100.64.0.4/32 fd7a:115c:a1e0::4/128 {"tailscale.com/cap/drive-sharer":null}`,
				`1: 100.64.0.5 fd7a:115c:a1e0::5 => 100.64.0.4/32 fd7a:115c:a1e0::4/128 {"tailscale.com/cap/relay-target":null}`,
			},
		},
		{"nor an empty dst", `"grants": [{"src": ["*"], "dst": [], "ip": ["*"], "app": {"tailscale.com/cap/drive": [{}]}}]`, "db", nil},
		{
			"a companion comes from everybody whom a star means", `"grants": [{"src": ["tag:db"], "dst": ["*"], "app": {"tailscale.com/cap/drive": [{}]}}]`, "db",
			[]string{
				`0: 100.64.0.5 fd7a:115c:a1e0::5 => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"tailscale.com/cap/drive":[{}]}`,
				"1: " + wild + ` => 100.64.0.5/32 fd7a:115c:a1e0::5/128 {"tailscale.com/cap/drive-sharer":null}`,
			},
		},
		{
			"companions of self", `"grants": [{"src": ["group:ada"], "dst": ["autogroup:self"], "app": {"tailscale.com/cap/drive": [{}]}}]`, "ada2",
			[]string{
				"0: " + ada + ` => 100.64.0.2/32 fd7a:115c:a1e0::2/128 {"tailscale.com/cap/drive":[{}]}`,
				"1: " + ada + ` => 100.64.0.2/32 fd7a:115c:a1e0::2/128 {"tailscale.com/cap/drive-sharer":null}`,
			},
		},
		{
			"capabilities of self", `"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "app": {"example.com/cap/a": [1]}}]`, "ada1",
			[]string{"0: " + ada + ` => 100.64.0.1/32 fd7a:115c:a1e0::1/128 {"example.com/cap/a":[1]}`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte("{"+smallNames+tt.policy+"}"), smallTailnet(), nil)
			if !r.Accepted {
				t.Fatalf("refused: %s", r.Message)
			}
			rules, err := r.Compiled.Filter(tt.device)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, show(rules)); diff != "" {
				t.Errorf("filter of %s (-want +got):\n%s", tt.device, diff)
			}
		})
	}
}

func TestFilterPosture(t *testing.T) {
	inv := smallTailnet()
	inv.Devices[0].OS, inv.Devices[1].OS, inv.Devices[2].OS = "macOS", "linux", "macOS"
	const policy = `{` + smallNames + `"postures": {"posture:mac": ["node:os == 'macos'"]},
		"grants": [{"src": ["group:dev"], "dst": ["webhost"], "ip": ["1"], "srcPosture": ["posture:mac"]}]}`
	r := Check("p", []byte(policy), inv, nil)
	if !r.Accepted {
		t.Fatal(r.Message)
	}
	rules, err := r.Compiled.Filter("web")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0: 100.64.0.1 100.64.0.3 fd7a:115c:a1e0::1 fd7a:115c:a1e0::3 -> 100.64.0.4 1"}
	if diff := cmp.Diff(want, show(rules)); diff != "" {
		t.Error(diff)
	}
}

func TestFilterLeavesOutStrangers(t *testing.T) {
	inv := smallTailnet()
	inv.Devices[3].Authorized = false // web
	inv.Devices[4].IsExternal = true  // db, shared in: its tags are another tailnet's
	r := Check("p", []byte(`{`+smallNames+`"grants": [{"src": ["autogroup:tagged"], "dst": ["*"], "ip": ["1"]}]}`), inv, nil)
	rules, err := r.Compiled.Filter("r3")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rules[0].SrcIPs, " "); strings.Contains(got, "100.64.0.4") || strings.Contains(got, "100.64.0.5") {
		t.Errorf("sources %s", got)
	}
	if _, err := r.Compiled.Filter("web"); err == nil {
		t.Error("a device that is not authorized has a filter")
	}
}
