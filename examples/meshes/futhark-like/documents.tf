# Two ways to bring its document to each node. Use one.

# Files, for whatever copies files to /etc/tailmesh/node.json.
resource "local_file" "document" {
  for_each = data.tailmesh_mesh.futhark.node_configs

  filename        = "${var.out}/nodes/${each.key}.json"
  content         = each.value
  file_permission = "0644"

  # A node is told of its peers only under a policy that admits them.
  depends_on = [tailmesh_policy.this]
}

# An inventory of Ansible's, with the document as a variable of each host; ansible/playbook.yaml brings it there.
resource "local_file" "inventory" {
  filename        = "${var.out}/ansible/inventory.yaml"
  file_permission = "0644"
  content = yamlencode({
    futhark = {
      hosts = {
        for name, node in data.tailmesh_mesh.futhark.nodes : name => {
          ansible_host      = node.full_name
          k0s_node_ip       = node.addresses[0]
          tailmesh_document = jsondecode(data.tailmesh_mesh.futhark.node_configs[name])
        }
      }
    }
  })

  depends_on = [tailmesh_policy.this]
}

variable "out" {
  description = "Folder that the documents and the inventory are written to."
  type        = string
  default     = "."
}
