// Package mesh works out a mesh: from the devices of a tailnet and what the user asks for it makes one document per
// node, the flows that the tailnet policy must admit, a piece of policy that admits them, and a drawing. It is pure: it
// reads no file, asks no service, and knows nothing of Terraform.
package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Granularity says which nodes are peers, which is: whom a node reaches through the mesh.
type Granularity string

// The granularities. Kilo's "cross" and "location" differ in who holds the tunnels; a tailnet has no such leaders, so
// here they are one.
const (
	Full     Granularity = "full"     // every other node
	Location Granularity = "location" // every node of another location; within one, nodes use their own network
	Cross    Granularity = "cross"    // another name for Location, for those who come from Kilo
	Subnet   Granularity = "subnet"   // as Location, with locations found from the nodes' private networks
)

// Granularities lists them all, the default first.
func Granularities() []Granularity { return []Granularity{Full, Location, Cross, Subnet} }

// PeerSource says where an agent has its peers from.
type PeerSource string

// The sources of peers. Listed makes documents that together grow with the square of the nodes, which agents can work
// from while tailscaled is down; Discovered makes small ones, from which an agent finds the peers as soon as tailscaled
// answers it.
const (
	Listed     PeerSource = "listed"     // the document names each
	Discovered PeerSource = "discovered" // the document names the tags that they carry
)

// PeerSources lists them all, the default first.
func PeerSources() []PeerSource { return []PeerSource{Listed, Discovered} }

// manyPeers is how many peers all documents of a mesh name together before a plan says what that costs: a megabyte for
// every 8,000 or so.
const manyPeers = 100_000

// Spec is what the user asks for.
type Spec struct {
	// Name names the mesh.
	Name     string
	Selector Selector
	// MinNodes is how many nodes there must be, so that an incomplete list of devices is not taken for the mesh.
	MinNodes int
	// PodCIDRs are the pod networks by node; ClusterCIDRs are given to each node that is not among them. Where there is
	// neither, the agent finds a node's pod networks on the node.
	PodCIDRs     map[string][]netip.Prefix
	ClusterCIDRs []netip.Prefix
	// Locations is the location of each node that has one.
	Locations map[string]string
	// LocalCIDRs are the networks of each location.
	LocalCIDRs  map[string][]netip.Prefix
	Granularity Granularity
	// Discover lets agents add peers that join later with one of the selector's tags; only where Granularity is Full.
	Discover bool
	// Peers says where agents have their peers from.
	Peers   PeerSource
	Overlay Overlay
	// Syntax is that of the policy fragment.
	Syntax   Syntax
	Routing  config.Routing
	Firewall config.Firewall
}

// New returns a spec that has the default of each optional part.
func New(name string) Spec {
	doc := config.New()
	return Spec{
		Name: name, Granularity: Full, Discover: true, Peers: Listed, Overlay: Overlay{Protocol: doc.Overlay.Protocol}, Syntax: Grants,
		Routing: doc.Routing, Firewall: doc.Firewall,
	}
}

// Selector chooses the devices that are nodes: those that carry one of the tags or have one of the names.
type Selector struct {
	Tags  []string
	Names []string
}

// Plan is what was worked out. Equal input gives an equal plan, whatever the order of the devices.
type Plan struct {
	// Nodes are sorted by name.
	Nodes []Node
	// Documents are the nodes' documents by node name. There are none where Problems has an error.
	Documents    map[string]config.Document
	Requirements []policy.Requirement
	// Fragment is a piece of policy file that meets the requirements, with a test for each where tests are possible.
	Fragment string
	Graph    Graph
	Problems []Problem
}

// Problem is what is wrong with the input, or worth a look.
type Problem struct {
	Severity diag.Severity
	// Attribute is the part of the input in the spelling of configurations, such as "pod_cidrs" or "routing.mark"; empty
	// where the problem lies in the devices. Key is the key, where that part is a map.
	Attribute, Key string
	// Message is a full sentence without a full stop: what, where, what to do.
	Message string
}

// Failed reports whether one of the problems is an error.
func (p *Plan) Failed() bool {
	return slices.ContainsFunc(p.Problems, func(pr Problem) bool { return pr.Severity == diag.Error })
}

