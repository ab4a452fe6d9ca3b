package config

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// maxPriority is the last place in front of the rule for the main table, which the kernel has at 32766.
const maxPriority = 32765

// Validate returns an [*Error] with everything that makes the document unsafe or impossible to carry out, or nil.
func (d Document) Validate() error { return d.validate().err() }

func (d Document) validate() problems {
	var ps problems
	if d.Version != Version {
		ps.add("version", "version %d is not known: this program reads version %d", d.Version, Version)
	}
	ps.name(at("mesh"), d.Mesh)
	ps.node(at("node"), d.Node)
	ps.podCIDRs(d)
	ps.peers(d)
	seen := map[string]place{}
	for i, tag := range d.Discover.Tags {
		if ps.full() {
			break
		}
		where := at("discover.tags").index(i)
		if name, ok := strings.CutPrefix(tag, "tag:"); !ok || name == "" {
			ps.add(where(), "%q is not a tag: want the form %q", tag, "tag:node")
		}
		once(&ps, seen, tag, where, where)
	}
	seenPrefix := map[netip.Prefix]place{}
	for i, p := range d.LocalCIDRs {
		if ps.full() {
			break
		}
		where := at("local_cidrs").index(i)
		if ps.prefix(where, p) {
			once(&ps, seenPrefix, p, where, where)
		}
	}
	ps.routing(d.Routing)
	ps.oneOf("firewall.backend", d.Firewall.Backend, BackendAuto, BackendNFTables, BackendIPTables)
	ps.oneOf("overlay.protocol", d.Overlay.Protocol, DefaultProtocol, "gre", "esp", "udp", "none")
	return ps
}

// place says where in the document something is. It is asked only where something is wrong.
type place func() string

func at(path string) place { return func() string { return path } }

func (p place) key(name string) place { return func() string { return p() + "." + name } }

func (p place) index(i int) place { return func() string { return fmt.Sprintf("%s[%d]", p(), i) } }

// name checks a name that is printed in terminals, logs and comments.
func (ps *problems) name(where place, name string) {
	switch {
	case name == "":
		ps.add(where(), "empty: want a name")
	case len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }):
		ps.add(where(), "%q is not a name: want at most 253 printable characters without spaces", name)
	}
}

// node checks what must hold for any machine of the mesh.
func (ps *problems) node(where place, n Node) {
	ps.name(where.key("name"), n.Name)
	if n.ID != "" {
		ps.name(where.key("id"), n.ID)
	}
	if n.Location != "" && strings.ContainsFunc(n.Location, unicode.IsControl) {
		ps.add(where.key("location")(), "%q has a control character", n.Location)
	}
	if len(n.Addresses) == 0 {
		ps.add(where.key("addresses")(), "empty: want at least one mesh address")
	}
	for i, a := range n.Addresses {
		if ps.full() {
			return
		}
		if reason := notMesh(a); reason != "" {
			ps.add(where.key("addresses").index(i)(), "%s %s", a, reason)
			continue
		}
		same := func(b netip.Addr) bool { return a.Is4() == b.Is4() && notMesh(b) == "" }
		if j := slices.IndexFunc(n.Addresses[:i], same); j >= 0 {
			ps.add(where.key("addresses").index(i)(), "%s: the node has %s in this family already, and a mesh address is one per family", a, n.Addresses[j])
		}
	}
}

// notMesh says why a is not the address of a node of a tailnet, or "".
func notMesh(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is not an address"
	case a.Zone() != "" || !IsMesh(a):
		return fmt.Sprintf("is not a mesh address: it must lie in %s or %s", MeshRange4(), MeshRange6())
	case a == netip.AddrFrom4([4]byte{100, 100, 100, 100}),
		a == netip.AddrFrom16([16]byte{0xfd, 0x7a, 0x11, 0x5c, 0xa1, 0xe0, 15: 0x53}):
		return "is the address of Tailscale's own name service on every node, not of a machine"
	}
	return ""
}

// prefix checks that p is a network, written as one.
func (ps *problems) prefix(where place, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		ps.add(where(), "not a network")
	case p.Addr().Is4In6():
		ps.add(where(), "%s is an IPv4 network in IPv6 form: write it as IPv4", p)
	case p != p.Masked():
		ps.add(where(), "%s has bits set behind its length: write %s", p, p.Masked())
	default:
		return true
	}
	return false
}

