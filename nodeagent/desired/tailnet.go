package desired

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Tailnet is what tailscaled says of the tailnet, as this node sees it.
type Tailnet struct {
	Self  TailnetNode   `json:"self,omitzero"`
	Peers []TailnetNode `json:"peers"`
}

// TailnetNode is a machine of the tailnet.
type TailnetNode struct {
	ID        string       `json:"id"` // the control plane's stable ID
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses"`
	Tags      []string     `json:"tags,omitempty"`
}

// Of returns the part of the tailnet that a document's peers are followed by: those with their IDs, and those that carry a
// tag of discover. This node itself is not in it: who it is now only a present answer tells.
func (t *Tailnet) Of(doc config.Document) *Tailnet {
	listed := make(map[string]bool, len(doc.Peers))
	for _, p := range doc.Peers {
		listed[p.ID] = p.ID != ""
	}
	out := &Tailnet{}
	for _, n := range t.Peers {
		if listed[n.ID] || n.carries(doc.Discover.Tags) {
			out.Peers = append(out.Peers, n)
		}
	}
	return out
}

// carries says whether the machine carries one of the tags.
func (n TailnetNode) carries(tags []string) bool {
	return slices.ContainsFunc(n.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
}

// Resolve brings a document up to what tailscaled says: the addresses of nodes that have an ID are followed, and the nodes
// that carry a tag of discover become peers. Without a tailnet (nil) the document stays as it is. An error is a
// [*ForeignDocumentError].
func Resolve(doc config.Document, tailnet *Tailnet) (config.Document, []Note, error) {
	if tailnet == nil {
		if len(doc.Discover.Tags) > 0 {
			return doc, []Note{{Code: NoteTailscaleSilent, Message: "tailscaled does not answer, so peers that carry " +
				fmt.Sprintf("%q are not known yet", doc.Discover.Tags)}}, nil
		}
		return doc, nil, nil
	}
	r := resolver{doc: doc, tailnet: tailnet, taken: map[netip.Addr]bool{}}
	if err := r.self(); err != nil {
		return doc, nil, err
	}
	r.listed()
	r.discovered()
	r.doc.Peers = r.peers
	return r.doc, r.notes, nil
}

type resolver struct {
	doc     config.Document
	tailnet *Tailnet
	peers   []config.Node
	taken   map[netip.Addr]bool // addresses of this node and of peers so far
	notes   []Note
}

func (r *resolver) note(code, format string, args ...any) {
	r.notes = append(r.notes, Note{Code: code, Message: fmt.Sprintf(format, args...)})
}

func (r *resolver) self() error {
	self, own := r.tailnet.Self, r.doc.Node
	if own.ID != "" && self.ID != "" {
		if own.ID != self.ID {
			return &ForeignDocumentError{Document: own, Host: self.Addresses, ID: self.ID}
		}
		if followed := mesh(self.Addresses); len(followed) > 0 {
			r.moved(own, followed)
			r.doc.Node.Addresses = followed
		}
	}
	for _, a := range append(slices.Clone(self.Addresses), r.doc.Node.Addresses...) {
		r.taken[a] = true
	}
	return nil
}

// listed takes the document's peers, each under the address that it has now.
func (r *resolver) listed() {
	byID, holder := map[string]TailnetNode{}, map[netip.Addr]TailnetNode{}
	for _, n := range r.tailnet.Peers {
		byID[n.ID] = n
		for _, a := range n.Addresses {
			holder[a] = n
		}
	}
	for _, p := range r.doc.Peers {
		now, known := byID[p.ID]
		switch {
		case p.ID == "":
		case known:
			if followed := mesh(now.Addresses); len(followed) > 0 {
				r.moved(p, followed)
				p.Addresses = followed
			}
		default:
			p.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool {
				other, held := holder[a]
				if held && other.ID != "" {
					r.note(NotePeerReplaced, "peer %s (%s) is not in the tailnet, and its address %s belongs to %s (%s) now: left out",
						p.Name, p.ID, a, other.Name, other.ID)
				}
				return held && other.ID != ""
			})
			if len(p.Addresses) > 0 {
				r.note(NotePeerUnknown, "peer %s (%s) is not in the tailnet as this node sees it", p.Name, p.ID)
			}
		}
		r.add(p)
	}
}

func (r *resolver) discovered() {
	for _, n := range r.tailnet.Peers {
		if n.carries(r.doc.Discover.Tags) && !slices.ContainsFunc(r.doc.Peers, func(p config.Node) bool { return p.ID != "" && p.ID == n.ID }) {
			r.add(config.Node{Name: n.Name, ID: n.ID, Addresses: mesh(n.Addresses)})
		}
	}
}

// add takes a peer, without addresses that are taken already.
func (r *resolver) add(p config.Node) {
	p.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return r.taken[a] })
	if len(p.Addresses) == 0 {
		return
	}
	for _, a := range p.Addresses {
		r.taken[a] = true
	}
	r.peers = append(r.peers, p)
}

func (r *resolver) moved(was config.Node, now []netip.Addr) {
	for _, a := range now {
		if !slices.Contains(was.Addresses, a) && slices.ContainsFunc(was.Addresses, func(old netip.Addr) bool { return old.Is4() == a.Is4() }) {
			r.note(NoteMoved, "%s (%s) has the address %s now; the document says %s", was.Name, was.ID, a, addresses(was.Addresses))
		}
	}
}

// mesh returns the mesh addresses of a list, the first of each family.
func mesh(list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		if config.IsMesh(a) && !slices.ContainsFunc(out, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			out = append(out, a)
		}
	}
	return out
}
