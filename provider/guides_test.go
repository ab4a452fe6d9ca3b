package provider

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

var update = flag.Bool("update", false, "write what commands print into the guides and the examples' READMEs")

// A guide is a document that is followed to the letter, from top to bottom, in a folder of its own:
//
//   - A block of code whose first line is a comment with a file's name is written to that file.
//   - In a block of "console", a line that begins with "$ " is run by a shell, and must print what follows it. A line "..."
//     in there stands for any number of lines. What tofu tells people goes into no pipe: for readers it has colours in it,
//     and advice behind it, so that grep and tail would find something else than here.
//   - In a block of "sh" stands what cannot be run here. The flags of this project's programs must exist.
//
// In testdata/guides/NAME are the files that the reader of a guide has at hand, policy.hujson being the policy in force.
type guide struct {
	*workspace
	file  string
	lines []string // of the document, as it should be
	saved []string // files that it had written
}

// guideFiles are the guides of the documentation, and those READMEs of examples that show what commands print.
func guideFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../templates/guides/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d guides, error %v", len(files), err)
	}
	for _, folder := range exampleFolders(t) {
		if _, err := os.Stat(filepath.Join(folder, "README.md")); err == nil {
			files = append(files, filepath.Join(folder, "README.md"))
		}
	}
	return files
}

func TestGuides(t *testing.T) {
	needTofu(t)
	if runtime.GOOS != "linux" {
		t.Skip("guides use GNU sed")
	}
	for _, file := range guideFiles(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(file, "../"), "templates/")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			g := &guide{file: file, lines: strings.Split(string(text), "\n")}
			folder := filepath.Join("testdata/guides", strings.TrimSuffix(filepath.Base(file), ".md"))
			if filepath.Base(file) == "README.md" {
				folder = filepath.Dir(file)
				g.workspace = newWorkspace(t, exampleTailnet(t, folder), os.DirFS(folder))
			} else if inForce, err := os.ReadFile(filepath.Join(folder, "policy.hujson")); err == nil {
				g.workspace = newWorkspace(t, newTailnet(t, controlsim.Options{Policy: string(inForce)}), os.DirFS(folder))
			} else {
				g.workspace = newWorkspace(t, newTailnet(t, controlsim.Options{}), fstest.MapFS{})
			}
			if *update && g.tofu != "tofu" {
				t.Fatal("documents show what OpenTofu prints")
			}
			g.follow()
			g.used()
			if now := strings.Join(g.lines, "\n"); *update && now != string(text) {
				if err := os.WriteFile(file, []byte(now), 0o644); err != nil { //nolint:gosec // a document
					t.Fatal(err)
				}
			}
		})
	}
}

var (
	fence    = regexp.MustCompile("^( *)```(\\w*)$")
	fileName = regexp.MustCompile(`^(?:#|//) ([\w./-]+\.\w+)$`)
)

func (g *guide) follow() {
	for i := 0; i < len(g.lines); i++ {
		open := fence.FindStringSubmatch(g.lines[i])
		if open == nil {
			continue
		}
		end := i + 1
		for end < len(g.lines) && strings.TrimSpace(g.lines[end]) != "```" {
			end++
		}
		block := make([]string, end-i-1)
		for j, line := range g.lines[i+1 : end] {
			block[j] = strings.TrimPrefix(line, open[1])
		}
		at := fmt.Sprintf("%s:%d", g.file, i+2)
		switch open[2] {
		case "console":
			block = g.console(at, block)
		case "sh":
			g.flags(at, block)
		case "terraform", "hcl", "hujson", "json", "yaml":
			g.save(at, block)
		}
		for j, line := range block {
			block[j] = strings.TrimRight(open[1]+line, " ")
		}
		g.lines = slices.Replace(g.lines, i+1, end, block...)
		i += 1 + len(block)
	}
}

// save writes a block to the file that it names. Code that belongs to no file would be tried by nobody.
func (g *guide) save(at string, block []string) {
	g.t.Helper()
	name := fileName.FindStringSubmatch(block[0])
	if name == nil {
		g.t.Fatalf("%s: the first line must be a comment with the name of the file that this is, as in \"# main.tf\"", at)
	}
	if filepath.Ext(name[1]) == ".json" {
		block = block[1:] // which knows no comments
	}
	g.write(name[1], strings.Join(block, "\n")+"\n")
	if !slices.Contains(g.saved, name[1]) {
		g.saved = append(g.saved, name[1])
	}
}

