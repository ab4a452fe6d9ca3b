package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// pages are those that are looked at in a browser.
func pages(t *testing.T) map[string]Input {
	t.Helper()
	small := newFixture(5, []string{"fra", "hel"}, 4)
	small.policy = strings.Replace(small.policy, `"deny": ["tag:db:22", "tag:ci:22"]`, `"deny": ["tag:db:22", "tag:web:443"]`, 1)
	small.requirements = append(small.requirements, policy.Requirement{Name: "backups", Src: []string{"tag:db"}, Dst: []string{"tag:node"}, Proto: "tcp", Ports: "22"})
	broken := newFixture(50, sixLocations(), 7)
	return map[string]Input{"5": small.input(t), "50": broken.input(t)}
}

// browser loads pages in a headless Chromium for which there is nobody else in the world. The pages and pictures of them are
// kept with go test -artifacts.
type browser struct {
	path string
	dir  string

	mu      sync.Mutex
	page    []byte
	foreign []string // requests for anything but the page
	server  *httptest.Server
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE_CHROMIUM") != "" {
			t.Fatalf("REQUIRE_CHROMIUM is set: %v", err)
		}
		t.Skip("chromium is not installed")
	}
	b := &browser{path: path, dir: t.ArtifactDir()}
	// The server is the browser's proxy as well: whatever it asks for, and from whom, is seen here, and goes nowhere.
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		w.Header().Set("Content-Type", "text/html")
		switch {
		case r.Host == "report.test" && r.URL.Path == "/":
			_, _ = w.Write(b.page)
			return
		case r.Host == "report.test" && r.URL.Path == "/frame":
			_, _ = fmt.Fprintf(w, frame, r.URL.Query().Get("width"))
			return
		case !ownRequest.MatchString(r.Host):
			b.foreign = append(b.foreign, r.Method+" "+r.Host+r.URL.Path)
		}
		http.Error(w, "nothing here", http.StatusNotFound)
	}))
	t.Cleanup(b.server.Close)
	return b
}

