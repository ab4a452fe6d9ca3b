//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Environment variables that name the programs of a lab. Those that are not set are built.
const (
	tailscaledEnv = "TAILSCALED"
	tailscaleEnv  = "TAILSCALE"
	agentEnv      = "TAILMESH_AGENT"
	providerEnv   = "TAILMESH_PROVIDER"
	tofuEnv       = "TAILMESH_TOFU" // never built here; the provider is of use only with it
)

// BuildPrograms builds the programs that the environment does not name, and names them there. dir is where the agent
// and the provider go, which are built each time; tailscaled and tailscale come from the Go module proxy at the version in go.mod, once,
// into the cache ($TAILMESH_CACHE, else tailmesh in the user's cache directory). The first time takes minutes: say gets a
// line about it. The working directory must be this module's.
func BuildPrograms(ctx context.Context, dir string, say func(string)) error {
	version, err := output(ctx, "go", "list", "-m", "-f", "{{.Version}}", "tailscale.com")
	if err != nil {
		return err
	}
	cache := os.Getenv("TAILMESH_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		cache = filepath.Join(user, "tailmesh")
	}
	cache = filepath.Join(cache, "bin")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	for env, name := range map[string]string{tailscaledEnv: "tailscaled", tailscaleEnv: "tailscale"} {
		if os.Getenv(env) != "" {
			continue
		}
		path := filepath.Join(cache, name+"-"+version)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			say(fmt.Sprintf("building %s %s (once, a few minutes)", name, version))
			part := fmt.Sprintf("%s.%d", path, os.Getpid())
			if _, err := output(ctx, "go", "build", "-trimpath", "-o", part, "tailscale.com/cmd/"+name); err != nil {
				return err
			}
			if err := os.Rename(part, path); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		if err := os.Setenv(env, path); err != nil {
			return err
		}
	}
	own := map[string][2]string{agentEnv: {"tailmesh-agent", "./nodeagent/cmd/tailmesh-agent"}}
	if os.Getenv(tofuEnv) != "" {
		own[providerEnv] = [2]string{"terraform-provider-tailmesh", "."}
	}
	for env, p := range own {
		if os.Getenv(env) != "" {
			continue
		}
		path := filepath.Join(dir, p[0])
		if _, err := output(ctx, "go", "build", "-C", "../..", "-o", path, p[1]); err != nil {
			return err
		}
		if err := os.Setenv(env, path); err != nil {
			return err
		}
	}
	return nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
