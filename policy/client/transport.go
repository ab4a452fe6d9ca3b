package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// replay says when a request may be sent again.
type replay int

const (
	once    replay = iota // never: doing it twice, or later than asked, could do harm
	refused               // only where the service has surely not carried it out
	writing               // where the same request twice has the effect of one
	reading               // always: nothing is changed
)

// operation is what a call is about. It travels with the request, since the retries and the errors need it.
type operation struct {
	name   string
	scopes []string // what the credential must be allowed to
	replay replay
}

// exchange is one call under way: what for, how many attempts so far, and the refusal it ended with.
type exchange struct {
	op       operation
	attempts int
	failed   *Error
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

const (
	defaultTimeout    = time.Minute
	defaultMaxRetries = 4
	minWait           = 500 * time.Millisecond
	maxWait           = 30 * time.Second
	// longestRetryAfter is the longest wait that a service may ask of us; beyond it the user had better know at once.
	longestRetryAfter = 2 * time.Minute
	maxErrorBody      = 1 << 20
)

// newTransport returns the transport below authentication: it repeats what may be repeated and notes refusals.
func newTransport(cfg Config, failure func(operation, *http.Response, []byte) *Error) http.RoundTripper {
	base := cfg.Transport
	if base == nil {
		base = http.DefaultTransport.(*http.Transport).Clone()
	}
	retries := cmp.Or(cfg.MaxRetries, defaultMaxRetries)
	return &recorder{
		failure: failure,
		next: &retryablehttp.RoundTripper{Client: &retryablehttp.Client{
			HTTPClient: &http.Client{
				Transport:     &attempts{next: base, log: cfg.Logger},
				Timeout:       cmp.Or(cfg.Timeout, defaultTimeout),
				CheckRedirect: refuseRedirect,
			},
			RetryMax:     max(retries, 0),
			RetryWaitMin: minWait,
			RetryWaitMax: maxWait,
			CheckRetry:   retry,
			Backoff:      backoff,
			ErrorHandler: retryablehttp.PassthroughErrorHandler,
		}},
	}
}

// retry decides whether a request is sent again.
func retry(ctx context.Context, res *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	kind := exchangeOf(ctx).op.replay
	if err != nil {
		// A wrong name, certificate or scheme stays wrong; DefaultRetryPolicy knows those. A refused connection may be a
		// server that is starting.
		again, _ := retryablehttp.DefaultRetryPolicy(ctx, nil, err)
		return again && kind >= writing && !hopeless(err), nil
	}
	if wait, ok := retryAfter(res); ok && wait > longestRetryAfter {
		return false, nil
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests:
		return kind >= refused, nil
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return kind >= writing, nil
	}
	return false, nil
}

// backoff is how long to wait before attempt n+1: what the service asked for, else a random time up to a bound that
// doubles, so that many clients refused at once do not come back at once.
func backoff(shortest, longest time.Duration, n int, res *http.Response) time.Duration {
	if res != nil {
		if wait, ok := retryAfter(res); ok {
			return wait
		}
	}
	bound := min(shortest<<min(n, 10), longest)
	return bound/2 + rand.N(bound/2+1)
}

// retryAfter reads the header of that name, in seconds or as a date.
func retryAfter(res *http.Response) (time.Duration, bool) {
	value := res.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(time.Until(date), 0), true
	}
	return 0, false
}

// attempts counts and logs each attempt. It never sees a body and never logs a header.
type attempts struct {
	next http.RoundTripper
	log  *slog.Logger
}

func (a *attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	x.attempts++
	start := time.Now()
	res, err := a.next.RoundTrip(req)
	if a.log != nil {
		attrs := []slog.Attr{
			slog.String("method", req.Method), slog.String("path", req.URL.Path),
			slog.Int("attempt", x.attempts), slog.Duration("duration", time.Since(start)),
		}
		if err == nil {
			attrs = append(attrs, slog.Int("status", res.StatusCode))
		} else {
			attrs = append(attrs, slog.Any("err", err))
		}
		a.log.LogAttrs(req.Context(), slog.LevelDebug, "api request", attrs...)
	}
	return res, err
}

// recorder notes the refusal that a call ends with, whole, before the official client takes the answer apart. The
// answer itself passes unchanged. A page is one whatever its status says: the API has none, but a gate that asks people to
// sign in first answers so.
type recorder struct {
	next    http.RoundTripper
	failure func(operation, *http.Response, []byte) *Error
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.next.RoundTrip(req)
	if err != nil || res.StatusCode < http.StatusMultipleChoices && !isPage(res) {
		return res, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	x := exchangeOf(req.Context())
	x.failed = r.failure(x.op, res, body)
	x.failed.repeated = x.attempts > 1
	return res, nil
}

// isPage reports whether the body is HTML, by its first character, and leaves all of it to be read.
func isPage(res *http.Response) bool {
	body := bufio.NewReader(res.Body)
	res.Body = struct {
		io.Reader
		io.Closer
	}{body, res.Body}
	for {
		first, err := body.Peek(1)
		switch {
		case err != nil:
			return false
		case first[0] != ' ' && first[0] != '\t' && first[0] != '\r' && first[0] != '\n':
			return first[0] == '<'
		}
		_, _ = body.Discard(1) // white space means nothing to those who read on
	}
}
