data "tailmesh_devices" "all" {}

resource "tailmesh_device_tags" "gateways" {
  for_each  = { for d in data.tailmesh_devices.all.devices : d.name => d.id if startswith(d.hostname, "gw-") }
  device_id = each.value
  tags      = ["tag:gateway"]
}
