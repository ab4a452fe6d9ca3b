package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// fleet returns an inventory of nodes with a tag, each with both families, and a laptop of a user.
func fleet(tag string, n int) *Inventory {
	inv := &Inventory{Users: []User{{ID: "1", LoginName: "ada@example.com", Role: "owner"}, {ID: "2", LoginName: "bob@example.com", Role: "member"}}}
	for i := range n {
		inv.Devices = append(inv.Devices, Device{
			NodeID: fmt.Sprintf("n%d", i), Hostname: fmt.Sprintf("node%d", i), Name: fmt.Sprintf("node%d.example.ts.net", i),
			Addresses: []string{fmt.Sprintf("100.64.1.%d", i+1), fmt.Sprintf("fd7a:115c:a1e0::1:%x", i+1)},
			Tags:      []string{tag}, Authorized: true,
		})
	}
	inv.Devices = append(inv.Devices, Device{
		NodeID: "laptop", Hostname: "laptop", Name: "laptop.example.ts.net", User: "ada@example.com",
		Addresses: []string{"100.64.2.1", "fd7a:115c:a1e0::2:1"}, Authorized: true,
	})
	return inv
}

func meshRequirement() Requirement {
	return Requirement{Name: "backbone", Src: []string{"tag:node"}, Dst: []string{"tag:node"}, Proto: "ip-in-ip"}
}

func TestRequirement(t *testing.T) {
	const owners = `"tagOwners": {"tag:node": [], "tag:other": []}`
	tests := []struct {
		name, policy string
		want         Verdict
	}{
		{"acl names it", `{` + owners + `, "acls": [{"action": "accept", "proto": "ip-in-ip", "src": ["tag:node"], "dst": ["tag:node:*"]}]}`, Pass},
		{"acl by number", `{` + owners + `, "acls": [{"action": "accept", "proto": "4", "src": ["*"], "dst": ["*:*"]}]}`, Pass},
		{"grant names it", `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`, Pass},
		{"grant by number", `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "4:*"]}]}`, Pass},
		{"allow all", `{` + owners + `}`, Fail},
		{"star grant", `{` + owners + `, "grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]}`, Fail},
		{"port 4 is not protocol 4", `{` + owners + `, "grants": [{"src": ["*"], "dst": ["*"], "ip": ["4"]}]}`, Fail},
		{"tcp is not ip-in-ip", `{` + owners + `, "acls": [{"action": "accept", "proto": "tcp", "src": ["*"], "dst": ["*:*"]}]}`, Fail},
		{"one direction only", `{` + owners + `, "grants": [{"src": ["100.64.1.1", "fd7a:115c:a1e0::1:1"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`, Fail},
		{"one family only", `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["100.64.0.0/10"], "ip": ["ip-in-ip:*"]}]}`, Fail},
		{"via does not open the router", `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "via": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`, Fail},
		{"unlisted posture", `{` + owners + `, "postures": {"posture:ok": ["custom:tier == 'prod'"]},
			"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"], "srcPosture": ["posture:ok"]}]}`, Undecided},
		{"synced group", `{` + owners + `, "grants": [{"src": ["group:sre@example.com"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`, Undecided},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(tt.policy), fleet("tag:node", 3), []Requirement{meshRequirement()})
			if !r.Accepted {
				t.Fatalf("not accepted: %s", r.Message)
			}
			got := r.Requirements[0]
			if got.Verdict != tt.want {
				t.Fatalf("got %v, want %v: %+v", got.Verdict, tt.want, got)
			}
			if got.Pairs != 6 {
				t.Errorf("judged %d pairs, want 6", got.Pairs)
			}
			if (tt.want == Undecided) != (len(got.Missing) > 0) {
				t.Errorf("verdict %v with missing %q", got.Verdict, got.Missing)
			}
		})
	}
}

