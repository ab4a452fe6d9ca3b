# The lab's mesh as code: the policy whose packet filters its nodes get, and the documents that their agents carry out.

terraform {
  required_providers {
    tailmesh = { source = "tailmesh/tailmesh" }
  }
}

provider "tailmesh" {}

variable "policy" {
  description = "The policy file."
  type        = string
}

data "tailmesh_mesh" "this" {
  name        = "lab"
  selector    = { tags = ["tag:node"] }
  locations   = { ams1 = "ams", fra1 = "fra" }
  local_cidrs = { ams = ["192.168.10.0/24", "10.7.0.0/16"] }
  pod_cidrs = {
    ams1 = ["10.42.1.0/24", "fd00:10:42:1::/64"]
    fra1 = ["10.42.2.0/24", "fd00:10:42:2::/64"]
  }
}

resource "tailmesh_policy" "this" {
  content      = file(var.policy)
  requirements = data.tailmesh_mesh.this.requirements
}

output "node_configs" {
  value      = data.tailmesh_mesh.this.node_configs
  depends_on = [tailmesh_policy.this]
}
