//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// prepare finds or builds the programs that the demo runs.
func prepare(ctx context.Context, work, bin, example string) (set settings, err error) {
	set = settings{Work: work, Bin: bin, Example: example}
	if err := os.Mkdir(filepath.Join(work, "logs"), 0o755); err != nil {
		return set, err
	}
	// A Debian user's PATH often lacks sbin, where these live.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return set, err
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return set, fmt.Errorf("needs %q: install iproute2 and nftables", tool)
		}
	}
	if set.Tofu, err = findTofu(); err != nil {
		return set, err
	}
	if set.Version, err = tofuVersion(ctx, set.Tofu); err != nil {
		return set, err
	}
	if set.Bin == "" || set.Example == "" {
		root, err := moduleRoot(ctx)
		if err != nil {
			return set, err
		}
		if set.Example == "" {
			set.Example = filepath.Join(root, "examples", "meshes", "quickstart")
		}
		if set.Bin == "" {
			set.Bin = filepath.Join(work, "bin")
			if err := build(ctx, root, set.Bin); err != nil {
				return set, err
			}
		}
	}
	for _, path := range []*string{&set.Bin, &set.Example, &set.Tofu} {
		if *path, err = filepath.Abs(*path); err != nil {
			return set, err
		}
	}
	for _, path := range []string{
		filepath.Join(set.Bin, "terraform-provider-tailmesh"), filepath.Join(set.Bin, "tailmesh-policy"),
		filepath.Join(set.Bin, "tailmesh-agent"), filepath.Join(set.Example, "main.tf"),
	} {
		if _, err := os.Stat(path); err != nil {
			return set, err
		}
	}
	return set, nil
}

// findTofu returns $TAILMESH_TOFU, the OpenTofu on PATH, the newest one in the project's cache, or the Terraform on PATH.
func findTofu() (string, error) {
	if path := os.Getenv("TAILMESH_TOFU"); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("tofu"); err == nil {
		return path, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		found, err := filepath.Glob(filepath.Join(cache, "tailmesh", "bin", "tofu-[0-9]*"))
		if err == nil && len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	if path, err := exec.LookPath("terraform"); err == nil {
		return path, nil
	}
	return "", errors.New("needs OpenTofu or Terraform: put one on PATH or name it with TAILMESH_TOFU; `make demo` gets one itself")
}

// tofuVersion asks the program what it is.
func tofuVersion(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return "", fmt.Errorf("cannot run %q: %w", program, err)
	}
	// A warning may come first, of the user's own settings.
	version := regexp.MustCompile(`(?m)^(OpenTofu|Terraform) v\S+`).FindString(string(out))
	if version == "" {
		return "", fmt.Errorf("%q is neither OpenTofu nor Terraform: its answer to version is %q", program, out)
	}
	return version, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it in the project's folder, with Go, or give -bin and -example")
	}
	return filepath.Dir(mod), nil
}

// build builds the three programs.
func build(ctx context.Context, root, bin string) error {
	fmt.Fprintln(os.Stderr, "demo: building the provider, tailmesh-policy and tailmesh-agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", ".", "./policy/cmd/tailmesh-policy", "./nodeagent/cmd/tailmesh-agent")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
