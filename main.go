// The provider plugin. It is started by OpenTofu or Terraform, not by hand.
package main

import (
	"context"
	"flag"
	"log"
	"runtime/debug"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/tailmesh/terraform-provider-tailmesh/provider"
)

func main() {
	debugger := flag.Bool("debug", false, "wait for a debugger: print the value of TF_REATTACH_PROVIDERS and serve until interrupted")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version()), providerserver.ServeOpts{
		Address: provider.Address, Debug: *debugger, ProtocolVersion: 6,
	})
	if err != nil {
		log.Fatal(err)
	}
}

// version is that of the module as it was built: a release's tag, or a pseudo-version of the commit.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}
