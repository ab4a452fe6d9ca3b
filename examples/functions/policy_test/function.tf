locals {
  results = provider::tailmesh::policy_test(file("${path.module}/policy.hujson"), file("${path.module}/inventory.json"))
}

output "failed" {
  value = [for r in local.results : "line ${r.line}: ${r.src} to ${r.dst}: want ${r.want}, got ${r.got}" if r.verdict == "fail"]
}
