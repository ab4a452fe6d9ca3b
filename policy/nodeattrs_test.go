package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// given lists, sorted, what a device gets beyond the baseline.
func given(t *testing.T, c *Compiled, device string) []string {
	t.Helper()
	attrs, err := c.NodeAttrs(device)
	if err != nil {
		t.Fatal(err)
	}
	base := c.baseline(c.x.byKey[device])
	var out []string
	for name, values := range attrs {
		if _, ok := base[name]; ok {
			continue
		}
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSuffix(name+"="+string(text), "=null"))
	}
	slices.Sort(out)
	return out
}

func TestNodeAttrs(t *testing.T) {
	on := func(devices ...string) map[string][]string {
		out := map[string][]string{}
		for _, d := range devices {
			out[d] = []string{"a"}
		}
		return out
	}
	target := func(target string) string { return `"nodeAttrs": [{"target": ["` + target + `"], "attr": ["a"]}]` }
	tests := []struct {
		name, sections string
		want           map[string][]string
	}{
		{"no section", ``, on()},
		{"no entries", `"nodeAttrs": []`, on()},
		{"no attr", `"nodeAttrs": [{"target": ["*"]}]`, on()},
		{"no target", `"nodeAttrs": [{"attr": ["a"]}]`, on()},
		{"empty target", `"nodeAttrs": [{"target": [], "attr": ["a"]}]`, on()},
		{"everything", target("*"), on("ada1", "ada2", "bob1", "cy1", "web", "db", "both", "box")},
		{"user", target("ada@example.com"), on("ada1", "ada2")},
		{"group", target("group:dev"), on("ada1", "ada2", "bob1")},
		{"domain", target("user:*@example.com"), on("ada1", "ada2", "bob1")},
		{"tag", target("tag:web"), on("web", "both")},
		{"tag of no device", target("tag:unused"), on()},
		{"members are not tagged", target("autogroup:member"), on("ada1", "ada2", "bob1", "cy1")},
		{"tagged", target("autogroup:tagged"), on("web", "db", "both", "box")},
		{"the owner is an admin", target("autogroup:admin"), on("ada1", "ada2", "bob1")},
		{"an admin is not the owner", target("autogroup:owner"), on("ada1", "ada2")},
		{"host", target("webhost"), on("web")},
		{"address", target("100.64.0.6"), on("db")},
		{"network", target("100.64.0.6/31"), on("db", "both")},
		{"network of nobody", target("10.0.0.0/8"), on()},
		{
			"entries add up, each name once", `"nodeAttrs": [
				{"target": ["tag:web", "tag:db"], "attr": ["b", "custom:x", "b"]},
				{"target": ["tag:web"], "attr": ["b", "https://example.com/cap/y?z=1"]}]`,
			map[string][]string{
				"web": {"b", "custom:x", "https://example.com/cap/y?z=1"}, "db": {"b", "custom:x"},
				"both": {"b", "custom:x", "https://example.com/cap/y?z=1"},
			},
		},
		{"funnel and what it brings", `"nodeAttrs": [{"target": ["cy@example.org"], "attr": ["funnel"]}]`, map[string][]string{
			"cy1": {"funnel", "https://tailscale.com/cap/funnel-ports?ports=443,8443,10000", "https://tailscale.com/cap/warn-funnel-no-https"},
		}},
		{
			"the client port for everybody", `"randomizeClientPort": true, "nodeAttrs": [{"target": ["tag:db"], "attr": ["a", "randomize-client-port"]}]`,
			map[string][]string{
				"ada1": {"randomize-client-port"}, "ada2": {"randomize-client-port"}, "bob1": {"randomize-client-port"}, "cy1": {"randomize-client-port"},
				"web": {"randomize-client-port"}, "db": {"a", "randomize-client-port"}, "both": {"a", "randomize-client-port"},
				"box": {"randomize-client-port"},
			},
		},
		{"not the client port", `"randomizeClientPort": false`, on()},
		{
			"application", `"nodeAttrs": [
				{"target": ["tag:web"], "app": {"example.com/cap/x": [{"n": 1}]}}, {"target": ["tag:web"], "app": {"example.com/cap/x": [{"n": 2}]}}]`,
			map[string][]string{"web": {`example.com/cap/x=[{"n":1},{"n":2}]`}, "both": {`example.com/cap/x=[{"n":1},{"n":2}]`}},
		},
		{"a pool is for new devices", `"nodeAttrs": [{"target": ["tag:web"], "ipPool": ["100.81.0.0/16"]}]`, on()},
		{"a pool beside attributes", `"nodeAttrs": [{"target": ["tag:web"], "ipPool": ["100.81.0.0/16"], "attr": ["a"]}]`, on("web", "both")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(`{`+sshNames+tt.sections+`}`), sshTailnet(), nil)
			if !r.Accepted {
				t.Fatalf("not accepted: %s", r.Message)
			}
			got := map[string][]string{}
			for _, d := range r.Compiled.Devices() {
				if l := given(t, r.Compiled, d); l != nil {
					got[d] = l
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNodeAttrsBaseline holds what the control plane gives of its own accord.
func TestNodeAttrsBaseline(t *testing.T) {
	const owner, admin = "https://tailscale.com/cap/is-owner", "https://tailscale.com/cap/is-admin"
	everybody := map[string]string{
		"default-auto-update": "[false]", "https://tailscale.com/cap/file-sharing": "null", "https://tailscale.com/cap/ssh": "null",
		"https://tailscale.com/cap/tailnet-lock": "null", "probe-udp-lifetime": "null", "ssh-behavior-v1": "null", "ssh-env-vars": "null",
		"store-appc-routes": "null", "tailnet-display-name": `["ada@example.com"]`,
	}
	// Naming one of them in the policy changes nothing.
	r := Check("p", []byte(`{`+sshNames+`"nodeAttrs": [{"target": ["cy@example.org"], "attr": ["default-auto-update", "https://tailscale.com/cap/ssh"]}]}`), sshTailnet(), nil)
	for device, roles := range map[string][]string{"ada1": {owner, admin}, "bob1": {admin}, "cy1": nil, "web": {owner}, "both": {owner}} {
		attrs, err := r.Compiled.NodeAttrs(device)
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]string{}, map[string]string{}
		maps.Copy(want, everybody)
		for _, name := range roles {
			want[name] = "null"
		}
		for name, values := range attrs {
			text, err := json.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", device, diff)
		}
	}
	if _, err := r.Compiled.NodeAttrs("nobody"); err == nil {
		t.Error("a device that is not there has attributes")
	}
}

func TestNodeAttrsRefusals(t *testing.T) {
	target := func(target string) string { return `"nodeAttrs": [{"target": ["` + target + `"], "attr": ["a"]}]` }
	pool := func(pool string) string {
		return `"nodeAttrs": [{"target": ["autogroup:admin"], "ipPool": ["` + pool + `"]}]`
	}
	tests := []struct {
		name, sections string
		status         int
		message, code  string
	}{
		{"unknown tag", target("tag:wbe"), 400, `tag not found: "tag:wbe"`, "unknown-tag"},
		{"unknown group", target("group:dve"), 400, `group not found: "group:dve"`, "unknown-group"},
		{"unknown autogroup", target("autogroup:admni"), 400, `autogroup not found: "autogroup:admni"`, "unknown-autogroup"},
		{"no name and no address", target("%bogus%"), 400, `"%bogus%": invalid address`, "bad-target"},
		{"misspelt host", target("wehbost"), 400, `"wehbost": invalid address`, "bad-target"},
		{"own devices", target("autogroup:self"), 500, `internal server error`, "bad-target"},
		{"internet", target("autogroup:internet"), 400, `"autogroup:internet": invalid address`, "bad-target"},
		{"anybody", target("autogroup:danger-all"), 400, `"autogroup:danger-all": invalid address`, "bad-target"},
		{"guests", target("autogroup:shared"), 400, `"autogroup:shared": invalid address`, "bad-target"},
		{"service", target("svc:db"), 400, `"svc:db": invalid address`, "bad-target"},
		{"ipset", `"ipsets": {"ipset:a": []}, ` + target("ipset:a"), 400, `"ipset:a": invalid address`, "bad-target"},
		{"range", target("100.64.0.1-100.64.0.3"), 400, `"100.64.0.1-100.64.0.3": invalid address`, "bad-target"},
		{"the first that is wrong decides", `"nodeAttrs": [{"target": ["*", "tag:wbe"], "attr": ["a"]}, {"target": ["autogroup:self"]}]`, 400, `tag not found: "tag:wbe"`, "unknown-tag"},
		{"pool of the service", pool("100.100.100.0/24"), 400, `IPPool(100.100.100.0/24): network within reserved range`, "bad-ip-pool"},
		{"part of a reserved range", pool("100.115.93.0/24"), 400, `IPPool(100.115.93.0/24): network within reserved range`, "bad-ip-pool"},
		{"another network", pool("10.0.0.0/8"), 400, `IPPool(10.0.0.0/8): network not within 100.64.0.0/10`, "bad-ip-pool"},
		{"no network", pool("100.81.0.0"), 400, `IPPool(100.81.0.0): invalid network`, "bad-ip-pool"},
		{"rules come before", `"acls": [{"action": "deny", "src": ["*"], "dst": ["*:*"]}], ` + target("autogroup:self"), 400, `action="deny" is not supported`, "bad-action"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := `{` + sshNames + tt.sections + `}`
			r := Check("p", []byte(text), sshTailnet(), nil)
			if r.Accepted || r.Status != tt.status || r.Message != tt.message {
				t.Errorf("status %d, message %q, want %d, %q", r.Status, r.Message, tt.status, tt.message)
			}
			if len(r.Diagnostics) == 0 || r.Diagnostics[0].Code != tt.code || r.Diagnostics[0].Label == "" || r.Diagnostics[0].Range.IsZero() {
				t.Fatalf("findings %+v, want %s", r.Diagnostics, tt.code)
			}
			if len(r.Diagnostics) == 1 {
				fixed(t, text, r.Diagnostics[0])
			}
		})
	}
	t.Run("a pool around a reserved range", func(t *testing.T) {
		if r := Check("p", []byte(`{`+pool("100.64.0.0/10")+`}`), sshTailnet(), nil); !r.Accepted {
			t.Error(r.Message)
		}
	})
}

func TestAutoApprovers(t *testing.T) {
	tests := []struct{ name, section, message string }{
		{"everybody who can be one", `{"routes": {"10.0.0.0/8": ["ada@example.com", "group:dev", "tag:web", "autogroup:member"], "::/0": ["tag:web"]}, "exitNode": ["autogroup:admin"], "services": {"svc:x": ["tag:web"]}}`, ""},
		{"nobody", `{"routes": {"10.0.0.0/8": []}, "exitNode": []}`, ""},
		{"no network", `{"routes": {"ten": ["tag:web"]}}`, `autoApprovers.routes: "ten": invalid address`},
		{"unknown tag", `{"exitNode": ["tag:wbe"]}`, `autoApprovers: tag not found: "tag:wbe"`},
		{"unknown group", `{"routes": {"10.0.0.0/8": ["group:dve"]}}`, `autoApprovers: group not found: "group:dve"`},
		{"unknown autogroup", `{"exitNode": ["autogroup:members-only"]}`, `autoApprovers: autogroup not found: "autogroup:members-only"`},
		{"an address", `{"exitNode": ["100.64.0.5"]}`, `autoApprovers: "100.64.0.5" is neither a user, a group, an autogroup nor a tag`},
		{"everything", `{"services": {"svc:x": ["*"]}}`, `autoApprovers: "*" is neither a user, a group, an autogroup nor a tag`},
		{"own devices", `{"exitNode": ["autogroup:self"]}`, `autoApprovers: "autogroup:self" is neither a user, a group, an autogroup nor a tag`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Check("p", []byte(`{`+sshNames+`"autoApprovers": `+tt.section+`}`), sshTailnet(), nil)
			if r.Message != tt.message || r.Accepted != (tt.message == "") {
				t.Errorf("message %q, want %q", r.Message, tt.message)
			}
		})
	}
}
