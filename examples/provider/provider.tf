terraform {
  required_providers {
    tailmesh  = { source = "tailmesh/tailmesh" }
    tailscale = { source = "tailscale/tailscale" } # only if you use it too
  }
}

# Both take the credential from the same variables of the environment: TAILSCALE_API_KEY, or TAILSCALE_OAUTH_CLIENT_ID and
# TAILSCALE_OAUTH_CLIENT_SECRET. What stands here has the same names in both.
provider "tailmesh" {
  tailnet = "example.com"
}

provider "tailscale" {
  tailnet = "example.com"
}
