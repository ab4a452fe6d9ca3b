data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

data "tailmesh_policy_document" "this" {
  groups     = { "group:sre" = ["ada@example.com"] }
  tag_owners = { "tag:node" = ["group:sre"] }

  grants = [
    { comment = "people to the API server", src = ["group:sre"], dst = ["tag:node"], ip = ["6443"] },
  ]

  fragments = {
    mesh = data.tailmesh_mesh.this.policy_fragment
    ssh = jsonencode({
      ssh = [{ action = "check", src = ["group:sre"], dst = ["tag:node"], users = ["root"] }]
    })
  }
}

resource "tailmesh_policy" "this" {
  content      = data.tailmesh_policy_document.this.content
  requirements = data.tailmesh_mesh.this.requirements
}
