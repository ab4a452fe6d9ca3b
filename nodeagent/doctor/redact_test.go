//go:build linux

package doctor_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor/page"
)

// telling matches what tells whose node it is of those that the matrix looks at: its names, and every address that is not
// one of those set aside for such use.
var (
	tellingNames = regexp.MustCompile(`(?i)\b(ams1|fra1|par1|futhark|nAms|nFra|nPar)\b`)
	anyAddress   = regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\bfd7a:115c:a1e0:[0-9a-f:]+(/\d+)?|\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

// checkRedaction holds the page and the JSON of a look to that nothing tells whose it is.
func checkRedaction(t *testing.T, evidence *doctor.Evidence, report doctor.Report) {
	t.Helper()
	redactor := doctor.NewRedactor(evidence)
	report = redactor.Report(report)
	var out bytes.Buffer
	p := page.Page{Report: report, Gathered: redactor.Sections(doctor.Gathered(evidence)), Text: text(report), Made: time.Unix(0, 0).UTC(), Redacted: true}
	if err := page.Write(&out, p); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	all := out.String() + string(asJSON)
	if at := tellingNames.FindStringIndex(all); at != nil {
		t.Errorf("a name survives: …%s…", all[max(0, at[0]-80):min(len(all), at[1]+40)])
	}
	for _, at := range anyAddress.FindAllStringIndex(all, -1) {
		switch found := all[at[0]:at[1]]; {
		case strings.HasPrefix(found, "198.1"), strings.HasPrefix(found, "127."), strings.HasPrefix(found, "02:00:00:00:"):
		case found == "0.0.0.0", found == "100.64.0.0", found == "fd7a:115c:a1e0::/48":
		default:
			t.Errorf("an address survives: …%s…", all[max(0, at[0]-80):min(len(all), at[1]+40)])
			return
		}
	}
}

func TestRedactor(t *testing.T) {
	r := doctor.NewRedactor(&doctor.Evidence{
		Document: &config.Document{
			Mesh: "futhark", Node: config.Node{Name: "ams1", ID: "nAms", Location: "ams"}, Peers: []config.Node{{Name: "ams10", ID: "nTen"}, {Name: "a"}},
		},
		Tailscaled: doctor.Tailscaled{Self: doctor.TailscaleNode{Name: "ams1.tail1234.ts.net.", Tags: []string{"tag:node"}}},
	})
	for _, tt := range []struct{ in, want string }{
		{"ams1 ams10 AMS1 nAms", "node-1 node-2 node-1 id-1"},
		{"dev tun-ams1 at a bridge", "dev tun-node-1 at node-3 bridge"},
		{"beams1 ams1x", "beams1 ams1x"},
		{"ams1.tail1234.ts.net.", "node-1.tailnet-1."},
		{"tag:node of mesh futhark", "tag:tag-1 of mesh mesh-1"},
		{"100.64.0.11 to 100.64.0.12 and 100.64.0.11", "198.18.0.1 to 198.18.0.2 and 198.18.0.1"},
		{"from 10.244.1.0/24 to 0.0.0.0/0, [fd7a:115c:a1e0::b], 100.64.0.0/10", "from 198.18.0.3/24 to 0.0.0.0/0, [2001:db8::4], 100.64.0.0/10"},
		{"endpoint 203.0.113.9:41641.", "endpoint 198.18.0.5:41641."},
		{"link 00:11:22:AA:bb:cc", "link 02:00:00:00:00:01"},
		{"mark 0x2000/0x2000, version 1.98.10, at 10:49:33, 3.5 ms, proto 116: ok", "mark 0x2000/0x2000, version 1.98.10, at 10:49:33, 3.5 ms, proto 116: ok"},
		{"80:100.64.0.11 8080:100.64.0.11:80 add:100.64.0.11", "80:198.18.0.1 8080:198.18.0.1:80 add:198.18.0.1"},
		{"_100.64.0.11_ a100.64.0.11", "_198.18.0.1_ a198.18.0.1"},
		{"::ffff:100.64.0.11, 64:ff9b::1.2.3.4", "198.18.0.6, 2001:db8::7"},
		{"00:11:22:aa:BB:CC 00-11-22-aa-bb-cc", "02:00:00:00:00:01 02:00:00:00:00:01"},
	} {
		if got := r.Text(tt.in); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
		}
	}
	// Addresses as values are those of the texts.
	report := r.Report(doctor.Report{Results: []doctor.Result{{Findings: []doctor.Finding{{Addresses: []netip.Addr{netip.MustParseAddr("100.64.0.12")}}}}}})
	if got := report.Findings()[0].Addresses[0].String(); got != "198.18.0.2" {
		t.Errorf("got %s", got)
	}
}

// A name that begins like a longer one is found where the longer one is not, and so is one within it.
func TestRedactNamesOfNames(t *testing.T) {
	doc := config.New()
	doc.Mesh, doc.Node.Name = "ams", "ams1"
	doc.Peers = []config.Node{{Name: "ams1-db"}, {Name: "ams1-db-b"}, {Name: "db2"}, {Name: "münchen"}}
	r := doctor.NewRedactor(&doctor.Evidence{Document: &doc})
	for in, want := range map[string]string{
		"ams1-db2 ams1-db ams1-db-b":  "node-1-node-4 node-2 node-3",
		"ams1-db-b2, ams1-db3, ams12": "node-2-b2, node-1-db3, ams12",
		"xams1-db2 ams-ams1":          "xams1-node-4 mesh-1-node-1",
		"München-ams1 ams1-münchenö":  "node-5-node-1 node-1-münchenö",
		"":                            "",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// Whatever a node, a tailnet or a firewall is called, the page stays a page.
func TestPageOfHostileNames(t *testing.T) {
	const bad = `<script>alert("x")</script>`
	report := doctor.Report{
		Node: bad, Mesh: bad, Verdict: doctor.VerdictWrong, First: "a.b", Results: []doctor.Result{{
			Check: "a", Title: bad, Status: doctor.StatusFail, Detail: bad, Findings: []doctor.Finding{{
				Code: "a.b", Level: doctor.Fail, Peers: []string{bad}, Summary: bad, Evidence: []doctor.Seeing{{What: bad, How: bad}}, Cause: bad + "2",
				Fix: bad, Blind: bad, Remote: []doctor.Question{{On: bad, Command: bad, Why: bad}}, Behind: "c.d",
			}},
		}}, Limits: []doctor.Question{{On: bad, Command: bad, Why: bad}},
	}
	var out bytes.Buffer
	if err := page.Write(&out, page.Page{Report: report, Gathered: []doctor.Section{{Title: bad, Lines: []string{bad}}}, Text: bad, Version: bad}); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"<script", "http://", "https://", "src=", "url("} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the page holds %q", not)
		}
	}
	if n := strings.Count(out.String(), "&lt;script&gt;"); n < 12 {
		t.Errorf("%d of the names are shown", n)
	}
	if !strings.Contains(out.String(), `<a href="#a.b">`) || !strings.Contains(out.String(), `<article id="a.b">`) {
		t.Error("the first finding cannot be reached")
	}
}
