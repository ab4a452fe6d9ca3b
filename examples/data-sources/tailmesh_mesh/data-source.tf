data "tailmesh_mesh" "this" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }

  pod_cidrs = {
    ams1 = ["10.244.1.0/24"]
    ams2 = ["10.244.2.0/24"]
    fra1 = ["10.244.3.0/24"]
  }
  locations = {
    ams1 = "ams"
    ams2 = "ams"
    fra1 = "fra"
  }
  # Floating addresses included: what stays within these is never translated.
  local_cidrs = {
    ams = ["192.168.10.0/24", "10.7.0.0/16"]
  }
}

# One document for each node, to be put at /etc/tailmesh/node.json by what sets machines up.
output "node_configs" {
  value = data.tailmesh_mesh.this.node_configs
}
