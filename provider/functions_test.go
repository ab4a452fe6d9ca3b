package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
)

const functionInventory = `{"devices": [
  {"nodeId": "n1", "name": "a.example.ts.net", "hostname": "a", "addresses": ["100.64.0.1"], "tags": ["tag:node"], "authorized": true},
  {"nodeId": "n2", "name": "b.example.ts.net", "hostname": "b", "addresses": ["100.64.0.2"], "tags": ["tag:node"], "authorized": true}
]}`

func TestFunctions(t *testing.T) {
	needTofu(t)
	t.Parallel()
	locals := "locals {\n  policy = " + heredoc(meshPolicy) + "  inventory = " + heredoc(functionInventory) + "}\n"
	text, null := knownvalue.StringExact, knownvalue.Null()
	for _, tt := range []struct {
		name, call string
		want       knownvalue.Check
		err        []string
	}{
		{
			name: "can", call: `policy_can(local.policy, local.inventory, "tag:node", "tag:node", "ip-in-ip", 0)`,
			want: knownvalue.ObjectExact(map[string]knownvalue.Check{
				"allowed": knownvalue.Bool(true), "verdict": text("pass"), "rule": text("grants[0]"), "line": knownvalue.Int64Exact(5),
				"missing": knownvalue.ListSizeExact(0),
			}),
		},
		{
			name: "can not", call: `policy_can(local.policy, local.inventory, "a", "b", "gre", 0)`,
			want: knownvalue.ObjectPartial(map[string]knownvalue.Check{"allowed": knownvalue.Bool(false), "verdict": text("fail"), "rule": null}),
		},
		{
			name: "can nobody tell", call: `policy_can("{\"grants\": [{\"src\": [\"group:sre@example.com\"], \"dst\": [\"*\"], \"ip\": [\"*\"]}]}", local.inventory, "a", "b", "tcp", 22)`,
			want: knownvalue.ObjectPartial(map[string]knownvalue.Check{"allowed": knownvalue.Bool(false), "verdict": text("undecided")}),
		},
		{name: "can by no policy", call: `policy_can("{", "", "a", "b", "tcp", 22)`, err: []string{"the control plane would refuse this policy"}},
		{name: "can without port", call: `policy_can(local.policy, "", "tag:node", "tag:node", "tcp", 65536)`, err: []string{"not a port"}},
		{name: "can with null", call: `policy_can(local.policy, null, "a", "b", "tcp", 22)`, err: []string{"inventory", "must not be null"}},
		{name: "can with a bad inventory", call: `policy_can(local.policy, "[]", "a", "b", "tcp", 22)`, err: []string{"inventory"}},
		{
			name: "test", call: `policy_test(local.policy, local.inventory)`,
			want: knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"path": text("tests[0].accept[0]"), "line": knownvalue.Int64Exact(8), "src": text("tag:node"), "dst": text("tag:node:6443"),
				"proto": text("tcp"), "user": null, "want": text("accept"), "got": text("accept"), "verdict": text("pass"), "rule": text("grants[0]"),
			})}),
		},
		{name: "format", call: `policy_format("{\"a\":[1,2]} // c\n")`, want: text("{\"a\": [1, 2]} // c\n")},
		{name: "format no policy", call: `policy_format("nonsense")`, err: []string{"not HuJSON: hujson: line 1, column 1"}},
		{
			name: "merge", call: `policy_merge(["{\"tests\": []}", "{\"grants\": []}"])`, want: text("{\"tests\": [], \"grants\": []}\n"),
		},
		{
			name: "merge what contradicts", call: `policy_merge(["{\"hosts\": {\"a\": \"192.0.2.1\"}}", "{\"hosts\": {\"a\": \"192.0.2.2\"}}"])`,
			err: []string{"hosts.a has two owners: fragment 1 (line 1) and fragment 2 (line 1)"},
		},
		{
			name: "decode",
			call: `node_config_decode("{\"version\": 1, \"mesh\": \"m\", \"node\": {\"name\": \"a\", \"addresses\": [\"100.64.0.1\"]}, \"peers\": []}").routing.mark`,
			want: text("0x2000"),
		},
		{name: "decode what is none", call: `node_config_decode("{\"version\": 1, \"nodes\": []}")`, err: []string{"nodes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			step := resource.TestStep{Config: "terraform {\n  required_providers {\n    tailmesh = {\n      source = \"hashicorp/tailmesh\"\n    }\n  }\n}\n" +
				locals + "output \"it\" {\n  value = provider::tailmesh::" + tt.call + "\n}\n"}
			if tt.err != nil {
				step.ExpectError = says(tt.err...)
			} else {
				step.ConfigStateChecks = []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("it", tt.want)}
			}
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: factories(), Steps: []resource.TestStep{step}})
		})
	}
}
