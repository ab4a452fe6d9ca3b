//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// tofu runs OpenTofu or Terraform on a copy of the example.
type tofu struct {
	s       *story
	program string
	name    string // as people call it: "tofu" or "terraform"
	version string // "OpenTofu v1.12.6"
	root    string // the copy
	env     []string
}

// newTofu copies the example and makes the built provider known to the program, so that nothing is asked of a registry:
// a folder is its only source of providers. Development overrides would not do: with them, init fails where the registry
// cannot be reached.
func newTofu(s *story, set settings, api *tailnet) (*tofu, error) {
	t := &tofu{s: s, program: set.Tofu, name: "terraform", version: set.Version, root: filepath.Join(set.Work, "quickstart")}
	if err := os.CopyFS(t.root, os.DirFS(set.Example)); err != nil {
		return nil, err
	}
	mirror := filepath.Join(set.Work, "providers")
	// Each program looks under the name of its own registry.
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		dir := filepath.Join(mirror, host, "tailmesh", "tailmesh", "0.0.1", runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		const program = "terraform-provider-tailmesh"
		if err := os.Symlink(filepath.Join(set.Bin, program), filepath.Join(dir, program)); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(set.Work, "cli.tfrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, v := range os.Environ() {
		// Settings of the user's own must not reach the demo, nor its tailnet theirs.
		if !slices.ContainsFunc([]string{"TF_", "TOFU_", "TAILSCALE_", "OAUTH_", "IDENTITY_TOKEN="}, func(p string) bool { return strings.HasPrefix(v, p) }) {
			t.env = append(t.env, v)
		}
	}
	t.env = append(t.env, "TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		"TAILSCALE_BASE_URL="+api.url, "TAILSCALE_API_KEY="+api.key)

	if strings.HasPrefix(t.version, "OpenTofu") {
		t.name = "tofu"
	}
	return t, nil
}

// run runs one command of the program, such as "plan", and tells it.
func (t *tofu) run(ctx context.Context, args ...string) (ran, error) {
	return t.s.run(ctx, command{
		Args: slices.Concat([]string{t.program, args[0], "-no-color", "-input=false"}, args[1:]), Dir: t.root, Env: t.env,
		Show: t.name + " " + strings.Join(args, " "),
	})
}

// requirement is one that a planned policy is judged by.
type requirement struct {
	Name  string   `json:"name"`
	Src   []string `json:"src"`
	Dst   []string `json:"dst"`
	Proto string   `json:"proto"`
}

// requirements reads those of the policy from a saved plan.
func (t *tofu) requirements(ctx context.Context, plan string) ([]requirement, error) {
	r, err := t.s.must(ctx, command{Args: []string{t.program, "show", "-json", plan}, Dir: t.root, Env: t.env})
	if err != nil {
		return nil, err
	}
	var p struct {
		Changes []struct {
			Type   string
			Change struct {
				After struct{ Requirements []requirement }
			}
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Command, err)
	}
	for _, c := range p.Changes {
		if c.Type == "tailmesh_policy" {
			return c.Change.After.Requirements, nil
		}
	}
	return nil, nil
}

// documents reads what the example wrote, one document for each node.
func (t *tofu) documents() (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(t.root, "nodes", "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		out[strings.TrimSuffix(filepath.Base(f), ".json")] = string(text)
	}
	return out, nil
}

// document is the file of one node's document.
func (t *tofu) document(node string) string { return filepath.Join(t.root, "nodes", node+".json") }

func (t *tofu) readPolicy() (string, error) {
	text, err := os.ReadFile(filepath.Join(t.root, "policy.hujson"))
	return string(text), err
}

func (t *tofu) writePolicy(text string) error {
	return os.WriteFile(filepath.Join(t.root, "policy.hujson"), []byte(text), 0o600)
}

// without takes the rule that admits a protocol out of a policy. It returns the lines that it took.
func without(policy, protocol string) (text string, removed []string) {
	var kept strings.Builder
	for line := range strings.Lines(policy) {
		if strings.Contains(line, strconv.Quote(protocol+":*")) {
			removed = append(removed, strings.TrimSpace(line))
			continue
		}
		kept.WriteString(line)
	}
	return kept.String(), removed
}

// refusal is what a failed plan says about a requirement.
type refusal struct {
	Position string `json:"position"` // in the policy
	Pairs    string `json:"pairs"`
	Line     int    `json:"line"`    // number of the line to change
	Offered  string `json:"offered"` // what that line should be
}

// parseRefusal finds in a plan's output the place in the policy, the pairs affected and the text that is offered.
func parseRefusal(output string) (r refusal) {
	r.Position = regexp.MustCompile(`line \d+, column \d+, \S+`).FindString(output)
	r.Pairs = strings.Join(strings.Fields(regexp.MustCompile(`\d+\s+of\s+\d+\s+pairs`).FindString(output)), " ")
	if _, help, ok := strings.Cut(output, "\nhelp: "); ok {
		if m := regexp.MustCompile(`(?m)^\s*(\d+) \| (.*)$`).FindStringSubmatch(help); m != nil {
			r.Line, _ = strconv.Atoi(m[1])
			r.Offered = m[2]
		}
	}
	return r
}

// take puts the offered line into a policy.
func (r refusal) take(policy string) string {
	lines := strings.SplitAfter(policy, "\n")
	if r.Line < 1 || r.Line > len(lines) {
		return policy
	}
	lines[r.Line-1] = r.Offered + "\n"
	return strings.Join(lines, "")
}

// excerpt returns the lines of an output from the one that matches first to the one that matches last, or to the end.
func excerpt(lines []string, first, last string) []string {
	from := slices.IndexFunc(lines, regexp.MustCompile(first).MatchString)
	if from < 0 {
		return nil
	}
	lines = lines[from:]
	if n := slices.IndexFunc(lines, regexp.MustCompile(last).MatchString); n >= 0 {
		return lines[:n+1]
	}
	return lines
}

// grep returns the lines that match.
func grep(lines []string, pattern string) []string {
	match := regexp.MustCompile(pattern)
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !match.MatchString(l) })
}
