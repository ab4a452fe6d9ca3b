package controlsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// FaultKind says what goes wrong.
type FaultKind string

// The kinds of faults.
const (
	// StatusFault answers Status with the API's body for it, or with Body. The request is not carried out.
	StatusFault FaultKind = "status"
	// HTMLFault answers Status (default 502) with a proxy's page. The request is not carried out.
	HTMLFault FaultKind = "html"
	// CutFault cuts the connection before the request is carried out.
	CutFault FaultKind = "cut"
	// LostFault carries the request out and cuts the connection before the answer.
	LostFault FaultKind = "lost"
	// SlowFault waits for Delay and then carries the request out.
	SlowFault FaultKind = "slow"
	// RivalFault lets somebody else write Policy to the policy file right after a GET of it was answered.
	RivalFault FaultKind = "rival"
	// EmptyFault answers a device list without any device, as right after the first one joined.
	EmptyFault FaultKind = "empty"
)

// Fault is something that goes wrong with requests to come.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Method and Path choose the requests: method exactly, path by a part of it. Empty chooses all. RivalFault and
	// EmptyFault choose the right requests by themselves.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Times is how many requests it befalls; 0 means one, a negative number all to come.
	Times int `json:"times,omitempty"`
	// Status is the status to answer.
	Status int `json:"status,omitempty"`
	// Body replaces the usual body; with NoBody there is none.
	Body   string `json:"body,omitempty"`
	NoBody bool   `json:"noBody,omitempty"`
	// RetryAfter is the value of that header: seconds or a date; empty sends none.
	RetryAfter string `json:"retryAfter,omitempty"`
	// Delay is how long SlowFault waits, on the wire as "2s".
	Delay Delay `json:"delay,omitempty"`
	// Policy is what the rival writes; empty means the file in force with a comment of the rival's in front.
	Policy string `json:"policy,omitempty"`
}

// Delay is a time.Duration that is written as text.
type Delay time.Duration

// MarshalText writes the duration as "2s".
func (d Delay) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration such as "2s".
func (d *Delay) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Delay(parsed)
	return err
}

// AddFault makes something go wrong with requests to come. Faults are played in the order in which they were added, one
// for each request.
func (s *Sim) AddFault(f Fault) error {
	switch f.Kind {
	case StatusFault:
		if f.Status < 300 || f.Status > 599 {
			return fmt.Errorf("fault %q: status %d: want 300 to 599", f.Kind, f.Status)
		}
	case HTMLFault:
		if f.Status == 0 {
			f.Status = http.StatusBadGateway
		}
		if f.Status < 200 || f.Status > 599 {
			return fmt.Errorf("fault %q: status %d: want 200 to 599", f.Kind, f.Status)
		}
	case CutFault, LostFault, RivalFault, EmptyFault:
	case SlowFault:
		if f.Delay <= 0 {
			return fmt.Errorf("fault %q: it needs a delay such as %q", f.Kind, "2s")
		}
	default:
		return fmt.Errorf("unknown kind of fault %q: want status, html, cut, lost, slow, rival or empty", f.Kind)
	}
	if f.Times == 0 {
		f.Times = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Policy != "" {
		if no := s.setPolicy(s.state.clone(), f.Policy); no != nil {
			return fmt.Errorf("fault %q: policy: %s", f.Kind, no.Message)
		}
	}
	s.faults = append(s.faults, &f)
	return nil
}

// ClearFaults ends all faults.
func (s *Sim) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault finds the fault that befalls a request and counts it.
func (s *Sim) takeFault(r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if !f.befalls(r) {
			continue
		}
		played := *f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return &played
	}
	return nil
}

func (f *Fault) befalls(r *http.Request) bool {
	switch f.Kind {
	case RivalFault:
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/acl")
	case EmptyFault:
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/devices")
	}
	return (f.Method == "" || strings.EqualFold(f.Method, r.Method)) && strings.Contains(r.URL.Path, f.Path)
}

