package config

import (
	"fmt"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	doc := New()
	doc.Mesh, doc.Node = "m", Node{Name: "a", Addresses: addrs("100.64.0.1", "fd7a:115c:a1e0::1")}
	for i := range 1000 {
		n := fmt.Sprint(i)
		doc.Peers = append(doc.Peers, Node{
			Name: "peer" + n, ID: "n" + n + "CNTRL", Location: "ams",
			Addresses: addrs(fmt.Sprintf("100.65.%d.%d", i/250, 1+i%250), fmt.Sprintf("fd7a:115c:a1e0::1:%x", i)),
		})
	}
	text, err := doc.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
