package report

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// allPages are pages of every shape that an input can give.
func allPages(t *testing.T) map[string]Input {
	t.Helper()
	out := pages(t)
	byTag := newFixture(5, []string{"ams", "fra"})
	byTag.documents = nil
	out["by tag"] = byTag.input(t)
	for name, text := range map[string]string{
		"refused":    `{"grants": [{"src": ["tag:nod"], "dst": ["*"], "ip": ["*"]}]}`,
		"no policy":  "no policy",
		"empty":      "",
		"cut off":    "{\n",
		"blank":      "\n\n",
		"no rules":   "{}",
		"nobody":     `{"grants": []}`,
		"hostile":    hostilePolicy,
		"one line":   strings.Join(strings.Fields(regexp.MustCompile(`(?m)^\s*//.*`).ReplaceAllString(meshPolicy, "")), " "),
		"no devices": meshPolicy,
	} {
		f := newFixture(3, []string{"ams", hostile})
		f.policy = text
		switch name {
		case "hostile":
			f.inventory.Devices[0].Hostname = hostile
			f.requirements[0].Name, f.requirements[0].Why = hostile, hostile
			f.requirements[0].Proto = hostile
		case "no devices":
			f.inventory, f.documents = policy.Inventory{Devices: []policy.Device{}}, nil
		}
		out[name] = f.input(t)
	}
	unknown := newFixture(3, []string{"ams", "fra"})
	unknown.inventory.Devices = unknown.inventory.Devices[:len(unknown.inventory.Devices)-1]
	out["unknown node"] = unknown.input(t)
	return out
}

const hostile = `"><script>alert('x')</script><img src=http://example.com/x onerror=alert(1)>` + "\u202e"

var hostilePolicy = `// </code></li></ol><script>alert(1)</script> <!-- --> ` + "\u202e" + `
/* <style>@import url(http://example.com/x.css)</style> */
{
	"groups": {"group:<b onclick=alert(1)>": ["ana@example.com"]},
	"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []},
	"hosts": {"x'><script>alert(2)</script>": "192.168.10.0/24", "javascript:alert(3)": "192.168.10.0/24"},
	"grants": [
		{"src": ["group:<b onclick=alert(1)>"], "dst": ["x'><script>alert(2)</script>"], "ip": ["*"]},
		{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]},
	],
	"tests": [{"src": "group:<b onclick=alert(1)>", "accept": ["javascript:alert(3):80"], "proto": "<script>"}],
}
`

// TestPagesAreHarmless looks for anything that would run, load or leave the page's own structure.
func TestPagesAreHarmless(t *testing.T) {
	for name, in := range allPages(t) {
		t.Run(name, func(t *testing.T) {
			html := render(t, in)
			tags := tag.FindAllStringSubmatch(html, -1)
			if len(tags) < 20 {
				t.Fatalf("%d tags", len(tags))
			}
			known := strings.Fields(`html head meta link title style body a header p h1 h2 h3 ul li span b nav main section code article
				details summary pre table thead tbody tr th td div fieldset legend input label i aside svg path desc line g rect text
				circle ol footer br dl dt dd`)
			for _, m := range tags {
				if !slices.Contains(known, strings.ToLower(m[1])) {
					t.Errorf("tag %s", m[0])
				}
				for _, a := range attribute.FindAllStringSubmatch(m[2], -1) {
					key, value := strings.ToLower(a[1]), a[2]
					switch {
					case strings.HasPrefix(key, "on"), key == "src", key == "srcset", key == "action", key == "formaction", key == "data":
						t.Errorf("attribute in %s", m[0])
					case key == "href" && !strings.HasPrefix(value, "#") && value != "data:,":
						t.Errorf("link in %s", m[0])
					case key == "style" && !regexp.MustCompile(`^min-width:\d+px$`).MatchString(value):
						t.Errorf("style in %s", m[0])
					}
				}
			}
			if strings.Contains(pageCSS, "url(") || strings.Contains(pageCSS, "@import") {
				t.Error("the style sheet loads something")
			}
			if strings.ContainsRune(html, '\u202e') {
				t.Error("a text can turn the direction of writing")
			}
			if !strings.Contains(html, `content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"`) {
				t.Error("no content security policy")
			}
		})
	}
}

