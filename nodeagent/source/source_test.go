package source

import (
	"context"
	"crypto/sha256"
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
	mu       sync.Mutex
	body     string
	status   int
	location string
	full     int // answers with the document in them
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(o.body)))
	switch {
	case o.location != "":
		http.Redirect(w, r, o.location, http.StatusFound)
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
	origin := &origin{}
	web := httptest.NewServer(origin)
	defer web.Close()
	tests := []struct {
		name, body, location string
		status               int
		want                 string
	}{
		{"not found", "", "", 404, "the server answers 404 Not Found"},
		{"broken", "", "", 500, "the server answers 500 Internal Server Error"},
		{"too large", strings.Repeat("x", limit+1), "", 0, "is larger than 16777216 bytes"},
		{"sent away in clear", "", "http://192.0.2.1/", 0, `"http://192.0.2.1/" is not protected on its way`},
		{"sent to a file", "", "file:///etc/passwd", 0, "names no host"},
		{"sent in circles", "", "/", 0, "more than 5 redirections"},
	}
	for _, tt := range tests {
		origin.body, origin.status, origin.location = tt.body, tt.status, tt.location
		s, err := New(web.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(t.Context()); !strings.Contains(text(err), tt.want) || got != nil {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
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
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