func (ps *problems) podCIDRs(d Document) {
	seen := map[netip.Prefix]place{}
	for i, p := range d.PodCIDRs {
		if ps.full() {
			return
		}
		where := at("pod_cidrs").index(i)
		if !ps.prefix(where, p) {
			continue
		}
		once(ps, seen, p, where, where)
		for _, mesh := range meshRanges() {
			if p.Overlaps(mesh) {
				ps.add(where(), "%s contains mesh addresses (of %s): pods and nodes could not be told apart", p, mesh)
			}
		}
	}
}

func (ps *problems) peers(d Document) {
	n := len(d.Peers)
	names, ids, addresses := make(map[string]place, n), make(map[string]place, n), make(map[netip.Addr]place, 2*n)
	for i, p := range d.Peers {
		if ps.full() {
			return
		}
		peer := at("peers").index(i)
		ps.node(peer, p)
		switch {
		case p.Name != "" && strings.EqualFold(p.Name, d.Node.Name):
			ps.add(peer.key("name")(), "%q is this node itself", p.Name)
		case p.Name != "":
			once(ps, names, strings.ToLower(p.Name), peer.key("name"), peer)
		}
		switch {
		case p.ID != "" && p.ID == d.Node.ID:
			ps.add(peer.key("id")(), "%q is this node itself", p.ID)
		case p.ID != "":
			once(ps, ids, p.ID, peer.key("id"), peer)
		}
		for j, a := range p.Addresses {
			where := peer.key("addresses").index(j)
			switch {
			case !a.IsValid():
			case slices.Contains(d.Node.Addresses, a):
				ps.add(where(), "%s is an address of this node itself", a)
			case !slices.Contains(p.Addresses[:j], a):
				once(ps, addresses, a, where, peer)
			}
		}
	}
}

func (ps *problems) routing(r Routing) {
	ps.oneOf("routing.mode", r.Mode, ModeMark, ModeRules)
	if n := bits.OnesCount32(uint32(r.Mark)); n != 1 {
		ps.add("routing.mark", "%s has %d bits set: want exactly one, as in %q", r.Mark, n, DefaultMark)
	} else if owner := markOwner(r.Mark); owner != "" {
		ps.add("routing.mark", "%s is used by %s: choose another bit, such as %q", r.Mark, owner, DefaultMark)
	}
	if n, ok := r.Priority.Fixed(); ok && (n < 0 || n > maxPriority) {
		ps.add("routing.priority", "%d is out of range: want \"auto\" or a number from 0 to %d", n, maxPriority)
	}
	switch {
	case r.Table < 1 || int64(r.Table) > math.MaxUint32:
		ps.add("routing.table", "%d is out of range: want a number from 1 to %d", r.Table, uint32(math.MaxUint32))
	case r.Table >= 253 && r.Table <= 255:
		ps.add("routing.table", "%d is one of the kernel's own tables: want the one that tailscaled fills, %d", r.Table, DefaultTable)
	}
}

// markOwner names who else gives a meaning to the bit, or "". Bits that somebody uses only as part of an exact value of
// the whole mark (NetBird's 0x1bd00, kube-router's service marks) are free: the agent sets its bit on packets of pods
// only, and its rule finds no route for others.
func markOwner(m Mark) string {
	for _, use := range []struct {
		mask  Mark
		owner string
	}{
		{0xff0000, "Tailscale (mask 0xff0000), kube-router's network policies (0x10000, 0x20000), Calico and Cilium"},
		{0xffff0000, "Calico (mask 0xffff0000) and Cilium (identity)"},
		{0x4000, "kube-proxy (masquerade)"},
		{0x8000, "kubelet (drop)"},
		{0x0f00, "Cilium (mask 0x0f00)"},
		{0x60, "Talos KubeSpan (mask 0x60)"},
	} {
		if m&use.mask != 0 {
			return use.owner
		}
	}
	return ""
}

func (ps *problems) oneOf(path, got string, want ...string) {
	if !slices.Contains(want, got) {
		ps.add(path, "%q is not known: want one of %q", got, want)
	}
}

// once notes that key belongs to an owner, or that it belongs to an earlier one already.
func once[K comparable](ps *problems, owners map[K]place, key K, where, owner place) {
	if earlier, ok := owners[key]; ok {
		ps.add(where(), "%v is in %s already", key, earlier())
		return
	}
	owners[key] = owner
}
