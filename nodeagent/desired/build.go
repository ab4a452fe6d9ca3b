package desired

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// State is what the node must have.
type State struct {
	Rules  []Rule             // policy rules, in the order in which they must stand
	Tables map[Backend]*Table // the firewall table, in the one backend that was chosen
	Probes []Probe            // the packets for whose sake it must
	Notes  []Note             // what is not as one might expect

	Stranded []Stranded // the peers for whom nothing can be done
}

// Same says whether the other state asks for the same rules and the same firewall.
func (s State) Same(other State) bool {
	sameTable := func(a, b *Table) bool { return a.String() == b.String() }
	return slices.Equal(s.Rules, other.Rules) && maps.EqualFunc(s.Tables, other.Tables, sameTable)
}

// Note is something that an operator should know about the node; it does not keep the rest from being done.
type Note struct {
	Code    string `json:"code"`    // stable, one of the constants
	Message string `json:"message"` // with what to do about it
}

// Codes of notes.
const (
	NoteTailscaleAbsent = "tailscale.absent"  // tailscaled's device does not exist
	NoteTailscaleDown   = "tailscale.down"    // it has no mesh address
	NoteTailscaleFamily = "tailscale.family"  // it has no address of a family that the document lists
	NotePeerLocal       = "peer.local"        // a peer has an address of this host
	NoteNodeFamily      = "node.family"       // pods have a family in which the node has no mesh address
	NoteTailscaleSilent = "tailscale.silent"  // tailscaled does not answer, so that peers found by tag are not known
	NoteTailscaleAnswer = "tailscale.answer"  // tailscaled is there but does not say who is in the tailnet
	NoteMoved           = "node.moved"        // a node has another address than the document says
	NotePeerUnknown     = "peer.unknown"      // a peer of the document is not in the tailnet
	NotePeerReplaced    = "peer.replaced"     // and another node has its address
	NotePodsFound       = "pods.found"        // where the networks of the pods were found
	NotePodsUnknown     = "pods.unknown"      // the networks of the pods are not known
	NotePodsInterface   = "pods.interface"    // the interface of the pods is not known
	NoteLeftover        = "firewall.leftover" // something of the agent's that is not wanted any more is left
	NoteServices        = "firewall.service"  // the firewall backend cannot mark what a service translates to a peer
)

// Unsure says whether the note stands for something that keeps the agent from doing or verifying its work, so that it
// cannot say that all is well.
func (n Note) Unsure() bool {
	switch n.Code {
	case NoteTailscaleAbsent, NoteTailscaleDown, NoteTailscaleSilent, NotePodsUnknown, NotePodsInterface:
		return true
	}
	return false
}

// Probe is a packet from a pod to a peer, by which the effect is judged.
type Probe struct {
	Peer   string
	Packet Packet // Mark is the bit that the packet must carry; Iif is "" when the pods' interface is not known
}

// ForeignDocumentError says that the document is for another node.
type ForeignDocumentError struct {
	Document config.Node
	Host     []netip.Addr // the mesh addresses that this host has
	ID       string       // this host's ID, where it is known and differs
}

func (e *ForeignDocumentError) Error() string {
	if e.ID != "" {
		return fmt.Sprintf("the document is for node %q (%s), but this host is %s (%s): give it this host's own document",
			e.Document.Name, e.Document.ID, e.ID, addresses(e.Host))
	}
	return fmt.Sprintf("the document is for node %q (%s), but %s of this host has %s: give it this host's own document",
		e.Document.Name, addresses(e.Document.Addresses), Interface, addresses(e.Host))
}

// Build works out what the node must have. An error is a [*ForeignDocumentError] or a [*BackendError].
func Build(doc config.Document, facts Facts) (State, error) {
	place, err := backend(doc.Firewall.Backend, facts)
	if err != nil {
		return State{}, err
	}
	b := builder{doc: doc, facts: facts, state: State{Stranded: StrandedPeers(doc)}}
	if err := b.ownAddresses(); err != nil {
		return State{}, err
	}
	b.peers()
	for _, f := range Families() {
		b.family(f)
	}
	if len(b.sets) == 0 {
		// What is in place may still serve pods that run; what is not known is no reason to take it away.
		b.state.Rules, b.state.Tables = facts.OwnRules(), facts.Tables
		if len(doc.PodCIDRs) == 0 {
			b.note(NotePodsUnknown, "the networks of this node's pods are not known: nothing can be done for them; name them in pod_cidrs")
		}
		return b.state, nil
	}
	table := b.table()
	if place != NFTables {
		table = table.iptables(!facts.NoSets)
		b.noteServices(place)
	}
	b.state.Tables = map[Backend]*Table{place: table}
	return b.state, nil
}

// noteServices says what iptables cannot do: its only chains for packets that come in and are not the first of their
// connection (mangle, raw) are in front of destination NAT.
func (b *builder) noteServices(place Backend) {
	closed := ""
	if b.doc.Routing.FailClosed {
		closed = " and is not refused by fail_closed"
	}
	b.note(NoteServices, "%s marks packets before services translate them: a connection of a pod to a service that is answered by "+
		"a peer's mesh address goes the CNI's way%s; nftables has no such limit", place, closed)
}

