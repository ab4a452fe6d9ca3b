data "tailmesh_node_bootstrap" "ams1" {
  node_config       = file("${path.module}/ams1.json") # or data.tailmesh_mesh.this.node_configs["ams1"]
  agent_url         = "https://downloads.example.com/tailmesh-agent-linux-amd64"
  agent_sha256      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  auth_key_command  = "aws ssm get-parameter --name /mesh/auth-key --with-decryption --query Parameter.Value --output text"
  tailscale_up_args = ["--advertise-tags=tag:node", "--hostname=ams1"]
}

output "user_data" {
  value = data.tailmesh_node_bootstrap.ams1.cloud_init
}
