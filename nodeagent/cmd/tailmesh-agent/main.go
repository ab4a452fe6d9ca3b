// Command tailmesh-agent keeps a node's routing rules, packet marks and source translation right for its mesh.
package main

import (
	"os"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/internal/cli"
)

func main() { os.Exit(cli.Main()) }
