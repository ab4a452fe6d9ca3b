package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerge(t *testing.T) {
	finding := func(code, behind string, peers ...string) Result {
		check, _, _ := strings.Cut(code, ".")
		return Result{Check: check, Status: StatusFail, Findings: []Finding{{Code: code, Level: Fail, Summary: "s", Peers: peers, Behind: behind}}}
	}
	reports := []Report{
		{Node: "ams1", Peers: []string{"fra1", "par1", "waw1"}, Results: []Result{
			finding("source.untranslated", "route.missing", "par1"), finding("route.missing", "", "par1"),
			finding("policy.overlay-dropped", "", "fra1"),
		}},
		{Node: "fra1", Peers: []string{"ams1"}},
		{Node: "par1", Peers: []string{"fra1"}, Results: []Result{{Check: "firewall", Status: StatusUnknown, Detail: "needs root"}}},
	}
	got, err := Merge(reports)
	if err != nil {
		t.Fatal(err)
	}
	want := []Direction{
		{From: "ams1", To: "fra1", Verdict: VerdictOK},
		{From: "ams1", To: "par1", Verdict: VerdictWrong, Causes: []string{
			"ams1: route.missing: s", "ams1: source.untranslated: s (behind route.missing)",
		}},
		{From: "ams1", To: "waw1", Verdict: VerdictUnknown, Missing: []string{"waw1"}},
		{From: "fra1", To: "ams1", Verdict: VerdictWrong, Causes: []string{"ams1: policy.overlay-dropped: s"}},
		{From: "par1", To: "fra1", Verdict: VerdictUnknown, Causes: []string{"par1: firewall: needs root"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		receiver []Result
		want     Verdict
	}{
		"all is well":                         {nil, VerdictOK},
		"the receiver is not in the tailnet":  {[]Result{finding("tailscaled.stopped", ""), {Check: "policy", Status: StatusUntested}}, VerdictWrong},
		"the receiver is another node":        {[]Result{finding("document.foreign", "")}, VerdictWrong},
		"its packet filter could not be read": {[]Result{{Check: "policy", Status: StatusUnknown, Detail: "403"}}, VerdictUnknown},
		"or not be tested":                    {[]Result{{Check: "policy", Status: StatusUntested}}, VerdictUnknown},
		"its own way out is wrong":            {[]Result{finding("route.missing", ""), {Check: "source", Status: StatusUntested}}, VerdictOK},
		"its tailscaled is silent":            {[]Result{{Check: "tailscaled", Status: StatusUnknown, Detail: "no answer"}}, VerdictUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Merge([]Report{
				{Node: "a", Peers: []string{"b"}, Results: []Result{{Check: "source", Status: StatusUntested}}},
				{Node: "b", Peers: []string{"a"}, Results: tt.receiver},
			})
			if err != nil || got[0].From != "a" || got[0].Verdict != tt.want {
				t.Errorf("%+v, %v; want %s", got, err, tt.want)
			}
		})
	}
	for _, bad := range [][]Report{{{}}, {{Node: "a"}, {Node: "a"}}} {
		if _, err := Merge(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
