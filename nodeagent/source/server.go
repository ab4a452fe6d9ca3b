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
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// How a server is asked.
const (
	interval       = time.Minute      // between two questions, up to a quarter more so that nodes do not ask at once
	retryFirst     = time.Second      // before the second question while there was no answer yet; doubled each time
	retryLast      = 30 * time.Second // up to this
	requestTimeout = 15 * time.Second
	patience       = time.Second // of a reader, with the first question of a watch
	maxRedirects   = 5
)

// server is a document behind a URL.
type server struct {
	url    *url.URL
	client http.Client
	again  chan struct{} // holds a wish to be asked at once

	mu      sync.Mutex
	text    []byte // as of the last answer; nil: there was none
	etag    string
	err     error           // why there was none to the last question
	watched <-chan struct{} // closed when the watch has its first answer, or patience is at its end; nil: nobody watches
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
	s := &server{url: u, again: make(chan struct{}, 1)}
	s.client = http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirections", maxRedirects)
		}
		return permitted(r.URL)
	}}
	return s, nil
}

// Read implements [Source]. A server that is watched is asked by its watch alone: Read returns what it last said, and if it
// has not said anything yet, what came of the last question. One that is not watched is asked now.
func (s *server) Read(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	watched := s.watched
	s.mu.Unlock()
	if watched == nil {
		if _, err := s.ask(ctx); err != nil {
			return nil, err
		}
	} else {
		<-watched
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.text != nil:
		return s.text, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.err != nil:
		return nil, s.err
	}
	return nil, s.trouble(errSilent)
}

// Again implements [Source].
func (s *server) Again() {
	select {
	case s.again <- struct{}{}:
	default: // it will be asked already
	}
}

// Watch implements [Source]. A server that cannot be asked is trouble once, until it answers again; before its first answer
// it is a change, since it is then what Read says.
func (s *server) Watch(ctx context.Context, changed func(), trouble func(error)) func() error {
	first, answered := context.WithTimeout(ctx, patience)
	s.mu.Lock()
	s.watched = first.Done()
	s.mu.Unlock()
	return func() error {
		defer answered()
		failed, retry := false, retryFirst
		for {
			news, err := s.ask(ctx)
			s.mu.Lock()
			before, none := s.err, s.text == nil
			s.err = err
			s.mu.Unlock()
			answered()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case news, none && (before == nil || before.Error() != err.Error()):
				changed()
			case err != nil && !none && !failed:
				trouble(err)
			}
			failed = err != nil
			wait := interval
			if none {
				wait, retry = retry, min(2*retry, retryLast)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.again:
			case <-time.After(wait + rand.N(wait/4)):
			}
		}
	}
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
		return false, s.trouble(err)
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusNotModified && req.Header.Get("If-None-Match") != "":
		return false, nil
	case res.StatusCode != http.StatusOK:
		return false, s.trouble(fmt.Errorf("the server answers %s", res.Status))
	case kind == "text/html":
		return false, s.trouble(errors.New("the server answers with a page of HTML, not with a document"))
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return false, s.trouble(err)
	case len(text) > limit:
		return false, errTooLarge(s.url.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.text == nil || !bytes.Equal(s.text, text)
	s.text, s.etag = text, res.Header.Get("ETag")
	return news, nil
}

// errSilent has the same words whoever has waited, and for how long.
var errSilent = errors.New("the server does not answer in time")

// trouble puts an error into words that stay the same as long as the error does, so that it is told once.
func (s *server) trouble(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok && !outer.Timeout() {
		err = outer.Err
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = errSilent
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		err = fmt.Errorf("its certificate is valid from %s to %s, which is not now by this node's clock",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("get the document from %q: %w", s.url, err)
}
