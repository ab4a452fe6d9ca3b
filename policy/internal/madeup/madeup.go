// Package madeup adds devices to an inventory that bear the names of a policy, so that what the policy says of names that
// no device bears, or none bears alone, can be compiled and compared like the rest.
package madeup

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// stranger is the local part of the login of users that no policy names.
const stranger = "nobody-in-particular"

// Populate returns the inventory, which may be nil, with a device added for each tag and each user that the policy names
// and no device bears, and a router for every network and address that it spells. With every, there is a device for each
// name that bears it alone, whoever else does, one for each role, one for a user whom the policy does not name, and an exit node.
// names says what was made up for, sorted.
func Populate(p *policy.Policy, inv *policy.Inventory, every bool) (full *policy.Inventory, names []string) {
	m := &maker{inv: &policy.Inventory{}, used: map[string]bool{}}
	borne := map[string]bool{}
	if inv != nil {
		m.inv.Users = slices.Clone(inv.Users)
		m.inv.Devices = slices.Clone(inv.Devices)
		for _, d := range inv.Devices {
			m.used[d.Hostname] = true
			for _, a := range d.Addresses {
				m.used[a] = true
			}
			if !d.Authorized || d.IsExternal || every {
				continue
			}
			for _, t := range d.Tags {
				borne[t] = true
			}
			if len(d.Tags) == 0 {
				borne[d.User] = true
			}
		}
	}
	all := named(p)
	slices.Sort(all)
	all = slices.Compact(all)
	routes := networks(all)
	via := map[string]bool{}
	for _, g := range p.Grants {
		for _, t := range g.Via.Items {
			via[t.Value] = every
		}
	}
	domains := map[string]bool{}
	for _, name := range all {
		domain, isDomain := strings.CutPrefix(name, "user:*@")
		role, isAutogroup := strings.CutPrefix(name, "autogroup:")
		switch {
		case borne[name]:
		case strings.HasPrefix(name, "tag:"):
			d := policy.Device{Tags: []string{name}}
			if via[name] {
				d.EnabledRoutes = routes
			}
			m.add(name, d)
		case isDomain:
			domains[domain] = true
		case isAutogroup:
			if every && isRole(role) {
				login := stranger + "-" + role + "@" + m.domain()
				m.inv.Users = append(m.inv.Users, policy.User{ID: "made up: " + role, LoginName: login, Role: role})
				m.add(name, policy.Device{User: login})
			}
		case strings.HasPrefix(name, "group:"):
		case strings.Contains(name, "@"):
			m.add(name, policy.Device{User: name})
		}
	}
	if every {
		domains[m.domain()] = true
		for _, d := range slices.Sorted(maps.Keys(domains)) {
			m.add("any user of "+d, policy.Device{User: stranger + "@" + d})
		}
		m.add("the internet", policy.Device{EnabledRoutes: []string{"0.0.0.0/0", "::/0"}})
	}
	if n := len(routes); n > 0 {
		m.add(fmt.Sprintf("%d networks and addresses", n), policy.Device{EnabledRoutes: routes})
	}
	slices.Sort(m.names)
	return m.inv, m.names
}

type maker struct {
	inv   *policy.Inventory
	used  map[string]bool // host names and addresses
	names []string
	next  int
}

func (m *maker) add(name string, d policy.Device) {
	host := "with " + name
	for m.used[host] {
		host += "'"
	}
	m.used[host] = true
	d.NodeID, d.Hostname, d.Name = "made up: "+name, host, host
	d.Addresses, d.Authorized = m.addresses(), true
	m.inv.Devices = append(m.inv.Devices, d)
	m.names = append(m.names, name)
}

// addresses takes a pair that nobody has, from the upper end of the tailnet's range.
func (m *maker) addresses() []string {
	const perBlock, blocks = 250, 128
	for {
		m.next++
		v4 := fmt.Sprintf("100.%d.%d.%d", 127-m.next/(perBlock*blocks), 250-m.next/perBlock%blocks, 1+m.next%perBlock)
		v6 := fmt.Sprintf("fd7a:115c:a1e0:ffff::%x", m.next)
		if !m.used[v4] && !m.used[v6] {
			return []string{v4, v6}
		}
	}
}

// domain is that of the tailnet's first user, or of anybody named.
func (m *maker) domain() string {
	for _, u := range m.inv.Users {
		if _, d, ok := strings.Cut(u.LoginName, "@"); ok {
			return d
		}
	}
	return "example.com"
}

func isRole(name string) bool {
	switch name {
	case "owner", "admin", "it-admin", "network-admin", "billing-admin", "auditor":
		return true
	}
	return false
}

// networks lists the networks and addresses among names, as routes.
func networks(names []string) []string {
	var out []string
	for _, name := range names {
		if n, err := netip.ParsePrefix(name); err == nil && n.Bits() > 0 {
			out = append(out, n.Masked().String())
		} else if a, err := netip.ParseAddr(name); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// named lists what a policy's rules may name: tags, users, addresses and networks.
func named(p *policy.Policy) []string {
	var out []string
	for _, t := range p.TagOwners {
		out = append(out, t.Name.Value)
	}
	for _, g := range p.Groups {
		out = append(out, g.Members.Values()...)
	}
	for _, h := range p.Hosts {
		out = append(out, h.Value.Value)
	}
	for _, s := range p.IPSets {
		for _, e := range s.Entries.Items {
			if fields := strings.Fields(e.Value); len(fields) > 0 {
				out = append(out, fields[len(fields)-1])
			}
		}
	}
	for _, a := range p.ACLs {
		out = append(out, a.Src.Values()...)
		for _, d := range a.Dst.Items {
			if selector, _, err := policy.SplitACLDst(d.Value); err == nil {
				out = append(out, selector)
			}
		}
	}
	for _, g := range p.Grants {
		out = append(append(out, g.Src.Values()...), g.Dst.Values()...)
	}
	return out
}
