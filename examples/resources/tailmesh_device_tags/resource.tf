data "tailmesh_devices" "nodes" {
  tags = ["tag:node"]
}

# The nodes in Frankfurt are gateways too. The list is the whole of a device's tags: what is not in it is taken away.
resource "tailmesh_device_tags" "gateways" {
  for_each  = { for d in data.tailmesh_devices.nodes.devices : d.name => d.id if startswith(d.hostname, "fra") }
  device_id = each.value
  tags      = ["tag:gateway", "tag:node"]
}
