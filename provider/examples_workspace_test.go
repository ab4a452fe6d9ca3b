package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// programs are what users run: this provider, hashicorp/local, a stand-in for the official provider, and the project's
// own programs, built once for all tests. OpenTofu and Terraform find the providers in a folder that stands for the registry.
type programs struct {
	bin  string // holds tailmesh-policy and tailmesh-agent, for PATH
	tofu string // the program under test by the name that people call it, in bin
	cli  string // configuration of the command line, which knows of the folder of providers
}

var buildPrograms = sync.OnceValues(func() (*programs, error) {
	root, err := os.MkdirTemp("", "tailmesh-programs-")
	if err != nil {
		return nil, err
	}
	builtPrograms = root
	p := &programs{bin: filepath.Join(root, "bin"), tofu: "terraform", cli: filepath.Join(root, "cli.tfrc")}
	if out, err := exec.Command(program(), "version").Output(); err == nil && bytes.HasPrefix(out, []byte("OpenTofu")) {
		p.tofu = "tofu"
	}
	for _, b := range []struct{ dir, name, pkg string }{
		{"..", "terraform-provider-tailmesh", "."},
		{"..", "tailmesh-policy", "./policy/cmd/tailmesh-policy"},
		{"..", "tailmesh-agent", "./nodeagent/cmd/tailmesh-agent"},
		{"../tests/tools/local", "terraform-provider-local", "github.com/terraform-providers/terraform-provider-local"},
	} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(p.bin, b.name), b.pkg)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s: %w\n%s", b.name, err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s'\n", standInVariable, self)
	if err := os.WriteFile(filepath.Join(p.bin, "terraform-provider-tailscale"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		return nil, err
	}
	exe, err := filepath.Abs(program())
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(exe, filepath.Join(p.bin, p.tofu)); err != nil {
		return nil, err
	}
	mirror := filepath.Join(root, "providers")
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} { // each looks under its own registry
		for address, built := range map[string]string{
			"tailmesh/tailmesh/0.1.0": "terraform-provider-tailmesh", "hashicorp/local/1.4.0": "terraform-provider-local",
			"tailscale/tailscale/0.29.2": "terraform-provider-tailscale",
		} {
			dir := filepath.Join(mirror, host, address, runtime.GOOS+"_"+runtime.GOARCH)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			if err := os.Symlink(filepath.Join(p.bin, built), filepath.Join(dir, built)); err != nil {
				return nil, err
			}
		}
	}
	return p, os.WriteFile(p.cli, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600)
})

// builtPrograms is the folder to remove when all tests are over.
var builtPrograms string

// workspace is a folder in which a user works, with the real programs and a simulated tailnet.
type workspace struct {
	t    *testing.T
	dir  string
	tofu string
	env  []string
}

// newWorkspace makes a folder with these files. They are copied, so that what is left behind is not left in the source.
func newWorkspace(t *testing.T, tailnet *tailnet, files fs.FS) *workspace {
	t.Helper()
	needTofu(t)
	p, err := buildPrograms()
	if err != nil {
		t.Fatal(err)
	}
	w := &workspace{t: t, dir: t.TempDir(), tofu: p.tofu}
	if err := os.CopyFS(w.dir, files); err != nil {
		t.Fatal(err)
	}
	w.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TF_") }),
		"TF_CLI_CONFIG_FILE="+p.cli, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1", "NO_COLOR=1",
		"TF_CLI_ARGS_init=-no-color", "TF_CLI_ARGS_plan=-no-color", "TF_CLI_ARGS_apply=-no-color", "TF_CLI_ARGS_destroy=-no-color",
		"TF_CLI_ARGS_import=-no-color", "TF_CLI_ARGS_test=-no-color", "TF_CLI_ARGS_validate=-no-color", "TF_CLI_ARGS_output=-no-color",
		"TAILSCALE_API_KEY="+controlsim.DefaultAPIKey, "TAILSCALE_BASE_URL="+tailnet.url, "PATH="+p.bin+":"+os.Getenv("PATH"))
	return w
}

// ran is what a command printed, standard output and standard error as they came, and its exit code.
type ran struct {
	out  string
	code int
}

// sh runs a line of shell as a user would type it.
func (w *workspace) sh(line string) ran {
	w.t.Helper()
	if w.tofu != "tofu" {
		line = regexp.MustCompile(`(^|[|&;] *)tofu `).ReplaceAllString(line, "${1}"+w.tofu+" ")
	}
	cmd := exec.CommandContext(w.t.Context(), "bash", "-c", line)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		w.t.Fatalf("%s: %v", line, err)
	}
	return ran{string(out), cmd.ProcessState.ExitCode()}
}

// must runs a line of shell that has to succeed, and returns what it printed.
func (w *workspace) must(line string) string {
	w.t.Helper()
	r := w.sh(line)
	if r.code != 0 {
		w.t.Fatalf("%s: exit code %d\n%s", line, r.code, r.out)
	}
	return r.out
}

func (w *workspace) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workspace) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// source tells where the provider comes from, in folders that do not.
const source = `terraform {
  required_providers {
    tailmesh = { source = "tailmesh/tailmesh" }
  }
}
`

// withSource writes the provider's source where no file has one.
func (w *workspace) withSource() {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*.tf"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		if bytes.Contains(text, []byte("required_providers")) {
			return
		}
	}
	w.write("source.tf", source)
}
