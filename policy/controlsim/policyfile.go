package controlsim

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// defaultPolicy is the file of a tailnet whose policy nobody has set: in meaning what Tailscale gives a new tailnet.
//
//go:embed default-policy.hujson
var defaultPolicy string

// matchDefault is the If-Match that asks for a file that was never set.
const matchDefault = "ts-default"

// etag is the tag of a stored file, without quotes: the SHA-256 of its text.
func (p storedPolicy) etag() string {
	sum := sha256.Sum256([]byte(p.HuJSON))
	return hex.EncodeToString(sum[:])
}

// Policy returns the policy file in force and its quoted ETag.
func (s *Sim) Policy() (text, etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Policy.HuJSON, `"` + s.state.Policy.etag() + `"`
}

// SetPolicy sets the policy file behind the API's back, as an edit in the admin console would.
func (s *Sim) SetPolicy(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setPolicyLocked(text)
}

func (s *Sim) setPolicyLocked(text string) error {
	st := s.state.clone()
	if no := s.setPolicy(st, text); no != nil {
		return fmt.Errorf("policy: %s", no.Message)
	}
	if no := s.commit(st); no != nil {
		return fmt.Errorf("policy: %s", no.Message)
	}
	return nil
}

// setPolicy judges a policy file and stores it, formatted.
func (s *Sim) setPolicy(st *state, text string) *refusal {
	report, no := s.judge(st, []byte(text))
	if no != nil {
		return no
	}
	if no := refusalOf(report); no != nil {
		return no
	}
	formatted, err := policy.Format([]byte(text))
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	st.Policy = storedPolicy{HuJSON: string(formatted)}
	st.approveRoutes()
	return nil
}

// judge asks the engine what the control plane would say to a write of text.
func (s *Sim) judge(st *state, text []byte) (*policy.Report, *refusal) {
	inv, err := st.inventory()
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "simulator: inventory: %v", err)
	}
	return policy.Check("", text, inv, nil), nil
}

// refusalOf is the answer to a write that the engine's report refuses; nil where it accepts. A section that the engine
// does not know is only a warning of the engine's, which is older than the service; the service refuses what it does not
// know, and so does the simulator.
func refusalOf(report *policy.Report) *refusal {
	for _, d := range report.Diagnostics {
		if d.Code == "unknown-section" {
			return refuse(http.StatusBadRequest, "%s", d.Message)
		}
	}
	if report.Accepted {
		return nil
	}
	no := &refusal{Status: report.Status, Message: report.Message}
	add := func(user, text string) {
		i := slices.IndexFunc(no.Data, func(f finding) bool { return f.User == user })
		if i < 0 {
			no.Data = append(no.Data, finding{User: user})
			i = len(no.Data) - 1
		}
		no.Data[i].Errors = append(no.Data[i].Errors, text)
	}
	for _, t := range report.Tests {
		if t.Verdict == policy.Fail {
			add(t.Src, cmp.Or(t.Reason, fmt.Sprintf("address %q (protocol %q): want: %s, got: %s",
				t.Dst, cmp.Or(t.Proto, "tcp"), title(t.Want), title(t.Got))))
		}
	}
	for _, t := range report.SSHTests {
		if t.Verdict == policy.Fail {
			add(t.Src, cmp.Or(t.Reason, fmt.Sprintf("address %q: want: %s, got: %s", t.Dst, title(t.Want), title(t.Got))))
		}
	}
	return no
}

func title(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

func (s *Sim) getPolicyFile(c *call) *refusal {
	if c.r.URL.Query().Get("details") == "1" {
		report, no := s.judge(c.st, []byte(c.st.Policy.HuJSON))
		if no != nil {
			return no
		}
		details := struct {
			ACL      string   `json:"acl"`
			Warnings []string `json:"warnings"`
			Errors   []string `json:"errors"`
		}{ACL: base64.StdEncoding.EncodeToString([]byte(c.st.Policy.HuJSON))}
		for _, w := range c.st.policyWarnings(c.st.Policy.HuJSON) {
			details.Warnings = append(details.Warnings, w.Warnings...)
		}
		if !report.Accepted { // a stored policy may fail its tests once tags or users have changed
			details.Errors = append(details.Errors, report.Message)
		}
		c.w.Header().Set("ETag", `"`+c.st.Policy.etag()+`"`)
		return c.answer(details)
	}
	return s.writePolicy(c)
}

// writePolicy answers with the policy file in the form that the caller accepts.
func (s *Sim) writePolicy(c *call) *refusal {
	text, kind := []byte(c.st.Policy.HuJSON), "application/hujson"
	if acceptsJSON(c.r.Header.Get("Accept")) {
		kind = "application/json"
		var err error
		if text, err = standardJSON(text); err != nil {
			return refuse(http.StatusInternalServerError, "internal server error")
		}
	}
	c.w.Header().Set("ETag", `"`+c.st.Policy.etag()+`"`)
	c.w.Header().Set("Content-Type", kind)
	c.w.Write(text)
	return nil
}

// acceptsJSON reports whether the first type of an Accept header that the service has is JSON. HuJSON is what it sends
// where nothing is asked for.
func acceptsJSON(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		kind, _, _ := mime.ParseMediaType(part)
		switch kind {
		case "application/json":
			return true
		case "application/hujson":
			return false
		}
	}
	return false
}