func (b *browser) run(t *testing.T, page, path string, args ...string) (dom, said string) {
	t.Helper()
	b.mu.Lock()
	b.page, b.foreign = []byte(page), nil
	b.mu.Unlock()
	all := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--enable-logging=stderr",
		"--user-data-dir=" + t.TempDir(), "--proxy-server=" + b.server.URL, "--virtual-time-budget=2000",
	}, args...)
	cmd := exec.CommandContext(t.Context(), b.path, append(all, "http://report.test"+path)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var console []string
	for l := range strings.Lines(stderr.String()) {
		if strings.Contains(l, "CONSOLE") {
			console = append(console, l)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.foreign {
		t.Errorf("the browser asked for %s", f)
	}
	return stdout.String(), strings.Join(console, "")
}

// ownRequest are the hosts that Chromium asks for by itself, page or no page.
var ownRequest = regexp.MustCompile(`(^|\.)(google|googleapis|gstatic|gvt1)\.com(:\d+)?$`)

// frame shows the page at a width of its own, as a window has a least width, and hands on what was measured in it.
const frame = `<!DOCTYPE html><link rel="icon" href="data:,"><iframe src="/" width="%s" height="900" style="border: 0"></iframe><script>
const wait = setInterval(() => {
  const found = document.querySelector('iframe').contentDocument.getElementById('measured');
  if (found) { clearInterval(wait); document.body.append(found); }
}, 20);
</script>`

// measured is what probe finds in a page.
type measured struct {
	Width, Scroll int
	Outside       []string // texts of the drawing that leave their box or pill
	Overlap       []string // texts of the drawing that meet
	Small         []string // texts of the drawing smaller than 8 px
	Texts         int
	Card          string // how the first card is displayed once its cell is followed
	Close         string // where the keyboard is after closing it
	Filter        [2]string
	Unnamed       []string // what can have the focus, and has no name
}

// probe runs in a copy of a page that allows scripts.
const probe = `<script>
addEventListener('load', () => {
  const out = {Width: innerWidth, Scroll: document.documentElement.scrollWidth, Outside: [], Overlap: [], Small: [], Texts: 0, Unnamed: []};
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const seen = [];
  for (const t of document.querySelectorAll('.drawing text')) {
    const r = t.getBoundingClientRect(), home = t.closest('.pill') || t.closest('svg > g');
    out.Texts++;
    if (r.height < 8) out.Small.push(t.textContent);
    if (!inside(r, home.querySelector('rect').getBoundingClientRect())) out.Outside.push(t.textContent);
    if (t.classList.contains('x')) continue;
    for (const [s, name] of seen)
      if (r.left < s.right && s.left < r.right && r.top + 2 < s.bottom && s.top + 2 < r.bottom) out.Overlap.push(name + ' / ' + t.textContent);
    seen.push([r, t.textContent]);
  }
  for (const e of document.querySelectorAll('a, input, [tabindex]'))
    if (!(e.innerText || e.textContent).trim() && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby') && !(e.labels && e.labels.length))
      out.Unnamed.push(e.outerHTML.slice(0, 80));
  const shown = v => [...document.querySelectorAll('td ' + v)].filter(e => getComputedStyle(e).display != 'none').length + ' of ' + document.querySelectorAll('td ' + v).length;
  document.getElementById('view-t').checked = true;
  out.Filter = [shown('.c'), shown('.wt')];
  const cell = document.querySelector('td a[href^="#rules-"]');
  cell.click();
  setTimeout(() => {
    const card = document.querySelector(cell.getAttribute('href'));
    out.Card = getComputedStyle(card).display;
    card.querySelector('.close').click();
    setTimeout(() => {
      out.Close = location.hash + ' ' + getComputedStyle(card).display;
      const pre = document.createElement('pre');
      pre.id = 'measured';
      pre.textContent = JSON.stringify(out);
      document.body.append(pre);
    });
  });
});
</script>`

func (b *browser) measure(t *testing.T, page string, width int) measured {
	t.Helper()
	page = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`).ReplaceAllString(page, "")
	copied := strings.Replace(page, "</head>", probe+"</head>", 1)
	dom, said := b.run(t, copied, fmt.Sprint("/frame?width=", width), "--dump-dom", "--window-size=1400,1000")
	if said != "" {
		t.Errorf("console: %s", said)
	}
	_, rest, ok := strings.Cut(dom, `<pre id="measured">`)
	if !ok {
		t.Fatalf("nothing was measured in %d bytes", len(dom))
	}
	text, _, _ := strings.Cut(rest, "</pre>")
	var out measured
	if err := json.Unmarshal([]byte(html.UnescapeString(text)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBrowser looks at pages as a browser shows them.
func TestBrowser(t *testing.T) {
	b := newBrowser(t)
	for name, in := range pages(t) {
		t.Run(name, func(t *testing.T) {
			page := render(t, in)
			if err := os.WriteFile(filepath.Join(b.dir, name+".html"), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, said := b.run(t, page, "/", "--window-size=1280,3000", "--screenshot="+filepath.Join(b.dir, name+".png")); said != "" {
				t.Errorf("console: %s", said)
			}
			for _, width := range []int{1280, 400} {
				m := b.measure(t, page, width)
				if m.Width != width {
					t.Errorf("the window is %d wide, not %d", m.Width, width)
				}
				if m.Scroll > m.Width {
					t.Errorf("at %d px the page is %d wide", m.Width, m.Scroll)
				}
				if m.Texts == 0 {
					t.Error("no text in the drawing")
				}
				if len(m.Outside)+len(m.Overlap)+len(m.Small)+len(m.Unnamed) > 0 {
					t.Errorf("at %d px: outside of their boxes %q, overlapping %q, too small %q, without a name %q", width, m.Outside, m.Overlap, m.Small, m.Unnamed)
				}
				if m.Card != "block" || m.Close != "#m1-4 none" {
					t.Errorf("the card of a cell is displayed as %q, and closing it leads to %q", m.Card, m.Close)
				}
				if !strings.HasPrefix(m.Filter[0], "0 of ") || strings.HasPrefix(m.Filter[1], "0 of ") || m.Filter[0] == "0 of 0" {
					t.Errorf("with the filter tcp, chips are shown %s, texts of tcp %s", m.Filter[0], m.Filter[1])
				}
			}
		})
	}
}
