package config

import (
	"fmt"
	"net/netip"
	"testing"
)

// BenchmarkParse reads the document of a node with 1,000 peers, as it was marshalled and in another layout.
func BenchmarkParse(b *testing.B) {
	doc := New()
	doc.Mesh = "futhark"
	node := func(i int) Node {
		return Node{
			Name: fmt.Sprintf("node%d", i), ID: fmt.Sprintf("n%dCNTRL", i), Location: "ams",
			Addresses: []netip.Addr{
				netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}),
				netip.AddrFrom16([16]byte{0xfd, 0x7a, 0x11, 0x5c, 0xa1, 0xe0, 13: 1, 14: byte(i >> 8), 15: byte(i)}),
			},
		}
	}
	doc.Node = node(1)
	for i := range 1000 {
		doc.Peers = append(doc.Peers, node(i+2))
	}
	text, err := doc.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text []byte
	}{{"marshalled", text}, {"another layout", append([]byte{' '}, text...)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, err := Parse(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
