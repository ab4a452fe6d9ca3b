data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

# The policy in force, which somebody else owns.
data "tailmesh_policy_check" "this" {
  requirements = data.tailmesh_mesh.this.requirements
}

# A warning of every plan and apply while it does not let the overlay through. A data source within the check block would
# leave no plan empty; a precondition in its place fails the plan.
check "policy" {
  assert {
    condition     = data.tailmesh_policy_check.this.ok
    error_message = join("\n", data.tailmesh_policy_check.this.findings[*].message)
  }
}