// play lets a fault befall a request.
func (s *Sim) play(f *Fault, w http.ResponseWriter, r *http.Request) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	switch f.Kind {
	case StatusFault:
		f.writeStatus(w, r)
	case HTMLFault:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(f.Status)
		fmt.Fprintf(w, "<html><head><title>%d %s</title></head><body>nginx</body></html>\n", f.Status, http.StatusText(f.Status))
	case CutFault:
		panic(http.ErrAbortHandler)
	case LostFault:
		s.mux.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case SlowFault:
		timer := time.NewTimer(time.Duration(f.Delay))
		defer timer.Stop()
		select {
		case <-timer.C:
			s.mux.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	case RivalFault:
		s.mux.ServeHTTP(w, r)
		s.rivalWrites(f.Policy)
	case EmptyFault:
		r = r.Clone(r.Context())
		r.URL.RawQuery = url.Values{"nodeId": {"none"}}.Encode() // a filter that nothing passes; authentication stays
		s.mux.ServeHTTP(w, r)
	}
}

// rivalWrites stores a text that AddFault has judged.
func (s *Sim) rivalWrites(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "" {
		text = "// Written by somebody else in the meantime.\n" + s.state.Policy.HuJSON
	}
	if formatted, err := policy.Format([]byte(text)); err == nil {
		st := s.state.clone()
		st.Policy = storedPolicy{HuJSON: string(formatted)}
		s.commit(st) // where the state file can not be written, every other write will say so
	}
}

// writeStatus answers with the API's own body for a status.
func (f *Fault) writeStatus(w http.ResponseWriter, r *http.Request) {
	if f.NoBody {
		w.WriteHeader(f.Status)
		return
	}
	if f.Body != "" {
		if json.Valid([]byte(f.Body)) {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(f.Status)
		fmt.Fprint(w, f.Body)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/v2/oauth/") && f.Status < http.StatusInternalServerError {
		code := "invalid_request"
		if f.Status == http.StatusUnauthorized {
			code = "invalid_client"
		}
		refuseToken(w, f.Status, code, "fault on demand")
		return
	}
	message := strings.ToLower(http.StatusText(f.Status))
	switch f.Status {
	case http.StatusUnauthorized:
		message = "API token invalid"
	case http.StatusForbidden:
		message = "calling actor does not have enough permissions to perform this function"
	case http.StatusPreconditionFailed:
		message = "precondition failed, invalid old hash"
	case http.StatusTooManyRequests:
		message = "rate limit exceeded"
	}
	refuse(f.Status, "%s", message).write(w)
}

func (s *Sim) controlListFaults(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	list := []Fault{}
	for _, f := range s.faults {
		list = append(list, *f)
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"faults": list})
}

// strictly reads a control request, in which a mistyped key must not pass in silence.
func strictly(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one JSON document")
	}
	return nil
}

func (s *Sim) controlAddFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	err := strictly(w, r, &f)
	if err == nil {
		err = s.AddFault(f)
	}
	if err != nil {
		refuse(http.StatusBadRequest, "%v", err).write(w)
		return
	}
	s.controlListFaults(w, r)
}

func (s *Sim) controlClearFaults(w http.ResponseWriter, r *http.Request) {
	s.ClearFaults()
	s.controlListFaults(w, r)
}

func (s *Sim) controlRequests(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"requests": append([]Request{}, s.Requests()...)})
}

func (s *Sim) controlClearRequests(w http.ResponseWriter, r *http.Request) {
	s.ClearRequests()
	s.controlRequests(w, r)
}

func (s *Sim) controlAddDevice(w http.ResponseWriter, r *http.Request) {
	var d Device
	err := strictly(w, r, &d)
	if err == nil {
		err = s.AddDevice(d)
	}
	if err != nil {
		refuse(http.StatusBadRequest, "%v", err).write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"devices": s.Devices()})
}