// used sees that what the document had written was tried: configurations are valid in the end, and every other file is
// named by a command or by a configuration.
func (g *guide) used() {
	g.t.Helper()
	for _, name := range g.saved {
		if filepath.Ext(name) == ".tf" {
			g.must("tofu -chdir=" + filepath.Dir(name) + " validate")
			continue
		}
		named := func(line string) bool {
			return strings.Contains(line, filepath.Base(name)) && !fileName.MatchString(strings.TrimSpace(line))
		}
		if !slices.ContainsFunc(g.lines, named) {
			g.t.Errorf("%s: nothing is done with %s", g.file, name)
		}
	}
}

// console runs the commands of a block and returns it with what they print now.
func (g *guide) console(at string, block []string) (now []string) {
	g.t.Helper()
	for i := 0; i < len(block); {
		command, ok := strings.CutPrefix(block[i], "$ ")
		if !ok {
			g.t.Fatalf("%s: %q is neither a command nor what one prints", at, block[i])
		}
		if piped.MatchString(command) {
			g.t.Errorf("%s: %q: leave lines out with \"...\" in place of the pipe", at, command)
		}
		end := i + 1
		for end < len(block) && !strings.HasPrefix(block[end], "$ ") {
			end++
		}
		want := block[i+1 : end]
		got := told(g.sh(command).out)
		shown := elide(got, want)
		if *update {
			want = shown
		} else if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(shown, "\n")); diff != "" && g.tofu == "tofu" { // Terraform has words of its own
			g.t.Errorf("%s: $ %s prints something else (-document +now; go test -run TestGuides -update writes it):\n%s\nall of it:\n%s",
				at, command, diff, strings.Join(got, "\n"))
		}
		now = append(append(now, "$ "+command), want...)
		i = end
	}
	return now
}

// piped is what tofu tells people, sent into a pipe.
var piped = regexp.MustCompile(`\btofu (-chdir=\S+ )?(init|plan|apply|import|destroy|test)\b[^|;&]*\|[^|]`)

// noise is what OpenTofu prints of its own course: in no fixed order, or with times, or the same with every plan.
var noise = regexp.MustCompile(`^\S+: (Reading|Read complete|Refreshing state|Creating|Creation complete|Modifying|Modifications complete|` +
	`Destroying|Destruction complete|Opening|Opening complete|Closing|Closing complete|Importing)\b|` +
	`^(OpenTofu|Terraform) used the selected providers|^plan\. Resource actions are indicated|^ {0,2}(<=|[-+~/]+) (create|destroy|update in-place|read|replace)\b|` +
	`^(OpenTofu|Terraform) will perform the following actions:$|^Saved the plan to: `)

// told is what is worth telling of an output, line by line.
func told(output string) (lines []string) {
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		line = strings.TrimRight(line, " ")
		if noise.MatchString(line) || line == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		lines = append(lines, line)
	}
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

// elide leaves out of an output what the document leaves out: where that has "...", everything between the lines in front
// of it and behind it. Where the output has no such lines it is shown whole, which is then seen not to be the document's.
func elide(got, document []string) []string {
	var shown []string
	rest := got
	for i := 0; i < len(document); {
		if document[i] == "..." {
			shown = append(shown, "...")
			if i++; i == len(document) {
				return shown
			}
			at := slices.Index(rest, document[i])
			if at < 0 {
				return got
			}
			rest = rest[at:]
			continue
		}
		end := slices.Index(document[i:], "...")
		if end < 0 {
			return append(shown, rest...)
		}
		last := document[i+end-1]
		at := slices.Index(rest, last)
		if at < 0 {
			return got
		}
		shown, rest = append(shown, rest[:at+1]...), rest[at+1:]
		i += end
	}
	return append(shown, rest...)
}

// flags sees that the project's own programs know the flags that a block gives them.
func (g *guide) flags(at string, block []string) {
	g.t.Helper()
	own := regexp.MustCompile(`(?:^|[|;&] *|sudo |ssh \S+ )((?:tailmesh-policy|tailmesh-agent) [^|;&<>()#]*)`)
	for _, line := range block {
		for _, command := range own.FindAllStringSubmatch(line, -1) {
			if r := g.sh("set -- " + command[1] + "; \"$@\" --help"); r.code != 0 {
				g.t.Errorf("%s: %s: %s", at, command[1], r.out)
			}
		}
	}
}

func TestElide(t *testing.T) {
	got := strings.Split("a b c d e f", " ")
	for document, want := range map[string]string{
		"a b c d e f": "a b c d e f", "x": "a b c d e f", "...": "...", "a ... f": "a ... f", "... c ...": "... c ...", "a x ... f": "a b c d e f",
		"... d x": "... d e f", "a b ... e f": "a b ... e f", "a ... x": "a b c d e f",
	} {
		if shown := strings.Join(elide(got, strings.Split(document, " ")), " "); shown != want {
			t.Errorf("elide of %q: %q, want %q", document, shown, want)
		}
	}
}