// TestRemedy applies the text that an unmet requirement offers, and judges again.
func TestRemedy(t *testing.T) {
	const owners = `"tagOwners": {"tag:node": [], "tag:other": []}`
	rules := map[string]string{
		"neither":                     `{` + owners + `}`,
		"neither, trailing comma":     "{\n\t" + owners + ",\n}\n",
		"neither, comment last":       "{\n\t" + owners + "\n\t// the end\n}\n",
		"neither, grants null":        `{` + owners + `, "grants": null}`,
		"acls null":                   `{"ACLs": null, ` + owners + `}`,
		"empty acls":                  `{` + owners + `, "acls": []}`,
		"empty acls with a comment":   "{" + owners + ", \"acls\": [\n\t// nothing yet\n]}",
		"empty grants":                `{` + owners + `, "grants": [ ]}`,
		"acls":                        `{` + owners + `, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}]}`,
		"acls, trailing comma":        `{` + owners + `, "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]},],}`,
		"acls on lines":               "{" + owners + ",\n\t\"acls\": [\n\t\t{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]} // all\n\t]\n}",
		"acls on lines, trailing":     "{" + owners + ",\n\t\"acls\": [\n\t\t{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]}, // all\n\t],\n}",
		"acls, block comment":         "{" + owners + ", \"acls\": [{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]} /* a\n */ ]}",
		"grants":                      `{` + owners + `, "grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]}`,
		"same grant":                  `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*"]}]}`,
		"same grant, trailing":        `{` + owners + `, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*",]}]}`,
		"same grant, lines":           "{" + owners + ", \"grants\": [{\"src\": [\"tag:node\"], \"dst\": [\"tag:node\"],\n\t\"ip\": [\n\t\t\"*\" // all\n\t]}]}",
		"both, acl near":              `{` + owners + `, "grants": [{"src": ["tag:other"], "dst": ["tag:other"], "ip": ["*"]}], "acls": [{"action": "accept", "src": ["tag:node"], "dst": ["tag:node:*"]}]}`,
		"ip-in-ip for somebody else":  `{` + owners + `, "acls": [{"action": "accept", "proto": "ip-in-ip", "src": ["tag:other"], "dst": ["tag:node:*"]}]}`,
		"grants, other tag only":      `{` + owners + `, "grants": [{"src": ["tag:other"], "dst": ["tag:other"], "ip": ["ip-in-ip:*"]}]}`,
		"legacy keys, windows breaks": "{" + owners + ",\r\n\"ACLs\": [\r\n  {\"Action\": \"accept\", \"Users\": [\"*\"], \"Ports\": [\"*:22\"]},\r\n]}",
	}
	requirements := map[string]Requirement{
		"ip-in-ip":  meshRequirement(),
		"tcp port":  {Name: "db", Src: []string{"laptop"}, Dst: []string{"node0", "100.64.1.2"}, Proto: "tcp", Ports: "5432"},
		"numbered":  {Src: []string{"tag:node"}, Dst: []string{"tag:node"}, Proto: "112"},
		"all users": {Src: []string{"autogroup:member"}, Dst: []string{"tag:node"}, Proto: "gre"},
	}
	for name, text := range rules {
		for what, req := range requirements {
			t.Run(name+"/"+what, func(t *testing.T) {
				inv := fleet("tag:node", 3)
				before := Check("p", []byte(text), inv, []Requirement{req})
				if !before.Accepted {
					t.Fatalf("not accepted: %s", before.Message)
				}
				got := before.Requirements[0]
				if got.Verdict == Pass && what == "tcp port" {
					return // allowed as it is
				}
				if got.Verdict != Fail {
					t.Fatalf("verdict %v, want fail", got.Verdict)
				}
				help := got.Diagnostics[0].Help
				if len(help) != 1 || len(help[0].Edits) == 0 {
					t.Fatalf("no text to add: %+v", got.Diagnostics)
				}
				mended := applyEdits([]byte(text), help[0].Edits)
				after := Check("p", mended, inv, []Requirement{req})
				if !after.Accepted || after.Requirements[0].Verdict != Pass {
					t.Errorf("after the edit: %q, %+v\n%s", after.Message, after.Requirements, mended)
				}
				if strings.Contains(text, "//") && !strings.Contains(string(mended), "//") {
					t.Errorf("lost a comment:\n%s", mended)
				}
				for _, d := range before.Compiled.Devices() {
					lost(t, before.Compiled, after.Compiled, d)
				}
			})
		}
	}
}

