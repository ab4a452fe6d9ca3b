package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Case is a policy in parts, and a tailnet.
type Case struct {
	Inventory *policy.Inventory
	Grants    []map[string]any
	ACLs      []map[string]any
}

// The names that every policy of the tests defines.
func definitions() map[string]any {
	return map[string]any{
		"groups":    map[string][]string{"group:eng": {"alice@example.com", "bob@example.com"}, "group:ops": {"carol@example.com"}, "group:none": {}},
		"tagOwners": map[string][]string{"tag:a": {"group:ops"}, "tag:b": {"tag:a"}, "tag:router": {"autogroup:admin"}},
		"hosts":     map[string]string{"box": "100.64.0.3", "net": "10.1.0.0/16", "net6": "fd01::/64", "far": "9.9.9.9"},
		"ipsets": map[string][]string{
			"ipset:some": {"add 10.1.0.0/16", "remove 10.1.2.0/24", "add 100.64.0.1", "add 100.64.0.3-100.64.0.5"},
			"ipset:v6":   {"add fd01::/64", "add 10.1.2.0/24"},
		},
	}
}

// Text returns the policy file.
func (c Case) Text() []byte {
	file := definitions()
	if c.Grants != nil {
		file["grants"] = c.Grants
	}
	if c.ACLs != nil {
		file["acls"] = c.ACLs
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		panic(err) // maps of strings
	}
	return text
}

// via reports whether a rule names the routers by which it opens a network.
func (c Case) via() bool {
	return slices.ContainsFunc(c.Grants, func(g map[string]any) bool { return g["via"] != nil })
}

