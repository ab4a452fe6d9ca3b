//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// good is a result in which every step held.
func good() *result {
	const names = "abc"
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{100, 64, 0, byte(i + 1)}) }
	in := policyFile{Text: "{}", ETag: `"1"`}
	r := &result{
		Started: &started{Policy: policyFile{Text: "{} // default", ETag: `"0"`}},
		Applied: &applied{
			Requirements: []requirement{{Proto: "ip-in-ip"}}, Content: "{}", Policy: in, Writes: 1, Documents: map[string]string{},
		},
		Refused: &refused{
			Removed: []string{"rule"}, Pairs: 6, Plan: ran{Exit: 1}, Before: in, After: in, Writes: 1,
			Said: refusal{Position: "line 2, column 1, grants[0]", Pairs: "6 of 6 pairs", Line: 2, Offered: `"ip-in-ip:*"`},
		},
		Mended: &mended{
			Node: "a", Address: address(0), Pod: netip.MustParseAddr("10.0.0.2"), RouterRule: "lookup 77", CounterBefore: 5, CounterAfter: 7,
		},
		Restored: &restored{
			Again: ran{Stdout: "nothing to do\n"}, Pristine: "rules\n", Mended: "rules\nmore\n", Same: "rules\nmore\n", Clean: "rules\n",
		},
	}
	for i, c := range names {
		name := string(c)
		r.Started.Devices = append(r.Started.Devices, device{Name: name, Tags: []string{"tag:node"}})
		r.Applied.Nodes = append(r.Applied.Nodes, name)
		peers := []string{}
		for j, p := range names {
			if i != j {
				peers = append(peers, fmt.Sprintf(`{"name": %q, "addresses": [%q]}`, string(p), address(j)))
			}
		}
		r.Applied.Documents[name] = fmt.Sprintf(`{"version": 1, "mesh": "m", "node": {"name": %q, "addresses": [%q]}, "peers": [%s]}`,
			name, address(i), strings.Join(peers, ", "))
		if i > 0 {
			w := way{Peer: name, To: address(i), Tunnel: "tun-" + name, Before: route{Dev: "tun-" + name}, After: route{Dev: "tailscale0"}}
			w.PacketBefore = packet{Source: r.Mended.Pod, Via: "tun-a"}
			w.PacketAfter = packet{Source: r.Mended.Address, Via: "tailscale0", Answered: true}
			w.FromPeer = packet{Source: w.To, Answered: true, Back: "tun-a"}
			r.Mended.Ways = append(r.Mended.Ways, w)
			r.Restored.Ways = append(r.Restored.Ways, w.Before)
			r.Restored.Tunnels = append(r.Restored.Tunnels, w.Tunnel)
		}
	}
	return r
}

