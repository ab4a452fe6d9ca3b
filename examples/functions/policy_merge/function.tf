data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

resource "tailmesh_policy" "this" {
  content = provider::tailmesh::policy_merge([
    file("${path.module}/policy.hujson"),
    file("${path.module}/team-a.hujson"),
    data.tailmesh_mesh.this.policy_fragment,
  ])
}
