package controlsim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Device is one device, on the wire as in the API's device list with all fields.
type Device struct {
	Addresses                 []string `json:"addresses"`
	ID                        string   `json:"id"`
	NodeID                    string   `json:"nodeId"`
	User                      string   `json:"user"`
	Name                      string   `json:"name"`
	Hostname                  string   `json:"hostname"`
	ClientVersion             string   `json:"clientVersion"`
	UpdateAvailable           bool     `json:"updateAvailable"`
	OS                        string   `json:"os"`
	Created                   string   `json:"created"` // empty for external devices
	ConnectedToControl        bool     `json:"connectedToControl"`
	LastSeen                  string   `json:"lastSeen,omitempty"` // absent while connected
	KeyExpiryDisabled         bool     `json:"keyExpiryDisabled"`
	Expires                   string   `json:"expires"`
	Authorized                bool     `json:"authorized"`
	IsExternal                bool     `json:"isExternal"`
	MultipleConnections       bool     `json:"multipleConnections,omitempty"`
	IsEphemeral               bool     `json:"isEphemeral"`
	MachineKey                string   `json:"machineKey"`
	NodeKey                   string   `json:"nodeKey"`
	BlocksIncomingConnections bool     `json:"blocksIncomingConnections"`
	Tags                      []string `json:"tags,omitempty"`
	TailnetLockError          string   `json:"tailnetLockError"`
	TailnetLockKey            string   `json:"tailnetLockKey"`
	SSHEnabled                bool     `json:"sshEnabled"`

	// With fields=all only.
	Distro             *Distro             `json:"distro,omitempty"`
	PostureIdentity    *PostureIdentity    `json:"postureIdentity,omitempty"`
	EnabledRoutes      []string            `json:"enabledRoutes,omitzero"`
	AdvertisedRoutes   []string            `json:"advertisedRoutes,omitzero"`
	ClientConnectivity *ClientConnectivity `json:"clientConnectivity,omitempty"`
}

// Distro is the Linux distribution of a device.
type Distro struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	CodeName string `json:"codeName"`
}

// PostureIdentity is what identifies a device's hardware.
type PostureIdentity struct {
	SerialNumbers []string `json:"serialNumbers,omitempty"`
	Disabled      bool     `json:"disabled"`
}

// ClientConnectivity is a device's last report of its network.
type ClientConnectivity struct {
	// Endpoints are the device's own UDP addresses, "ip:port", IPv6 in brackets, in no order.
	Endpoints             []string           `json:"endpoints"`
	DERP                  string             `json:"derp,omitempty"`
	MappingVariesByDestIP bool               `json:"mappingVariesByDestIP"`
	Latency               map[string]Latency `json:"latency"`
	// ClientSupports has true, false or null for each of hairPinning, ipv6, pcp, pmp, udp, upnp.
	ClientSupports map[string]*bool `json:"clientSupports"`
}

// Latency is how far a relay is.
type Latency struct {
	LatencyMS float64 `json:"latencyMs"`
	Preferred bool    `json:"preferred,omitempty"`
}

// noExpiry is how the API writes that a key does not expire.
const noExpiry = "0001-01-01T00:00:00Z"

// view is the device as the API shows it: without the fields that only fields=all has, or with all of them.
func (d *Device) view(all bool) Device {
	v := *d
	if all {
		v.EnabledRoutes = append([]string{}, d.EnabledRoutes...)
		v.AdvertisedRoutes = append([]string{}, d.AdvertisedRoutes...)
		return v
	}
	v.Distro, v.PostureIdentity, v.ClientConnectivity = nil, nil, nil
	v.EnabledRoutes, v.AdvertisedRoutes = nil, nil
	return v
}

// has reports whether a top-level field of the device, simple or a list, has the value.
func (d *Device) has(field, value string) bool {
	text, err := json.Marshal(d.view(true))
	if err != nil {
		return false
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return false
	}
	switch v := fields[field].(type) {
	case string, bool, float64:
		return fmt.Sprint(v) == value
	case []any:
		return slices.Contains(v, any(value))
	}
	return false
}

// AddDevice registers a device, as if it had joined the tailnet now. Missing IDs, name and dates are filled in; it needs
// a host name and an address.
func (s *Sim) AddDevice(d Device) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state.clone()
	if err := st.addDevice(d); err != nil {
		return fmt.Errorf("device %q: %w", d.Hostname, err)
	}
	if no := s.commit(st); no != nil {
		return errors.New(no.Message)
	}
	return nil
}

// Devices returns the tailnet's devices.
func (s *Sim) Devices() []Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Device
	for _, d := range s.state.clone().Devices {
		list = append(list, *d)
	}
	return list
}

