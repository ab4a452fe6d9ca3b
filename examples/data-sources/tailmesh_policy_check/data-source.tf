terraform {
  required_providers {
    tailmesh  = { source = "tailmesh/tailmesh" }
    tailscale = { source = "tailscale/tailscale" }
  }
}

data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

# A policy that the official provider writes, judged in the plan: where it does not let the overlay through, or one of its
# tests fails, there is no plan.
data "tailmesh_policy_check" "ours" {
  content      = file("${path.module}/policy.hujson")
  requirements = data.tailmesh_mesh.this.requirements
  findings_as  = "errors"
}

resource "tailscale_acl" "this" {
  acl        = file("${path.module}/policy.hujson")
  depends_on = [data.tailmesh_policy_check.ours] # also where the text is known only during the apply
}

# The policy in force, whoever wrote it: a warning of every plan and apply while it does not let the overlay through.
data "tailmesh_policy_check" "live" {
  requirements = data.tailmesh_mesh.this.requirements
}

check "policy" {
  assert {
    condition     = data.tailmesh_policy_check.live.ok
    error_message = join("\n", data.tailmesh_policy_check.live.findings[*].message)
  }
}
