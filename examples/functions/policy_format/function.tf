output "policy" {
  value = provider::tailmesh::policy_format(jsonencode({ grants = [{ src = ["*"], dst = ["*"], ip = ["*"] }] }))
}
