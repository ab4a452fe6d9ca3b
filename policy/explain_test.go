package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

func TestExplain(t *testing.T) {
	const head = `{"tagOwners": {"tag:node": [], "tag:other": []}, "hosts": {"lan": "10.0.0.0/8"}, `
	for _, tc := range []struct {
		name     string
		policy   string
		src, dst string
		proto    string
		port     int
		verdict  Verdict
		pairs    int
		want     []RuleTouch
	}{
		{
			name:   "a rule without protocol touches and does not admit ip-in-ip, the one that names it decides",
			policy: head + `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}, {"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*", "tcp:22"]}]}`,
			src:    "tag:node", dst: "tag:node", proto: "ip-in-ip", verdict: Pass, pairs: 6,
			want: []RuleTouch{
				{Rule: "grants[0]", Pairs: 6, Covers: "tcp, udp, icmp and ipv6-icmp"},
				{Rule: "grants[1]", Pairs: 6, Admitted: 6, Covers: "ip-in-ip; tcp on 22", Decides: true},
			},
		},
		{
			name: "grants come before acls, what misses one end is left out",
			policy: head + `"acls": [{"action": "accept", "src": ["tag:node"], "dst": ["*:22,80-90"]}],
				"grants": [{"src": ["ada@example.com"], "dst": ["tag:node"], "ip": ["*"]}, {"src": ["tag:node"], "dst": ["100.64.1.2", "tag:other"], "ip": ["udp:53"]}]}`,
			src: "tag:node", dst: "tag:node", proto: "tcp", port: 22, verdict: Pass, pairs: 6,
			want: []RuleTouch{
				{Rule: "grants[1]", Pairs: 2, Covers: "udp on 53"},
				{Rule: "acls[0]", Pairs: 6, Admitted: 6, Covers: "tcp and udp on 22, 80-90, icmp and ipv6-icmp", Decides: true},
			},
		},
		{
			name:   "some pairs only: the answer is no, and no rule decides it",
			policy: head + `"grants": [{"src": ["100.64.1.1"], "dst": ["tag:node"], "ip": ["tcp:22"]}]}`,
			src:    "tag:node", dst: "laptop", proto: "tcp", port: 22, verdict: Fail, pairs: 3,
		},
		{
			name:   "some pairs are admitted",
			policy: head + `"grants": [{"src": ["100.64.1.1"], "dst": ["*"], "ip": ["tcp:22"]}]}`,
			src:    "tag:node", dst: "laptop", proto: "tcp", port: 22, verdict: Fail, pairs: 3,
			want: []RuleTouch{{Rule: "grants[0]", Pairs: 1, Admitted: 1, Covers: "tcp on 22"}},
		},
		{
			name:   "autogroup:self",
			policy: head + `"grants": [{"src": ["autogroup:member"], "dst": ["autogroup:self"], "ip": ["tcp:22"]}]}`,
			src:    "ada@example.com", dst: "tag:node", proto: "tcp", port: 22, verdict: Fail, pairs: 3,
		},
		{
			name: "what the inventory does not tell",
			policy: head + `"postures": {"posture:ok": ["custom:tier == 'prod'"]},
				"grants": [{"src": ["tag:node"], "dst": ["100.64.2.1"], "ip": ["tcp:22"], "srcPosture": ["posture:ok"]}]}`,
			src: "tag:node", dst: "laptop", proto: "tcp", port: 22, verdict: Undecided, pairs: 3,
			want: []RuleTouch{{Rule: "grants[0]", Pairs: 3, Undecided: 3, Covers: "tcp on 22", Decides: true}},
		},
		{
			name:   "a subnet behind a router",
			policy: head + `"grants": [{"src": ["tag:node"], "dst": ["lan"], "ip": ["tcp:443"]}]}`,
			src:    "tag:node", dst: "10.1.2.3", proto: "tcp", port: 443, verdict: Pass, pairs: 3,
			want: []RuleTouch{{Rule: "grants[0]", Pairs: 3, Admitted: 3, Covers: "tcp on 443", Decides: true}},
		},
		{
			name: "no rules at all", policy: `{}`, src: "laptop", dst: "node0", proto: "udp", port: 53, verdict: Pass, pairs: 1,
			want: []RuleTouch{{Pairs: 1, Admitted: 1, Covers: "tcp, udp, icmp and ipv6-icmp", Decides: true}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Check("p", []byte(tc.policy), fleet("tag:node", 3), nil)
			if r.Compiled == nil {
				t.Fatalf("refused: %s", r.Message)
			}
			got, err := r.Compiled.Explain(tc.src, tc.dst, tc.proto, tc.port)
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != tc.verdict || got.Pairs != tc.pairs {
				t.Errorf("%v of %d pairs, want %v of %d", got.Verdict, got.Pairs, tc.verdict, tc.pairs)
			}
			if diff := cmp.Diff(tc.want, got.Rules, cmpopts.IgnoreTypes(diag.Range{})); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			can, err := r.Compiled.Can(tc.src, tc.dst, tc.proto, tc.port)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(can, got.Decision); diff != "" {
				t.Errorf("Can and Explain disagree (-can +explain):\n%s", diff)
			}
		})
	}
}