// Build works the mesh out. It always returns a plan; what is wrong is in its Problems.
func Build(devices []policy.Device, spec Spec) *Plan {
	b := &builder{spec: spec, plan: &Plan{Documents: map[string]config.Document{}}}
	b.selectNodes(devices)
	b.locate()
	b.podCIDRs()
	b.localCIDRs()
	b.requirements()
	b.peerSource()
	b.documents()
	b.plan.Graph = draw(b)
	if b.plan.Failed() {
		b.plan.Documents = map[string]config.Document{}
	}
	return b.plan
}

type builder struct {
	spec Spec
	plan *Plan
}

func (b *builder) problem(s diag.Severity, attribute, key, format string, args ...any) {
	b.plan.Problems = append(b.plan.Problems, Problem{
		Severity: s, Attribute: attribute, Key: key, Message: fmt.Sprintf(format, args...),
	})
}

// peers says whether two different nodes reach each other through the mesh.
func (b *builder) peers(x, y *Node) bool {
	if b.spec.Granularity == Full {
		return true
	}
	return x.Location == "" || x.Location != y.Location
}

// peerSource reports where documents cannot leave out their peers, and where they had better.
func (b *builder) peerSource() {
	n := len(b.plan.Nodes)
	switch {
	case b.spec.Peers == Discovered && (!b.discovers() || len(b.spec.Selector.Names) > 0):
		b.problem(diag.Error, "peers", "", "agents can discover all peers only where granularity is %q, discover is not turned off, "+
			"and the selector has tags and no names", Full)
	case b.spec.Peers == Listed && b.spec.Granularity == Full && n*(n-1) > manyPeers:
		hint := ""
		if b.discovers() && len(b.spec.Selector.Names) == 0 {
			hint = fmt.Sprintf("; with peers = %q agents find them by tag, and documents stay small", Discovered)
		}
		b.problem(diag.Warning, "peers", "", "the documents name %d peers together, about %d MB of state%s", n*(n-1), n*(n-1)/8000, hint)
	}
}

func (b *builder) documents() {
	sound := !b.plan.Failed()
	seen := map[string]bool{}
	for i := range b.plan.Nodes {
		n := &b.plan.Nodes[i]
		doc := config.New()
		doc.Mesh = b.spec.Name
		doc.Node = n.config()
		doc.PodCIDRs = n.PodCIDRs
		doc.Peers = []config.Node{}
		for j := range b.plan.Nodes {
			if b.spec.Peers == Listed && i != j && b.peers(n, &b.plan.Nodes[j]) {
				doc.Peers = append(doc.Peers, b.plan.Nodes[j].config())
			}
		}
		if b.discovers() {
			doc.Discover.Tags = b.spec.Selector.Tags
		}
		doc.LocalCIDRs = b.spec.LocalCIDRs[n.Location]
		doc.Routing, doc.Firewall = b.spec.Routing, b.spec.Firewall
		doc.Overlay.Protocol = b.spec.Overlay.documentProtocol()
		b.plan.Documents[n.Name] = doc
		if sound {
			b.invalid(n, doc, seen)
		}
	}
}

// invalid reports what the contract of documents refuses and no other check has found. What all documents share is
// reported once.
func (b *builder) invalid(n *Node, doc config.Document, seen map[string]bool) {
	err, ok := errors.AsType[*config.Error](doc.Validate())
	if !ok {
		return
	}
	for _, p := range err.Problems {
		attribute, message := "", fmt.Sprintf("node %q: %s", n.Name, p)
		switch section, _, _ := strings.Cut(p.Path, "."); section {
		case "mesh":
			attribute, message = "name", p.Message
		case "routing", "firewall", "overlay":
			attribute, message = p.Path, p.Message
		}
		if !seen[attribute+message] {
			seen[attribute+message] = true
			b.problem(diag.Error, attribute, "", "%s", message)
		}
	}
}

func (b *builder) discovers() bool {
	return b.spec.Discover && b.spec.Granularity == Full && len(b.spec.Selector.Tags) > 0
}

func comparePrefix(x, y netip.Prefix) int {
	return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
}
