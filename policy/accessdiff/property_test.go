package accessdiff

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// worlds is how many small tailnets the comparison is held against brute force in.
const worlds = 10_200

// TestBruteForce compares random policies of small tailnets, and everything that each side admits one by one: the
// devices' filters, ssh rules and attributes, as the engine compiles them, are the measure.
func TestBruteForce(t *testing.T) {
	const workers = 4
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // nearly all of the work is short-lived
	worlds := worlds
	if testing.Short() {
		worlds /= 10
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var compared, differing, undecided, refused, flows int
	for w := range workers {
		wg.Go(func() {
			for seed := w; seed < worlds; seed += workers {
				g := newWorldGen(uint64(seed))
				old, new := g.pair()
				n, ok := checkWorld(t, seed, g.inventory, old, new)
				mu.Lock()
				if !ok {
					refused++
				} else {
					compared++
					flows += n.flows
					if n.differs {
						differing++
					}
					if n.undecided {
						undecided++
					}
				}
				mu.Unlock()
				if t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d worlds compared (%d with differences, %d with undecided ones, %d flows that differ), %d refused", compared, differing, undecided, flows, refused)
	if compared < worlds*9/10 || differing < compared/2 || undecided < compared/20 {
		t.Errorf("too few worlds tell anything")
	}
}

type outcome struct {
	flows              int
	differs, undecided bool
}

func checkWorld(t *testing.T, seed int, inv *policy.Inventory, old, new string) (outcome, bool) {
	reports := [2]*policy.Report{policy.Check("old", []byte(old), inv, nil), policy.Check("new", []byte(new), inv, nil)}
	for _, r := range reports {
		if r.Compiled == nil {
			if !strings.Contains(r.Message, "autogroup:self can only") {
				t.Errorf("seed %d: refused: %s\n%s\n%s", seed, r.Message, old, new)
			}
			return outcome{}, false
		}
	}
	k, err := comparison(reports[0], reports[1])
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return outcome{}, false
	}
	got := newFolder(k).result()
	x := newExpander(k.devices, old+new)
	have := [4]bitset{x.changes(k, got.Gained), x.changes(k, got.Lost), x.table(), x.table()}
	for _, c := range got.Undecided {
		into := have[2]
		if c.Effect == lostText {
			into = have[3]
		}
		into.or(x.changes(k, []Change{c}))
	}
	// Under each assignment of members to the synced group: what differs under all of them is sure.
	assignments := [][]string{nil}
	if strings.Contains(old+new, syncedGroup) {
		assignments = [][]string{nil, {"ada@example.com"}, {"bob@example.com"}, {"ada@example.com", "bob@example.com"}}
	}
	want := [4]bitset{x.table(), x.table(), x.table(), x.table()} // first whatever differs at all goes into the last two
	for n, members := range assignments {
		var admitted [2]bitset
		for i, text := range []string{old, new} {
			r := reports[i]
			if len(assignments) > 1 {
				r = policy.Check("", []byte(withMembers(text, members)), inv, nil)
			}
			if r.Compiled == nil {
				t.Errorf("seed %d: with members %v: refused: %s", seed, members, r.Message)
				return outcome{}, false
			}
			admitted[i] = x.brute(r.Compiled)
		}
		for i, by := range [2][2]bitset{{admitted[1], admitted[0]}, {admitted[0], admitted[1]}} {
			d := by[0].clone()
			d.andNot(by[1])
			want[2+i].or(d)
			if n == 0 {
				want[i].or(d)
			} else {
				want[i].and(d)
			}
		}
	}
	want[2].andNot(want[0])
	want[3].andNot(want[1])
	flows := 0
	for i, name := range []string{"gained", "lost", "may be gained", "may be lost"} {
		want[i].all(func(int) { flows++ })
		if slices.Equal(want[i], have[i]) {
			continue
		}
		missing, extra := want[i].clone(), have[i].clone()
		missing.andNot(have[i])
		extra.andNot(want[i])
		t.Errorf("seed %d: %s: not found %s; wrong %s\nold %s\nnew %s", seed, name, x.first(missing), x.first(extra), old, new)
		return outcome{}, false
	}
	x.lines(t, seed, k, got)
	return outcome{flows, got.Differs(), len(got.Undecided) > 0}, true
}

const syncedGroup = "group:synced@example.com"

func withMembers(text string, members []string) string {
	if len(members) == 0 {
		members = []string{"group:nobody"}
	}
	return strings.ReplaceAll(text, fmt.Sprintf("%q", syncedGroup), strings.Trim(quoteList(members), "[]"))
}

func quoteList(list []string) string {
	b, _ := json.Marshal(list)
	return string(b)
}