type builder struct {
	doc   config.Document
	facts Facts
	state State

	own     map[Family]netip.Addr // the node's mesh addresses, to which sources are translated
	hosts   map[Family][]peer
	sets    []Set
	pre     []FirewallRule
	replies []FirewallRule // behind pre in its chain
	post    []FirewallRule
	fwd     []FirewallRule
}

type peer struct {
	name    string
	address netip.Addr
}

func (b *builder) note(code, format string, args ...any) {
	b.state.Notes = append(b.state.Notes, Note{Code: code, Message: fmt.Sprintf(format, args...)})
}

// ownAddresses takes the node's mesh addresses from the document and holds them against the interface's.
func (b *builder) ownAddresses() error {
	b.own = map[Family]netip.Addr{}
	for _, a := range b.doc.Node.Addresses {
		b.own[FamilyOf(a)] = a
	}
	link, exists := b.facts.Link(Interface)
	switch {
	case !exists:
		b.note(NoteTailscaleAbsent, "%s does not exist: packets to peers can leave through it once tailscaled runs", Interface)
		return nil
	case len(link.Mesh()) == 0:
		b.note(NoteTailscaleDown, "%s has no mesh address: run `tailscale up`", Interface)
		return nil
	}
	host, matched := link.Mesh(), false
	for _, f := range Families() {
		own, listed := b.own[f]
		if !listed {
			continue
		}
		has := slices.ContainsFunc(host, func(a netip.Addr) bool { return FamilyOf(a) == f })
		if has && !slices.Contains(host, own) {
			return &ForeignDocumentError{Document: b.doc.Node, Host: host}
		}
		matched = matched || has
		if !has {
			b.note(NoteTailscaleFamily, "%s has no IPv%d address, though the document gives the node %s", Interface, f, own)
		}
	}
	if !matched {
		return &ForeignDocumentError{Document: b.doc.Node, Host: host}
	}
	return nil
}

// peers collects whom packets may be sent to, by address, without this host itself: where the rule for local addresses
// is not the first one, the agent's own rule would take packets for them out of the node.
func (b *builder) peers() {
	b.hosts = map[Family][]peer{}
	for _, p := range b.doc.Peers {
		for _, a := range p.Addresses {
			if b.facts.local(a) {
				b.note(NotePeerLocal, "peer %s has the address %s, which is this host's own: left out", p.Name, a)
				continue
			}
			f := FamilyOf(a)
			b.hosts[f] = append(b.hosts[f], peer{name: p.Name, address: a})
		}
	}
	for _, list := range b.hosts {
		slices.SortFunc(list, func(x, y peer) int { return x.address.Compare(y.address) })
	}
}

func (b *builder) family(f Family) {
	pods := union(f, b.doc.PodCIDRs)
	if len(pods) == 0 {
		return
	}
	own, ok := b.own[f]
	if !ok {
		b.note(NoteNodeFamily, "pods have IPv%d addresses but the node has no IPv%d mesh address: left alone", f, f)
		return
	}
	bit, hosts := uint32(b.doc.Routing.Mark), b.hosts[f]
	b.rules(f, bit, hosts)
	b.answers(f, pods, bit)

	suffix := fmt.Sprint(int(f))
	podSet, peerSet, localSet := "pods"+suffix, peerSetPrefix+suffix, "local"+suffix
	peers := make([]netip.Prefix, len(hosts))
	for i, h := range hosts {
		peers[i] = netip.PrefixFrom(h.address, h.address.BitLen())
	}
	b.sets = append(b.sets,
		Set{Name: podSet, Family: f, Interval: true, Elements: pods},
		Set{Name: peerSet, Family: f, Elements: peers, Size: room(len(peers))},
	)
	// This rule takes every packet of pods to peers. One network is named in it, which costs less than a look into a set.
	source := podSet
	if len(pods) == 1 {
		source = pods[0].String()
	}
	b.pre = append(b.pre, FirewallRule{
		Family: f, Src: source, Dst: peerSet, Direction: Original,
		Verdict: SetMark, Bit: bit, Comment: fmt.Sprintf("connections of pods to peers, IPv%d", f),
	})
	// Strict reverse path filtering looks up the way back with the packet's mark.
	b.replies = append(b.replies, FirewallRule{
		Family: f, In: Interface, Src: peerSet, Dst: podSet, Direction: Reply,
		Verdict: SetMark, Bit: bit, Comment: fmt.Sprintf("replies of peers to pods, IPv%d", f),
	})
	if b.doc.Firewall.SNAT {
		if local := union(f, b.doc.LocalCIDRs); len(local) > 0 {
			b.sets = append(b.sets, Set{Name: localSet, Family: f, Interval: true, Elements: local})
			b.post = append(b.post, FirewallRule{
				Family: f, Out: Interface, Src: localSet, Dst: localSet,
				Verdict: Return, Comment: fmt.Sprintf("traffic within this location, IPv%d", f),
			})
		}
		b.post = append(b.post, FirewallRule{
			Family: f, Out: Interface, Src: podSet, Dst: peerSet,
			Verdict: SNAT, To: own, Comment: fmt.Sprintf("sources of pods to peers, IPv%d", f),
		})
	}
	if b.doc.Routing.FailClosed {
		b.fwd = append(b.fwd, FirewallRule{
			Family: f, NotOut: Interface, Dst: peerSet, Marked: bit,
			Verdict: Reject, Comment: fmt.Sprintf("pods to peers by another way, IPv%d", f),
		})
	}
	b.probes(f, pods, bit, hosts)
}

