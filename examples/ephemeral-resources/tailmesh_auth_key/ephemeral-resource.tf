ephemeral "tailmesh_auth_key" "node" {
  tags          = ["tag:node"]
  reusable      = true
  preauthorized = true
  expiry        = "30m"
}

# Where the key goes must be ephemeral or write-only too, such as the configuration of another provider.
