package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// Whatever users can write has a description that is a sentence or more, and an example; a resource can be imported.
func TestDocumentation(t *testing.T) {
	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	all, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(all.Diagnostics) > 0 {
		t.Fatal(err, all.Diagnostics)
	}
	sentence := func(at, text string) {
		t.Helper()
		if len(strings.Fields(text)) < 3 || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: description %q, want a sentence", at, text)
		}
	}
	example := func(parts ...string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(append([]string{"../examples"}, parts...)...)); err != nil {
			t.Error(err)
		}
	}
	var attributes func(at string, list []*tfprotov6.SchemaAttribute)
	attributes = func(at string, list []*tfprotov6.SchemaAttribute) {
		for _, a := range list {
			sentence(at+"."+a.Name, a.Description)
			if a.NestedType != nil {
				attributes(at+"."+a.Name, a.NestedType.Attributes)
			}
		}
	}
	whole := func(name string, s *tfprotov6.Schema) {
		sentence(name, s.Block.Description)
		attributes(name, s.Block.Attributes)
	}
	whole("provider", all.Provider)
	example("provider", "provider.tf")
	for name, s := range all.ResourceSchemas {
		whole(name, s)
		example("resources", name, "resource.tf")
		example("resources", name, "import.sh")
	}
	for name, s := range all.DataSourceSchemas {
		whole(name, s)
		example("data-sources", name, "data-source.tf")
	}
	for name, s := range all.EphemeralResourceSchemas {
		whole(name, s)
		example("ephemeral-resources", name, "ephemeral-resource.tf")
	}
	for name, f := range all.Functions {
		sentence(name, f.Description)
		for _, p := range f.Parameters {
			sentence(name+"."+p.Name, p.Description)
		}
		example("functions", name, "function.tf")
	}
}
