package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

func TestParseMesh(t *testing.T) {
	object := `{"mesh": "m", "node": {"name": "a", "addresses": ["100.64.0.1"], "location": "ams"}, "peers": [{"name": "b", "location": "fra"}], "overlay": {"protocol": "GRE"}}`
	text := `"{\"mesh\": \"m\", \"node\": {\"name\": \"a\", \"addresses\": [\"100.64.0.1\"], \"location\": \"ams\"}, \"peers\": [{\"name\": \"b\", \"location\": \"fra\"}], \"overlay\": {\"protocol\": \"GRE\"}}"`
	for name, src := range map[string]string{
		"an object":        `{"a": ` + object + `}`,
		"its text":         `{"a": ` + text + `}`,
		"of a data source": `{"requirements": [], "node_configs": {"a": ` + text + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseMesh([]byte(src))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.Names, []string{"m"}) || len(m.Nodes) != 2 {
				t.Fatalf("got %+v", m)
			}
			a, b := m.Nodes[0], m.Nodes[1]
			if a.Name != "a" || a.Location != "ams" || a.Protocol != "gre" || len(a.Addresses) != 1 || cmp.Diff([]string{"b"}, a.Peers) != "" {
				t.Errorf("a is %+v", a)
			}
			if b.Name != "b" || b.Location != "fra" || b.Protocol != "gre" {
				t.Errorf("b is %+v", b)
			}
		})
	}
}

func TestParseMeshErrors(t *testing.T) {
	for src, want := range map[string]string{
		``:                             "unexpected EOF",
		`[]`:                           "cannot unmarshal array",
		`{} {}`:                        "more than one JSON value",
		`{}`:                           "no documents",
		`null`:                         "no documents",
		`{"node_configs": {}}`:         "no documents",
		`{"node_configs": 1}`:          "node_configs:",
		`{"a": null}`:                  `document of "a": no "node"`,
		`{"a": "no json"}`:             `document of "a": invalid character`,
		`{"a": {"node": {"name": 1}}}`: `document of "a": node.name: number does not belong there`,
		`{"a": {"peers": []}}`:         `no "node" with a "name"`,
		`{"a": {"node": {"name": "x"}}, "b": {"node": {"name": "x"}}}`:  `document of "b": "x" has another document already`,
		`{"a": {"node": {"name": "x"}, "peers": [{"location": "y"}]}}`:  "peers[0]: no name",
		`{"a": {"node": {"name": "x", "addresses": ["100.64.0.300"]}}}`: `document of "a"`,
	} {
		_, err := ParseMesh([]byte(src))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", src, err, want)
		}
	}
}

