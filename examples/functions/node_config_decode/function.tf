output "peers" {
  value = provider::tailmesh::node_config_decode(file("/etc/tailmesh/config.json")).peers[*].name
}
