# A cluster in two locations whose nodes talk over the tailnet: the policy as code, and a document for each node's agent.

terraform {
  required_providers {
    tailmesh = { source = "tailmesh/tailmesh" }
  }
}

# Credentials come from the environment: TAILSCALE_API_KEY, or TAILSCALE_OAUTH_CLIENT_ID and TAILSCALE_OAUTH_CLIENT_SECRET.
provider "tailmesh" {}

# The nodes are the devices with tag:node. Where each one is and which pods it runs is not known to the tailnet.
data "tailmesh_mesh" "this" {
  name     = "quickstart"
  selector = { tags = ["tag:node"] }

  locations = {
    ams1 = "amsterdam"
    ams2 = "amsterdam"
    fra1 = "frankfurt"
  }
  local_cidrs = {
    amsterdam = ["192.168.10.0/24"]
    frankfurt = ["10.7.0.0/16"]
  }
  pod_cidrs = {
    ams1 = ["10.244.1.0/24"]
    ams2 = ["10.244.2.0/24"]
    fra1 = ["10.244.3.0/24"]
  }

  # What carries pod-to-pod packets between nodes. The policy must admit it, and no rule does that by itself.
  overlay = { protocol = "ip-in-ip" }
}

# The whole policy file. A policy that does not admit what the mesh needs fails the plan, and nothing is written.
resource "tailmesh_policy" "this" {
  content      = file("${path.module}/policy.hujson")
  requirements = data.tailmesh_mesh.this.requirements
}

# One document for each node, to be brought to /etc/tailmesh/node.json there by whatever manages the machines. Here they
# are written to files, with what every Terraform and OpenTofu has built in.
resource "terraform_data" "node_document" {
  for_each = data.tailmesh_mesh.this.node_configs

  # Both are needed to write it anew: a changed document, and a folder that was asked for elsewhere.
  triggers_replace = [each.value, var.documents]

  provisioner "local-exec" {
    command = "mkdir -p \"$FOLDER\" && printf %s \"$DOCUMENT\" >\"$FOLDER/$NODE.json\""
    environment = {
      FOLDER   = var.documents
      NODE     = each.key
      DOCUMENT = each.value
    }
  }

  # A node is told of its peers only under a policy that admits them.
  depends_on = [tailmesh_policy.this]
}

variable "documents" {
  description = "Folder that the nodes' documents are written to."
  type        = string
  default     = "nodes"
}

output "admitted" {
  description = "What the nodes need of the policy and the plan has found it to admit. Where it does not, there is no plan."
  value = tailmesh_policy.this.requirements == null ? [] : [ # just imported
    for r in tailmesh_policy.this.requirements : "${r.proto} from ${join(", ", r.src)} to ${join(", ", r.dst)}"
  ]
}

output "graph" {
  description = "The mesh as a Mermaid drawing, for a README."
  value       = data.tailmesh_mesh.this.graph.mermaid
}
