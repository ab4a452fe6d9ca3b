data "tailmesh_device" "ams1" {
  name     = "ams1"
  timeouts = { read = "5m" } # its machine may have been made a moment ago
}

output "ssh" {
  value = "ssh root@${data.tailmesh_device.ams1.addresses[0]}"
}
