package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestCIExamples runs the commands of examples/ci, job after job, on a change that gives access, in a repository of git.
func TestCIExamples(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/ci")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "policy.hujson"))
	if err != nil {
		t.Fatal(err)
	}
	after := strings.Replace(string(before), "\"tcp:6443\"", "\"tcp:6443\", \"tcp:10250\"", 1)
	after = strings.Replace(after, "\"deny\":   [\"tag:node:10250\"]", "\"deny\":   [\"tag:node:10251\"]", 1)
	for _, tt := range []struct {
		file string
		jobs func(t *testing.T, text []byte) map[string][]string
	}{
		{"github/policy.yml", githubJobs},
		{"gitlab/.gitlab-ci.yml", gitlabJobs},
	} {
		t.Run(tt.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			jobs := tt.jobs(t, text)
			o := newOnline(t)
			if err := o.sim.SetPolicy(string(before)); err != nil {
				t.Fatal(err)
			}
			git := func(args ...string) {
				t.Helper()
				cmd := exec.Command("git", append([]string{"-c", "user.name=ada", "-c", "user.email=ada@example.com"}, args...)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
			}
			git("init", "-q")
			for _, version := range []string{string(before), after} {
				o.write("policy.hujson", version)
				git("add", "policy.hujson")
				git("commit", "-q", "-m", "change")
			}
			perform := func(job string, code int, patterns ...string) {
				t.Helper()
				said, ran := "", 0
				for _, line := range jobs[job] {
					if !strings.HasPrefix(line, "tailmesh-policy ") {
						continue
					}
					line, _, _ = strings.Cut(line, " > ")
					args := strings.ReplaceAll(strings.ReplaceAll(line, "$BASE", "HEAD^"), `"`, "")
					said += o.runs(code, strings.TrimPrefix(args, "tailmesh-policy "))
					ran++
				}
				if ran == 0 {
					t.Errorf("%s: no commands in %q", job, jobs[job])
				}
				for _, p := range patterns {
					if !strings.Contains(said, p) {
						t.Errorf("%s does not say %q:\n%s", job, p, said)
					}
				}
			}
			perform("review", 0, "nothing was written; to put it in force", "| `group:ops` |")
			if n := o.writes(); n != 0 {
				t.Fatalf("a review wrote %d times", n)
			}
			perform("watch", 1, "is not what is in force")
			perform("apply", 0, "policy.hujson: in force")
			perform("watch", 0, "is what is in force")
			perform("apply", 0, "in force already")
			if n := o.writes(); n != 1 {
				t.Errorf("%d writes, want 1", n)
			}
		})
	}
}

func githubJobs(t *testing.T, text []byte) map[string][]string {
	t.Helper()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run string `yaml:"run"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	jobs := map[string][]string{}
	for name, job := range workflow.Jobs {
		for _, step := range job.Steps {
			jobs[name] = append(jobs[name], step.Run)
		}
	}
	return jobs
}

func gitlabJobs(t *testing.T, text []byte) map[string][]string {
	t.Helper()
	var file map[string]struct {
		Script []string `yaml:"script"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	jobs := map[string][]string{}
	for name, job := range file {
		jobs[name] = job.Script
	}
	return jobs
}
