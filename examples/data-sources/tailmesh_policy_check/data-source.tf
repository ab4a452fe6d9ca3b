data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

# A warning of every plan and apply while the policy, which somebody else owns, does not let the overlay through.
check "policy" {
  data "tailmesh_policy_check" "this" {
    requirements = data.tailmesh_mesh.this.requirements
  }

  assert {
    condition     = data.tailmesh_policy_check.this.ok
    error_message = join("\n", data.tailmesh_policy_check.this.findings[*].message)
  }
}
