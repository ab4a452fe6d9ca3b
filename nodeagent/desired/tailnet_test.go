package desired_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func TestResolve(t *testing.T) {
	addr := func(list ...string) []netip.Addr {
		var out []netip.Addr
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	doc := func(change func(*config.Document)) config.Document {
		d := config.New()
		d.Mesh = "m"
		d.Node = config.Node{Name: "ams1", ID: "nSelf", Addresses: addr("100.64.0.11")}
		d.Peers = []config.Node{
			{Name: "fra1", ID: "nFra", Addresses: addr("100.64.0.12")},
			{Name: "par1", Addresses: addr("100.64.0.13")},
		}
		if change != nil {
			change(&d)
		}
		return d
	}
	self := desired.TailnetNode{ID: "nSelf", Name: "ams1", Addresses: addr("100.64.0.11", "fd7a:115c:a1e0::b")}
	fra := desired.TailnetNode{ID: "nFra", Name: "fra1", Addresses: addr("100.64.0.12", "fd7a:115c:a1e0::c"), Tags: []string{"tag:node"}}
	tests := []struct {
		name    string
		doc     config.Document
		tailnet *desired.Tailnet
		want    []string // the node, the peers, the notes
	}{
		{"tailscaled does not answer", doc(nil), nil, []string{
			"ams1 [100.64.0.11]", "fra1 [100.64.0.12]", "par1 [100.64.0.13]",
		}},
		{"tailscaled does not answer, peers by tag", doc(func(d *config.Document) { d.Discover.Tags = []string{"tag:node"} }), nil, []string{
			"ams1 [100.64.0.11]", "fra1 [100.64.0.12]", "par1 [100.64.0.13]", "note tailscale.silent",
		}},
		{"as the document says", doc(nil), &desired.Tailnet{Self: self, Peers: []desired.TailnetNode{fra}}, []string{
			"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "fra1 [100.64.0.12 fd7a:115c:a1e0::c]", "par1 [100.64.0.13]",
		}},
		{"a peer moved", doc(nil), &desired.Tailnet{Self: self, Peers: []desired.TailnetNode{
			{ID: "nFra", Addresses: addr("100.64.0.99")},
		}}, []string{
			"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "fra1 [100.64.0.99]", "par1 [100.64.0.13]", "note node.moved",
		}},
		{"this node moved to where a peer was", doc(nil), &desired.Tailnet{
			Self: desired.TailnetNode{ID: "nSelf", Addresses: addr("100.64.0.13")}, Peers: []desired.TailnetNode{fra},
		}, []string{"ams1 [100.64.0.13]", "fra1 [100.64.0.12 fd7a:115c:a1e0::c]", "note node.moved"}},
		{"a peer is gone", doc(nil), &desired.Tailnet{Self: self}, []string{
			"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "fra1 [100.64.0.12]", "par1 [100.64.0.13]", "note peer.unknown",
		}},
		{"a peer is gone and another node has its address", doc(nil), &desired.Tailnet{Self: self, Peers: []desired.TailnetNode{
			{ID: "nLaptop", Name: "laptop", Addresses: addr("100.64.0.12")},
		}}, []string{"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "par1 [100.64.0.13]", "note peer.replaced"}},
		{"peers by tag", doc(func(d *config.Document) { d.Discover.Tags = []string{"tag:node", "tag:other"} }), &desired.Tailnet{
			Self: self, Peers: []desired.TailnetNode{
				fra,
				{ID: "nWaw", Name: "waw1", Addresses: addr("100.64.0.14", "fd7a:115c:a1e0::e"), Tags: []string{"tag:x", "tag:other"}},
				{ID: "nPar", Name: "par1", Addresses: addr("100.64.0.13"), Tags: []string{"tag:node"}},
				{ID: "nLap", Name: "laptop", Addresses: addr("100.64.0.50")},
			},
		}, []string{
			"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "fra1 [100.64.0.12 fd7a:115c:a1e0::c]", "par1 [100.64.0.13]",
			"waw1 [100.64.0.14 fd7a:115c:a1e0::e]",
		}},
		{"addresses that are none of the mesh's", doc(func(d *config.Document) { d.Discover.Tags = []string{"tag:node"} }), &desired.Tailnet{
			Self: self, Peers: []desired.TailnetNode{
				{ID: "nOdd", Name: "odd", Addresses: addr("192.0.2.1"), Tags: []string{"tag:node"}},
				{ID: "nFra", Addresses: addr("192.0.2.2")},
			},
		}, []string{"ams1 [100.64.0.11 fd7a:115c:a1e0::b]", "fra1 [100.64.0.12]", "par1 [100.64.0.13]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := fmt.Sprintf("%+v", tt.doc)
			got, notes, err := desired.Resolve(tt.doc, tt.tailnet)
			if err != nil {
				t.Fatal(err)
			}
			var text []string
			for _, n := range append([]config.Node{got.Node}, got.Peers...) {
				text = append(text, fmt.Sprint(n.Name, " ", n.Addresses))
			}
			for _, n := range notes {
				text = append(text, "note "+n.Code)
			}
			if diff := cmp.Diff(tt.want, text); diff != "" {
				t.Errorf("(-want +got):\n%s\nnotes %v", diff, notes)
			}
			if after := fmt.Sprintf("%+v", tt.doc); after != before {
				t.Errorf("the document that was given changed:\n%s\n%s", before, after)
			}
		})
	}
}

func TestResolveForeignDocument(t *testing.T) {
	doc := document(t, "")
	doc.Node.ID = "nSelf"
	_, _, err := desired.Resolve(doc, &desired.Tailnet{Self: desired.TailnetNode{ID: "nOther", Addresses: doc.Node.Addresses}})
	want := `the document is for node "ams1" (nSelf), but this host is nOther (100.64.0.11, fd7a:115c:a1e0::b): give it this host's own document`
	if foreign, ok := errors.AsType[*desired.ForeignDocumentError](err); !ok || foreign.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
