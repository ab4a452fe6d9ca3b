terraform {
  required_providers {
    tailmesh = {
      source = "tailmesh/tailmesh"
    }
  }
}

# The credential comes from the environment, such as TAILSCALE_API_KEY.
provider "tailmesh" {}
