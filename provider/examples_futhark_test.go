package provider

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The whole example in either form of the policy: what is applied stays as it is, and each way of bringing documents to
// nodes brings what the agent takes.
func TestFutharkLike(t *testing.T) {
	needTofu(t)
	const folder = "../examples/meshes/futhark-like"
	for _, syntax := range []string{"grants", "acls"} {
		t.Run(syntax, func(t *testing.T) {
			t.Parallel()
			tailnet := exampleTailnet(t, folder)
			w := newWorkspace(t, tailnet, os.DirFS(folder))
			w.env = append(w.env, "TF_VAR_syntax="+syntax, "TF_VAR_out=out")
			w.must("tofu init")
			w.must("tofu test")
			if n := len(tailnet.writes()); n != 0 {
				t.Errorf("%d writes by tofu test, want none", n)
			}
			w.must("tofu apply -auto-approve")
			w.must("tofu plan -detailed-exitcode")
			live, _ := tailnet.Policy()
			if diff := cmp.Diff(strings.TrimSpace(w.read("policy."+syntax+".hujson")), strings.TrimSpace(live)); diff != "" {
				t.Errorf("another policy is in force (-file +in force):\n%s", diff)
			}

			inventory := yaml(t, w, "out/ansible/inventory.yaml")
			hosts, _ := inventory.(map[string]any)["futhark"].(map[string]any)["hosts"].(map[string]any)
			files, err := filepath.Glob(filepath.Join(w.dir, "out/nodes/*.json"))
			if err != nil || len(files) != 6 || len(hosts) != 6 {
				t.Fatalf("%d files and %d hosts, want 6: %v", len(files), len(hosts), err)
			}
			for _, file := range files {
				name := filepath.Base(file)
				var byFile any
				if err := json.Unmarshal([]byte(w.read("out/nodes/"+name)), &byFile); err != nil {
					t.Fatal(err)
				}
				node := name[:len(name)-len(".json")]
				host, _ := hosts[node].(map[string]any)
				if diff := cmp.Diff(byFile, host["tailmesh_document"]); diff != "" {
					t.Errorf("the inventory has another document for %s (-file +inventory):\n%s", node, diff)
				}
				w.must("tailmesh-agent validate --config out/nodes/" + name)
				// As Ansible's to_nice_json writes it.
				text, err := json.MarshalIndent(host["tailmesh_document"], "", "    ")
				if err != nil {
					t.Fatal(err)
				}
				w.write("by-ansible.json", string(text)+"\n")
				w.must("tailmesh-agent validate --config by-ansible.json")
			}
			if _, ok := yaml(t, w, "ansible/playbook.yaml").([]any); !ok {
				t.Error("the playbook is not a list of plays")
			}
			if _, err := exec.LookPath("ansible-playbook"); err == nil {
				w.must("ansible-playbook -i out/ansible/inventory.yaml ansible/playbook.yaml --syntax-check")
			}
		})
	}
}

// yaml reads a file with OpenTofu's own function.
func yaml(t *testing.T, w *workspace, file string) (value any) {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(w.must(`echo 'jsonencode(yamldecode(file("`+file+`")))' | tofu console`)), &text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
