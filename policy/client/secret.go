package client

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Secret is a string that must not be printed: formatting and logging it show a placeholder. Convert it with string(s)
// where the value itself is needed.
type Secret string

const redacted = "[redacted]"

// String returns a placeholder, or nothing where there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// LogValue is String, for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, so that a document made of a Secret does not contain it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// secretList holds the strings that no message may contain. It grows with each token.
type secretList struct {
	mu   sync.Mutex
	list []string
}

// add puts a secret on the list. What is too short to be one is left out: it would occur by chance.
func (l *secretList) add(s Secret) {
	if len(s) < 8 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, form := range []string{string(s), url.QueryEscape(string(s))} { // as it is, and as it travels in a form
		if !slices.Contains(l.list, form) {
			l.list = append(l.list, form)
		}
	}
	// The longest first: a secret may be the beginning of another.
	slices.SortStableFunc(l.list, func(a, b string) int { return len(b) - len(a) })
}

// redact replaces every occurrence of a secret in a text that came from outside.
func (l *secretList) redact(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.list {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}
