// Command tailmesh-policy checks, tests, compiles, questions and formats tailnet policy files offline, and compares them
// with the one in force or puts them there.
package main

import (
	"os"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/cli"
)

func main() { os.Exit(cli.Main()) }