// lost fails where a rule of the filter before is not in the one after.
func lost(t *testing.T, before, after *Compiled, device string) {
	t.Helper()
	was, err := before.Filter(device)
	if err != nil {
		t.Fatal(err)
	}
	is, err := after.Filter(device)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, r := range is {
		for _, s := range r.SrcIPs {
			for _, d := range r.DstPorts {
				have[fmt.Sprint(s, r.IPProto, d)] = true
			}
		}
	}
	for _, r := range was {
		for _, s := range r.SrcIPs {
			for _, d := range r.DstPorts {
				if !have[fmt.Sprint(s, r.IPProto, d)] {
					t.Fatalf("%s lost %v from %s to %v", device, r.IPProto, s, d)
				}
			}
		}
	}
}

func TestRequirementDiagnostic(t *testing.T) {
	const text = "{\n\t\"tagOwners\": {\"tag:node\": []},\n\t\"grants\": [\n\t\t{\n\t\t\t\"src\": [\"tag:node\"], \"dst\": [\"tag:node\"],\n\t\t\t\"ip\":  [\"*\"],\n\t\t},\n\t],\n}\n"
	r := Check("policy.hujson", []byte(text), fleet("tag:node", 4), []Requirement{meshRequirement()})
	if len(r.Diagnostics) != 1 {
		t.Fatalf("want one finding, got %+v", r.Diagnostics)
	}
	d := r.Diagnostics[0]
	if want := `requirement "backbone" needs ip-in-ip from tag:node to tag:node; no rule allows it`; d.Message != want {
		t.Errorf("message %q, want %q", d.Message, want)
	}
	if d.Code != "requirement-unmet" || d.Path != "grants[0].ip[0]" || d.Range.Start.Line != 6 || d.Range.Start.Column != 12 {
		t.Errorf("code %s at %s %+v", d.Code, d.Path, d.Range)
	}
	if d.Label != "covers tcp, udp, icmp and icmpv6 only" {
		t.Errorf("label %q", d.Label)
	}
	notes := strings.Join(d.Notes, "\n")
	for _, want := range []string{"ip-in-ip is IP protocol 4", "12 of 12 pairs affected, first node0 (100.64.1.1) -> node1 (100.64.1.2)"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes %q lack %q", notes, want)
		}
	}
	if got := string(applyEdits([]byte(text), d.Help[0].Edits)); !strings.Contains(got, `["*", "ip-in-ip:*"]`) {
		t.Errorf("mended text:\n%s", got)
	}
}

func TestRequirementNotReady(t *testing.T) {
	inv := fleet("tag:node", 3)
	inv.Devices[0].Authorized = false
	inv.Devices[1].BlocksIncomingConnections = true
	const text = `{"tagOwners": {"tag:node": []}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["4:*"]}]}`
	r := Check("p", []byte(text), inv, []Requirement{meshRequirement()})
	res := r.Requirements[0]
	if res.Verdict != Pass || res.Pairs != 2 || len(res.Diagnostics) != 1 || res.Diagnostics[0].Code != "device-not-ready" {
		t.Fatalf("got %+v", res)
	}
	want := []string{
		"node0 is not authorized: it was left out", "node1 blocks incoming connections: nothing reaches it, whatever the policy admits",
	}
	if !slices.Equal(res.Diagnostics[0].Notes, want) {
		t.Errorf("notes %q, want %q", res.Diagnostics[0].Notes, want)
	}
	if _, err := r.Compiled.Can("node0", "node1", "4", 0); err == nil || err.Error() != `src: device "node0" is not authorized` {
		t.Errorf("error %v", err)
	}
}

func TestRequirementWithoutInventory(t *testing.T) {
	tests := []struct {
		name, policy string
		want         Verdict
	}{
		{"by name alone", `{"tagOwners": {"tag:node": []}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`, Pass},
		{"whoever it is", `{"tagOwners": {"tag:node": []}, "grants": [{"src": ["*"], "dst": ["*"], "ip": ["4:*"]}]}`, Pass},
		{"by address", `{"tagOwners": {"tag:node": []}, "grants": [{"src": ["100.64.0.0/10"], "dst": ["*"], "ip": ["4:*"]}]}`, Undecided},
		{"another tag", `{"tagOwners": {"tag:node": [], "tag:b": []}, "grants": [{"src": ["tag:b"], "dst": ["*"], "ip": ["4:*"]}]}`, Undecided},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(tt.policy), nil, []Requirement{meshRequirement()})
			if got := r.Requirements[0]; got.Verdict != tt.want {
				t.Errorf("got %+v, want %v", got, tt.want)
			}
		})
	}
}

