// Package tailscale asks the node's own tailscaled, over its LocalAPI, who is in the tailnet, and hears of changes. It
// changes nothing. Any user may ask: the socket is open to all for reading.
package tailscale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// DefaultSocket is where tailscaled listens on Linux.
const DefaultSocket = "/var/run/tailscale/tailscaled.sock"

// How long tailscaled may take, which answers from memory: the first time; when it did not answer the last time, so that
// whoever asks again and again can do its other work meanwhile; and after how long it is given all of its time again.
const (
	requestTimeout = 2 * time.Second
	briefTimeout   = 100 * time.Millisecond
	patienceEvery  = 30 * time.Second
)

// Limit is how long an answer of tailscaled's may be that is kept in memory whole, in bytes. A status with ten thousand peers
// is less than half of it.
const Limit = 32 << 20

// ErrNotRunning means that tailscaled answers but is not connected to a tailnet: stopped, logged out or starting.
var ErrNotRunning = errors.New("tailscaled is not connected to a tailnet")

// Client speaks to one tailscaled. It is not safe for concurrent use, but for [Client.Watch].
type Client struct {
	http http.Client

	silence error     // what came of the last question that was given all of its time, if it got no answer
	since   time.Time // of that question
}

// New returns a client of the tailscaled that listens on the unix socket. Nothing is sent yet.
func New(socket string) *Client {
	return &Client{http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// status is what is read of the answer to status (ipn/ipnstate.Status).
type status struct {
	BackendState string
	Self         *peerStatus
	Peer         map[string]*peerStatus
}

type peerStatus struct {
	ID           string
	HostName     string
	DNSName      string
	TailscaleIPs []netip.Addr
	Tags         []string
}

// Tailnet returns the tailnet as tailscaled knows it. An error is [ErrNotRunning], [os.ErrNotExist] where there is no
// socket, or another failure to get an answer.
func (c *Client) Tailnet(ctx context.Context) (*desired.Tailnet, error) {
	if c.silence == nil || time.Since(c.since) > patienceEvery {
		c.since = time.Now()
		t, err := c.tailnet(ctx, requestTimeout)
		c.silence = nil
		if errors.Is(err, errSilent) {
			c.silence = err
		}
		return t, err
	}
	t, err := c.tailnet(ctx, briefTimeout)
	if errors.Is(err, errSilent) {
		return nil, c.silence
	}
	c.silence = nil
	return t, err
}

func (c *Client) tailnet(ctx context.Context, timeout time.Duration) (*desired.Tailnet, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := c.get(ctx, "status")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var s status
	if err := json.NewDecoder(io.LimitReader(body, Limit)).Decode(&s); err != nil {
		return nil, fmt.Errorf("read tailscaled's status: %w", inTime(err))
	}
	if s.BackendState != "Running" || s.Self == nil {
		return nil, fmt.Errorf("%w (state %q)", ErrNotRunning, s.BackendState)
	}
	t := &desired.Tailnet{Self: s.Self.node()}
	for _, p := range s.Peer {
		if p != nil {
			t.Peers = append(t.Peers, p.node())
		}
	}
	slices.SortFunc(t.Peers, func(a, b desired.TailnetNode) int { return strings.Compare(a.ID, b.ID) })
	return t, nil
}

func (p *peerStatus) node() desired.TailnetNode {
	return desired.TailnetNode{ID: p.ID, Name: Name(p.DNSName, p.HostName), Addresses: p.TailscaleIPs, Tags: p.Tags}
}

// Name returns what to call a machine of the tailnet: the first label of its DNS name, which is unique there, or else what
// it calls itself, as far as that is a word in one line.
func Name(dnsName, hostName string) string {
	name, _, _ := strings.Cut(dnsName, ".")
	if name == "" {
		name = hostName
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == ' ' {
			return '_'
		}
		return r
	}, name)
}

// What is asked of watch-ipn-bus (ipn.NotifyWatchOpt): the state at once, and changes of the tailnet at most every few
// seconds.
const watchMask = 1<<1 | 1<<8

// Watch calls changed when the state of tailscaled or the tailnet has changed, and once at the start, until the context
// ends or the connection breaks. It returns why.
func (c *Client) Watch(ctx context.Context, changed func()) error {
	body, err := c.get(ctx, fmt.Sprintf("watch-ipn-bus?mask=%d", watchMask))
	if err != nil {
		return err
	}
	defer body.Close()
	limited := &io.LimitedReader{R: body}
	for dec := json.NewDecoder(limited); ; {
		var notice struct {
			State  *int
			NetMap *struct{}
		}
		limited.N = Limit // anew for each notice
		if err := dec.Decode(&notice); err != nil {
			return fmt.Errorf("watch tailscaled: %w", err)
		}
		if notice.State != nil || notice.NetMap != nil {
			changed()
		}
	}
}

func (c *Client) get(ctx context.Context, what string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://local-tailscaled.sock/localapi/v0/"+what, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("ask tailscaled: %w", inTime(err))
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return nil, fmt.Errorf("ask tailscaled: %s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return res.Body, nil
}

var errSilent = fmt.Errorf("no answer within %s", requestTimeout)

// inTime says that there was no answer, where that is what happened.
func inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errSilent
	}
	return err
}