var (
	tag       = regexp.MustCompile(`<([A-Za-z][A-Za-z0-9]*)((?:\s+[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))?)*)\s*/?>`)
	attribute = regexp.MustCompile(`([^\s"'>/=]+)\s*=\s*"([^"]*)"`)
	ids       = regexp.MustCompile(`\sid="([^"]*)"`)
	refs      = regexp.MustCompile(`\s(?:href="#|aria-labelledby="|for=")([^"]*)"`)
)

// TestPagesHoldTogether checks that each link has its target, that ids are given once, and the rules of accessible tables.
func TestPagesHoldTogether(t *testing.T) {
	for name, in := range allPages(t) {
		t.Run(name, func(t *testing.T) {
			html := render(t, in)
			if again := render(t, in); again != html {
				t.Error("the same input gives another page")
			}
			seen := map[string]bool{}
			for _, m := range ids.FindAllStringSubmatch(html, -1) {
				if seen[m[1]] {
					t.Errorf("id %q twice", m[1])
				}
				seen[m[1]] = true
			}
			for _, m := range refs.FindAllStringSubmatch(html, -1) {
				for id := range strings.FieldsSeq(m[1]) {
					if !seen[id] {
						t.Errorf("%s leads nowhere", m[0])
					}
				}
			}
			for _, m := range regexp.MustCompile(`<th[ >][^>]*`).FindAllString(html, -1) {
				if !strings.Contains(m, "scope=") {
					t.Errorf("%s has no scope", m)
				}
			}
			for _, tag := range []string{"section", "details", "table", "svg", "aside", "span", "li", "g", "td", "code", "a", "p"} {
				opened := len(regexp.MustCompile(`<`+tag+`[\s>]`).FindAllString(html, -1))
				if closed := strings.Count(html, "</"+tag+">"); opened != closed {
					t.Errorf("%d of %d <%s> are closed", closed, opened, tag)
				}
			}
			if strings.Contains(html, "ZgotmplZ") || strings.Contains(html, "<no value>") {
				t.Error("the template had no value for something")
			}
		})
	}
}

