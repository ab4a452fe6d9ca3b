package mesh

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Overlay is what carries pod-to-pod packets between nodes.
type Overlay struct {
	// Protocol is one of OverlayProtocols.
	Protocol string
	// Port is the UDP port of "vxlan" (0: 8472, which Linux, Flannel and Cilium use) and of "udp".
	Port int
}

// OverlayProtocols lists what [Overlay.Protocol] may be, the default first. "vxlan" and "udp" travel in UDP; with "none"
// nothing is required of the policy.
func OverlayProtocols() []string {
	return []string{config.DefaultProtocol, "vxlan", "udp", "gre", "esp", "none"}
}

const vxlanPort = 8472

// documentProtocol is the protocol as documents name it: what is seen on the wire.
func (o Overlay) documentProtocol() string {
	if o.Protocol == "vxlan" {
		return "udp"
	}
	return o.Protocol
}

// ports are those of the requirement; empty means all, as for protocols that have none.
func (o Overlay) ports() string {
	switch {
	case o.Protocol == "vxlan" && o.Port == 0:
		return strconv.Itoa(vxlanPort)
	case o.Protocol == "vxlan", o.Protocol == "udp":
		return strconv.Itoa(o.Port)
	}
	return ""
}

// Syntax is one of the two ways in which a policy writes rules.
type Syntax string

// The syntaxes.
const (
	Grants Syntax = "grants"
	ACLs   Syntax = "acls"
)

// Syntaxes lists them, the default first.
func Syntaxes() []Syntax { return []Syntax{Grants, ACLs} }

// requirements says which flows the policy must admit, and writes the rules that do.
//
// Where every pair of nodes are peers and nodes are chosen by tag, the requirement names the tags, so that it holds for
// nodes to come. Else it names the addresses of the nodes of each two locations.
func (b *builder) requirements() {
	o := b.spec.Overlay
	switch {
	case !slices.Contains(OverlayProtocols(), o.Protocol):
		b.problem(diag.Error, "overlay.protocol", "", "%q is not known: want one of %q", o.Protocol, OverlayProtocols())
		return
	case o.Port != 0 && o.Protocol != "vxlan" && o.Protocol != "udp":
		b.problem(diag.Error, "overlay.port", "", "%s has no ports: leave the port out", o.Protocol)
		return
	case o.Protocol == "udp" && o.Port == 0:
		b.problem(diag.Error, "overlay.port", "", "missing: with protocol %q the overlay's UDP port must be given", o.Protocol)
		return
	case o.Port < 0 || o.Port > 65535:
		b.problem(diag.Error, "overlay.port", "", "%d is not a port: want a number from 1 to 65535", o.Port)
		return
	case o.Protocol == "none":
		b.plan.Fragment = "{}\n"
		return
	}
	protocols := []string{o.documentProtocol()}
	if o.Protocol == config.DefaultProtocol && b.podsOf6() {
		protocols = append(protocols, ipv6InIP)
	}
	for _, pair := range b.pairs() {
		for _, proto := range protocols {
			r := policy.Requirement{
				Name: "mesh " + b.spec.Name, Src: pair.src, Dst: pair.dst, Proto: proto, Ports: o.ports(),
				Why: "the overlay carries pod-to-pod packets between nodes in " + o.Protocol,
			}
			if proto == ipv6InIP {
				r.Why = "the overlay carries IPv6 packets of pods in protocol 41"
			}
			if pair.from != "" {
				r.Name += ", " + pair.from + " to " + pair.to
			}
			b.plan.Requirements = append(b.plan.Requirements, r)
		}
	}
	b.fragment()
}

// ipv6InIP is the protocol in which an IP tunnel carries IPv6, where it carries IPv4 in ip-in-ip
// (https://www.iana.org/assignments/protocol-numbers). Tailnet policies have no name for it.
const ipv6InIP = "41"

