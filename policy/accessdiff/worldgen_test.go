package accessdiff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// worldGen draws small tailnets and policies.
type worldGen struct {
	*rand.Rand
	inventory *policy.Inventory
	synced    bool
}

func attrNames() []string { return []string{"funnel", "mullvad", "randomize-client-port"} }

func newWorldGen(seed uint64) *worldGen {
	g := &worldGen{Rand: rand.New(rand.NewPCG(seed, 99))}
	g.synced = g.IntN(4) == 0
	inv := &policy.Inventory{Users: []policy.User{
		{ID: "1", LoginName: "ada@example.com", Role: "owner", Status: "active", Type: "member"},
		{ID: "2", LoginName: "bob@example.com", Role: "member", Status: "active", Type: "member"},
	}}
	tags := []string{"tag:web", "tag:db", "tag:router"}
	for i := range 3 + g.IntN(4) {
		d := policy.Device{
			NodeID: fmt.Sprintf("n%d", i), Hostname: fmt.Sprintf("host%d", i), Name: fmt.Sprintf("host%d.example.ts.net", i),
			Addresses: []string{fmt.Sprintf("100.64.0.%d", i+1)}, Authorized: g.IntN(20) > 0, OS: pick(g, "linux", "macos"),
		}
		if g.IntN(4) > 0 {
			d.Addresses = append(d.Addresses, fmt.Sprintf("fd7a:115c:a1e0::%x", i+1))
		}
		switch g.IntN(10) {
		case 0, 1, 2, 3:
			d.User = pick(g, "ada@example.com", "bob@example.com")
		case 4:
			d.IsExternal = true
			d.User = "eve@elsewhere.com"
		default:
			for _, t := range tags {
				if g.IntN(3) == 0 {
					d.Tags = append(d.Tags, t)
				}
			}
			if d.Tags == nil {
				d.Tags = []string{pick(g, tags...)}
			}
		}
		if g.IntN(3) == 0 && !d.IsExternal {
			for _, r := range []string{"10.0.0.0/29", "10.0.0.4/30", "10.0.0.8/29", "192.168.1.0/30", "fd00:1::/126", "0.0.0.0/0", "::/0", "100.64.0.0/30"} {
				if g.IntN(5) == 0 {
					d.EnabledRoutes = append(d.EnabledRoutes, r)
				}
			}
			d.AdvertisedRoutes = d.EnabledRoutes
		}
		inv.Devices = append(inv.Devices, d)
	}
	g.inventory = inv
	return g
}

func pick[T any](g *worldGen, list ...T) T { return list[g.IntN(len(list))] }

func several(g *worldGen, most int, list ...string) []string {
	var out []string
	for range 1 + g.IntN(most) {
		out = append(out, pick(g, list...))
	}
	return out
}

// draft is a policy that can be edited.
type draft struct {
	acls, grants, ssh, attrs []string
	groups, hosts            map[string]string
	noRules                  bool
}

func (g *worldGen) pair() (old, new string) {
	a := g.draft()
	if g.IntN(4) == 0 {
		return a.text(), g.draft().text()
	}
	b := a
	b.acls, b.grants, b.ssh, b.attrs = slices.Clone(a.acls), slices.Clone(a.grants), slices.Clone(a.ssh), slices.Clone(a.attrs)
	for range 1 + g.IntN(3) {
		switch g.IntN(8) {
		case 0:
			b.acls = edited(g, b.acls, g.acl)
		case 1, 2:
			b.grants = edited(g, b.grants, g.grant)
		case 3:
			b.ssh = edited(g, b.ssh, g.sshRule)
		case 4:
			b.attrs = edited(g, b.attrs, g.attr)
		case 5:
			b.groups = g.groups()
		case 6:
			b.hosts = g.hosts()
		case 7:
			b.noRules = g.IntN(6) == 0
		}
	}
	return a.text(), b.text()
}

// edited adds, removes or replaces a rule.
func edited(g *worldGen, list []string, draw func() string) []string {
	if len(list) == 0 || g.IntN(3) == 0 {
		return append(list, draw())
	}
	i := g.IntN(len(list))
	if g.IntN(2) == 0 {
		return slices.Delete(list, i, i+1)
	}
	list[i] = draw()
	return list
}

func (g *worldGen) groups() map[string]string {
	out := map[string]string{"group:nobody": `[]`}
	for _, name := range []string{"group:dev", "group:ops"} {
		out[name] = pick(g, `["ada@example.com"]`, `["bob@example.com"]`, `["ada@example.com", "bob@example.com"]`, `[]`)
	}
	return out
}

func (g *worldGen) hosts() map[string]string {
	return map[string]string{"box": pick(g, `"100.64.0.1"`, `"100.64.0.2"`, `"fd7a:115c:a1e0::2"`), "lan": pick(g, `"10.0.0.0/29"`, `"10.0.0.0/28"`, `"10.0.0.4/30"`)}
}

func (g *worldGen) draft() draft {
	d := draft{groups: g.groups(), hosts: g.hosts(), noRules: g.IntN(30) == 0}
	for range g.IntN(4) {
		d.acls = append(d.acls, g.acl())
	}
	for range g.IntN(4) {
		d.grants = append(d.grants, g.grant())
	}
	for range g.IntN(3) {
		d.ssh = append(d.ssh, g.sshRule())
	}
	for range g.IntN(3) {
		d.attrs = append(d.attrs, g.attr())
	}
	return d
}

