package source

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// How a server is asked.
const (
	interval       = time.Minute // between two questions, up to a quarter more so that nodes do not ask at once
	requestTimeout = 15 * time.Second
	maxRedirects   = 5
)

// server is a document behind a URL.
type server struct {
	url    *url.URL
	client http.Client

	mu   sync.Mutex
	text []byte // as of the last answer; nil: there was none
	etag string
}

func newServer(u *url.URL, ca string) (*server, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if ca != "" {
		if u.Scheme != "https" {
			return nil, fmt.Errorf("a CA file is of use with an https:// URL only, not with %q", u)
		}
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %q has no certificate in PEM form", ca)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	s := &server{url: u}
	s.client = http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirections", maxRedirects)
		}
		return permitted(r.URL)
	}}
	return s, nil
}

// Read implements [Source]: it returns what the server last said, and asks only where it has not said anything yet.
func (s *server) Read(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	text := s.text
	s.mu.Unlock()
	if text != nil {
		return text, nil
	}
	if _, err := s.ask(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, nil
}

// Watch implements [Source]. A server that cannot be asked is trouble once, until it answers again.
func (s *server) Watch(ctx context.Context, changed func(), trouble func(error)) (func() error, error) {
	return func() error {
		failed := false
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(interval + rand.N(interval/4)):
			}
			news, err := s.ask(ctx)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil && !failed:
				trouble(err)
			case news:
				changed()
			}
			failed = err != nil
		}
	}, nil
}

// ask gets the document, unless it is what it was, and says whether it is another.
func (s *server) ask(ctx context.Context) (news bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", "application/json")
	s.mu.Lock()
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	s.mu.Unlock()
	res, err := s.client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return false, fmt.Errorf("get the document from %q: %w", s.url, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotModified {
		return false, nil
	}
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("get the document from %q: the server answers %s", s.url, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("get the document from %q: %w", s.url, err)
	case len(text) > limit:
		return false, errTooLarge(s.url.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.text == nil || !bytes.Equal(s.text, text)
	s.text, s.etag = text, res.Header.Get("ETag")
	return news, nil
}