// TestGraph judges the pairs of a mesh.
func TestGraph(t *testing.T) {
	for name, tc := range map[string]struct {
		grants string
		broken []int
		want   tallyOfPairs
		marked []string
	}{
		"all":              {`{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}`, nil, tallyOfPairs{Both: 27}, nil},
		"every port":       {`{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}`, nil, tallyOfPairs{Refused: 27}, nil},
		"one way":          {`{"src": ["tag:ci"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}, {"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}`, []int{8}, tallyOfPairs{Both: 21, OneWay: 6}, []string{"c-k8s-09"}},
		"one node":         {`{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}`, []int{8}, tallyOfPairs{Both: 21, Refused: 6}, []string{"c-k8s-09"}},
		"two of them":      {`{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}`, []int{0, 8}, tallyOfPairs{Both: 16, Refused: 11}, []string{"a-k8s-01", "c-k8s-09"}},
		"posture not told": {`{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"], "srcPosture": ["posture:x"]}`, nil, tallyOfPairs{Open: 27}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(9, []string{"a", "b", "c"}, tc.broken...)
			f.policy = `{"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []},
				"postures": {"posture:x": ["custom:tier == 'one'"]}, "grants": [` + tc.grants + `]}`
			in := f.input(t)
			g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
			if diff := cmp.Diff(tc.want, g.Sum); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			var marked []string
			for _, c := range g.Clusters {
				if c.lan != 3 || c.mesh.Total() != 0 {
					t.Errorf("%s: %d pairs direct, %d over mesh", c.Name, c.lan, c.mesh.Total())
				}
				for _, n := range c.Nodes {
					if n.Trouble {
						marked = append(marked, n.Name)
					}
				}
			}
			if diff := cmp.Diff(tc.marked, marked); diff != "" {
				t.Errorf("nodes to look at (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGraphCut has more locations than a drawing has room for: all pairs count, and those in trouble are drawn.
func TestGraphCut(t *testing.T) {
	var locations []string
	for i := range maxClusters + 4 {
		locations = append(locations, fmt.Sprintf("l%02d", i))
	}
	nodes := 2 * len(locations)
	whole := nodes * (nodes - 1) / 2
	direct := len(locations) // one pair in each
	for name, tc := range map[string]struct {
		broken []int
		want   tallyOfPairs
		drawn  []string
		left   string
	}{
		"no trouble":   {nil, tallyOfPairs{Both: whole - direct}, locations[:maxClusters], "16 of 20 clusters are drawn: first those"},
		"last of them": {[]int{nodes - 2, nodes - 1}, tallyOfPairs{Both: whole - direct - 2*(nodes-2), Refused: 2 * (nodes - 2)}, append(slices.Clone(locations[:maxClusters-1]), locations[len(locations)-1]), "16 refused"},
		"a node of it": {[]int{nodes - 1}, tallyOfPairs{Both: whole - direct - (nodes - 2), Refused: nodes - 2}, append(slices.Clone(locations[:maxClusters-1]), locations[len(locations)-1]), "8 refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(nodes, locations, tc.broken...)
			in := f.input(t)
			g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
			if diff := cmp.Diff(tc.want, g.Sum); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			var drawn []string
			marked := 0
			for _, c := range g.Clusters {
				drawn = append(drawn, c.Name)
				for _, n := range c.Nodes {
					if n.Trouble {
						marked++
					}
				}
			}
			if diff := cmp.Diff(tc.drawn, drawn); diff != "" {
				t.Errorf("drawn (-want +got):\n%s", diff)
			}
			if marked != len(tc.broken) {
				t.Errorf("%d nodes are marked, want %d", marked, len(tc.broken))
			}
			if !strings.Contains(g.Left, tc.left) {
				t.Errorf("of what is not drawn it says %q, want %q", g.Left, tc.left)
			}
			sum := 0
			for _, l := range g.Links {
				sum += l.Pairs.Total()
				if l.A != g.Clusters[l.a].Name || l.B != g.Clusters[l.b].Name {
					t.Errorf("a link between %s and %s is drawn between %s and %s", l.A, l.B, g.Clusters[l.a].Name, g.Clusters[l.b].Name)
				}
			}
			if want := 4 * maxClusters * (maxClusters - 1) / 2; sum != want {
				t.Errorf("%d pairs are drawn, want %d", sum, want)
			}
		})
	}
}

// TestGraphSharedIn has a device that is shared in: what it admits is its own tailnet's affair.
func TestGraphSharedIn(t *testing.T) {
	shared := func(f *fixture) *policy.Device {
		for i := range f.inventory.Devices {
			if d := &f.inventory.Devices[i]; d.Hostname == "b-k8s-06" {
				d.IsExternal = true
				return d
			}
		}
		t.Fatal("no such node")
		return nil
	}
	rules := `{"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []},
		"grants": [{"src": ["*"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`
	f := newFixture(6, []string{"a", "b"})
	f.policy = rules
	shared(f)
	in := f.input(t)
	g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
	if diff := cmp.Diff(tallyOfPairs{Both: 6, Open: 3}, g.Sum); diff != "" {
		t.Errorf("of a mesh, pairs (-want +got):\n%s", diff)
	}
	for _, c := range g.Clusters {
		for _, n := range c.Nodes {
			if n.Trouble || strings.Contains(n.Title, "not admitted") {
				t.Errorf("%s is said to be in trouble: %s", n.Name, n.Title)
			}
			if n.Name == "b-k8s-06" && !strings.Contains(n.Title, "shared in") {
				t.Errorf("of the shared node it says %q", n.Title)
			}
		}
	}
	for name, reqs := range map[string][]policy.Requirement{
		"by rules":       nil,
		"by requirement": {{Src: []string{"tag:node"}, Dst: []string{"tag:node"}, Proto: "ip-in-ip"}},
	} {
		f = newFixture(6, []string{"a", "b"})
		f.policy, f.documents, f.requirements = strings.Replace(rules, `["*"]`, `["tag:node", "autogroup:shared"]`, 1), nil, reqs
		shared(f)
		in = f.input(t)
		g = newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
		if diff := cmp.Diff(tallyOfPairs{Both: 10}, g.Sum); diff != "" {
			t.Errorf("%s, pairs (-want +got):\n%s", name, diff)
		}
	}
}

// TestGraphText is about what is said of meshes that are not all of one kind.
func TestGraphText(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(documents map[string]any)
		want   []string // of title, text, links
	}{
		"one": {func(map[string]any) {}, []string{
			"Mesh futhark by location", "4 pairs, ip-in-ip admitted both ways for 4", "a and b: 4 pairs, ip-in-ip admitted both ways for 4",
		}},
		"half without an overlay": {func(documents map[string]any) {
			for _, n := range []string{"a-k8s-01", "b-k8s-03"} {
				documents[n].(map[string]any)["overlay"] = map[string]any{"protocol": "none"}
			}
		}, []string{
			"Mesh futhark by location", "4 pairs, ip-in-ip admitted both ways for 3, 1 without an overlay",
			"a and b: 4 pairs, ip-in-ip admitted both ways for 3, 1 without an overlay",
		}},
		"without an overlay": {func(documents map[string]any) {
			for _, d := range documents {
				d.(map[string]any)["overlay"] = map[string]any{"protocol": "none"}
			}
		}, []string{
			"Mesh futhark by location", "4 pairs, without an overlay that the policy would have to let through",
			"a and b: 4 pairs, without an overlay that the policy would have to let through",
		}},
		"without a pair": {func(documents map[string]any) {
			for _, d := range documents {
				d.(map[string]any)["peers"] = []any{}
			}
		}, []string{"Mesh futhark by location", "0 pairs, ip-in-ip admitted both ways for 0"}},
		"two meshes": {func(documents map[string]any) {
			documents["a-k8s-01"].(map[string]any)["mesh"] = "blue"
		}, []string{
			"Meshes blue, futhark by location", "4 pairs, ip-in-ip admitted both ways for 4", "a and b: 4 pairs, ip-in-ip admitted both ways for 4",
		}},
		"a location called as the missing one": {func(documents map[string]any) {
			for _, d := range documents {
				d := d.(map[string]any)
				for _, n := range append([]any{d["node"]}, d["peers"].([]any)...) {
					n := n.(map[string]any)
					n["location"] = map[any]string{"a": "no location", "b": ""}[n["location"]]
				}
			}
		}, []string{
			"Mesh futhark by location", "4 pairs, ip-in-ip admitted both ways for 4",
			"no location and no location: 4 pairs, ip-in-ip admitted both ways for 4",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(4, []string{"a", "b"})
			tc.change(f.documents)
			in := f.input(t)
			g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
			got := []string{g.Title, g.Text()}
			for _, l := range g.Links {
				got = append(got, l.Title)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGraphMissing marks a node that the inventory does not have, although its peers are as often not admitted.
func TestGraphMissing(t *testing.T) {
	f := newFixture(2, []string{"a", "b"})
	f.inventory.Devices = slices.DeleteFunc(f.inventory.Devices, func(d policy.Device) bool { return d.Hostname == "b-k8s-02" })
	in := f.input(t)
	g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
	if diff := cmp.Diff(tallyOfPairs{Open: 1}, g.Sum); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	for _, n := range g.Clusters[1].Nodes {
		if !n.Trouble || !strings.Contains(n.Title, "not in the inventory") {
			t.Errorf("%s is not marked: %s", n.Name, n.Title)
		}
	}
}

func TestGraphByTag(t *testing.T) {
	f := newFixture(6, []string{"a", "b"}, 5)
	f.documents = nil
	in := f.input(t)
	g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
	if diff := cmp.Diff(tallyOfPairs{Both: 10}, g.Sum); diff != "" || len(g.Clusters) != 1 || g.Clusters[0].Name != "tag:node" {
		t.Errorf("%d clusters, pairs (-want +got):\n%s", len(g.Clusters), diff)
	}
	f.policy = `{"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []}, "grants": []}`
	in = f.input(t)
	g = newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
	if g.Sum.Refused != 10 {
		t.Errorf("a requirement that is not met shows as %+v", g.Sum)
	}
	f.requirements = nil
	in = f.input(t)
	if g = newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{}); g.Empty == "" {
		t.Errorf("nothing to draw, and yet %+v", g)
	}
}

// TestGraphProtocols is about the protocol that the documents name.
func TestGraphProtocols(t *testing.T) {
	for protocol, want := range map[string]tallyOfPairs{
		"ip-in-ip": {Refused: 4}, "gre": {Both: 4}, "47": {Both: 4}, "udp": {Refused: 4}, "none": {Bare: 4}, "ipip6": {Open: 4},
	} {
		t.Run(protocol, func(t *testing.T) {
			f := newFixture(4, []string{"a", "b"})
			f.policy = `{"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []},
				"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["gre:*", "udp:4789"]}]}`
			for _, d := range f.documents {
				d.(map[string]any)["overlay"] = map[string]any{"protocol": protocol}
			}
			in := f.input(t)
			g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
			if diff := cmp.Diff(want, g.Sum); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			if protocol == "none" && strings.Contains(g.Text(), "admitted") {
				t.Errorf("of a mesh without an overlay it says %q", g.Text())
			}
		})
	}
}
