package report

import (
	"fmt"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/bigtailnet"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
)

// worlds are tailnets of which every pair of devices is asked about.
func worlds(t *testing.T) map[string]Input {
	t.Helper()
	f := newFixture(6, sixLocations(), 2)
	out := map[string]Input{"mesh": f.input(t)}
	for name, rules := range map[string]string{
		"no rules":    `{}`,
		"nothing":     `{"grants": []}`,
		"acls":        `{"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:22,80-90", "tag:db:*"]}, {"action": "accept", "proto": "gre", "src": ["tag:web"], "dst": ["tag:node:*"]}]}`,
		"two halves":  `{"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["1-30000"]}, {"src": ["tag:node", "tag:db"], "dst": ["tag:node"], "ip": ["tcp:30001-65535"]}]}`,
		"some ports":  `{"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["tcp:22", "ip-in-ip:*", "sctp:*"]}]}`,
		"one family":  `{"hosts": {"pg": "100.64.0.9"}, "grants": [{"src": ["*"], "dst": ["pg"], "ip": ["*"]}, {"src": ["pg"], "dst": ["tag:node"], "ip": ["udp:*", "icmp:*"]}]}`,
		"own devices": `{"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["*"]}, {"src": ["group:platform"], "dst": ["group:dev"], "ip": ["*"]}]}`,
		"posture":     `{"postures": {"posture:p": ["custom:tier == 'one'"]}, "grants": [{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["*"], "srcPosture": ["posture:p"]}]}`,
		"more ports": `{"postures": {"posture:p": ["custom:tier == 'one'"], "posture:q": ["custom:rack == 'two'"]}, "grants": [
			{"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:1-80"]}, {"src": ["group:dev"], "dst": ["tag:db"], "ip": ["tcp:81-65535"], "srcPosture": ["posture:p"]},
			{"src": ["group:platform"], "dst": ["tag:db"], "ip": ["22-90"]}, {"src": ["group:platform"], "dst": ["tag:db"], "ip": ["udp:80-90"], "srcPosture": ["posture:p"]},
			{"src": ["tag:node", "tag:web"], "dst": ["tag:web"], "ip": ["tcp:22"], "srcPosture": ["posture:q"]}, {"src": ["tag:web"], "dst": ["tag:web"], "ip": ["sctp:*"]},
			{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["tcp:1-30000"], "srcPosture": ["posture:q"]}, {"src": ["tag:node"], "dst": ["tag:node"], "ip": ["tcp:30001-65535", "ip-in-ip:*"], "srcPosture": ["posture:p"]}]}`,
		"by router": `{"grants": [{"src": ["tag:node"], "dst": ["192.168.10.0/24"], "ip": ["*"], "via": ["tag:router"]}, {"src": ["autogroup:member"], "dst": ["autogroup:internet"], "ip": ["*"]}]}`,
	} {
		w := newFixture(4, []string{"ams", "fra"})
		// The names of the fixture, and rules of its own.
		head := `{"groups": {"group:platform": ["ana@example.com", "bo@example.com"], "group:dev": ["cleo@example.com"]},
			"tagOwners": {"tag:node": [], "tag:db": [], "tag:web": [], "tag:ci": [], "tag:router": [], "tag:monitor": []}`
		if rules != "{}" {
			head += ","
		}
		w.policy = head + rules[1:]
		out[name] = w.input(t)
	}
	for seed := range uint64(3) {
		text, inventory := bigtailnet.Make(20, 30, 2, seed)
		inv, err := policy.ParseInventory(inventory)
		if err != nil {
			t.Fatal(err)
		}
		in := Input{File: "policy.hujson", Source: text, Inventory: inv}
		in.Report = policy.Check(in.File, text, inv, nil)
		out[fmt.Sprint("large ", seed)] = in
	}
	return out
}

