package controlsim

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxBody is more than any policy file: Tailscale refuses files far smaller.
const maxBody = 8 << 20

// maxLog bounds the request log; the oldest go first.
const maxLog = 1000

// Request is one entry of the request log.
type Request struct {
	Time        time.Time `json:"time"`
	Method      string    `json:"method"`
	Path        string    `json:"path"`
	Query       string    `json:"query,omitempty"`
	Accept      string    `json:"accept,omitempty"`
	ContentType string    `json:"contentType,omitempty"`
	IfMatch     string    `json:"ifMatch,omitempty"`
	UserAgent   string    `json:"userAgent,omitempty"`
	// Auth is how the caller identified itself, "basic", "bearer" or nothing; never the credential.
	Auth string `json:"auth,omitempty"`
	// Body is what was sent; left out for token calls, which carry secrets.
	Body string `json:"body,omitempty"`
	// Status is what was answered; 0 where the connection was cut.
	Status int `json:"status"`
	// Fault is the kind of the fault that was played, if any.
	Fault FaultKind `json:"fault,omitempty"`
}

// ServeHTTP answers one request of the API, or of the simulator's own control path /sim/.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/sim/") {
		s.mux.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(http.StatusRequestEntityTooLarge, "request body: %v", err).write(w)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	entry := Request{
		Time: time.Now().UTC(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Accept: r.Header.Get("Accept"), ContentType: r.Header.Get("Content-Type"), IfMatch: r.Header.Get("If-Match"),
		UserAgent: r.UserAgent(), Body: string(body),
	}
	kind, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	entry.Auth = strings.ToLower(kind)
	if strings.HasPrefix(r.URL.Path, "/api/v2/oauth/") {
		entry.Body = ""
	}

	fault := s.takeFault(r)
	rec := &statusRecorder{ResponseWriter: w}
	defer func() { // deferred: a cut connection is a panic that net/http expects
		entry.Status = rec.status
		if fault != nil {
			entry.Fault = fault.Kind
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, entry)
		if extra := len(s.log) - maxLog; extra > 0 {
			s.log = slices.Delete(s.log, 0, extra)
		}
	}()
	if fault == nil {
		s.mux.ServeHTTP(rec, r)
		return
	}
	s.play(fault, rec, r)
}

// Requests returns the log of the API's requests, oldest first. Those on /sim/ are not in it.
func (s *Sim) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// ClearRequests empties the log.
func (s *Sim) ClearRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// statusRecorder remembers the status that was written.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *statusRecorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}
