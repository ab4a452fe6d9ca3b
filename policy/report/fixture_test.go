package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/lint"
)

// meshPolicy is in the style of a small company: people in groups, services by tag, a mesh of Kubernetes nodes, a subnet
// router and an exit node.
const meshPolicy = `// Access for example.com. Owners: the platform team.
{
	"groups": {
		"group:platform": ["ana@example.com", "bo@example.com"],
		"group:dev":      ["cleo@example.com", "dan@example.com", "eve@example.com"],
		"group:finance":  ["fay@example.com"],
		"group:interns":  [],
	},
	"tagOwners": {
		"tag:node":    ["group:platform"],
		"tag:db":      ["group:platform"],
		"tag:web":     ["group:platform"],
		"tag:ci":      ["group:platform"],
		"tag:router":  ["group:platform"],
		"tag:monitor": ["group:platform"],
	},
	"hosts": {
		"office": "192.168.10.0/24",
		"nas":    "192.168.10.20",
	},
	"grants": [
		// The mesh: pods talk through ip-in-ip, nodes through everything else.
		{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]},
		// The platform team may go everywhere.
		{"src": ["group:platform"], "dst": ["*"], "ip": ["*"]},
		{"src": ["group:dev"], "dst": ["tag:web"], "ip": ["tcp:443", "tcp:8443"]},
		{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:5432"], "srcPosture": ["posture:managed"]},
		{"src": ["tag:web"], "dst": ["tag:db"], "ip": ["tcp:5432", "tcp:6379"]},
		{"src": ["tag:ci"], "dst": ["tag:node"], "ip": ["tcp:6443"]},
		{"src": ["tag:monitor"], "dst": ["tag:node", "tag:db", "tag:web", "tag:ci"], "ip": ["tcp:9100", "icmp:*"]},
		{"src": ["group:finance"], "dst": ["nas"], "ip": ["tcp:445"]},
		{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]},
		{"src": ["autogroup:member"], "dst": ["autogroup:internet"], "ip": ["*"]},
		{"src": ["fay@example.com"], "dst": ["office"], "ip": ["80", "443"]},
	],
	"postures": {
		"posture:managed": ["node:os IN ['macos', 'linux']"],
	},
	"ssh": [
		{"action": "check", "src": ["group:platform"], "dst": ["tag:node"], "users": ["root", "autogroup:nonroot"]},
	],
	"tests": [
		{"src": "tag:node", "proto": "ip-in-ip", "accept": ["tag:node:0"]},
		{"src": "cleo@example.com", "accept": ["tag:web:443"], "deny": ["tag:db:22", "tag:ci:22"]},
		{"src": "tag:web", "accept": ["tag:db:5432"], "deny": ["tag:node:22"]},
	],
	"sshTests": [
		{"src": "ana@example.com", "dst": ["tag:node"], "check": ["root"]},
		{"src": "cleo@example.com", "dst": ["tag:node"], "deny": ["root"]},
	],
}
`

// fixture is what a page of the tests is made of.
type fixture struct {
	policy       string
	inventory    policy.Inventory
	requirements []policy.Requirement
	documents    map[string]any // of a mesh
}

// newFixture makes a tailnet with a mesh of so many nodes over the locations. broken nodes, counted from the first, lack the
// tag that would admit their overlay.
func newFixture(nodes int, locations []string, broken ...int) *fixture {
	f := &fixture{
		policy:       meshPolicy,
		requirements: []policy.Requirement{{Name: "overlay", Src: []string{"tag:node"}, Dst: []string{"tag:node"}, Proto: "ip-in-ip", Why: "pod-to-pod traffic"}},
		documents:    map[string]any{},
	}
	n := 0
	add := func(host, user string, tags []string, routes ...string) {
		n++
		f.inventory.Devices = append(f.inventory.Devices, policy.Device{
			NodeID: fmt.Sprintf("n%dCNTRL", n), Hostname: host, Name: host + ".tail0.ts.net", User: user, Tags: tags, Authorized: true, OS: "linux",
			Addresses:        []string{fmt.Sprintf("100.64.%d.%d", n/250, n%250+1), fmt.Sprintf("fd7a:115c:a1e0::%x", n)},
			AdvertisedRoutes: routes, EnabledRoutes: routes,
		})
	}
	for _, u := range []string{"ana", "bo", "cleo", "dan", "eve", "fay"} {
		role := "member"
		if u == "ana" {
			role = "owner"
		}
		f.inventory.Users = append(f.inventory.Users, policy.User{ID: u, LoginName: u + "@example.com", Role: role, Status: "active", Type: "member"})
		add(u+"-laptop", u+"@example.com", nil)
	}
	add("ana-phone", "ana@example.com", nil)
	for i := range 2 {
		add(fmt.Sprintf("pg-%d", i+1), "", []string{"tag:db"})
	}
	for i := range 3 {
		add(fmt.Sprintf("web-%d", i+1), "", []string{"tag:web"})
	}
	add("runner", "", []string{"tag:ci"})
	add("prometheus", "", []string{"tag:monitor"})
	add("office-gw", "", []string{"tag:router"}, "192.168.10.0/24")
	add("exit-fra", "", []string{"tag:router"}, "0.0.0.0/0", "::/0")

	type member struct{ name, location string }
	var members []member
	for i := range nodes {
		location := locations[i*len(locations)/nodes]
		m := member{fmt.Sprintf("%s-k8s-%02d", location, i+1), location}
		tags := []string{"tag:node"}
		for _, b := range broken {
			if i == b {
				tags = []string{"tag:ci"}
			}
		}
		members = append(members, m)
		add(m.name, "", tags)
	}
	for _, m := range members {
		node := func(o member) map[string]any {
			for _, d := range f.inventory.Devices {
				if d.Hostname == o.name {
					return map[string]any{"name": o.name, "id": d.NodeID, "addresses": d.Addresses, "location": o.location}
				}
			}
			return nil
		}
		peers := []any{}
		for _, o := range members {
			if o.location != m.location {
				peers = append(peers, node(o))
			}
		}
		f.documents[m.name] = map[string]any{
			"version": 1, "mesh": "futhark", "node": node(m), "peers": peers, "overlay": map[string]any{"protocol": "ip-in-ip"},
		}
	}
	return f
}

func sixLocations() []string { return []string{"ams", "fra", "hel", "nyc", "sin", "waw"} }

func (f *fixture) mesh(t *testing.T) *Mesh {
	t.Helper()
	text, err := json.Marshal(f.documents)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseMesh(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (f *fixture) input(t *testing.T) Input {
	t.Helper()
	inv := &f.inventory
	in := Input{File: "policy.hujson", Source: []byte(f.policy), Inventory: inv, Tool: "tailmesh-policy", Version: "v0.0.0"}
	in.Report = policy.Check(in.File, in.Source, inv, f.requirements)
	in.Findings = append(in.Findings, in.Report.Diagnostics...)
	in.Findings = append(in.Findings, lint.Lint(in.File, in.Report, inv)...)
	if len(f.documents) > 0 {
		in.Mesh = f.mesh(t)
	}
	return in
}

func render(t *testing.T, in Input) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}
