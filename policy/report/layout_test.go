package report

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// randomGraph makes clusters and links of all sizes that a drawing may have.
func randomGraph(rnd *rand.Rand, clusters int) *graph {
	names := []string{"ams", "fra", "a-rather-long-name-of-a-location-in-the-north", "東京リージョン", "x", "no location"}
	g := &graph{}
	for i := range clusters {
		c := &cluster{Name: fmt.Sprint(names[rnd.IntN(len(names))], i)}
		c.Count = 1 + rnd.IntN(maxNodes)
		named := c.Count
		if clusters > namedClusters {
			named = rnd.IntN(fewNodes + 1)
			c.More = 1
		}
		for n := range named {
			name := fmt.Sprint(c.Name, "-", n)
			if rnd.IntN(8) == 0 {
				name += strings.Repeat("-very", rnd.IntN(6)) + "-long"
			}
			c.Nodes = append(c.Nodes, clusterNode{Name: name, Trouble: rnd.IntN(10) == 0})
		}
		c.lan, c.mesh.Both = rnd.IntN(3), rnd.IntN(3)
		if rnd.IntN(5) == 0 {
			c.More = 1 + rnd.IntN(900)
		}
		c.Local = []string{"36 pairs direct", "36 pairs over mesh, 12 not both ways"}[:rnd.IntN(3)]
		g.Clusters = append(g.Clusters, c)
		for j := range i {
			if rnd.IntN(6) == 0 {
				continue
			}
			l := &link{A: g.Clusters[j].Name, B: c.Name, a: j, b: i, Pairs: tallyOfPairs{Both: rnd.IntN(400)}}
			if rnd.IntN(4) == 0 {
				l.Pairs.Refused, l.Pairs.OneWay, l.Pairs.Open = rnd.IntN(100), rnd.IntN(100), rnd.IntN(2)
			}
			l.describe(g)
			g.Links = append(g.Links, l)
		}
	}
	return g
}

// checkLayout looks for what a reader would trip over.
func checkLayout(t *testing.T, g *graph, l *layout) {
	t.Helper()
	page := rect{0, 0, float64(l.W), float64(l.H)}
	inside := func(what string, r, in rect) {
		t.Helper()
		if r.x1 < in.x1 || r.y1 < in.y1 || r.x2 > in.x2 || r.y2 > in.y2 {
			t.Errorf("%s %v is not inside %v", what, r, in)
		}
	}
	for i, b := range l.Boxes {
		inside(b.Title, b.rect(), page)
		for j := range i {
			if meet(b.rect(), l.Boxes[j].rect()) {
				t.Errorf("boxes %q and %q overlap", b.Title, l.Boxes[j].Title)
			}
		}
		// Every text of the box has a place of its own in it.
		texts := map[string]rect{
			"the title": {b.TitleX, b.TextY - 14, b.TitleX + float64(cells(b.Title))*boldWidth, b.TextY + 4},
			"the count": {b.CountX - float64(cells(b.Count))*sansWidth, b.TextY - 12, b.CountX, b.TextY + 4},
		}
		for n, d := range b.Nodes {
			texts[fmt.Sprint("node ", n)] = rect{d.X - 5, d.Y - 9, d.TextX + float64(cells(d.Name))*monoWidth, d.Y + 9}
		}
		for n, f := range b.Foot {
			texts[fmt.Sprint("foot ", n)] = rect{f.X, f.Y - 12, f.X + float64(cells(f.Text))*sansWidth, f.Y + 4}
		}
		for name, r := range texts {
			inside(b.Title+": "+name, r, b.rect())
			for other, s := range texts {
				if name < other && meet(r, s) {
					t.Errorf("%s: %s %v and %s %v overlap", b.Title, name, r, other, s)
				}
			}
		}
		if len(b.Nodes) != len(g.Clusters[i].Nodes) {
			t.Errorf("%s: %d of %d nodes", b.Title, len(b.Nodes), len(g.Clusters[i].Nodes))
		}
	}
	for i, p := range l.Labels {
		inside("label "+p.Text, p.rect(), page)
		if w := float64(cells(p.Text)) * sansWidth; w > p.W {
			t.Errorf("label %q is wider than its pill", p.Text)
		}
		for j := range i {
			if meet(p.rect(), l.Labels[j].rect()) {
				t.Errorf("labels %q and %q overlap", p.Text, l.Labels[j].Text)
			}
		}
		for _, b := range l.Boxes {
			if meet(p.rect(), b.rect()) {
				t.Errorf("label %q lies on box %q", p.Text, b.Title)
			}
		}
	}
	links, labels := 0, 0
	for _, k := range g.Links {
		if k.a == k.b {
			continue
		}
		links++
		labels++
		for i, b := range l.Boxes {
			if len(l.Boxes) <= maxClear && i != k.a && i != k.b && between(l.Boxes[k.a], l.Boxes[k.b]).crosses(b.rect()) {
				t.Errorf("the line from %s to %s passes behind %s", k.A, k.B, b.Title)
			}
		}
	}
	if len(l.Boxes) > maxClear {
		labels = 0
		for _, k := range g.Links {
			if k.a != k.b && k.State != "good" {
				labels++
			}
		}
	}
	if len(l.Lines) != links || len(l.Labels) != labels {
		t.Errorf("%d lines and %d labels for %d links, %d of them to be labelled", len(l.Lines), len(l.Labels), links, labels)
	}
}

