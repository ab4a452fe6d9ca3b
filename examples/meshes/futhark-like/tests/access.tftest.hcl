# What must stay true, whoever edits the policy: `tofu test`. It plans, and writes nothing.

run "grants" {
  command = plan

  assert {
    condition     = length(data.tailmesh_mesh.futhark.node_configs) == length(local.nodes)
    error_message = "A node that nodes.tf knows has no document."
  }
  assert {
    condition     = output.access == { for question, q in local.reach : question => q.want }
    error_message = "The policy in grants answers: ${jsonencode(output.access)}"
  }
}

run "acls" {
  command = plan

  variables {
    syntax = "acls"
  }

  assert {
    condition     = output.access == { for question, q in local.reach : question => q.want }
    error_message = "The policy in acls answers: ${jsonencode(output.access)}"
  }
}
