data "tailmesh_devices" "nodes" {
  tags = ["tag:node"]
}

output "offline" {
  value = [for d in data.tailmesh_devices.nodes.devices : d.name if !d.connected]
}
