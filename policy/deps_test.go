package policy

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEngineIsPure keeps out of the engine what would make its answers depend on anything but its arguments, and what
// belongs to other parts of the project.
func TestEngineIsPure(t *testing.T) {
	const ours = "github.com/tailmesh/terraform-provider-tailmesh/"
	forbidden := []string{"net", "net/http/", "os", "os/exec", "log", "log/slog", "math/rand", "crypto/rand", "syscall", "unsafe"}
	allowed := map[string]bool{ours + "policy/diag": true, "net/http": true} // net/http for the names of its status codes
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			bad := strings.HasPrefix(path, ours)
			for _, p := range forbidden {
				bad = bad || path == p || strings.HasPrefix(path, p+"/") && p != "net"
			}
			if bad && !allowed[path] {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
