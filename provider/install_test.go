package provider

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// TestInstall follows the README: what `make install` installs is found by `tofu init`, with no configuration of the
// command line, and `make uninstall` leaves nothing of it.
func TestInstall(t *testing.T) {
	needTofu(t)
	if _, err := exec.LookPath("make"); err != nil || runtime.GOOS == "windows" {
		t.Skip("needs make, and the folders of Unix")
	}
	t.Parallel()
	w := newWorkspace(t, newTailnet(t, controlsim.Options{}), fstest.MapFS{})
	home := t.TempDir()
	source, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	w.env = slices.DeleteFunc(w.env, func(v string) bool {
		return strings.HasPrefix(v, "TF_CLI_CONFIG_FILE=") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
	for _, name := range []string{"GOPATH", "GOMODCACHE", "GOCACHE"} { // all of which are under HOME else
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		w.env = append(w.env, name+"="+strings.TrimSpace(string(value)))
	}
	w.env = append(w.env, "HOME="+home, "GOBIN="+home+"/bin", "PATH="+home+"/bin:"+os.Getenv("PATH"), "TOFU="+program())

	w.must("make -C '" + source + "' install")
	w.must("tailmesh-policy --version")
	if runtime.GOOS == "linux" {
		w.must("tailmesh-agent --version")
	}
	w.withSource()
	w.must(`"$TOFU" init`)
	w.must(`"$TOFU" validate`)

	w.must("make -C '" + source + "' uninstall")
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "tailmesh") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