// protocols returns those that the rules name, as numbers.
func (c Case) protocols() []int {
	var list []int
	add := func(name string) {
		if n, ok := numbers()[name]; ok {
			list = append(list, n)
		} else if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	for _, a := range c.ACLs {
		if name, ok := a["proto"].(string); ok {
			add(name)
		}
	}
	for _, g := range c.Grants {
		for _, text := range g["ip"].([]string) {
			if name, _, ok := strings.Cut(text, ":"); ok {
				add(name)
			}
		}
	}
	return list
}

// numbers are the protocols that a rule may name by a word (tailscale.com/types/ipproto).
func numbers() map[string]int {
	return map[string]int{
		"tcp": tcp, "udp": udp, "icmp": icmp4, "igmp": 2, "ipv4": 4, "ip-in-ip": 4, "egp": 8, "igp": 9, "dccp": 33, "gre": 47, "esp": 50,
		"ah": 51, "ipv6-icmp": icmp6, "sctp": sctp,
	}
}

// generator draws everything from one source of chance.
type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

// some returns one to most of what f draws, without repetition.
func (g generator) some(most int, f func() string) []string {
	var list []string
	for range 1 + g.IntN(most) {
		if s := f(); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

func (g generator) newCase() Case {
	c := Case{Inventory: g.inventory()}
	if g.IntN(3) > 0 {
		c.ACLs = []map[string]any{}
		for range g.IntN(6) {
			c.ACLs = append(c.ACLs, g.acl())
		}
	}
	if g.IntN(3) > 0 || c.ACLs == nil {
		c.Grants = []map[string]any{}
		for range g.IntN(6) {
			c.Grants = append(c.Grants, g.grant())
		}
	}
	return c
}

// devices is how many devices a tailnet has.
const devices = 8

func address4(i int) netip.Addr { return netip.AddrFrom4([4]byte{100, 64, 0, byte(i)}) }

func address6(i int) netip.Addr {
	a := netip.MustParseAddr("fd7a:115c:a1e0::").As16()
	a[15] = byte(i)
	return netip.AddrFrom16(a)
}

func (g generator) inventory() *policy.Inventory {
	inv := &policy.Inventory{}
	for i, u := range []struct{ name, role string }{{"alice", "owner"}, {"bob", "member"}, {"carol", "admin"}, {"dave", "member"}} {
		inv.Users = append(inv.Users, policy.User{
			ID: fmt.Sprint(i + 1), LoginName: u.name + "@example.com", Role: u.role, Status: "active", Type: "member",
		})
	}
	for i := 1; i <= devices; i++ {
		d := policy.Device{
			ID: fmt.Sprint(i), NodeID: fmt.Sprintf("n%dCNTRL", i), Hostname: fmt.Sprintf("dev%d", i),
			Name: fmt.Sprintf("dev%d.example.ts.net", i), Authorized: true, OS: "linux",
			Addresses: []string{address4(i).String(), address6(i).String()},
		}
		if g.IntN(2) == 0 {
			d.User = inv.Users[g.IntN(len(inv.Users))].LoginName
		} else {
			d.Tags = g.some(2, func() string { return g.one("tag:a", "tag:b", "tag:router") })
		}
		if g.IntN(3) == 0 {
			d.EnabledRoutes = g.some(3, func() string { return g.one("10.1.0.0/16", "10.1.2.0/24", "192.168.5.0/24", "fd01::/64") })
		}
		if g.IntN(8) == 0 {
			d.EnabledRoutes = append(d.EnabledRoutes, "0.0.0.0/0", "::/0")
		}
		d.AdvertisedRoutes = d.EnabledRoutes
		inv.Devices = append(inv.Devices, d)
	}
	return inv
}

func (g generator) source() string {
	return g.one("*", "alice@example.com", "bob@example.com", "dave@example.com", "user:*@example.com", "group:eng", "group:ops", "group:none",
		"tag:a", "tag:b", "tag:router", "autogroup:member", "autogroup:tagged", "autogroup:admin", "autogroup:owner",
		"box", "net", "net6", "ipset:some", "ipset:v6", address4(2).String(), address6(4).String(), "100.64.0.0/30", "10.1.2.0/24",
		"fd7a:115c:a1e0::/125")
}

func (g generator) destination() string {
	return g.one("*", "alice@example.com", "bob@example.com", "group:eng", "group:ops", "tag:a", "tag:b", "tag:router",
		"autogroup:member", "autogroup:tagged", "autogroup:admin", "autogroup:internet", "box", "net", "net6", "far",
		"ipset:some", "ipset:v6", address4(5).String(), address6(6).String(), "100.64.0.0/30", "10.1.2.0/25", "192.168.0.0/16",
		"fd01::/96")
}

// people are sources with which autogroup:self may stand.
func (g generator) people() string {
	return g.one("alice@example.com", "bob@example.com", "group:eng", "group:ops", "autogroup:member")
}

func (g generator) ports() string {
	return g.one("*", "22", "80,443", "1-1024", "22,8000-8100", "65535", "1-65535")
}

// protocols are those that a rule or a packet can name: every one that Tailscale has a name for, and others by number.
// Left out is 99, TSMP, Tailscale's own between nodes, which the filter always lets pass.
func protocols() []int {
	return []int{icmp4, 2, 4, tcp, 8, 9, udp, 33, 41, 47, 50, 51, icmp6, 89, 112, sctp, 255 - 2}
}

// protocol draws a protocol's name or number as an acl has it.
func (g generator) protocol() string {
	if g.IntN(2) == 0 {
		return g.one(slices.Sorted(maps.Keys(numbers()))...)
	}
	return strconv.Itoa(protocols()[g.IntN(len(protocols()))])
}

func ported(proto string) bool {
	return slices.Contains([]string{"", "tcp", "udp", "sctp", "6", "17", "132"}, proto)
}

func (g generator) acl() map[string]any {
	acl := map[string]any{"action": "accept"}
	proto := ""
	if g.IntN(3) > 0 {
		proto = g.protocol()
		acl["proto"] = proto
	}
	ports := g.ports
	if !ported(proto) {
		ports = func() string { return "*" }
	}
	if g.IntN(6) == 0 {
		acl["src"] = g.some(3, g.people)
		acl["dst"] = []string{"autogroup:self:" + ports()}
		return acl
	}
	acl["src"] = g.some(3, g.source)
	acl["dst"] = g.some(4, func() string {
		to := g.destination()
		if strings.Count(to, ":") > 1 && !strings.HasPrefix(to, "ipset:") {
			to = "[" + to + "]"
		}
		return to + ":" + ports()
	})
	return acl
}

func (g generator) grant() map[string]any {
	grant := map[string]any{}
	grant["ip"] = g.some(4, func() string {
		switch g.IntN(3) {
		case 0:
			return strings.Split(g.ports(), ",")[0]
		case 1:
			return "*"
		}
		proto := g.protocol()
		if ported(proto) {
			return proto + ":" + strings.Split(g.ports(), ",")[0]
		}
		return proto + ":*"
	})
	if g.IntN(6) == 0 {
		grant["src"], grant["dst"] = g.some(3, g.people), []string{"autogroup:self"}
		return grant
	}
	if g.IntN(8) == 0 {
		grant["src"], grant["via"] = g.some(3, g.source), g.some(2, func() string { return g.one("tag:a", "tag:b", "tag:router") })
		grant["dst"] = g.some(2, func() string { return g.one("net", "net6", "10.1.2.0/25", "192.168.0.0/16") })
		return grant
	}
	grant["src"], grant["dst"] = g.some(3, g.source), g.some(4, g.destination)
	return grant
}

// packet draws a packet that a node of the tailnet may receive, more often than not of a protocol that a rule names.
func (g generator) packet(c Case) Packet {
	v4 := g.IntN(2) == 0
	device := func() netip.Addr {
		if i := 1 + g.IntN(devices); v4 {
			return address4(i)
		} else {
			return address6(i)
		}
	}
	behind := func() netip.Addr {
		if v4 {
			return netip.MustParseAddr(g.one("10.1.2.3", "10.1.2.200", "10.1.9.9", "192.168.5.5", "9.9.9.9", "8.8.8.8"))
		}
		return netip.MustParseAddr(g.one("fd01::3", "fd01::ffff:1", "2620:fe::9"))
	}
	p := Packet{Src: device(), Dst: device()}
	if g.IntN(8) == 0 {
		p.Src = behind()
	}
	if g.IntN(3) == 0 {
		p.Dst = behind()
	}
	p.Proto = protocols()[g.IntN(len(protocols()))]
	if named := c.protocols(); len(named) > 0 && g.IntN(3) > 0 {
		p.Proto = named[g.IntN(len(named))]
	}
	// A family's echo requests are of its own ICMP.
	switch {
	case v4 && p.Proto == icmp6:
		p.Proto = icmp4
	case !v4 && p.Proto == icmp4:
		p.Proto = icmp6
	}
	if HasPorts(p.Proto) {
		p.Port = []uint16{1, 21, 22, 23, 80, 443, 1024, 1025, 7999, 8000, 8100, 8101, 65534, 65535}[g.IntN(14)]
	}
	return p
}