// Each thing that is wrong by itself is noticed, and nothing else is said.
func TestJudge(t *testing.T) {
	if broken := good().judge(); broken != nil {
		t.Fatalf("all is well, and yet: %q", broken)
	}
	tests := map[string]func(*result){
		"the tailnet has 4 nodes":             func(r *result) { r.Started.Devices = append(r.Started.Devices, r.Started.Devices[0]) },
		"the tailnet has no policy":           func(r *result) { r.Started.Policy.Text = "" },
		"init failed":                         func(r *result) { r.Applied.Init.Exit = 1 },
		"the plan failed":                     func(r *result) { r.Applied.Plan.Exit = 1 },
		"the plan could not decide everythin": func(r *result) { r.Applied.Plan.Stdout = "\nWarning: the tailnet's devices are not known\n" },
		"not the one requirement for ip-in":   func(r *result) { r.Applied.Requirements = nil },
		"not say that the requirement is met": func(r *result) { r.Applied.Can.Exit = 1 },
		"apply failed":                        func(r *result) { r.Applied.Apply.Exit = 1 },
		"the policy in force is not the exam": func(r *result) { r.Applied.Policy.Text += " " },
		"the policy was written 2 times, not": func(r *result) { r.Applied.Writes = 2 },
		"4 documents for 3 nodes":             func(r *result) { r.Applied.Documents["z"] = "" },
		`the document of node "b" is not val`: func(r *result) { r.Applied.Documents["b"] = "{" },
		`the document of node "b" is for "a"`: func(r *result) { r.Applied.Documents["b"] = r.Applied.Documents["a"] },
		"2 rules were taken out":              func(r *result) { r.Refused.Removed = []string{"a", "b"} },
		"the plan without the rule ended wit": func(r *result) { r.Refused.Plan.Exit = 0 },
		"the plan names no position":          func(r *result) { r.Refused.Said.Position = "" },
		"not all 6 pairs":                     func(r *result) { r.Refused.Said.Pairs = "5 of 6 pairs" },
		"the plan offers no text":             func(r *result) { r.Refused.Said.Offered = `"*"` },
		"the policy in force changed":         func(r *result) { r.Refused.After.ETag = `"2"` },
		"written 2 times by then":             func(r *result) { r.Refused.Writes = 2 },
		"is not accepted either":              func(r *result) { r.Refused.Taken.Exit = 1 },
		"apply on the node ended with exit":   func(r *result) { r.Mended.Apply.Exit = 2 },
		"no rule to table 77":                 func(r *result) { r.Mended.RouterRule = "" },
		"before, a packet to b would go to":   func(r *result) { r.Mended.Ways[0].Before.Dev = "tailscale0" },
		"after, a packet to c goes to tun-c":  func(r *result) { r.Mended.Ways[1].After.Dev = "tun-c" },
		"before, c saw a packet from":         func(r *result) { r.Mended.Ways[1].PacketBefore.Via = "tailscale0" },
		"after, b saw a packet from 10.0.0.2": func(r *result) { r.Mended.Ways[0].PacketAfter.Source = r.Mended.Pod },
		"the answer of b did not arrive":      func(r *result) { r.Mended.Ways[0].PacketAfter.Answered = false },
		"connection of c itself to a pod did": func(r *result) { r.Mended.Ways[1].FromPeer.Back = "tailscale0" },
		"moved by 0 for 2 connections":        func(r *result) { r.Mended.CounterAfter = r.Mended.CounterBefore },
		"1 packets were thrown away":          func(r *result) { r.Mended.Foreign = 1 },
		"the second run did something":        func(r *result) { r.Restored.Again.Stdout = "ip rule add\n" },
		"the second run changed the node":     func(r *result) { r.Restored.Same += "x" },
		"cleanup ended with exit code 2":      func(r *result) { r.Restored.Cleanup.Exit = 2 },
		"cleanup left the node different":     func(r *result) { r.Restored.Clean += "x" },
		"after cleanup a packet goes to tail": func(r *result) { r.Restored.Ways[0].Dev = "tailscale0" },
	}
	for want, damage := range tests {
		t.Run(want, func(t *testing.T) {
			r := good()
			damage(r)
			broken := r.judge()
			if len(broken) != 1 || !strings.Contains(broken[0], want) {
				t.Errorf("got %q", broken)
			}
		})
	}
}

const refusedPlan = `
Planning failed.

Error: requirement "mesh m" needs ip-in-ip from tag:node to tag:node; no rule allows it

  with tailmesh_policy.this,
  on main.tf line 38, in resource "tailmesh_policy" "this":
  38:   content      = file("${path.module}/policy.hujson")

line 3, column 21, grants[0].ip[0] (requirement-unmet):
    |
  2 | 	"grants": [
  3 | 		{"ip": ["*"]},
    | 		        ^^^ covers tcp, udp, icmp and icmpv6 only
    |
note: 6 of
6 pairs affected, first a (100.64.0.1) -> b (100.64.0.2)
help: name the protocol in this grant
    |
  3 | 		{"ip": ["*", "ip-in-ip:*"]},
    | 		           ++++++++++++++
`

func TestParseRefusal(t *testing.T) {
	got := parseRefusal(refusedPlan)
	want := refusal{
		Position: "line 3, column 21, grants[0].ip[0]", Pairs: "6 of 6 pairs", Line: 3, Offered: "\t\t{\"ip\": [\"*\", \"ip-in-ip:*\"]},",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	policy := "{\n\t\"grants\": [\n\t\t{\"ip\": [\"*\"]},\n\t],\n}\n"
	if got, want := got.take(policy), strings.Replace(policy, `"*"`, `"*", "ip-in-ip:*"`, 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parseRefusal("Error: something else"); got != (refusal{}) {
		t.Errorf("got %+v from another error", got)
	}
	if got := (refusal{}).take(policy); got != policy {
		t.Errorf("an empty refusal changed the policy to %q", got)
	}
}

func TestWithout(t *testing.T) {
	policy := "{\"grants\": [\n{\"ip\": [\"*\"]},\n{\"ip\": [\"ip-in-ip:*\"]},\n]}\n"
	text, removed := without(policy, "ip-in-ip")
	if want := "{\"grants\": [\n{\"ip\": [\"*\"]},\n]}\n"; text != want || !slices.Equal(removed, []string{`{"ip": ["ip-in-ip:*"]},`}) {
		t.Errorf("got %q without %q", text, removed)
	}
}