// TestFlows asks the engine about every pair of devices and every protocol, and compares what the page counts.
func TestFlows(t *testing.T) {
	seen := map[policy.Verdict]int{}
	for name, in := range worlds(t) {
		t.Run(name, func(t *testing.T) {
			if in.Report.Compiled == nil {
				t.Fatal(in.Report.Message)
			}
			f := newFlows(in.Report.Compiled.Access(), in.Report.Policy)
			want, open := engine(in, f.devices)
			all := map[pair]bool{}
			pairs := 0
			for from, s := range f.devices {
				for to, d := range f.devices {
					for _, lane := range []int{laneTCP, laneUDP, laneICMP, laneIPIP, nodefilter.SCTP, 47} {
						if from == to {
							continue
						}
						pairs++
						p := pair{from, to, lane}
						got, want := f.admitted(from, to, lane), want[p]
						seen[got]++
						all[p] = got == policy.Pass
						if got != want {
							t.Errorf("%s -> %s %s: %v, the engine says %v", s.Name, d.Name, laneName(lane), got, want)
						}
					}
				}
			}
			if pairs == 0 {
				t.Error("no pairs")
			}
			// A cell is the sum over its pairs.
			for _, src := range f.parties {
				for _, dst := range f.parties {
					if src.kind == kindNetwork || dst.kind == kindNetwork {
						continue
					}
					s := f.sum(src, dst)
					more := 0
					for p := range open {
						if src.points.has(p.from) && dst.points.has(p.to) {
							more++
						}
					}
					if s.openTo != more {
						t.Errorf("%s -> %s: %d pairs might be admitted more, want %d", src.name, dst.name, s.openTo, more)
					}
					for _, lane := range []int{laneTCP, laneUDP, laneICMP, laneIPIP} {
						total, want := 0, 0
						for from := range f.devices {
							for to := range f.devices {
								if from != to && src.points.has(from) && dst.points.has(to) {
									total++
									if all[pair{from, to, lane}] {
										want++
									}
								}
							}
						}
						if got := s.lanes[lane].orNone().all; s.total != total || got != want {
							t.Errorf("%s -> %s %s: %d of %d pairs, want %d of %d", src.name, dst.name, laneName(lane), got, s.total, want, total)
						}
					}
				}
			}
		})
	}
	if seen[policy.Pass] == 0 || seen[policy.Fail] == 0 || seen[policy.Undecided] == 0 {
		t.Errorf("not all verdicts were met: %v", seen)
	}
}

type pair struct{ from, to, lane int }

// engine requires of every pair each port that the worlds' rules tell from others: whether all of them are admitted, in
// both address families. open are the pairs, without a protocol, of which one at least cannot be decided.
func engine(in Input, devices []policy.AccessDevice) (all map[pair]policy.Verdict, open map[pair]bool) {
	var reqs []policy.Requirement
	var pairs []pair
	for from, s := range devices {
		for to, d := range devices {
			for _, lane := range []int{laneTCP, laneUDP, laneICMP, laneIPIP, nodefilter.SCTP, 47} {
				ports := []string{""}
				if lane == laneTCP || lane == laneUDP || lane == nodefilter.SCTP {
					ports = []string{"1", "22", "80", "90", "91", "443", "30000", "30001", "65535"}
				}
				for _, p := range ports {
					if from != to {
						reqs = append(reqs, policy.Requirement{Src: []string{s.Name}, Dst: []string{d.Name}, Proto: fmt.Sprint(lane), Ports: p})
						pairs = append(pairs, pair{from, to, lane})
					}
				}
			}
		}
	}
	worst := map[policy.Verdict]int{policy.Pass: 1, policy.Undecided: 2, policy.Fail: 3}
	out, open := map[pair]policy.Verdict{}, map[pair]bool{}
	for i, r := range policy.Check(in.File, in.Source, in.Inventory, reqs).Requirements {
		if worst[r.Verdict] > worst[out[pairs[i]]] {
			out[pairs[i]] = r.Verdict
		}
		if r.Verdict == policy.Undecided {
			open[pair{from: pairs[i].from, to: pairs[i].to}] = true
		}
	}
	return out, open
}
