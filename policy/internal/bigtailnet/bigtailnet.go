// Package bigtailnet makes large but lifelike tailnets for benchmarks. It does not use the engine, so that the engine's
// own tests can use it.
package bigtailnet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

type tailnet struct {
	Devices []device `json:"devices"`
	Users   []user   `json:"users"`
}

type device struct {
	NodeID        string   `json:"nodeId"`
	Hostname      string   `json:"hostname"`
	Name          string   `json:"name"`
	Addresses     []string `json:"addresses"`
	User          string   `json:"user"`
	Tags          []string `json:"tags,omitempty"`
	Authorized    bool     `json:"authorized"`
	EnabledRoutes []string `json:"enabledRoutes,omitempty"`
}

type user struct {
	ID        string `json:"id"`
	LoginName string `json:"loginName"`
	Role      string `json:"role"`
}

// Make returns a policy file and an inventory with that many devices, rules (half of them acls, half grants) and entries
// of tests: the same bytes for the same arguments. Policies of other seeds have other rules over the same names.
func Make(devices, rules, tests int, seed uint64) (policy, inventory []byte) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	tags, users, hosts := max(4, devices/100), max(4, devices/20), max(4, rules/10)
	var p strings.Builder
	p.WriteString("{\n\t\"groups\": {\n")
	for g := range max(2, users/10) {
		fmt.Fprintf(&p, "\t\t\"group:g%d\": [", g)
		for m := range 8 {
			fmt.Fprintf(&p, "\"u%d@example.com\",", (g*7+m*3)%users)
		}
		p.WriteString("],\n")
	}
	p.WriteString("\t},\n\t\"tagOwners\": {\n")
	for t := range tags {
		fmt.Fprintf(&p, "\t\t\"tag:t%d\": [\"autogroup:admin\"],\n", t)
	}
	p.WriteString("\t},\n\t\"hosts\": {\n")
	for h := range hosts {
		fmt.Fprintf(&p, "\t\t\"h%d\": \"10.%d.%d.0/24\",\n", h, h/256, h%256)
	}
	src := func() string {
		if rnd.IntN(2) == 0 {
			return fmt.Sprintf("group:g%d", rnd.IntN(max(2, users/10)))
		}
		return fmt.Sprintf("tag:t%d", rnd.IntN(tags))
	}
	p.WriteString("\t},\n\t\"acls\": [\n")
	for range rules / 2 {
		fmt.Fprintf(&p, "\t\t{\"action\": \"accept\", \"src\": [%q, %q], \"dst\": [\"tag:t%d:%d\", \"h%d:443\"]}, // why\n",
			src(), src(), rnd.IntN(tags), 1+rnd.IntN(65000), rnd.IntN(hosts))
	}
	p.WriteString("\t],\n\t\"grants\": [\n\t\t{\"src\": [\"tag:t0\"], \"dst\": [\"tag:t0\"], \"ip\": [\"ip-in-ip:*\"]},\n")
	for range rules - rules/2 {
		fmt.Fprintf(&p, "\t\t{\"src\": [%q], \"dst\": [\"tag:t%d\"], \"ip\": [\"tcp:%d\", \"udp:53\"]},\n", src(), rnd.IntN(tags), 1+rnd.IntN(65000))
	}
	p.WriteString("\t],\n\t\"tests\": [\n")
	for range tests {
		fmt.Fprintf(&p, "\t\t{\"src\": \"tag:t0\", \"proto\": \"ip-in-ip\", \"accept\": [\"tag:t0:0\"], \"deny\": [\"tag:t%d:0\"]},\n", 1+rnd.IntN(tags-1))
	}
	p.WriteString("\t],\n}\n")
	inv := tailnet{}
	for u := range users {
		inv.Users = append(inv.Users, user{ID: fmt.Sprint(u), LoginName: fmt.Sprintf("u%d@example.com", u), Role: "member"})
	}
	for d := range devices {
		dev := device{
			NodeID: fmt.Sprintf("n%d", d), Hostname: fmt.Sprintf("d%d", d), Name: fmt.Sprintf("d%d.example.ts.net", d), Authorized: true,
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d", 64+d>>16, d>>8&255, d&255), fmt.Sprintf("fd7a:115c:a1e0::%x:%x", 1+d>>16, d&65535)},
		}
		if d%2 == 0 {
			dev.Tags = []string{fmt.Sprintf("tag:t%d", d/2%tags)}
		} else {
			dev.User = fmt.Sprintf("u%d@example.com", d/2%users)
		}
		if d%100 == 0 {
			h := d / 100 % hosts
			dev.EnabledRoutes = []string{fmt.Sprintf("10.%d.%d.0/24", h/256, h%256)}
		}
		inv.Devices = append(inv.Devices, dev)
	}
	inventory, err := json.Marshal(inv)
	if err != nil {
		panic(err) // strings and booleans always have a JSON form
	}
	return []byte(p.String()), inventory
}
