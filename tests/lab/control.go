//go:build linux

package lab

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/logger"
)

// Control is a tailnet's control server whose packet filters can be changed at any time.
//
// testcontrol on its own always sends a filter that allows everything, and its AddRawMapResponse switches a node over to
// manual updates for good. So Control takes its hook AltMapStream: testcontrol still does the key exchange, registration
// and bookkeeping, and builds the netmap, but Control owns the stream and puts its own filter into every response.
type Control struct {
	URL string

	relay *relay
	srv   *testcontrol.Server
	http  *http.Server

	mu      sync.Mutex
	filters map[netip.Addr][]tailcfg.FilterRule
	tags    map[netip.Addr][]string
	edit    func(*tailcfg.MapResponse)
	changed chan struct{} // closed and replaced on every change
}

// startControl serves control, DERP and STUN on an address of the calling thread's network namespace.
func startControl(addr string, logf logger.Logf) (*Control, error) {
	relay, err := startRelay(addr, logf)
	if err != nil {
		return nil, err
	}
	ln, err := listenTCP(addr)
	if err != nil {
		relay.close()
		return nil, err
	}
	c := &Control{
		URL:     "http://" + ln.Addr().String(),
		relay:   relay,
		filters: map[netip.Addr][]tailcfg.FilterRule{},
		tags:    map[netip.Addr][]string{},
		changed: make(chan struct{}),
	}
	c.srv = &testcontrol.Server{
		Logf: logf, AllOnline: true, ExplicitBaseURL: c.URL, DERPMap: relay.derpMap(addr), AltMapStream: c.stream,
	}
	c.http = &http.Server{ErrorLog: logger.StdLogger(logf), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// testcontrol panics on a path that it does not know.
		switch p := r.URL.Path; {
		case p == "/key", p == "/ts2021", p == "/generate_204", strings.HasPrefix(p, "/c2n/"):
			c.srv.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})}
	go func() { _ = c.http.Serve(ln) }() // until it is closed
	return c, nil
}

// close stops the servers. Map streams are hijacked connections, which http.Server does not track: they end with the
// nodes.
func (c *Control) close() {
	c.http.Close()
	c.relay.close()
}

// SetFilters replaces the packet filters of all nodes, by mesh address, and pushes them. A node that has none admits
// nothing.
func (c *Control) SetFilters(filters map[netip.Addr][]tailcfg.FilterRule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filters = maps.Clone(filters)
	c.notify()
}

// SetTags gives the node with a mesh address its tags.
func (c *Control) SetTags(addr netip.Addr, tags ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tags[addr] = tags
	c.notify()
}

// Tell has f change whatever nodes are told from now on, or nothing more where it is nil, and tells them at once. What a
// response is about, and so who is told it, is its Node.
func (c *Control) Tell(f func(*tailcfg.MapResponse)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edit = f
	c.notify()
}

// notify wakes all streams; c.mu is held.
func (c *Control) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// stream answers one map request; it is a testcontrol.AltMapStreamFunc.
func (c *Control) stream(ctx context.Context, w testcontrol.MapStreamWriter, req *tailcfg.MapRequest) {
	if !req.Stream {
		// An update of endpoints, host info and so on. Nodes send it apart from the long poll and ignore the answer's body.
		c.update(req)
		_ = w.SendMapMessage(&tailcfg.MapResponse{})
		return
	}
	for {
		res, changed, err := c.response(req)
		if err != nil || res == nil || w.SendMapMessage(res) != nil {
			return
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				again = true
			case <-time.After(50 * time.Second):
				if w.SendMapMessage(&tailcfg.MapResponse{KeepAlive: true}) != nil {
					return
				}
			}
		}
	}
}

// response builds a node's whole netmap, and returns the channel that tells of the next change.
func (c *Control) response(req *tailcfg.MapRequest) (*tailcfg.MapResponse, <-chan struct{}, error) {
	c.mu.Lock()
	changed, filters, tags, edit := c.changed, c.filters, maps.Clone(c.tags), c.edit
	c.mu.Unlock()

	res, err := c.srv.MapResponse(req)
	if err != nil || res == nil {
		return nil, nil, err
	}
	for _, n := range append([]*tailcfg.Node{res.Node}, res.Peers...) {
		n.Tags = tags[n.Addresses[0].Addr()]
	}
	// testcontrol sends a constant from 2020, about which nodes complain.
	now := time.Now().UTC()
	res.ControlTime = &now
	// An empty PacketFilter is not marshaled and would mean "unchanged". The named form can also say "nothing".
	res.PacketFilter = nil
	res.PacketFilters = map[string][]tailcfg.FilterRule{"*": nil}
	if rules := filters[res.Node.Addresses[0].Addr()]; len(rules) > 0 {
		res.PacketFilters["base"] = rules
	}
	if edit != nil {
		edit(res)
	}
	return res, changed, nil
}

// update keeps what a node reported about itself and tells the others.
func (c *Control) update(req *tailcfg.MapRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.srv.Node(req.NodeKey)
	if n == nil {
		return
	}
	n.Endpoints = req.Endpoints
	n.DiscoKey = req.DiscoKey
	n.Cap = req.Version
	if req.Hostinfo != nil {
		n.Hostinfo = req.Hostinfo.View()
		if ni := n.Hostinfo.NetInfo(); ni.Valid() && ni.PreferredDERP() != 0 {
			n.HomeDERP = ni.PreferredDERP()
		}
	}
	c.srv.UpdateNode(n)
	c.notify()
}
