package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/tailscale"
)

// localTimeout is how long tailscaled may take. It answers from memory.
const localTimeout = 5 * time.Second

// localAPI asks tailscaled by its socket. Nothing is changed.
type localAPI struct{ http http.Client }

func newLocalAPI(socket string) *localAPI {
	return &localAPI{http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

func (a *localAPI) get(ctx context.Context, what string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://local-tailscaled.sock/localapi/v0/"+what, nil)
	if err != nil {
		return nil, err
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return nil, fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return res.Body, nil
}

func (a *localAPI) json(ctx context.Context, what string, into any) error {
	body, err := a.get(ctx, what)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(io.LimitReader(body, tailscale.Limit)).Decode(into)
}

// The parts that are read of tailscaled's answers (ipn/ipnstate.Status, ipn.Notify, wgengine/filter/filtertype.Match).
type (
	statusJSON struct {
		BackendState string
		Self         *nodeJSON
		Peer         map[string]*nodeJSON
		Health       []string
	}
	nodeJSON struct {
		ID           string
		HostName     string
		DNSName      string
		TailscaleIPs []netip.Addr
		AllowedIPs   []netip.Prefix
		Tags         []string
		CurAddr      string
		Relay        string
		Online       bool
		Expired      bool
		KeyExpiry    *time.Time
	}
	notifyJSON struct {
		Prefs  *prefsJSON
		NetMap *struct {
			PacketFilter []matchJSON
		}
	}
	prefsJSON struct {
		NetfilterMode int
		NoSNAT        bool
		ShieldsUp     bool
	}
	matchJSON struct {
		IPProto []int
		Srcs    []netip.Prefix
		SrcCaps []string
		Dsts    []struct {
			Net   netip.Prefix
			Ports struct{ First, Last uint16 }
		}
	}
)

func (n *nodeJSON) node() TailscaleNode {
	out := TailscaleNode{
		ID: n.ID, Name: tailscale.Name(n.DNSName, n.HostName), Addresses: n.TailscaleIPs, Tags: n.Tags,
		Online: n.Online, Expired: n.Expired, Allowed: n.AllowedIPs, Endpoint: n.CurAddr,
	}
	if n.KeyExpiry != nil {
		out.KeyExpiry = *n.KeyExpiry
	}
	if out.Endpoint == "" && n.Relay != "" {
		out.Endpoint = "relay " + n.Relay
	}
	return out
}

// readTailscaled reads what any user may read, and where the bus has no packet filter, asks for it as root.
func readTailscaled(ctx context.Context, socket string) Tailscaled {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	api := newLocalAPI(socket)
	var t Tailscaled
	var status statusJSON
	if err := api.json(ctx, "status", &status); err != nil {
		t.Err = socketError(err, socket)
		return t
	}
	t.State, t.Health = status.BackendState, status.Health
	if status.Self != nil {
		t.Self = status.Self.node()
	}
	for _, p := range status.Peer {
		if p != nil {
			t.Peers = append(t.Peers, p.node())
		}
	}
	slices.SortFunc(t.Peers, func(a, b TailscaleNode) int { return strings.Compare(a.ID, b.ID) })
	api.bus(ctx, &t)
	if !t.Filters {
		var list []matchJSON
		if err := api.json(ctx, "debug-packet-filter-matches", &list); err == nil {
			t.setFilter(list, "LocalAPI debug-packet-filter-matches")
		} else if t.FilterHow == "" {
			t.FilterHow = err.Error()
		}
	}
	if t.Prefs == nil {
		var p prefsJSON
		if err := api.json(ctx, "prefs", &p); err == nil {
			t.Prefs = &Prefs{NetfilterMode: p.NetfilterMode, NoSNAT: p.NoSNAT, ShieldsUp: p.ShieldsUp}
		}
	}
	t.Drops = api.drops(ctx)
	return t
}

func socketError(err error, socket string) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("there is no socket at %s", socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("the socket %s may not be opened", socket)
	}
	return err.Error()
}

// busMask asks watch-ipn-bus for the state, the settings and the tailnet with the packet filter, each once.
const busMask = 1<<1 | 1<<2 | 1<<3

// bus reads the first messages of the bus. The stream does not end by itself: what does not come soon does not come.
func (a *localAPI) bus(ctx context.Context, t *Tailscaled) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body, err := a.get(ctx, fmt.Sprintf("watch-ipn-bus?mask=%d", busMask))
	if err != nil {
		t.FilterHow = err.Error()
		return
	}
	defer body.Close()
	for dec := json.NewDecoder(io.LimitReader(body, tailscale.Limit)); ; {
		var n notifyJSON
		if err := dec.Decode(&n); err != nil {
			return
		}
		if n.Prefs != nil {
			t.Prefs = &Prefs{NetfilterMode: n.Prefs.NetfilterMode, NoSNAT: n.Prefs.NoSNAT, ShieldsUp: n.Prefs.ShieldsUp}
		}
		if n.NetMap != nil {
			t.setFilter(n.NetMap.PacketFilter, "LocalAPI watch-ipn-bus, the packet filter of the first netmap")
			return
		}
		if t.State != "Running" {
			return // there is no netmap to wait for
		}
	}
}

func (t *Tailscaled) setFilter(list []matchJSON, how string) {
	t.Filters, t.FilterHow, t.Filter = true, how, nil
	for _, m := range list {
		rule := FilterRule{Protocols: m.IPProto, Sources: m.Srcs, Capabilities: m.SrcCaps}
		for _, d := range m.Dsts {
			rule.Destinations = append(rule.Destinations, FilterDestination{Net: d.Net, First: d.Ports.First, Last: d.Ports.Last})
		}
		t.Filter = append(t.Filter, rule)
	}
}

const dropsMetric = "tailscaled_inbound_dropped_packets_total{"

// drops reads how many packets the packet filter has dropped. tailscaled lists the counter after the first drop only, so
// that its absence is zero.
func (a *localAPI) drops(ctx context.Context) *float64 {
	body, err := a.get(ctx, "usermetrics")
	if err != nil {
		return nil
	}
	defer body.Close()
	var sum float64
	for lines := bufio.NewScanner(io.LimitReader(body, tailscale.Limit)); lines.Scan(); {
		labels, ok := strings.CutPrefix(lines.Text(), dropsMetric)
		if !ok || !strings.Contains(labels, `reason="acl"`) {
			continue
		}
		fields := strings.Fields(labels[strings.LastIndex(labels, "}")+1:])
		if len(fields) == 0 {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum += n
		}
	}
	return &sum
}
