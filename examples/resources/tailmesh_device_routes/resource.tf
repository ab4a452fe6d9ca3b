data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }
}

resource "tailmesh_device_routes" "ams1" {
  device_id = data.tailmesh_mesh.this.nodes["ams1"].id
  routes    = ["10.7.0.0/16"]
}