// podsOf6 says whether any pod network is IPv6, as far as they are given.
func (b *builder) podsOf6() bool {
	is6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	for _, networks := range b.spec.PodCIDRs {
		if slices.ContainsFunc(networks, is6) {
			return true
		}
	}
	return slices.ContainsFunc(b.spec.ClusterCIDRs, is6)
}

// pair is two sets of selectors between which flows are required, in this direction.
type pair struct {
	from, to string // locations, where the pair is one of several
	src, dst []string
}

func (b *builder) pairs() []pair {
	if b.spec.Granularity == Full && len(b.spec.Selector.Names) == 0 {
		tags := b.spec.Selector.Tags
		if len(tags) == 0 {
			return nil
		}
		return []pair{{src: tags, dst: tags}}
	}
	if len(b.plan.Nodes) < 2 {
		return nil
	}
	if b.spec.Granularity == Full {
		all := addresses(b.plan.Nodes)
		return []pair{{src: all, dst: all}}
	}
	sites := map[string][]Node{}
	for _, n := range b.plan.Nodes {
		site := n.Location
		if site == "" {
			site = n.Name // a node without a location is a place of its own
		}
		sites[site] = append(sites[site], n)
	}
	names := slices.Sorted(maps.Keys(sites))
	var out []pair
	for _, from := range names {
		for _, to := range names {
			if from != to {
				out = append(out, pair{from, to, addresses(sites[from]), addresses(sites[to])})
			}
		}
	}
	return out
}

func addresses(nodes []Node) []string {
	var out []netip.Addr
	for _, n := range nodes {
		out = append(out, n.Addresses...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	text := make([]string, len(out))
	for i, a := range out {
		text[i] = a.String()
	}
	return text
}

// fragment writes rules that meet the requirements, and tests that keep them met where a test can be written: a test's
// source must be a user, a group, a tag or a host, so addresses have none.
func (b *builder) fragment() {
	if len(b.plan.Requirements) == 0 {
		b.plan.Fragment = "{}\n"
		return
	}
	var rules, tests []string
	for _, r := range b.plan.Requirements {
		ports := r.Ports
		if ports == "" {
			ports = "*"
		}
		if b.spec.Syntax == ACLs {
			rules = append(rules, fmt.Sprintf(`{"action": "accept", "proto": %s, "src": %s, "dst": %s}`,
				quote(r.Proto), quoteAll(r.Src), quoteAll(withPorts(r.Dst, ports))))
		} else {
			rules = append(rules, fmt.Sprintf(`{"src": %s, "dst": %s, "ip": [%s]}`,
				quoteAll(r.Src), quoteAll(r.Dst), quote(r.Proto+":"+ports)))
		}
		for _, src := range r.Src {
			if strings.HasPrefix(src, "tag:") {
				port := r.Ports
				if port == "" {
					port = "0"
				}
				tests = append(tests, fmt.Sprintf(`{"src": %s, "proto": %s, "accept": %s}`,
					quote(src), quote(r.Proto), quoteAll(withPorts(r.Dst, port))))
			}
		}
	}
	var out strings.Builder
	section := func(name string, lines []string) {
		fmt.Fprintf(&out, "\t%q: [\n", name)
		for _, l := range lines {
			out.WriteString("\t\t" + l + ",\n")
		}
		out.WriteString("\t],\n")
	}
	fmt.Fprintf(&out, "{\n\t// mesh %s: %s between nodes\n", quote(b.spec.Name), b.spec.Overlay.Protocol)
	section(string(b.spec.Syntax), rules)
	if tests != nil {
		section("tests", tests)
	}
	out.WriteString("}\n")
	b.plan.Fragment = out.String()
}

func withPorts(selectors []string, ports string) []string {
	out := make([]string, len(selectors))
	for i, s := range selectors {
		if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
			s = "[" + s + "]"
		}
		out[i] = s + ":" + ports
	}
	return out
}

func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
