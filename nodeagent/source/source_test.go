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
	"path/filepath"
	"strings"
	"sync"
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
		}, "is larger than 16777216 bytes"},
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
		changes   int // until the server answers
	}{
		"silent":           {silent(""), patience, "the server does not answer in time", 1},
		"silent amid":      {silent("half"), patience, "the server does not answer in time", 1},
		"refuses":          {roundTrip{http.HandlerFunc(refuses)}, 0, "the server answers 503", 1},
		"is not reachable": {unreachable{}, 0, "network is unreachable", 1},
	}
	for name, tt := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, err := New("https://example.com/a", "")
				if err != nil {
					t.Fatal(err)
				}
				s := source.(*server)
				s.client.Transport = tt.transport
				ctx, stop := context.WithCancel(t.Context())
				changes := 0
				goOn, err := s.Watch(ctx, func() { changes++ }, func(err error) { t.Errorf("trouble beside what Read says: %v", err) })
				if err != nil {
					t.Fatal(err)
				}
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
				if changes != tt.changes {
					t.Errorf("%d changes, want %d", changes, tt.changes)
				}
				s.client.Transport = roundTrip{&origin{body: "one"}}
				time.Sleep(requestTimeout + 2*retryLast)
				synctest.Wait()
				if got, err := s.Read(ctx); string(got) != "one" || changes != tt.changes+1 {
					t.Errorf("the server answers: %q, %v, %d changes", got, err, changes)
				}
				stop()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
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
		goOn, err := s.Watch(ctx, func() { changes++ }, func(error) { troubles++ })
		if err != nil {
			t.Fatal(err)
		}
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
