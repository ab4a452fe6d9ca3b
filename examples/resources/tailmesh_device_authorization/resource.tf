data "tailmesh_devices" "nodes" {
  tags = ["tag:node"]
}

resource "tailmesh_device_authorization" "nodes" {
  for_each   = { for d in data.tailmesh_devices.nodes.devices : d.name => d.id }
  device_id  = each.value
  authorized = true
}
