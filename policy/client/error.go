package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Error is a call that failed: the service refused it, or no answer came.
type Error struct {
	// Op is what was to be done: "write the policy file".
	Op string
	// Status is the HTTP status; 0 where no answer came.
	Status int
	// Message is the service's own message, or a description of an answer that is not the API's.
	Message string
	// Data are the service's findings, such as the tests that failed.
	Data []Finding
	// RetryAfter is how long the service asked to wait; 0 where it did not say.
	RetryAfter time.Duration
	// Hint says what to do about it; empty where the message says it all.
	Hint string
	// Err is the cause where no answer came.
	Err error

	repeated bool // the request was sent more than once
}

// Error gives everything in one text, which has line breaks where the service's messages have.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, e.Message)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	for _, f := range e.Data {
		for _, text := range slices.Concat(f.Errors, f.Warnings) {
			fmt.Fprintf(&b, "; %s: %s", f.User, text)
		}
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsNotFound reports whether the service does not know the thing (404).
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsPreconditionFailed reports whether the policy file is not the one that ifMatch named (412).
func IsPreconditionFailed(err error) bool { return hasStatus(err, http.StatusPreconditionFailed) }

// IsUnauthorized reports whether the credential was refused (401).
func IsUnauthorized(err error) bool { return hasStatus(err, http.StatusUnauthorized) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// failure makes an Error of an answer of 300 and above, whoever it comes from: the API, its token endpoint (RFC 6749), or
// a proxy on the way that speaks HTML.
func (c *Client) failure(op operation, res *http.Response, body []byte) *Error {
	e := &Error{Op: op.name, Status: res.StatusCode}
	e.RetryAfter, _ = retryAfter(res)
	var answer struct {
		Message     string          `json:"message"`
		Data        json.RawMessage `json:"data"`
		Error       string          `json:"error"`
		Description string          `json:"error_description"`
	}
	if json.Unmarshal(body, &answer) == nil {
		e.Message = answer.Message
		if e.Message == "" && answer.Error != "" {
			e.Message = strings.TrimSuffix(answer.Error+": "+answer.Description, ": ")
		}
		if json.Unmarshal(answer.Data, &e.Data) != nil {
			e.Data = nil // data of another shape says nothing that we could show
		}
	}
	if location := res.Header.Get("Location"); e.Message == "" && location != "" {
		e.Message = fmt.Sprintf("redirected to %q", location)
	}
	if e.Message == "" {
		e.Message = c.notJSON(res.Header, body)
	}
	e.Message = c.secrets.redact(e.Message)
	c.redactFindings(e.Data)
	e.Hint = c.hint(op, e, res.Request.URL.Path)
	return e
}

func (c *Client) redactFindings(list []Finding) {
	for i := range list {
		f := &list[i]
		f.User = c.secrets.redact(f.User)
		for _, texts := range [][]string{f.Errors, f.Warnings} {
			for j, text := range texts {
				texts[j] = c.secrets.redact(text)
			}
		}
	}
}

// notJSON describes a body that is not what the API would send. Secrets are taken out before the text is cut and quoted,
// which would make them others than those known.
func (c *Client) notJSON(header http.Header, body []byte) string {
	text := strings.Join(strings.Fields(c.secrets.redact(string(body))), " ")
	if text == "" {
		return "empty answer"
	}
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if kind == "text/html" || strings.HasPrefix(text, "<") {
		title := text
		if _, after, ok := strings.Cut(text, "<title>"); ok {
			title, _, _ = strings.Cut(after, "</title>")
		}
		return fmt.Sprintf("an HTML page instead of an answer of the API: %q", shorten(title))
	}
	return fmt.Sprintf("not an answer of the API: %q", shorten(text))
}

func shorten(text string) string {
	const most = 200
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// hint says what to do about a refusal whose message does not.
func (c *Client) hint(op operation, e *Error, path string) string {
	switch e.Status {
	case http.StatusBadRequest:
		if strings.Contains(e.Message, "invalid or not permitted") { // of tags
			hint := "the policy in force must define each of the tags in tagOwners, before they are used"
			if c.kind != apiKey {
				return hint + ", and let each be owned by a tag of the credential, unless they are all of the credential's own tags"
			}
			return hint
		}
	case http.StatusUnauthorized:
		switch c.kind {
		case apiKey:
			return "the API key was refused: it is mistyped, has expired (API keys live 90 days at most) or was revoked"
		case oauthClient:
			return "the OAuth client was refused: its ID or secret is mistyped, or the client was revoked"
		case workloadIdentity:
			return "the identity was refused: check the client ID, and that issuer, subject and audience of the identity " +
				"token are what the federated identity expects"
		}
	case http.StatusForbidden:
		if len(op.scopes) == 0 {
			return ""
		}
		hint := "this needs the scopes " + strings.Join(op.scopes, ", ")
		if len(op.scopes) == 1 {
			hint = "this needs the scope " + op.scopes[0]
		}
		if c.kind == apiKey {
			return hint + ", or an API key of a user with an administrator's role"
		}
		return hint
	case http.StatusNotFound:
		if c.tailnet != "-" && strings.Contains(path, "/tailnet/") {
			return fmt.Sprintf("check the tailnet's name %q; \"-\" means the one that owns the credential", c.tailnet)
		}
		if _, device, ok := strings.Cut(path, "/api/v2/device/"); ok {
			id, _, _ := strings.Cut(device, "/")
			return fmt.Sprintf("the tailnet has no device with the ID %q, or no longer", id)
		}
	case http.StatusTooManyRequests:
		if e.RetryAfter > 0 {
			return fmt.Sprintf("the service asks to wait %s", e.RetryAfter)
		}
		return "the service is limiting the rate of requests; try again later"
	}
	if e.Status >= 300 && e.Status < 400 {
		return fmt.Sprintf("redirects are not followed, so that the credential stays with one host; check the base URL %s", c.base)
	}
	if (e.Status >= 500 || e.Status < 300) && strings.Contains(e.Message, "HTML page") {
		return fmt.Sprintf("something between here and %s answered in its place", c.base)
	}
	return ""
}

// noAnswer makes an Error of a call that got no answer.
func (c *Client) noAnswer(op operation, err error) *Error {
	e := &Error{Op: op.name, Err: err}
	if u, ok := errors.AsType[*url.Error](err); ok { // it repeats the method and URL
		err = u.Err
	}
	e.Message = c.secrets.redact(err.Error())
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		e.Message = fmt.Sprintf("no address found for %q", dns.Name)
		e.Hint = fmt.Sprintf("check the base URL %s and this machine's name resolution", c.base)
		return e
	}
	timeout, isNet := errors.AsType[net.Error](err)
	dial, isDial := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Message = fmt.Sprintf("%s closed the connection before it answered", c.base.Host)
	case errors.Is(err, context.Canceled):
		e.Message = "cancelled"
	case isDial && dial.Op == "proxyconnect":
		e.Message = fmt.Sprintf("the proxy on the way to %s could not be used: %s", c.base.Host, e.Message)
		e.Hint = "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Message = fmt.Sprintf("connection to %s refused", c.base.Host)
		e.Hint = fmt.Sprintf("nothing listens there; check the base URL %s", c.base)
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		e.Message = fmt.Sprintf("no answer from %s in time", c.base.Host)
		e.Hint = "try again, or give the operation more time"
	}
	return e
}

// hopeless reports whether a request without an answer would fare no better a second time.
func hopeless(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}