func TestPageSaysWhatMatters(t *testing.T) {
	in := newFixture(5, []string{"ams", "fra"}, 4)
	in.policy = strings.Replace(in.policy, `"ip": ["*", "ip-in-ip:*"]`, `"ip": ["*"]`, 1)
	html := render(t, in.input(t))
	for _, want := range []string{
		"refused with 400", "test(s) failed", "1 not met", "12 of 12 pairs not admitted", "requirement-unmet",
		`&#34;ip-in-ip:*&#34;`, // the edit that mends it
		"Mesh futhark by location", "6 refused", "tests[0].accept[0]", `<li id="L23" class="error">`,
		"Left out, since the inventory has no device or route of theirs: 1",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestPageSaysWhatIsNotKnown counts nothing for admitted, and nothing for accepted, that the inventory leaves open.
func TestPageSaysWhatIsNotKnown(t *testing.T) {
	head := `{"tagOwners": {"tag:node": [], "tag:ci": [], "tag:db": [], "tag:web": [], "tag:monitor": [], "tag:router": []},
		"postures": {"posture:p": ["custom:tier == 'one'"]}, "grants": [`
	open := `{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"], "srcPosture": ["posture:p"]}`
	sure := `{"src": ["tag:node"], "dst": ["tag:node"], "ip": ["ip-in-ip:*"]}`
	tests := `], "tests": [{"src": "tag:node", "proto": "ip-in-ip", "accept": ["tag:node:0"]}`
	for name, tc := range map[string]struct {
		grants, tests  string
		verdict, state string
		pairs          string
	}{
		"met":              {sure, tests, "accepted ", "good", "12 of 12 pairs admitted"},
		"not met":          {"", "", "accepted ", "good", "12 of 12 pairs not admitted"},
		"unknown":          {open, "", "accepted ", "good", "12 pairs looked at"},
		"unknown in tests": {open, tests, "accepted unless one of the tests that could not be decided fails", "warn", "12 pairs looked at"},
		"one not met": {
			`{"src": ["ams-1"], "dst": ["*"], "ip": ["ip-in-ip:*"]}, {"src": ["tag:node"], "dst": ["fra-4"], "ip": ["ip-in-ip:*"], "srcPosture": ["posture:p"]}`, "",
			"accepted ", "good", "7 of 12 pairs not admitted",
		},
		"refused": {"", tests, "refused with 400 ", "bad", "12 of 12 pairs not admitted"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(4, []string{"ams", "fra"})
			var hosts []string
			for i := range f.inventory.Devices {
				d := &f.inventory.Devices[i]
				if place, n, ok := strings.Cut(d.Hostname, "-k8s-0"); ok {
					hosts = append(hosts, fmt.Sprintf("%q: %q", place+"-"+n, d.Addresses[0]))
					d.Addresses = d.Addresses[:1]
				}
			}
			f.policy = head + tc.grants + tc.tests + `], "hosts": {` + strings.Join(hosts, ", ") + `}}`
			in := f.input(t)
			p := newPage(&in)
			got := []string{p.Tiles[0].Value + " " + p.Tiles[0].Detail, p.Tiles[0].State}
			if len(p.Requirements) != 1 {
				t.Fatal(in.Report.Message)
			}
			q := p.Requirements[0]
			got = append(got, q.Pairs)
			if want := []string{tc.verdict, tc.state, tc.pairs}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if in.Report.Requirements[0].Verdict != policy.Fail && len(q.Failed)+q.MoreFailed > 0 {
				t.Errorf("lists pairs as not admitted: %v", q.Failed)
			}
		})
	}
}

func TestLargePage(t *testing.T) {
	in := bigInput(t, 1000, 200)
	start := time.Now()
	html := render(t, in)
	took := time.Since(start)
	t.Logf("%d bytes in %v", len(html), took)
	if len(html) > 3<<20 {
		t.Errorf("%d bytes for 1,000 devices and 200 rules", len(html))
	}
	if took > 3*time.Second {
		t.Errorf("%v for 1,000 devices and 200 rules", took)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteFails(t *testing.T) {
	if err := Write(brokenWriter{}, newFixture(2, []string{"ams"}).input(t)); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
}

// TestContrast holds text to the 4.5:1 of WCAG AA on every ground that it stands on, and lines to 3:1, in both schemes.
func TestContrast(t *testing.T) {
	vars := regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6})`)
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(pageCSS, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d sets of colours, want light, dark and print", len(blocks))
	}
	for i, name := range []string{"light", "dark"} {
		colors := map[string]string{}
		for _, m := range vars.FindAllStringSubmatch(blocks[i][1], -1) {
			colors[m[1]] = m[2]
		}
		check := func(fg, bg string, least float64) {
			if colors[fg] == "" || colors[bg] == "" {
				t.Fatalf("%s: no --%s or --%s", name, fg, bg)
			}
			if got := contrast(colors[fg], colors[bg]); got < least {
				t.Errorf("%s: --%s on --%s is %.2f:1, want %.1f:1", name, fg, bg, got, least)
			}
		}
		for _, bg := range []string{"bg", "panel", "sunk"} {
			for _, fg := range []string{"ink", "soft", "accent", "good", "warn", "bad"} {
				check(fg, bg, 4.5)
			}
		}
		for _, bg := range []string{"l1", "l2", "l3"} {
			check("ink", bg, 4.5)
		}
		check("good", "good-bg", 4.5)
		check("warn", "warn-bg", 4.5)
		check("bad", "bad-bg", 4.5)
		check("ink", "bad-bg", 4.5)
		check("soft", "bad-bg", 4.5) // a comment on a marked line
		check("accent", "bad-bg", 4.5)
		check("good", "bad-bg", 4.5)
		check("soft", "l2", 4.5) // a line that a link led to
		check("accent", "l2", 4.5)
		check("good", "l2", 4.5)
		check("bg", "ink", 4.5)
		check("strong", "panel", 3)
		check("panel", "bad", 4.5)
	}
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) float64 {
	var out float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		out += weight * c
	}
	return out
}

func TestHighlight(t *testing.T) {
	src := "// c \"x\"\n{\"k\": \"a//b\", /* two\nlines */ \"s\\\"\",\r\n\t1}\n"
	var out bytes.Buffer
	for _, l := range highlight([]byte(src), nil) {
		fmt.Fprintf(&out, "%d", l.N)
		for _, p := range l.Parts {
			fmt.Fprintf(&out, " %s<%s>", p.Class, p.Text)
		}
		out.WriteString("\n")
	}
	want := "1 c<// c \"x\">\n2 <{> k<\"k\"> <: > s<\"a//b\"> <, > c</* two>\n3 c<lines */> < > s<\"s\\\"\"> <,>\n4 <\t1}>\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
