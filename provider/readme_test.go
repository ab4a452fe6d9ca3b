package provider

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/controlsim"
)

// documents are the project's own pages, from the folder that holds them all. What is served to readers of guides is docs,
// not templates, whose links are those of docs.
func documents(t *testing.T) (pages map[string]string, names []string) {
	t.Helper()
	pages = map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "templates" || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.'):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			pages[path], names = string(text), append(names, path)
			return err
		}
		return nil
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("%d pages, error %v", len(names), err)
	}
	return pages, names
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	repoURL  = regexp.MustCompile(`^https://github\.com/tailmesh/terraform-provider-tailmesh(?:/(?:blob|tree)/main/|(#)|$)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchorID = regexp.MustCompile(`<a id="([^"]+)">`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks sees that what pages point to within the project is there, headings included.
func TestLinks(t *testing.T) {
	pages, names := documents(t)
	for _, page := range names {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(pages[page], ""), -1) {
			target, dir := m[1], filepath.Dir(page)
			if own := repoURL.FindStringSubmatch(target); own != nil {
				target, dir = strings.TrimPrefix(target, strings.TrimSuffix(own[0], "#")), ".."
				if target == "" || own[1] != "" {
					target = "README.md" + target
				}
			} else if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			file = filepath.Join(dir, file)
			if strings.HasPrefix(target, "#") {
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			} else if anchor != "" && !slices.Contains(anchors(pages[file]), anchor) {
				t.Errorf("%s: %s: %s has no such heading", page, m[1], file)
			}
		}
	}
}

// anchors are those that a page sets, and those of its headings, as GitHub makes them.
func anchors(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		list = append(list, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	for _, m := range anchorID.FindAllStringSubmatch(page, -1) {
		list = append(list, m[1])
	}
	return list
}

// TestReadmes tries what READMEs show, which are no guides: configurations are valid, documents of nodes too, and what
// commands of the project are given exists.
func TestReadmes(t *testing.T) {
	needTofu(t)
	makefile, err := os.ReadFile("../GNUmakefile")
	if err != nil {
		t.Fatal(err)
	}
	pages, names := documents(t)
	w := newWorkspace(t, newTailnet(t, controlsim.Options{}), fstest.MapFS{"policy.hujson": {Data: []byte("{}")}})
	for _, page := range names {
		if filepath.Base(page) != "README.md" {
			continue
		}
		t.Run(strings.TrimPrefix(page, "../"), func(t *testing.T) {
			g := &guide{workspace: &workspace{t: t, dir: w.dir, tofu: w.tofu, env: w.env}, file: page}
			for _, m := range regexp.MustCompile(`\bmake ([a-z][a-z-]+)\b`).FindAllStringSubmatch(strings.Join(typed(pages[page]), "\n"), -1) {
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("make %s: there is no such target", m[1])
				}
			}
			for _, m := range fenced.FindAllStringSubmatch(pages[page], -1) {
				switch m[1] {
				case "sh":
					g.flags(page, strings.Split(m[2], "\n"))
					for _, doc := range regexp.MustCompile(`(?s)<<END\n(.*?)END\n`).FindAllStringSubmatch(m[2], -1) {
						valid(t, doc[1])
					}
				case "json":
					valid(t, m[2])
				case "hcl":
					g.write("main.tf", m[2])
					g.withSource()
					g.must("tofu init")
					g.must("tofu validate")
				}
			}
		})
	}
}

// typed is what a page has in its font: blocks, and words in lines.
func typed(page string) (list []string) {
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		list = append(list, m[2])
	}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		list = append(list, m[1])
	}
	return list
}

func valid(t *testing.T, document string) {
	t.Helper()
	if !json.Valid([]byte(document)) {
		t.Errorf("no JSON:\n%s", document)
	} else if _, err := config.Parse([]byte(document)); err != nil {
		t.Errorf("%v\n%s", err, document)
	}
}
