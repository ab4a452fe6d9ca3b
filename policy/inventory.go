package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Inventory is the tailnet as the API's device and user lists give it.
type Inventory struct {
	Devices []Device `json:"devices"`
	Users   []User   `json:"users"`
}

// Device is one device, as in the API's device list (?fields=all).
type Device struct {
	ID         string   `json:"id,omitempty"`
	NodeID     string   `json:"nodeId"`
	Name       string   `json:"name"`
	Hostname   string   `json:"hostname"`
	Addresses  []string `json:"addresses"`
	User       string   `json:"user"`
	Tags       []string `json:"tags,omitempty"`
	Authorized bool     `json:"authorized"`
	// IsExternal says that the device is shared into the tailnet from another one, whose policy governs it.
	IsExternal       bool     `json:"isExternal,omitempty"`
	AdvertisedRoutes []string `json:"advertisedRoutes"`
	// EnabledRoutes are the approved ones. The exit routes 0.0.0.0/0 and ::/0 make the device an exit node.
	EnabledRoutes []string `json:"enabledRoutes"`
	// BlocksIncomingConnections says that the device refuses whatever comes in, whatever the policy admits.
	BlocksIncomingConnections bool   `json:"blocksIncomingConnections,omitempty"`
	OS                        string `json:"os,omitempty"`
	ClientVersion             string `json:"clientVersion,omitempty"`
	// ClientConnectivity.Endpoints are the node's own view of its UDP addresses, "ip:port".
	ClientConnectivity *ClientConnectivity `json:"clientConnectivity,omitempty"`
}

// ClientConnectivity is the part of the API's object of that name that the engine and the planner read.
type ClientConnectivity struct {
	Endpoints []string `json:"endpoints"`
}

// User is one user, as in the API's user list.
type User struct {
	ID        string `json:"id"`
	LoginName string `json:"loginName"`
	Role      string `json:"role"`
	Status    string `json:"status"`
	Type      string `json:"type"`
}

// ParseInventory reads {"devices":[…],"users":[…]} as the API writes it; keys that the engine does not use are ignored.
// The users may be missing: what depends on them is then not checked. A device that does not say whether it is authorized
// is.
func ParseInventory(src []byte) (*Inventory, error) {
	var wire struct {
		Devices []struct {
			Device
			// A hand-written inventory need not say that a device is in use; the API always does.
			Authorized *bool `json:"authorized"`
		} `json:"devices"`
		Users []User `json:"users"`
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	if err := dec.Decode(&wire); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("inventory: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("inventory: more than one JSON value")
	}
	if wire.Devices == nil {
		return nil, errors.New(`inventory: no "devices": want {"devices":[…],"users":[…]} as in the API's answers`)
	}
	inv := &Inventory{Devices: make([]Device, len(wire.Devices)), Users: wire.Users}
	for i := range wire.Devices {
		inv.Devices[i] = wire.Devices[i].Device
		inv.Devices[i].Authorized = wire.Devices[i].Authorized == nil || *wire.Devices[i].Authorized
	}
	for i := range inv.Devices {
		if err := inv.Devices[i].validate(); err != nil {
			return nil, fmt.Errorf("inventory: devices[%d] (%q): %w", i, inv.Devices[i].Hostname, err)
		}
	}
	return inv, nil
}

func (d *Device) validate() error {
	for i, a := range d.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("addresses[%d]: %q is not an address", i, a)
		}
	}
	for i, r := range d.EnabledRoutes {
		if _, err := netip.ParsePrefix(r); err != nil {
			return fmt.Errorf("enabledRoutes[%d]: %q is not a CIDR", i, r)
		}
	}
	return nil
}

// device is a Device made ready for resolving.
type device struct {
	*Device
	n      int    // position in index.devices
	key    string // how filters name it: the host name, where two share it the first label of the name
	addrs  []netip.Addr
	ips    []string // addrs as text
	ranks  []int    // places of ips in index.texts
	routes []netip.Prefix
	exit4  bool
	exit6  bool
	owner  string // login name, empty for a tagged or shared-in device
}

// tagged reports whether the device acts as its tags and has no user. The tags of a shared-in device are not ours.
func (d *device) tagged() bool { return len(d.Tags) > 0 && !d.IsExternal }

func (d *device) tags() []string {
	if d.IsExternal {
		return nil
	}
	return d.Tags
}

// index holds an inventory's devices in an order of its own, so that nothing depends on the order of a list, and finds
// them by what selectors name. Devices that are not authorized are left out: no peer knows them. A nil Inventory gives
// an empty index with known false.
type index struct {
	known   bool
	devices []*device
	users   []*User
	login   map[string]*User
	byTag   map[string][]*device
	byUser  map[string][]*device
	byAddr  map[netip.Addr]*device
	byKey   map[string]*device
	pending []*device    // not authorized: in no selector and no filter
	texts   []string     // the addresses of all devices, sorted as text
	addrs   []netip.Addr // the same, sorted as addresses
}

