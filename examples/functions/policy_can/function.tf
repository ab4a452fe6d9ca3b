data "tailmesh_devices" "all" {}

check "database_is_private" {
  assert {
    condition = !provider::tailmesh::policy_can(
      file("${path.module}/policy.hujson"), data.tailmesh_devices.all.inventory, "autogroup:member", "tag:database", "tcp", 5432
    ).allowed
    error_message = "every member reaches the database"
  }
}
