# What the tailnet does not know of the cluster: where each node is, and which networks each place has.

locals {
  nodes = {
    fehu  = "helsinki"
    uruz  = "helsinki"
    ansuz = "falkenstein"
    raido = "falkenstein"
    kenaz = "home"
    gebo  = "home"
  }

  # Floating addresses belong to their place, whichever node has them now. Packets that start and end within the networks
  # of one place keep their source: they never cross the mesh.
  networks = {
    helsinki = [
      "10.8.0.0/24",
      "203.0.113.100/32", # the ingress's floating address
    ]
    falkenstein = ["10.9.0.0/24"]
    home = [
      "192.168.178.0/24", # with keepalived's address of the API server, 192.168.178.250
      "192.168.250.0/28", # MetalLB's pool, on the same wire
    ]
  }
}