func (d draft) text() string {
	keyed := func(m map[string]string) string {
		var out []string
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range m {
				if !yield(k) {
					return
				}
			}
		}) {
			out = append(out, fmt.Sprintf("%q: %s", k, m[k]))
		}
		return strings.Join(out, ", ")
	}
	rules := fmt.Sprintf(`"acls": [%s], "grants": [%s],`, strings.Join(d.acls, ",\n\t"), strings.Join(d.grants, ",\n\t"))
	if d.noRules {
		rules = ""
	}
	return fmt.Sprintf(`{"groups": {%s}, "hosts": {%s},
	"tagOwners": {"tag:web": [], "tag:db": [], "tag:router": []},
	"postures": {"posture:linux": ["node:os == 'linux'"]},
	%s
	"ssh": [%s],
	"nodeAttrs": [%s]}`, keyed(d.groups), keyed(d.hosts), rules, strings.Join(d.ssh, ",\n\t"), strings.Join(d.attrs, ", "))
}

func (g *worldGen) sources() []string {
	list := []string{
		"*", "tag:web", "tag:db", "tag:router", "group:dev", "group:ops", "ada@example.com", "bob@example.com", "autogroup:member",
		"autogroup:tagged", "box", "lan", "10.0.0.2", "10.0.0.0/30", "100.64.0.3", "fd00:1::1", "autogroup:danger-all", "group:nobody",
	}
	if g.synced {
		list = append(list, syncedGroup, syncedGroup, syncedGroup, syncedGroup, syncedGroup, syncedGroup)
	}
	return several(g, 3, list...)
}

func (g *worldGen) destinations() []string {
	return several(g, 3, "*", "tag:web", "tag:db", "tag:router", "group:dev", "bob@example.com", "autogroup:member", "box", "lan", "10.0.0.0/30", "10.0.0.5",
		"192.168.1.0/30", "fd00:1::/126", "100.64.0.2", "100.64.0.0/29", "autogroup:internet", "autogroup:tagged")
}

func (g *worldGen) posture() string { return pick(g, "", "", "", `, "srcPosture": ["posture:linux"]`) }

func (g *worldGen) acl() string {
	if g.IntN(8) == 0 {
		return fmt.Sprintf(`{"action": "accept", "src": [%q], "dst": ["autogroup:self:%s"]}`, pick(g, "*", "autogroup:member", "group:dev", "ada@example.com"), pick(g, "*", "22", "80-90"))
	}
	proto := pick(g, "", "", "tcp", "udp", "icmp", "ip-in-ip", "sctp", "47")
	var dst []string
	for _, d := range g.destinations() {
		ports := "*"
		if slices.Contains([]string{"", "tcp", "udp", "sctp"}, proto) {
			ports = pick(g, "*", "22", "80-90", "22,443", "85-65535", "1-65535")
		}
		if strings.Contains(d, "::") && !strings.Contains(d, "/") {
			d = "[" + d + "]"
		}
		dst = append(dst, d+":"+ports)
	}
	return fmt.Sprintf(`{"action": "accept", "proto": %q, "src": %s, "dst": %s%s}`, proto, quoteList(g.sources()), quoteList(dst), g.posture())
}

func (g *worldGen) grant() string {
	if g.IntN(8) == 0 {
		return fmt.Sprintf(`{"src": [%q], "dst": ["autogroup:self"], "ip": [%q]}`, pick(g, "autogroup:member", "group:ops", "bob@example.com"), pick(g, "*", "22", "udp:80-90"))
	}
	dst := g.destinations()
	app := ""
	if g.IntN(4) == 0 && !slices.Contains(dst, "autogroup:internet") {
		app = fmt.Sprintf(`, "app": {%q: %s}`, pick(g, "example.com/cap/x", "tailscale.com/cap/drive", "tailscale.com/cap/webui"), pick(g, `[{"a": 1}]`, `[]`, `[{"a": 2}, {"a": 1}]`))
	}
	ip := several(g, 3, "*", "22", "tcp:80-90", "udp:443", "icmp:*", "ip-in-ip:*", "47:*", "sctp:22", "85-65535")
	via := pick(g, "", "", "", `, "via": ["tag:router"]`)
	return fmt.Sprintf(`{"src": %s, "dst": %s, "ip": %s%s%s%s}`, quoteList(g.sources()), quoteList(dst), quoteList(ip), app, via, g.posture())
}

func (g *worldGen) sshRule() string {
	dst := pick(g, "tag:web", "tag:db", "tag:router", "autogroup:self")
	src := several(g, 2, "group:dev", "group:ops", "ada@example.com", "bob@example.com", "autogroup:member")
	action := pick(g, "accept", "accept", "check")
	if dst != "autogroup:self" && action == "accept" && g.IntN(3) == 0 {
		src = []string{pick(g, "tag:web", "tag:db")}
	}
	return fmt.Sprintf(`{"action": %q, "src": %s, "dst": [%q], "users": %s}`, action, quoteList(src), dst, quoteList(several(g, 2, "root", "ubuntu", "deploy", "autogroup:nonroot")))
}

func (g *worldGen) attr() string {
	return fmt.Sprintf(`{"target": %s, "attr": %s}`, quoteList(several(g, 2, "*", "tag:web", "group:dev", "ada@example.com", "autogroup:member", "100.64.0.2", "box")),
		quoteList(several(g, 2, attrNames()...)))
}
