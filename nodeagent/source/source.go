// Package source reads a node's document from where it is kept: a file, or a server. It does not look into it.
package source

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// limit is the largest document that is read, in bytes: 10,000 peers are half of it.
const limit = 4 << 20

// Source is a place of a document. It is safe for concurrent use.
type Source interface {
	// Read returns the document's text.
	Read(ctx context.Context) ([]byte, error)

	// Again makes Watch look at once at what it would look at later.
	Again()

	// Watch begins to watch the document. What it returns goes on until the context ends, and calls changed whenever the
	// document may have changed since, and trouble with what keeps it from knowing.
	Watch(ctx context.Context, changed func(), trouble func(error)) (goOn func() error)
}

// New returns the source of a location: the path of a file, or an https:// URL (http:// on loopback). The file ca, if it
// is not "", has the certificates of the authorities that are trusted with a URL instead of the system's.
func New(location, ca string) (Source, error) {
	scheme, _, isURL := strings.Cut(location, "://")
	if !isURL {
		if ca != "" {
			return nil, fmt.Errorf("a CA file is of use with an https:// URL only, and %q is a file", location)
		}
		return file(location), nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s:// URL with a password: a document is no secret, and is asked for without one", scheme)
	}
	if err := permitted(u); err != nil {
		return nil, err
	}
	return newServer(u, ca)
}

// permitted says whether a URL may be asked: whoever can change the document on its way can lead the pods' packets.
func permitted(u *url.URL) error {
	address, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	switch {
	case u.Hostname() == "":
		return fmt.Errorf("%q names no host", u)
	case u.Scheme == "https", u.Scheme == "http" && loopback:
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("%q is not protected on its way: use https:// (http:// is for loopback only)", u)
	}
	return fmt.Errorf("%q: want the path of a file, or an https:// URL", u)
}

func errTooLarge(location string) error {
	return fmt.Errorf("%q is larger than %d bytes: that is no node's document", location, limit)
}
