data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

# The plan fails where a test of policy.hujson does, or where two nodes of the mesh could not exchange IP-in-IP packets.
resource "tailmesh_policy" "this" {
  content      = file("${path.module}/policy.hujson")
  requirements = data.tailmesh_mesh.this.requirements
}
