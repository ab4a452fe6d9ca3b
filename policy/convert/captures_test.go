package convert

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// TestCaptures converts every recorded policy that the control plane accepted, in both directions. The folder is
// $TAILMESH_CAPTURES, else ../shared/captures beside the repository.
func TestCaptures(t *testing.T) {
	dir := cmp.Or(os.Getenv("TAILMESH_CAPTURES"), filepath.Join("..", "..", "..", "shared", "captures"))
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no captures in %s: set TAILMESH_CAPTURES to the folder that holds them", dir)
	}
	for _, to := range []Form{Grants, ACLs} {
		policies, converted, kept := 0, 0, 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(bytes.NewReader(text))
			lines.Buffer(nil, 64<<20)
			for lines.Scan() {
				var c struct {
					ID        string          `json:"id"`
					Policy    string          `json:"policy"`
					Inventory json.RawMessage `json:"inventory"`
					Response  struct {
						Code int `json:"code"`
					} `json:"response"`
				}
				if len(bytes.TrimSpace(lines.Bytes())) == 0 {
					continue
				}
				if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
					t.Fatal(err)
				}
				inv, err := policy.ParseInventory(c.Inventory)
				if err != nil {
					t.Fatal(err)
				}
				before := policy.Check("", []byte(c.Policy), inv, nil)
				rules := before.Policy != nil && (to == Grants && before.Policy.ACLs != nil || to == ACLs && before.Policy.Grants != nil)
				if c.Response.Code != 200 || !rules {
					continue
				}
				policies++
				res, err := Convert(c.ID, []byte(c.Policy), inv, to)
				if err != nil {
					t.Errorf("%s to %s: %v\n%s", c.ID, to, err, c.Policy)
					continue
				}
				if !res.Proof.Holds() {
					t.Errorf("%s to %s: differs: %q\n%s\n%s", c.ID, to, res.Proof.Differs, c.Policy, res.Text)
				}
				after := policy.Check("", res.Text, inv, nil)
				left := len(after.Policy.ACLs)
				if to == ACLs {
					left = len(after.Policy.Grants)
				}
				if left != len(res.Kept) {
					t.Errorf("%s to %s: %d entries are left and %d are said to be", c.ID, to, left, len(res.Kept))
				}
				converted += res.Converted
				kept += len(res.Kept)
			}
			if err := lines.Err(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("to %s: %d policies, %d entries converted, %d kept", to, policies, converted, kept)
	}
}