func newIndex(inv *Inventory) *index {
	x := &index{
		login: map[string]*User{}, byTag: map[string][]*device{}, byUser: map[string][]*device{},
		byAddr: map[netip.Addr]*device{}, byKey: map[string]*device{},
	}
	if inv == nil {
		return x
	}
	x.known = true
	x.devices = make([]*device, 0, len(inv.Devices))
	for i := range inv.Devices {
		if d := newDevice(&inv.Devices[i]); d.Authorized {
			x.devices = append(x.devices, d)
		} else {
			x.pending = append(x.pending, d)
		}
	}
	for _, list := range [][]*device{x.devices, x.pending} {
		slices.SortStableFunc(list, func(a, b *device) int {
			return cmp.Or(strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.Name, b.Name),
				strings.Compare(a.NodeID, b.NodeID), strings.Compare(a.ID, b.ID), slices.Compare(a.ips, b.ips))
		})
	}
	for i := range inv.Users {
		x.users = append(x.users, &inv.Users[i])
		x.login[inv.Users[i].LoginName] = &inv.Users[i]
	}
	hosts := make(map[string]int, len(x.devices))
	for _, d := range x.devices {
		hosts[d.Hostname]++
	}
	for n, d := range x.devices {
		d.n = n
		d.key = d.Hostname
		if label, _, _ := strings.Cut(d.Name, "."); label != "" && (hosts[d.Hostname] > 1 || d.key == "") {
			d.key = label
		}
		if d.key == "" || x.byKey[d.key] != nil {
			d.key = cmp.Or(d.NodeID, d.ID, d.Name, strings.Join(d.ips, ","), "device "+strconv.Itoa(n))
		}
		x.byKey[d.key] = d
		for _, t := range d.tags() {
			if l := x.byTag[t]; len(l) == 0 || l[len(l)-1] != d {
				x.byTag[t] = append(x.byTag[t], d)
			}
		}
		if d.owner != "" {
			x.byUser[d.owner] = append(x.byUser[d.owner], d)
		}
		for _, a := range d.addrs {
			x.byAddr[a] = d
		}
	}
	x.rank()
	x.addrs = slices.SortedFunc(maps.Keys(x.byAddr), netip.Addr.Compare)
	return x
}

func newDevice(src *Device) *device {
	d := &device{Device: src}
	for _, s := range src.Addresses {
		if a, err := netip.ParseAddr(s); err == nil {
			d.addrs = append(d.addrs, a)
		}
	}
	slices.SortStableFunc(d.addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	for _, a := range d.addrs {
		d.ips = append(d.ips, a.String())
	}
	for _, s := range src.EnabledRoutes {
		r, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
		case r.Bits() > 0:
			d.routes = append(d.routes, r.Masked())
		case r.Addr().Is4():
			d.exit4 = true
		default:
			d.exit6 = true
		}
	}
	if !d.tagged() && !src.IsExternal {
		d.owner = src.User
	}
	return d
}

// knowsUser reports whether login exists. Without a list of users, whoever owns a device does.
func (x *index) knowsUser(login string) bool {
	return x.login[login] != nil || len(x.byUser[login]) > 0
}

// isGuest reports whether login is no member of the tailnet: somebody who has accepted that a device is shared with them.
func (x *index) isGuest(login string) bool {
	u := x.login[login]
	return u != nil && strings.EqualFold(u.Type, "shared")
}

// hasDomain reports whether domain is the tailnet's own, which the control plane calls associated with the tailnet. An
// inventory does not name those, and users who were invited from elsewhere are in it too, so the domain of the owner's
// login counts; where no owner is listed, that of any user. Where no login has a domain nothing is known, and any may be.
func (x *index) hasDomain(domain string) bool {
	if !slices.ContainsFunc(x.users, func(u *User) bool { return loginDomain(u.LoginName) != "" }) {
		return true
	}
	owner := slices.ContainsFunc(x.users, func(u *User) bool { return u.isOwner() })
	return slices.ContainsFunc(x.users, func(u *User) bool {
		return (u.isOwner() || !owner) && loginDomain(u.LoginName) == domain
	})
}

func (u *User) isOwner() bool { return strings.EqualFold(u.Role, "owner") }

func loginDomain(login string) string {
	_, domain, _ := strings.Cut(login, "@")
	return domain
}

// find returns the device that a person means: by host name, full or short name, node id or address.
func (x *index) find(name string) *device {
	if d := x.byKey[name]; d != nil {
		return d
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return x.byAddr[a]
	}
	if i := slices.IndexFunc(x.devices, func(d *device) bool { return d.called(name) }); i >= 0 {
		return x.devices[i]
	}
	return nil
}

func (d *device) called(name string) bool {
	label, _, _ := strings.Cut(d.Name, ".")
	return name != "" && (d.Hostname == name || d.Name == name || label == name || d.NodeID == name || d.ID == name)
}
