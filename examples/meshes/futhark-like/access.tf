# Who is to reach whom, asked of the policy that is planned. `tofu test` asks too, in both of its forms.

data "tailmesh_devices" "all" {}

locals {
  reach = {
    "pods in Helsinki reach pods at home"      = { flow = ["fehu", "gebo", "ip-in-ip", 0], want = true }
    "pods at home reach pods in Falkenstein"   = { flow = ["kenaz", "ansuz", "ip-in-ip", 0], want = true }
    "developers reach the ingress"             = { flow = ["group:dev", "tag:node", "tcp", 443], want = true }
    "developers reach the Kubernetes API"      = { flow = ["group:dev", "tag:node", "tcp", 6443], want = false }
    "developers send packets into the overlay" = { flow = ["group:dev", "tag:node", "ip-in-ip", 0], want = false }
    "nodes reach the admins' laptops"          = { flow = ["tag:node", "group:admins", "tcp", 22], want = false }
  }
}

output "access" {
  description = "The answers, each for every pair of devices that the question is about."
  value = {
    for question, q in local.reach : question => provider::tailmesh::policy_can(
      file("${path.module}/policy.${var.syntax}.hujson"), data.tailmesh_devices.all.inventory, q.flow[0], q.flow[1], q.flow[2], q.flow[3]
    ).allowed
  }
}