func TestLayout(t *testing.T) {
	for clusters := 1; clusters <= maxClusters; clusters++ {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%d clusters, seed %d", clusters, seed), func(t *testing.T) {
				g := randomGraph(rand.New(rand.NewPCG(seed, uint64(clusters))), clusters)
				l := place2D(g)
				checkLayout(t, g, l)
				if diff := cmp.Diff(l, place2D(g)); diff != "" {
					t.Errorf("another time it is laid out otherwise:\n%s", diff)
				}
				if l.W > 5000 || l.H > 5000 {
					t.Errorf("%d x %d", l.W, l.H)
				}
			})
		}
	}
}

// TestLayoutOfFifty is about a drawing that fits a screen.
func TestLayoutOfFifty(t *testing.T) {
	for _, f := range []*fixture{newFixture(50, sixLocations()), newFixture(50, sixLocations(), 7), newFixture(5, []string{"ams", "fra"})} {
		in := f.input(t)
		g := newGraph(newFlows(in.Report.Compiled.Access(), in.Report.Policy), &in, ruleLines{})
		checkLayout(t, g, g.Layout)
		if g.Layout.W > 1200 || g.Layout.H > 900 {
			t.Errorf("%d x %d pixels for %d nodes", g.Layout.W, g.Layout.H, g.Nodes)
		}
	}
}

func TestCrosses(t *testing.T) {
	r := rect{0, 0, 10, 10}
	for _, tc := range []struct {
		s    segment
		want bool
	}{
		{segment{-5, 5, 15, 5}, true},
		{segment{-5, -5, 15, 15}, true},
		{segment{2, 2, 3, 3}, true},
		{segment{-5, 5, -1, 5}, false},
		{segment{-5, 11, 15, 11}, false},
		{segment{-5, 8, 3, 16}, false},
		{segment{11, -5, 11, 15}, false},
		{segment{5, -5, 5, 15}, true},
	} {
		if got := tc.s.crosses(r); got != tc.want {
			t.Errorf("%v: %v", tc.s, got)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"ams1", nameCells, "ams1"},
		{"abcdefghijklmnopqrstuvwxyz", 26, "abcdefghijklmnopqrstuvwxyz"},
		{"abcdefghijklmnopqrstuvwxyz0", 26, "abcdefghijkl…pqrstuvwxyz0"},
		{"abcdefghijklmnopqrstuvwxyz012", 26, "abcdefghijkl…rstuvwxyz012"},
		{"abcdefghijklmnopqrstuvwxyz012", 5, "ab…12"},
		{"abcdefghijklmnopqrstuvwxyz012", 1, "…"},
		{"広島広島広", 10, "広島広島広"}, // each two wide
		{"広島広島広島", 10, "広島…広島"},
		{"ams…1", 5, "ams…1"},
	} {
		got := shorten(tt.in, tt.most)
		if got != tt.want {
			t.Errorf("%q for %d became %q, want %q", tt.in, tt.most, got, tt.want)
		}
		if cells(got) > tt.most {
			t.Errorf("%q is %d wide, more than %d", got, cells(got), tt.most)
		}
	}
}
