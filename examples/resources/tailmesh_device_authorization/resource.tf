data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

resource "tailmesh_device_authorization" "ams1" {
  device_id  = data.tailmesh_mesh.this.nodes["ams1"].id
  authorized = true
}
