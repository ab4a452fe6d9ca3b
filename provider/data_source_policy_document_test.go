package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/textdiff"
)

func TestPolicyDocument(t *testing.T) {
	needTofu(t)
	t.Parallel()
	const document = `
data "tailmesh_policy_document" "this" {
  groups     = { "group:sre" = ["ada@example.com"] }
  hosts      = { printer = "192.168.10.9" }
  tag_owners = { "tag:node" = ["group:sre"] }
  grants = [
    { comment = "nodes to nodes", src = ["tag:node"], dst = ["tag:node"], ip = ["*", "ip-in-ip:*"] },
    { src = ["group:sre"], dst = ["tag:node"], app = jsonencode({ "example.com/cap/x" = [{ level = "<3" }] }) },
  ]
  tests = [{ src = "tag:node", proto = "ip-in-ip", accept = ["tag:node:0"] }]
  fragments = {
    b = "{\"tagOwners\": {\"tag:b\": []}, \"tests\": [{\"src\": \"tag:b\", \"deny\": [\"tag:node:22\"]}]}"
    a = <<-EOT
      {
        // a's own
        "tagOwners": {"tag:a": [], "tag:node": ["group:sre"]},
        "ssh": [],
      }
    EOT
  }
}
`
	const want = `{
	"groups":  {"group:sre": ["ada@example.com"]},
	"hosts":   {"printer": "192.168.10.9"},
	"tagOwners": {
		"tag:node": ["group:sre"],
		// a's own

		"tag:a": [],
		"tag:b": [],
	},
	"grants": [
		// nodes to nodes
		{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]},
		{"src": ["group:sre"], "dst": ["tag:node"], "app": {"example.com/cap/x": [{"level": "<3"}]}},
	],
	"tests": [
		{"src": "tag:node", "proto": "ip-in-ip", "accept": ["tag:node:0"]},
		{"src": "tag:b", "deny": ["tag:node:22"]},
	],
	"ssh": [],
}
`
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(),
		Steps: []resource.TestStep{
			{
				Config: document,
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("data.tailmesh_policy_document.this", tfjsonpath.New("content"), knownvalue.StringFunc(func(got string) error {
						if !textdiff.Same(got, want) {
							t.Errorf("got\n%s\nwant\n%s", got, want)
						}
						if text, err := policy.Format([]byte(got)); err != nil || got != string(text) {
							t.Errorf("not formatted (%v):\n%s", err, got)
						}
						return nil
					})),
				},
			},
			emptySecondPlan(document),
			{
				Config: `data "tailmesh_policy_document" "this" {
  tag_owners = { "tag:node" = ["group:sre"] }
  fragments  = { a = "{\"tagOwners\": {\"tag:node\": [\"group:a\"]}}", b = "{\"tagOwners\": {\"tag:node\": []}}" }
}`,
				ExpectError: says(`tagOwners["tag:node"]`, `has two owners: this document and fragment "a" (line 1)`, `this document and fragment "b"`),
			},
			{
				Config:      `data "tailmesh_policy_document" "this" { fragments = { a = "nonsense" } }`,
				ExpectError: says(`fragment "a": line 1, column 1`),
			},
			{
				Config:      `data "tailmesh_policy_document" "this" { grants = [{ src = ["*"], dst = ["*"], app = "nonsense" }] }`,
				ExpectError: says("app is not JSON"),
			},
		},
	})
}