func (st *state) addDevice(d Device) error {
	if d.Hostname == "" {
		d.Hostname, _, _ = strings.Cut(d.Name, ".")
	}
	if d.Hostname == "" {
		return errors.New("no hostname and no name")
	}
	if len(d.Addresses) == 0 {
		return errors.New("no addresses")
	}
	for _, a := range d.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
		if other := st.deviceByAddress(addr); other != nil {
			return fmt.Errorf("address %s belongs to device %q", a, other.Name)
		}
	}
	if d.NodeID == "" {
		d.NodeID = st.newID("n")
	}
	if d.ID == "" {
		st.NextID++
		d.ID = fmt.Sprint(1000000 + st.NextID)
	}
	if st.device(d.NodeID) != nil || st.device(d.ID) != nil {
		return fmt.Errorf("nodeId %q or id %q is another device's", d.NodeID, d.ID)
	}
	if d.Name == "" {
		d.Name = d.Hostname + "." + st.dnsSuffix()
	}
	if d.Created == "" && !d.IsExternal {
		d.Created = time.Now().UTC().Format(time.RFC3339)
	}
	d.Expires = cmp.Or(d.Expires, noExpiry)
	st.Devices = append(st.Devices, &d)
	st.approveRoutes()
	return nil
}

// dnsSuffix is the domain of the tailnet's names.
func (st *state) dnsSuffix() string {
	for _, d := range st.Devices {
		if _, suffix, ok := strings.Cut(d.Name, "."); ok && !d.IsExternal {
			return suffix
		}
	}
	return "tail1234.ts.net"
}

// device finds a device by node ID or legacy ID.
func (st *state) device(id string) *Device {
	for _, d := range st.Devices {
		if id != "" && (d.NodeID == id || d.ID == id) {
			return d
		}
	}
	return nil
}

func (st *state) deviceByAddress(addr netip.Addr) *Device {
	for _, d := range st.Devices {
		for _, a := range d.Addresses {
			if have, err := netip.ParseAddr(a); err == nil && have == addr {
				return d
			}
		}
	}
	return nil
}

// mayUseTags refuses tags that the policy does not define or that the caller may not give. A user owns what tagOwners
// says, and everything as an administrator of the network; a token owns its tags and what those own.
func (st *state) mayUseTags(who *caller, tags []string) *refusal {
	owners := policySections(st.Policy.HuJSON).TagOwners
	for _, tag := range tags {
		if _, defined := owners[tag]; !defined || !st.owns(who, tag, owners, nil) {
			return refuse(400, "requested tags %v are invalid or not permitted", tags)
		}
	}
	return nil
}

func (st *state) owns(who *caller, tag string, owners map[string][]string, seen []string) bool {
	if slices.Contains(who.tags, tag) {
		return true
	}
	if who.credential.Kind == APIKey {
		u := st.userByLogin(who.credential.User)
		if u == nil || slices.Contains([]string{"owner", "admin", "network-admin"}, u.Role) {
			return true
		}
	}
	for _, owner := range owners[tag] {
		if strings.HasPrefix(owner, "tag:") {
			if !slices.Contains(seen, owner) && st.owns(who, owner, owners, append(seen, tag)) {
				return true
			}
			continue
		}
		if who.credential.Kind == APIKey && st.selects(owner, who.credential.User, nil) {
			return true
		}
	}
	return false
}

// selects reports whether a selector of the policy means the user or one of the tags.
func (st *state) selects(selector, login string, tags []string) bool {
	switch {
	case selector == "*":
		return true
	case strings.HasPrefix(selector, "tag:"):
		return slices.Contains(tags, selector)
	case len(tags) > 0 && selector == "autogroup:tagged":
		return true
	case len(tags) > 0 || login == "":
		return false // a tagged device belongs to no user
	case strings.HasPrefix(selector, "group:"):
		return slices.ContainsFunc(policySections(st.Policy.HuJSON).Groups[selector], func(m string) bool {
			return strings.EqualFold(m, login)
		})
	case strings.HasPrefix(selector, "autogroup:"):
		u := st.userByLogin(login)
		role := strings.TrimPrefix(selector, "autogroup:")
		return role == "member" && (u == nil || u.Type != "shared") || u != nil && u.Role == role
	}
	return strings.EqualFold(selector, login)
}

// approveRoutes enables the advertised routes that the policy's autoApprovers approve. It takes nothing away: neither
// does the real service.
func (st *state) approveRoutes() {
	approvers := policySections(st.Policy.HuJSON).AutoApprovers
	for _, d := range st.Devices {
		for _, route := range d.AdvertisedRoutes {
			prefix, err := netip.ParsePrefix(route)
			if err != nil || slices.Contains(d.EnabledRoutes, route) {
				continue
			}
			by := approvers.ExitNode
			if prefix.Bits() != 0 {
				by = nil
				for approved, who := range approvers.Routes {
					if p, err := netip.ParsePrefix(approved); err == nil && p.Contains(prefix.Addr()) && p.Bits() <= prefix.Bits() {
						by = append(by, who...)
					}
				}
			}
			if slices.ContainsFunc(by, func(selector string) bool { return st.selects(selector, d.User, d.Tags) }) {
				d.EnabledRoutes = append(d.EnabledRoutes, route)
			}
		}
	}
}
