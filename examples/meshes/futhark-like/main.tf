# A k0s cluster on machines in three places that Tailscale ties together: the tailnet's policy, and what each node's agent
# has to know.

terraform {
  required_providers {
    tailmesh = { source = "tailmesh/tailmesh" }
    local    = { source = "hashicorp/local" }
  }
}

# Credentials come from the environment: TAILSCALE_API_KEY, or TAILSCALE_OAUTH_CLIENT_ID and TAILSCALE_OAUTH_CLIENT_SECRET.
provider "tailmesh" {}

data "tailmesh_mesh" "futhark" {
  name     = "futhark"
  selector = { tags = ["tag:node"] }

  # A node that has not joined yet would silently be nobody's peer.
  min_nodes = length(local.nodes)
  timeouts  = { read = "5m" }

  # Kubelets are pinned to the tailnet (--node-ip), also towards their neighbours. So every node is every other's peer.
  granularity = "full"
  locations   = local.nodes
  local_cidrs = local.networks

  # kube-router's tunnels. Which pods a node has is decided by Kubernetes, so that the agent finds them on the node.
  overlay = { protocol = "ip-in-ip" }
  syntax  = var.syntax
}

# The whole policy. The plan fails where a test of the file does, or where two nodes could not exchange IP-in-IP packets.
resource "tailmesh_policy" "this" {
  content       = file("${path.module}/policy.${var.syntax}.hujson")
  requirements  = data.tailmesh_mesh.futhark.requirements
  console_lock  = true # changes are made here
  external_link = "https://git.example.com/futhark/tailnet"
}

variable "syntax" {
  description = "In which of its two forms the policy is kept: grants or acls. The two files here admit the same."
  type        = string
  default     = "grants"

  validation {
    condition     = contains(["grants", "acls"], var.syntax)
    error_message = "Want grants or acls."
  }
}

output "tests" {
  description = "What the policy does for the mesh and for each line of its tests, and by which rule."
  value = [
    for r in tailmesh_policy.this.test_results :
    "${r.verdict}: ${r.src} to ${r.dst}, ${r.want} by ${coalesce(r.rule, "no rule")}"
  ]
}

output "mermaid" {
  description = "The mesh as a drawing for a README."
  value       = data.tailmesh_mesh.futhark.graph.mermaid
}
