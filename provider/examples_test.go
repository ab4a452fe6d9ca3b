package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// exampleFolders are the folders under examples/ with a configuration.
func exampleFolders(t *testing.T) (folders []string) {
	t.Helper()
	err := filepath.WalkDir("../examples", func(path string, entry fs.DirEntry, err error) error {
		if dir := filepath.Dir(path); err == nil && filepath.Ext(path) == ".tf" && !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
		return err
	})
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d examples, error %v", len(folders), err)
	}
	return folders
}

// exampleTailnet is the tailnet that an example is tried on: that of its inventory.json, else a small one. Where the
// example does not own the policy, somebody has written one.
func exampleTailnet(t *testing.T, folder string) *tailnet {
	t.Helper()
	var opts controlsim.Options
	if inventory, err := os.ReadFile(filepath.Join(folder, "inventory.json")); err == nil && bytes.Contains(inventory, []byte(`"nodeId"`)) {
		opts.Inventory = inventory
	}
	opts.Policy = `{"tagOwners": {"tag:node": ["autogroup:admin"], "tag:gateway": ["autogroup:admin"]},
		"grants": [{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["*", "ip-in-ip:*"]}]}`
	files, err := filepath.Glob(filepath.Join(folder, "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if bytes.Contains(text, []byte(`resource "tailmesh_policy"`)) {
			opts.Policy = ""
		}
	}
	return newTailnet(t, opts)
}

// importExample forgets what the command of import.sh imports, and imports it, by its ID in this tailnet.
func importExample(w *workspace) {
	text, err := os.ReadFile(filepath.Join(w.dir, "import.sh"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	command := regexp.MustCompile(`(?m)^tofu import '?(\S+?)'? (\S+)$`).FindStringSubmatch(string(text))
	if err != nil || command == nil {
		w.t.Fatalf("import.sh: %v, command %q", err, command)
	}
	var state struct {
		Values struct {
			Root struct {
				Resources []struct {
					Address string
					Values  struct {
						DeviceID string `json:"device_id"`
					}
				}
			} `json:"root_module"`
		}
	}
	if err := json.Unmarshal([]byte(w.must("tofu show -json")), &state); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range state.Values.Root.Resources {
		if r.Address != command[1] {
			continue
		}
		w.must("tofu state rm '" + r.Address + "'")
		w.must("tofu import '" + r.Address + "' " + cmp.Or(r.Values.DeviceID, command[2]))
		w.must("tofu apply -auto-approve") // what the API does not have, such as requirements
		w.must("tofu plan -detailed-exitcode")
		return
	}
	w.t.Errorf("import.sh imports %s, which the example does not have", command[1])
}

// Every example can be applied as it stands, leaves nothing to do, is imported as it says, and can be destroyed.
func TestExamples(t *testing.T) {
	needTofu(t)
	for _, folder := range exampleFolders(t) {
		t.Run(strings.TrimPrefix(folder, "../examples/"), func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, exampleTailnet(t, folder), os.DirFS(folder))
			w.withSource()
			w.must("tofu init")
			if tests, err := filepath.Glob(filepath.Join(folder, "tests/*.tftest.hcl")); err != nil || len(tests) > 0 {
				w.must("tofu test")
			}
			w.must("tofu apply -auto-approve")
			if r := w.sh("tofu plan -detailed-exitcode"); r.code != 0 {
				t.Errorf("there is something to do after an apply: exit code %d\n%s", r.code, r.out)
			}
			importExample(w)
			w.must("tofu destroy -auto-approve")
			if left := strings.TrimSpace(w.must("tofu state list")); left != "" {
				t.Errorf("left after destroy: %s", left)
			}
		})
	}
}

// Whatever can be imported can have its configuration written by the program, as it is: there is nothing to change then.
func TestGeneratedConfiguration(t *testing.T) {
	needTofu(t)
	t.Parallel()
	tailnet := newTailnet(t, controlsim.Options{Policy: meshPolicy})
	ams1 := tailnet.ams1(t)
	if _, err := connected(t, tailnet, controlsim.DefaultAPIKey).client.SetDeviceRoutes(t.Context(), ams1.NodeID, []string{"10.7.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	w := newWorkspace(t, tailnet, fstest.MapFS{})
	config := source
	for kind, id := range map[string]string{
		"tailmesh_policy": "policy", "tailmesh_device_tags": ams1.NodeID, "tailmesh_device_routes": ams1.NodeID,
		"tailmesh_device_authorization": ams1.NodeID,
	} {
		config += fmt.Sprintf("import {\n  to = %s.this\n  id = %q\n}\n", kind, id)
	}
	w.write("main.tf", config)
	w.must("tofu init")
	w.must("tofu plan -generate-config-out=generated.tf")
	if out := w.must("tofu apply -auto-approve"); !strings.Contains(out, "4 imported, 0 added, 0 changed, 0 destroyed") {
		t.Error(out)
	}
	w.must("tofu plan -detailed-exitcode")
	tailnet.noWrites(t)
}
