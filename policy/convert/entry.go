package convert

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// piece is what one entry of the new form holds: the destinations of the old one that go together, by their places in its
// dst, each with its new text. Where a place appears twice it stands for two destinations.
type piece struct {
	proto string   // of an acl
	ip    []string // of a grant
	dst   []destination
}

type destination struct {
	at     int
	text   string
	joined []int // further places whose ports are in text, or in ip
}

const selfSelector = "autogroup:self"

// grantPieces divides an acl into grants: destinations with the same ports together, since a grant admits each of its
// ports to each of its destinations. reason says why there is none.
func grantPieces(a *policy.ACL) (pieces []piece, reason string) {
	proto, err := policy.ProtocolText(a.Proto.Value)
	if err != nil {
		return nil, err.Error()
	}
	if len(a.Dst.Items) == 0 {
		return nil, "it has no destination, so a grant would have no ports"
	}
	type target struct {
		destination
		ports []string
	}
	var targets []target
	for i, s := range a.Dst.Items {
		selector, ports, err := policy.SplitACLDst(s.Value)
		if err != nil {
			return nil, err.Error()
		}
		if n := slices.IndexFunc(targets, func(t target) bool { return t.text == selector }); n >= 0 {
			targets[n].ports = append(targets[n].ports, ports...)
			targets[n].joined = append(targets[n].joined, i)
			continue
		}
		targets = append(targets, target{destination{at: i, text: selector}, ports})
	}
	for _, t := range targets {
		ip := make([]string, len(t.ports))
		for i, p := range t.ports {
			ip[i] = p
			if proto != "" {
				ip[i] = proto + ":" + p
			}
		}
		n := slices.IndexFunc(pieces, func(p piece) bool { return slices.Equal(p.ip, ip) })
		if n < 0 {
			n = len(pieces)
			pieces = append(pieces, piece{ip: ip})
		}
		pieces[n].dst = append(pieces[n].dst, t.destination)
	}
	// The rule that an acl makes of autogroup:self comes after that of its other destinations.
	slices.SortStableFunc(pieces, func(a, b piece) int { return onlySelf(a) - onlySelf(b) })
	return pieces, ""
}

func onlySelf(p piece) int {
	if len(p.dst) == 1 && p.dst[0].text == selfSelector {
		return 1
	}
	return 0
}

// aclPieces divides a grant into acls, one for each protocol. reason says why there is none.
func aclPieces(g *policy.Grant) (pieces []piece, reason string) {
	switch {
	case len(g.Via.Items) > 0:
		return nil, "acls have no via"
	case len(g.App) > 0:
		return nil, "acls cannot grant capabilities (app)"
	case len(g.Dst.Items) == 0:
		return nil, "it has no destination, so an acl would have no ports"
	}
	ports := map[string][]string{}
	for _, s := range g.IP.Items {
		proto, p, err := policy.SplitGrantIP(s.Value)
		if err != nil {
			return nil, err.Error()
		}
		if ports[proto] == nil {
			pieces = append(pieces, piece{proto: proto})
		}
		ports[proto] = append(ports[proto], p)
	}
	for i := range pieces {
		p := &pieces[i]
		values := g.Dst.Values()
		for at, s := range g.Dst.Items {
			if slices.Contains(values[:at], s.Value) {
				continue
			}
			var again []int
			for n := at + 1; n < len(values); n++ {
				if values[n] == s.Value {
					again = append(again, n)
				}
			}
			if strings.Contains(s.Value, ",") {
				return nil, "the dst of an acl cannot have a comma"
			}
			host := s.Value
			if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
				host = "[" + host + "]"
			}
			for _, list := range portLists(ports[p.proto]) {
				p.dst = append(p.dst, destination{at, host + ":" + list, again})
			}
		}
	}
	return pieces, ""
}

// portLists joins ports as an acl takes them: "*" only alone.
func portLists(ports []string) []string {
	var out []string
	var run []string
	flush := func() {
		if len(run) > 0 {
			out = append(out, strings.Join(run, ","))
			run = nil
		}
	}
	for _, p := range ports {
		if p == "*" {
			flush()
			out = append(out, p)
			continue
		}
		run = append(run, p)
	}
	flush()
	return out
}

// rewrite makes the new entries of an old one. The first keeps the old one's comments, and each those of its destinations.
func rewrite(old item, pieces []piece, edit func(l *list, p piece)) []item {
	out := make([]item, len(pieces))
	said := map[int]bool{} // destinations whose comments stand in an entry already
	for i, p := range pieces {
		it := old
		if i > 0 {
			it = old.bare()
			if len(it.lead) == 0 {
				it.lead = hujson.Extra(" ")
			}
		}
		l := openObject(it.value.Value.(*hujson.Object))
		keepDestinations(&l, old, p, said)
		edit(&l, p)
		it.value.Value = l.object()
		out[i] = it
	}
	return out
}

// keepDestinations leaves those destinations of an entry that are a piece's, and gives them their new text. Comments are
// taken from the old entry, once: a copy for a further piece has lost them.
func keepDestinations(l *list, old item, p piece, said map[int]bool) {
	m := l.find("dst", "ports")
	if m < 0 {
		return
	}
	array, ok := l.items[m].value.Value.(*hujson.Array)
	if !ok {
		return
	}
	from := openList(openObject(old.value.Value.(*hujson.Object)).items[m].value.Value.(*hujson.Array))
	dst := openList(array)
	dst.items = nil
	for _, d := range p.dst {
		it := from.items[d.at]
		if said[d.at] {
			it = it.bare()
		} else {
			for _, n := range d.joined {
				it.tail = glue(it.tail, lines(from.items[n].comments(), blank(from.items[n].lead)))
			}
		}
		said[d.at] = true
		it.value.Value = hujson.String(d.text)
		if len(comments(it.lead)) == 0 {
			switch {
			case len(dst.items) == 0:
				it.lead = withoutComments(from.items[0].lead)
			case len(it.lead) == 0:
				it.lead = hujson.Extra(" ")
			}
		}
		dst.items = append(dst.items, it)
	}
	l.items[m].value.Value = dst.array()
}

// toGrant makes an acl, its destinations apart, a grant.
func toGrant(l *list, p piece) {
	rename(l, "users", "src")
	rename(l, "ports", "dst")
	for _, key := range []string{"action", "proto"} {
		if i := l.find(key); i >= 0 {
			l.drop(i)
		}
	}
	i := l.find("dst")
	l.items = slices.Insert(l.items, i+1, member("ip", texts(p.ip), l.items[i]))
}

// toACL makes a grant, its destinations apart, an acl.
func toACL(l *list, p piece) {
	for _, key := range []string{"ip", "app", "via"} { // the latter two are empty
		if i := l.find(key); i >= 0 {
			l.drop(i)
		}
	}
	first := &l.items[0]
	added := []item{member("action", literal("accept"), *first)}
	added[0].lead = withoutComments(first.lead)
	if p.proto != "" {
		added = append(added, member("proto", literal(p.proto), *first))
	}
	if len(comments(first.lead)) == 0 {
		first.lead = blank(first.lead)
	}
	l.items = append(added, l.items...)
}

func rename(l *list, old, name string) {
	if i := l.find(old); i >= 0 {
		key := *l.items[i].name
		key.Value = hujson.String(name)
		l.items[i].name = &key
	}
}
