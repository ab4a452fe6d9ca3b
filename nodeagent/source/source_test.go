package source

import (
	"context"
	"crypto/sha256"
	cryptotls "crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestLocations(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ location, ca, want string }{
		{"/etc/tailmesh/node.json", "", ""},
		{"node.json", "", ""},
		{"https://example.com/ams1.json", "", ""},
		{"http://127.0.0.1:8080/ams1.json", "", ""},
		{"http://[::1]/ams1.json", "", ""},
		{"http://localhost/ams1.json", "", ""},
		{"http://example.com/a", "", `"http://example.com/a" is not protected on its way: use https:// (http:// is for loopback only)`},
		{"http://100.64.0.1/a", "", `"http://100.64.0.1/a" is not protected on its way: use https:// (http:// is for loopback only)`},
		{"ftp://example.com/a", "", `"ftp://example.com/a": want the path of a file, or an https:// URL`},
		{"https:///a", "", `"https:///a" names no host`},
		{"https://user:word@example.com/a", "", "https:// URL with a password: a document is no secret, and is asked for without one"},
		{"node.json", "ca.pem", `a CA file is of use with an https:// URL only, and "node.json" is a file`},
		{"https://example.com/a", "/nonexistent", "CA file: open /nonexistent: no such file or directory"},
		{"https://example.com/a", empty, `CA file "` + empty + `" has no certificate in PEM form`},
	}
	for _, tt := range tests {
		_, err := New(tt.location, tt.ca)
		if got := text(err); got != tt.want {
			t.Errorf("%s with CA file %q:\ngot  %s\nwant %s", tt.location, tt.ca, got, tt.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A server in whose document and mood the test has a hand.
type origin struct {
	mu     sync.Mutex
	body   string
	status int
	full   int // answers with the document in them
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(o.body)))
	switch {
	case o.status != 0:
		http.Error(w, "no", o.status)
	case r.Header.Get("If-None-Match") == etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		o.full++
		w.Header().Set("ETag", etag)
		_, _ = w.Write([]byte(o.body))
	}
}

func (o *origin) set(body string, status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.body, o.status = body, status
}

// An authority that the system does not know is trusted where its file is named, and not otherwise.
func TestAuthority(t *testing.T) {
	origin := &origin{body: "one"}
	tls := httptest.NewUnstartedServer(origin)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	if err := os.WriteFile(ca, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{ca: "one", "": ""} {
		s, err := New(tls.URL, file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(t.Context())
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("CA file %q: %q, %v", file, got, err)
		}
	}
}

func TestServerTroubles(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"not found", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 404) }, "the server answers 404 Not Found"},
		{"broken", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, "the server answers 500 Internal Server Error"},
		{"nothing new, at first", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, "the server answers 304 Not Modified"},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "the server answers 204 No Content"},
		{"a page", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html>log in</html>")
		}, "the server answers with a page of HTML, not with a document"},
		{"too large", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, limit+1))
		}, "is larger than 4194304 bytes"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		}, "unexpected EOF"},
		{"cut off before an answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		{"sent away in clear", redirect("http://192.0.2.1/"), `"http://192.0.2.1/" is not protected on its way`},
		{"sent to a file", redirect("file:///etc/passwd"), "names no host"},
		{"sent in circles", redirect("/"), "more than 5 redirections"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			web := httptest.NewServer(tt.answer)
			defer web.Close()
			s, err := New(web.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.Read(t.Context()); !strings.Contains(text(err), tt.want) || got != nil || !strings.Contains(text(err), web.URL) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func redirect(location string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, location, http.StatusFound) }
}

// A server that takes the question, or half of its answer, and then is silent, is given up in the end.
func TestServerIsSilent(t *testing.T) {
	for name, begin := range map[string]string{"at once": "", "amid the answer": "half"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, err := New("https://example.com/a", "")
				if err != nil {
					t.Fatal(err)
				}
				s := source.(*server)
				s.client.Transport = silent(begin)
				asked := time.Now()
				_, err = s.Read(t.Context())
				if took := time.Since(asked); took != requestTimeout || text(err) != `get the document from "https://example.com/a": the server does not answer in time` {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// Once a server is watched, no reader waits for it, but a moment for its first answer: what there is of it is told at once,
// in words that stay the same as long as the trouble does, and each other trouble is a change.
func TestReadersDoNotWait(t *testing.T) {
	refuses := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }
	troubles := map[string]struct {
		transport http.RoundTripper
		first     time.Duration // how long the first reader waits
		want      string
	}{
		"silent":           {silent(""), patience, "the server does not answer in time"},
		"silent amid":      {silent("half"), patience, "the server does not answer in time"},
		"refuses":          {roundTrip{http.HandlerFunc(refuses)}, 0, "the server answers 503"},
		"is not reachable": {unreachable{}, 0, "network is unreachable"},
	}
	for name, tt := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, err := New("https://example.com/a", "")
				if err != nil {
					t.Fatal(err)
				}
				s := source.(*server)
				var well atomic.Bool
				s.client.Transport = recovering{tt.transport, roundTrip{&origin{body: "one"}}, &well}
				ctx, stop := context.WithCancel(t.Context())
				var changes atomic.Int32
				goOn := s.Watch(ctx, func() { changes.Add(1) }, func(err error) { t.Errorf("trouble beside what Read says: %v", err) })
				done := make(chan error)
				go func() { done <- goOn() }()
				begin := time.Now()
				_, first := s.Read(ctx)
				if took := time.Since(begin); took != tt.first || !strings.Contains(text(first), tt.want) {
					t.Errorf("the first reader: after %s: %v", took, first)
				}
				for range 100 {
					begin := time.Now()
					got, err := s.Read(ctx)
					if took := time.Since(begin); took != 0 || got != nil || text(err) != text(first) {
						t.Fatalf("after %s: %q, %v; want at once: %v", took, got, err, first)
					}
					time.Sleep(time.Second)
				}
				if n := changes.Load(); n != 1 {
					t.Errorf("%d changes, want one", n)
				}
				well.Store(true)
				time.Sleep(requestTimeout + 2*retryLast)
				synctest.Wait()
				if got, err := s.Read(ctx); string(got) != "one" || changes.Load() != 2 {
					t.Errorf("the server answers: %q, %v, %d changes", got, err, changes.Load())
				}
				stop()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// recovering goes another way once it is well.
type recovering struct {
	before, after http.RoundTripper
	well          *atomic.Bool
}

func (r recovering) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.well.Load() {
		return r.after.RoundTrip(req)
	}
	return r.before.RoundTrip(req)
}

// unreachable is a network that is not there.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ENETUNREACH }

// silent answers with the beginning of a document, if there is one, and then waits until nobody asks any more.
type silent string

func (s silent) RoundTrip(req *http.Request) (*http.Response, error) {
	if s == "" {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	body, more := io.Pipe()
	go func() {
		_, _ = more.Write([]byte(s))
		<-req.Context().Done()
		more.CloseWithError(req.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}, nil
}

// A certificate that is not valid now, or not by this node's clock, is refused in words that do not change by the second.
func TestCertificateOutOfDate(t *testing.T) {
	tls := httptest.NewUnstartedServer(&origin{body: "one"})
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	pool := x509.NewCertPool()
	pool.AddCert(tls.Certificate())
	for name, clock := range map[string]time.Time{"expired": tls.Certificate().NotAfter.Add(time.Hour), "not yet valid": time.Unix(-1<<31, 0)} {
		t.Run(name, func(t *testing.T) {
			source, err := New(tls.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			s := source.(*server)
			config := &cryptotls.Config{RootCAs: pool, MinVersion: cryptotls.VersionTLS12}
			s.client.Transport.(*http.Transport).TLSClientConfig = config
			config.Time = func() time.Time { clock = clock.Add(time.Second); return clock }
			_, err = s.Read(t.Context())
			_, again := s.Read(t.Context())
			if text(err) != text(again) || !strings.Contains(text(err), "its certificate is valid from 1970-01-01T00:00:00Z to ") {
				t.Errorf("%v\n%v", err, again)
			}
			config = config.Clone()
			config.Time = nil // the clock is set right
			s.client.Transport.(*http.Transport).TLSClientConfig = config
			if got, err := s.Read(t.Context()); string(got) != "one" {
				t.Errorf("with the right clock: %q, %v", got, err)
			}
		})
	}
}

// roundTrip answers without a network, so that time can be made to pass.
type roundTrip struct{ handler http.Handler }

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w.Result(), nil
}

// The document is asked for again and again, comes over the wire only when it is another, and stays what it was while the
// server is in trouble, which is told once.
func TestServerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := &origin{body: "one"}
		source, err := New("https://example.com/a", "")
		if err != nil {
			t.Fatal(err)
		}
		s := source.(*server)
		s.client.Transport = roundTrip{origin}
		read := func() string {
			text, err := s.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if got := read(); got != "one" {
			t.Fatal(got)
		}
		ctx, stop := context.WithCancel(t.Context())
		changes, troubles := 0, 0
		goOn := s.Watch(ctx, func() { changes++ }, func(error) { troubles++ })
		done := make(chan error)
		go func() { done <- goOn() }()
		steps := []struct {
			body                    string
			status                  int
			reads                   string
			full, changes, troubles int
		}{
			{"one", 0, "one", 1, 0, 0},
			{"two", 0, "two", 2, 1, 0},
			{"two", 503, "two", 2, 1, 1},
			{"two", 0, "two", 2, 1, 1},
			{"three", 404, "two", 2, 1, 2},
			{"three", 0, "three", 3, 2, 2},
		}
		for i, step := range steps {
			origin.set(step.body, step.status)
			time.Sleep(10 * interval)
			synctest.Wait()
			if got := read(); got != step.reads || origin.full != step.full || changes != step.changes || troubles != step.troubles {
				t.Errorf("step %d: reads %q; %d full answers, %d changes, %d troubles; want %+v", i, got, origin.full, changes, troubles, step)
			}
		}
		origin.set("four", 0)
		s.Again()
		s.Again()
		synctest.Wait() // without a moment's time
		if got := read(); got != "four" || changes != 3 {
			t.Errorf("asked again: reads %q after %d changes", got, changes)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Whatever takes the document's place is noticed, be it in the place of the file, of a folder on the way to it or of a link,
// and so is what takes its place after that.
func TestFileIsFollowed(t *testing.T) {
	tests := []struct {
		name  string
		path  string   // of the document, in a folder of the test's
		steps []string // shell commands that put the texts 0, 1, 2 and so on there; "" there is none
	}{
		{"written in place", "etc/node.json", []string{"mkdir etc; echo 0 >etc/node.json", "echo 1 >etc/node.json", "echo 2 >etc/node.json"}},
		{"renamed over", "etc/node.json", []string{"mkdir etc; echo 0 >etc/node.json", "echo 1 >new; mv new etc/node.json", "echo 2 >new; mv new etc/node.json"}},
		{"removed and back", "etc/node.json", []string{"mkdir etc; echo 0 >etc/node.json", "rm etc/node.json", "echo 2 >etc/node.json"}},
		{"the folder replaced", "etc/node.json", []string{
			"mkdir etc; echo 0 >etc/node.json", "mv etc old; mkdir etc; echo 1 >etc/node.json", "echo 2 >etc/node.json",
			"mkdir new; echo 3 >new/node.json; rm -r etc; mv new etc", "echo 4 >etc/node.json",
		}},
		{"the folder renamed away and back", "etc/node.json", []string{
			"mkdir etc; echo 0 >etc/node.json", "mv etc old", "echo 2 >old/node.json; mv old etc", "echo 3 >etc/node.json",
		}},
		{"the folder becomes a link to where it went", "etc/node.json", []string{
			"mkdir etc; echo 0 >etc/node.json", "mv etc old", "ln -s old etc; echo 2 >etc/node.json", "echo 3 >etc/node.json",
		}},
		{"a folder above replaced", "a/b/c/node.json", []string{
			"mkdir -p a/b/c; echo 0 >a/b/c/node.json", "mv a old; mkdir -p a/b/c; echo 1 >a/b/c/node.json", "echo 2 >a/b/c/node.json",
		}},
		{"no folder at first", "a/b/node.json", []string{"true", "mkdir a", "mkdir a/b", "echo 3 >a/b/node.json", "rm -r a", "mkdir -p a/b; echo 5 >a/b/node.json"}},
		{"a file in the folder's place", "a/b/node.json", []string{"echo >a", "rm a; mkdir -p a/b; echo 1 >a/b/node.json"}},
		{"a ConfigMap's", "etc/node.json", []string{
			"mkdir -p etc/..0; echo 0 >etc/..0/node.json; ln -s ..0 etc/..data; ln -s ..data/node.json etc/node.json",
			"mkdir etc/..1; echo 1 >etc/..1/node.json; ln -s ..1 etc/new; mv -T etc/new etc/..data; rm -r etc/..0",
			"mkdir etc/..2; echo 2 >etc/..2/node.json; ln -s ..2 etc/new; mv -T etc/new etc/..data; rm -r etc/..1",
		}},
		{"a link to a file", "etc/node.json", []string{
			"mkdir etc there; echo 0 >there/a.json; ln -s ../there/a.json etc/node.json", "echo 1 >there/a.json",
			"echo 2 >there/b.json; ln -s ../there/b.json etc/new; mv -T etc/new etc/node.json", "echo 3 >there/b.json", "mv there old", "mkdir there; echo 5 >there/b.json",
		}},
		{"a link to a folder", "etc/node.json", []string{
			"mkdir v0 v1; echo 0 >v0/node.json; ln -s $PWD/v0 etc", "echo 1 >v1/node.json; ln -s $PWD/v1 new; mv -T new etc", "echo 2 >v1/node.json",
		}},
		{"a link in a circle", "etc/node.json", []string{"ln -s etc etc", "rm etc; mkdir etc; echo 1 >etc/node.json"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			do := func(step string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "sh", "-ec", step)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", step, err, out)
				}
			}
			do(tt.steps[0])
			f := file(filepath.Join(dir, tt.path))
			ctx, stop := context.WithCancel(t.Context())
			changes := make(chan string, 1000) // what a reader finds at each change
			goOn := f.Watch(ctx, func() {
				text, _ := f.Read(ctx)
				changes <- strings.TrimSpace(string(text))
			}, func(err error) { t.Errorf("trouble: %v", err) })
			done := make(chan error)
			go func() { done <- goOn() }()
			for i, step := range tt.steps[1:] {
				do(step)
				want := fmt.Sprint(i + 1)
				if !strings.Contains(step, "echo "+want) {
					continue // there is none
				}
				for deadline := time.After(10 * time.Second); ; {
					select {
					case got := <-changes:
						if got != want {
							continue
						}
					case <-deadline:
						t.Fatalf("not noticed: %s", step)
					}
					break
				}
			}
			stop()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// What cannot be watched is told, and the rest of the way is watched all the same.
// A pipe is read to its end, but nobody waits for what nobody writes into it.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := file(path).Read(t.Context()); err != nil || len(text) > 0 {
		t.Errorf("without a writer: %q, %v", text, err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if text, err := file(path).Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a silent writer: %q, %v", text, err)
	}
	go func() {
		_, _ = writer.WriteString("text")
		writer.Close()
	}()
	if text, err := file(path).Read(t.Context()); err != nil || string(text) != "text" {
		t.Errorf("with a writer: %q, %v", text, err)
	}
}

func TestFileCannotBeWatched(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "etc")
	if err := os.Symlink(strings.Repeat("x", 300), link); err != nil { // no folder may have such a name
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	changes, troubles := make(chan bool, 100), make(chan error, 100)
	goOn := file(filepath.Join(link, "node.json")).Watch(ctx, func() { changes <- true }, func(err error) { troubles <- err })
	done := make(chan error)
	go func() { done <- goOn() }()
	if got := text(<-troubles); !strings.Contains(got, "xxx") || !strings.HasSuffix(got, "file name too long") {
		t.Errorf("told %q", got)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	<-changes
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) || len(troubles) > 0 {
		t.Errorf("%v; %d troubles more", err, len(troubles))
	}
}