// peerSetPrefix begins the names of the sets of peers' addresses.
const peerSetPrefix = "peers"

// rules adds the policy rules of a family. Left to the agent, they go to priority 0. Where the rule for local addresses
// is at 0, they stand behind it, and a rule that is added later without a priority gets 0 too and stands behind them.
// Where somebody (Cilium) has moved that rule back, they stand in front of everything, which harms no local address,
// because none is a peer.
func (b *builder) rules(f Family, bit uint32, hosts []peer) {
	priority, _ := b.doc.Routing.Priority.Fixed()
	rule := Rule{
		Family: f, Priority: uint32(priority), Mark: bit, Mask: bit,
		Action: Lookup, Table: uint32(b.doc.Routing.Table), Protocol: RouteProtocol,
	}
	if b.doc.Routing.Mode == config.ModeMark {
		b.state.Rules = append(b.state.Rules, rule)
		return
	}
	for _, h := range hosts {
		rule.Dst = netip.PrefixFrom(h.address, h.address.BitLen())
		b.state.Rules = append(b.state.Rules, rule)
	}
}

// Places of the chains. Marks come after destination NAT (-100): the address of a service is a peer's by then. Source
// NAT comes before everybody else's (100), because the first translation of a connection is the one that holds.
const (
	markPriority   = -90
	snatPriority   = 95
	filterPriority = 0
)

func (b *builder) table() *Table {
	t := &Table{Sets: b.sets}
	for _, c := range []Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: markPriority, Rules: slices.Concat(b.pre, b.replies)},
		{Name: "forward", Type: "filter", Hook: "forward", Priority: filterPriority, Rules: b.fwd},
		{Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: snatPriority, Rules: b.post},
	} {
		if len(c.Rules) > 0 {
			t.Chains = append(t.Chains, c)
		}
	}
	return t
}

// probes makes one packet per peer, from an address of the pods that is not the node's own, in use or not.
func (b *builder) probes(f Family, pods []netip.Prefix, bit uint32, hosts []peer) {
	src, iif := b.podSource(pods)
	if iif == "" {
		b.note(NotePodsInterface, "no interface has an address in %s, and no pod there a route of its own: how packets of IPv%d pods go cannot be verified",
			elements(pods), f)
	}
	for _, h := range hosts {
		b.state.Probes = append(b.state.Probes, Probe{
			Peer:   h.name,
			Packet: Packet{Src: src, Dst: h.address, Iif: iif, Mark: bit},
		})
	}
}

// podSource finds the interface behind which pods are, and an address of a pod there: by the interface's address or, where
// pods have no bridge (Calico, some clouds' CNIs), by a pod's own route. Without such an interface, the address is one of
// the pods' networks.
func (b *builder) podSource(pods []netip.Prefix) (src netip.Addr, iif string) {
	for _, network := range pods {
		for _, l := range b.facts.Links {
			for _, p := range l.Addresses {
				if l.Name == Interface || !network.Contains(p.Addr()) {
					continue
				}
				near := p.Masked() // what the interface reaches, as far as it is the pods'
				if near.Bits() < network.Bits() {
					near = network
				}
				if src := b.unused(near); src.IsValid() {
					return src, l.Name
				}
			}
		}
	}
	isPod := func(a netip.Addr) bool {
		return slices.ContainsFunc(pods, func(network netip.Prefix) bool { return network.Contains(a) })
	}
	if pod, dev := b.facts.OwnRoute(isPod); dev != "" {
		return pod, dev
	}
	return b.unused(pods[0]), ""
}

// unused returns an address of the network that is neither its first nor the node's own, or the zero address.
func (b *builder) unused(network netip.Prefix) netip.Addr {
	a := network.Addr().Next()
	for b.facts.local(a) {
		a = a.Next()
	}
	if !network.Contains(a) {
		return netip.Addr{}
	}
	return a
}

// union returns the networks of the family, sorted, merged and disjoint.
func union(f Family, list []netip.Prefix) []netip.Prefix {
	var set netipx.IPSetBuilder
	for _, p := range list {
		if FamilyOf(p.Addr()) == f {
			set.AddPrefix(p)
		}
	}
	all, err := set.IPSet()
	if err != nil {
		return nil // only for prefixes that are not valid, and a document has none
	}
	return all.Prefixes()
}

func addresses(list []netip.Addr) string {
	sorted := slices.SortedFunc(slices.Values(list), func(x, y netip.Addr) int {
		return cmp.Or(cmp.Compare(x.BitLen(), y.BitLen()), x.Compare(y))
	})
	words := make([]string, len(sorted))
	for i, a := range sorted {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}
