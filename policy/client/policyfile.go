package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tailscale/hujson"
)

// MatchDefault is the ifMatch of SetPolicy that writes only where the tailnet still has the policy it was born with.
const MatchDefault = "ts-default"

// MatchAny is the ifMatch of SetPolicy that writes over whatever is there.
const MatchAny = "*"

// Policy is the policy file as the service stores it.
type Policy struct {
	// HuJSON is the text, comments included, as the service formatted it when it was saved.
	HuJSON string
	// ETag is the quoted tag of this text; pass it to SetPolicy as it is.
	ETag string
}

// GetPolicy reads the policy file.
func (c *Client) GetPolicy(ctx context.Context) (Policy, error) {
	op := operation{name: "read the policy file", scopes: []string{"policy_file:read"}, replay: reading}
	res, text, err := c.request(ctx, op, http.MethodGet, c.tailnetURL("acl"), http.Header{"Accept": {"application/hujson"}}, "")
	if err != nil {
		return Policy{}, err
	}
	return c.policy(op, res, text)
}

// policy takes the policy file out of an answer. An empty file, or half of one, is a fault on the way, never an answer of the
// service; and so is one without an ETag, over which nobody could write safely.
func (c *Client) policy(op operation, res *http.Response, text []byte) (Policy, error) {
	if strings.TrimSpace(string(text)) == "" {
		return Policy{}, &Error{Op: op.name, Status: res.StatusCode, Message: "the service answered without a policy file"}
	}
	if _, err := hujson.Parse(text); err != nil {
		return Policy{}, &Error{Op: op.name, Status: res.StatusCode, Message: c.notJSON(res.Header, text), Err: err}
	}
	etag := res.Header.Get("ETag")
	if tag := bare(etag); tag == "" || tag == MatchAny {
		return Policy{}, &Error{
			Op: op.name, Status: res.StatusCode, Message: "the service answered without the ETag, which says which version this is",
			Hint: fmt.Sprintf("something between here and %s may take it out", c.base),
		}
	}
	return Policy{HuJSON: string(text), ETag: etag}, nil
}

// SetPolicy replaces the whole policy file by text and returns the file as the service saved it, with its new ETag.
// ifMatch is the ETag that the stored file must still have, or MatchDefault, or MatchAny; without any, nothing is sent. An
// empty text with MatchAny restores the tailnet's default file.
//
// Errors: IsPreconditionFailed where the file has changed; status 400 with the service's message where it refuses the
// file, the failed tests in Data.
func (c *Client) SetPolicy(ctx context.Context, text, ifMatch string) (Policy, error) {
	op := operation{
		name:   "write the policy file",
		scopes: []string{"policy_file", "devices:core:read", "devices:posture_attributes"},
		replay: once,
	}
	header := http.Header{"Content-Type": {"application/hujson"}, "Accept": {"application/hujson"}}
	switch etag := bare(ifMatch); {
	case etag == "":
		return Policy{}, &Error{Op: op.name, Message: "no ETag says which version is to be replaced; nothing was sent"}
	case ifMatch == MatchAny:
	default:
		op.replay = writing
		header.Set("If-Match", `"`+etag+`"`)
	}
	res, saved, err := c.request(ctx, op, http.MethodPost, c.tailnetURL("acl"), header, text)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusPreconditionFailed && e.repeated {
			return c.ownWrite(ctx, text, e)
		}
		return Policy{}, err
	}
	return c.policy(op, res, saved)
}

// bare is an ETag without its quotes. A proxy that compresses may have made it a weak one; the service knows only the
// strong form.
func bare(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// ownWrite looks again where a repeated conditional write was refused. The first attempt may have been carried out
// though its answer was lost; then the stored file is already the wanted one, and the refusal is of no account.
func (c *Client) ownWrite(ctx context.Context, text string, refusal *Error) (Policy, error) {
	stored, err := c.GetPolicy(ctx)
	if err != nil {
		return Policy{}, refusal
	}
	want, err := hujson.Format([]byte(text))
	if err != nil || string(want) != stored.HuJSON {
		return Policy{}, refusal
	}
	return stored, nil
}

// Finding is what the service says about one source of a policy: a user, group or tag.
type Finding struct {
	// User is the source: of a test that failed, or of a warning.
	User     string   `json:"user"`
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Validation is the service's verdict on a policy file that was not written.
type Validation struct {
	// Message is empty where the service has nothing to say.
	Message string    `json:"message"`
	Data    []Finding `json:"data"`
}

// Failed reports whether the service would refuse the file. Warnings alone are not a refusal.
func (v Validation) Failed() bool {
	warnings := 0
	for _, f := range v.Data {
		if len(f.Errors) > 0 {
			return true
		}
		warnings += len(f.Warnings)
	}
	return v.Message != "" && warnings == 0 && !strings.HasPrefix(v.Message, "warning(s) found")
}

// Warnings returns the findings that carry warnings.
func (v Validation) Warnings() []Finding {
	var list []Finding
	for _, f := range v.Data {
		if len(f.Warnings) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// ValidatePolicy asks the service what it would say to a write of text: syntax, names and the file's own tests. Nothing
// is changed. A refusal is a Validation that Failed, not an error.
func (c *Client) ValidatePolicy(ctx context.Context, text string) (Validation, error) {
	op := operation{name: "validate the policy file", scopes: []string{"policy_file:read"}, replay: reading}
	header := http.Header{"Content-Type": {"application/hujson"}, "Accept": {"application/json"}}
	res, body, err := c.request(ctx, op, http.MethodPost, c.tailnetURL("acl", "validate"), header, text)
	if err != nil {
		return Validation{}, err
	}
	var v Validation
	if strings.TrimSpace(string(body)) == "" {
		return v, nil
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, &Error{Op: op.name, Status: res.StatusCode, Message: c.notJSON(res.Header, body), Err: err}
	}
	v.Message = c.secrets.redact(v.Message)
	c.redactFindings(v.Data)
	return v, nil
}