// The rules that admit a flow are named, each once and only where it decides for some pair.
func TestRequirementRules(t *testing.T) {
	inv := fleet("tag:node", 3)
	inv.Devices[2].Tags = []string{"tag:edge"}
	const text = `{"tagOwners": {"tag:node": [], "tag:edge": []}, "grants": [
		{"src": ["*"], "dst": ["*"], "ip": ["tcp:*"]},
		{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["4:*"]},
		{"src": ["tag:edge"], "dst": ["tag:node"], "ip": ["4:*"]},
		{"src": ["tag:node"], "dst": ["tag:edge", "tag:node"], "ip": ["4:*"]},
		{"src": ["tag:node"], "dst": ["tag:edge"], "ip": ["4:*"]}]}`
	both := []string{"tag:node", "tag:edge"}
	r := Check("", []byte(text), inv, []Requirement{{Src: both, Dst: both, Proto: "4"}, {Src: both, Dst: []string{"tag:edge"}, Proto: "udp"}})
	if got, want := r.Requirements[0].Rules, []string{"grants[1]", "grants[2]", "grants[3]"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	if got := r.Requirements[1]; got.Verdict != Fail || got.Rules != nil {
		t.Errorf("%v by rules %q, want a failure and no rule", got.Verdict, got.Rules)
	}
}

// Nodes that are named by the addresses of both families are pairs within a family; no packet goes from IPv4 to IPv6.
func TestRequirementBetweenAddresses(t *testing.T) {
	src, dst := []string{"100.64.1.1", "fd7a:115c:a1e0::1:1"}, []string{"100.64.1.2", "fd7a:115c:a1e0::1:2"}
	text := func(dst string) string {
		return `{"grants": [{"src": ["100.64.1.1", "fd7a:115c:a1e0::1:1"], "dst": [` + dst + `], "ip": ["ip-in-ip:*"]}]}`
	}
	for name, tt := range map[string]struct {
		policy string
		dst    []string
		want   Verdict
		pairs  int
	}{
		"both families":  {text(`"100.64.1.2", "fd7a:115c:a1e0::1:2"`), dst, Pass, 2},
		"one family":     {text(`"100.64.1.2"`), dst, Fail, 2},
		"none in common": {text(`"100.64.1.2"`), dst[1:], Fail, 0},
	} {
		t.Run(name, func(t *testing.T) {
			src := src
			if tt.pairs == 0 {
				src = src[:1]
			}
			r := Check("", []byte(tt.policy), fleet("tag:node", 3), []Requirement{{Src: src, Dst: tt.dst, Proto: "ip-in-ip"}})
			if got := r.Requirements[0]; got.Verdict != tt.want || got.Pairs != tt.pairs {
				t.Errorf("got %v of %d pairs, want %v of %d: %v", got.Verdict, got.Pairs, tt.want, tt.pairs, r.Diagnostics)
			}
		})
	}
}

// Where there is no pair of devices, nothing was proved, and that is said.
func TestRequirementOfNoPair(t *testing.T) {
	text := []byte(`{"tagOwners": {"tag:node": []}, "grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}]}`)
	none := fleet("tag:node", 2)
	for i := range none.Devices {
		none.Devices[i].Addresses = nil
	}
	for name, inv := range map[string]*Inventory{"one node": fleet("tag:node", 1), "nodes without addresses": none} {
		r := Check("p", text, inv, []Requirement{meshRequirement()}).Requirements[0]
		if r.Verdict != Undecided || len(r.Missing) == 0 {
			t.Errorf("%s: %v, missing %v, want Undecided and why", name, r.Verdict, r.Missing)
		}
	}
}

// applyEdits carries out edits that the engine offers, which must be such as can be.
func applyEdits(src []byte, edits []diag.Edit) []byte {
	out, err := diag.Apply(src, edits)
	if err != nil {
		panic(err)
	}
	return out
}
