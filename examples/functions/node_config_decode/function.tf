output "peers" {
  value = provider::tailmesh::node_config_decode(file("${path.module}/ams1.json")).peers[*].name
}