func standardJSON(text []byte) ([]byte, error) {
	standard, err := hujson.Standardize(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, standard, "", "\t"); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (s *Sim) setPolicyFile(c *call) *refusal {
	if match := strings.Trim(c.r.Header.Get("If-Match"), `"`); match != "" && match != "*" {
		if match == matchDefault && !c.st.Policy.Default || match != matchDefault && match != c.st.Policy.etag() {
			return refuse(http.StatusPreconditionFailed, "precondition failed, invalid old hash")
		}
	}
	if len(bytes.TrimSpace(c.body)) == 0 {
		c.st.Policy = storedPolicy{HuJSON: defaultPolicy, Default: true}
		c.st.approveRoutes()
	} else if no := s.setPolicy(c.st, string(c.body)); no != nil {
		return no
	}
	if no := s.commit(c.st); no != nil {
		return no
	}
	return s.writePolicy(c)
}

// validatePolicyFile answers 200 whatever the verdict: an empty object, or what is wrong. A JSON array is a list of tests
// for the file in force, an empty body asks for that file itself, anything else is a file that might be set.
func (s *Sim) validatePolicyFile(c *call) *refusal {
	text := c.body
	switch body := bytes.TrimSpace(c.body); {
	case len(body) == 0:
		text = []byte(c.st.Policy.HuJSON)
	case body[0] == '[':
		var no *refusal
		if text, no = withTests(c.st.Policy.HuJSON, body); no != nil {
			return no
		}
	}
	report, no := s.judge(c.st, text)
	if no != nil {
		return no
	}
	if no := refusalOf(report); no != nil {
		if no.Status >= http.StatusInternalServerError {
			return no
		}
		return c.answer(no)
	}
	if warnings := c.st.policyWarnings(string(text)); len(warnings) > 0 {
		return c.answer(refusal{Message: "warning(s) found", Data: warnings})
	}
	return c.answer(nil)
}

// withTests is a policy file with other tests in the place of its own.
func withTests(text string, tests []byte) ([]byte, *refusal) {
	tests, err := hujson.Standardize(bytes.Clone(tests))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	standard, err := hujson.Standardize([]byte(text))
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "internal server error")
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(standard, &file); err != nil {
		return nil, refuse(http.StatusInternalServerError, "internal server error")
	}
	for key := range file {
		if strings.EqualFold(key, "tests") || strings.EqualFold(key, "sshTests") {
			delete(file, key)
		}
	}
	file["tests"] = tests
	merged, err := json.Marshal(file)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return merged, nil
}

// sections are the parts of a policy file that the simulator itself looks into. Keys match in any case.
type sections struct {
	Groups        map[string][]string `json:"groups"`
	Hosts         map[string]string   `json:"hosts"`
	TagOwners     map[string][]string `json:"tagOwners"`
	AutoApprovers struct {
		Routes   map[string][]string `json:"routes"`
		ExitNode []string            `json:"exitNode"`
	} `json:"autoApprovers"`
}

// policySections reads them; a text that is not a policy has none.
func policySections(text string) (p sections) {
	if standard, err := hujson.Standardize([]byte(text)); err == nil {
		if json.Unmarshal(standard, &p) != nil {
			return sections{}
		}
	}
	return p
}

// policyWarnings are the groups that name a user whom the tailnet does not have, in order of name.
func (st *state) policyWarnings(text string) []finding {
	var found []finding
	for name, members := range policySections(text).Groups {
		f := finding{User: name}
		for _, m := range members {
			if strings.Contains(m, "@") && st.userByLogin(m) == nil {
				f.Warnings = append(f.Warnings, fmt.Sprintf("user %q is not a user of this tailnet", m))
			}
		}
		if f.Warnings != nil {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.User, b.User) })
	return found
}
