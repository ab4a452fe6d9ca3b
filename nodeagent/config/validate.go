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
	ps.name("mesh", d.Mesh)
	ps.node("node", d.Node)
	ps.podCIDRs(d)
	ps.peers(d)
	seen := map[string]int{}
	for i, tag := range d.Discover.Tags {
		at := fmt.Sprintf("discover.tags[%d]", i)
		if name, ok := strings.CutPrefix(tag, "tag:"); !ok || name == "" {
			ps.add(at, "%q is not a tag: want the form %q", tag, "tag:node")
		}
		ps.once(seen, tag, i, at, "discover.tags[%d]")
	}
	seenPrefix := map[netip.Prefix]int{}
	for i, p := range d.LocalCIDRs {
		at := fmt.Sprintf("local_cidrs[%d]", i)
		if ps.prefix(at, p) {
			once(&ps, seenPrefix, p, i, at, "local_cidrs[%d]")
		}
	}
	ps.routing(d.Routing)
	ps.oneOf("firewall.backend", d.Firewall.Backend, BackendAuto, BackendNFTables, BackendIPTables)
	ps.oneOf("overlay.protocol", d.Overlay.Protocol, DefaultProtocol, "gre", "esp", "udp", "none")
	return ps
}

// name checks a name that is printed in terminals, logs and comments.
func (ps *problems) name(path, name string) {
	switch {
	case name == "":
		ps.add(path, "empty: want a name")
	case len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }):
		ps.add(path, "%q is not a name: want at most 253 printable characters without spaces", name)
	}
}

// node checks what must hold for any machine of the mesh.
func (ps *problems) node(path string, n Node) {
	ps.name(path+".name", n.Name)
	if n.ID != "" {
		ps.name(path+".id", n.ID)
	}
	if n.Location != "" && strings.ContainsFunc(n.Location, unicode.IsControl) {
		ps.add(path+".location", "%q has a control character", n.Location)
	}
	if len(n.Addresses) == 0 {
		ps.add(path+".addresses", "empty: want at least one mesh address")
	}
	first := map[bool]int{}
	for i, a := range n.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		if reason := notMesh(a); reason != "" {
			ps.add(at, "%s %s", a, reason)
			continue
		}
		if j, ok := first[a.Is4()]; ok {
			ps.add(at, "%s: the node has %s in this family already, and a mesh address is one per family", a, n.Addresses[j])
			continue
		}
		first[a.Is4()] = i
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
func (ps *problems) prefix(path string, p netip.Prefix) bool {
	switch {
	case !p.IsValid():
		ps.add(path, "not a network")
	case p.Addr().Is4In6():
		ps.add(path, "%s is an IPv4 network in IPv6 form: write it as IPv4", p)
	case p != p.Masked():
		ps.add(path, "%s has bits set behind its length: write %s", p, p.Masked())
	default:
		return true
	}
	return false
}

func (ps *problems) podCIDRs(d Document) {
	seen := map[netip.Prefix]int{}
	for i, p := range d.PodCIDRs {
		at := fmt.Sprintf("pod_cidrs[%d]", i)
		if !ps.prefix(at, p) {
			continue
		}
		once(ps, seen, p, i, at, "pod_cidrs[%d]")
		for _, mesh := range meshRanges() {
			if p.Overlaps(mesh) {
				ps.add(at, "%s contains mesh addresses (of %s): pods and nodes could not be told apart", p, mesh)
			}
		}
	}
}

func (ps *problems) peers(d Document) {
	names, ids, addresses := map[string]int{}, map[string]int{}, map[netip.Addr]int{}
	for i, p := range d.Peers {
		at := fmt.Sprintf("peers[%d]", i)
		ps.node(at, p)
		switch {
		case p.Name != "" && strings.EqualFold(p.Name, d.Node.Name):
			ps.add(at+".name", "%q is this node itself", p.Name)
		case p.Name != "":
			ps.once(names, strings.ToLower(p.Name), i, at+".name", "peers[%d]")
		}
		switch {
		case p.ID != "" && p.ID == d.Node.ID:
			ps.add(at+".id", "%q is this node itself", p.ID)
		case p.ID != "":
			ps.once(ids, p.ID, i, at+".id", "peers[%d]")
		}
		for j, a := range p.Addresses {
			at := fmt.Sprintf("%s.addresses[%d]", at, j)
			switch {
			case !a.IsValid():
			case slices.Contains(d.Node.Addresses, a):
				ps.add(at, "%s is an address of this node itself", a)
			case !slices.Contains(p.Addresses[:j], a):
				once(ps, addresses, a, i, at, "peers[%d]")
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

func (ps *problems) once(seen map[string]int, key string, i int, path, first string) {
	once(ps, seen, key, i, path, first)
}

// once notes that key, of element i, belongs to an earlier element already.
func once[K comparable](ps *problems, seen map[K]int, key K, i int, path, first string) {
	if j, ok := seen[key]; ok {
		ps.add(path, "%v is in %s already", key, fmt.Sprintf(first, j))
		return
	}
	seen[key] = i
}
