package policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// nodeAttrs checks the section of that name. The names of attributes are free.
func (v *validator) nodeAttrs() {
	for i := range v.p.NodeAttrs {
		n := &v.p.NodeAttrs[i]
		for _, t := range n.Target.Items {
			v.attrTarget(t)
		}
		for _, p := range n.IPPool.Items {
			v.ipPool(p)
		}
	}
}

func (v *validator) attrTarget(s String) {
	sel := parseSelector(s.Value)
	switch {
	case sel.name == agSelf:
		// The control plane has no answer to it.
		if v.message == "" {
			v.message, v.status = "internal server error", http.StatusInternalServerError
		}
		d := v.report(diag.Error, "bad-target", s.Node, "internal server error", "the control plane fails on autogroup:self here")
		d.Help = []diag.Help{{Message: "every device of a user", Edits: []diag.Edit{replace(s, agMember)}}}
	case sel.name == agInternet, sel.name == agDangerAll, sel.name == agShared, sel.kind == selIPSet, sel.kind == selService, sel.kind == selRange:
		v.refuse("bad-target", s.Node, fmt.Sprintf("%q: invalid address", s.Value), "not a target of attributes")
	case sel.kind == selHost && v.hosts[sel.name] == nil:
		d := v.refuse("bad-target", s.Node, fmt.Sprintf("%q: invalid address", s.Value), "neither in hosts nor an address")
		v.suggest(d, s.Value, v.hostNames, s, same)
	default:
		v.selector(s, sel, "", same)
	}
}

// reservedPools are parts of 100.64.0.0/10 that devices never get addresses from.
func reservedPools() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("100.100.0.0/24"),
		netip.MustParsePrefix("100.100.100.0/24"),
		netip.MustParsePrefix("100.115.92.0/23"),
	}
}

// ipPool checks a network that new devices of the targets get their IPv4 addresses from.
func (v *validator) ipPool(s String) {
	p, err := netip.ParsePrefix(s.Value)
	switch {
	case err != nil:
		v.refuse("bad-ip-pool", s.Node, fmt.Sprintf("IPPool(%s): invalid network", s.Value), "want a CIDR such as 100.81.0.0/16")
	case !within(p, netip.MustParsePrefix("100.64.0.0/10")):
		v.refuse("bad-ip-pool", s.Node, fmt.Sprintf("IPPool(%s): network not within 100.64.0.0/10", s.Value), "not the tailnet's")
	case slices.ContainsFunc(reservedPools(), func(r netip.Prefix) bool { return within(p, r) }):
		v.refuse("bad-ip-pool", s.Node, fmt.Sprintf("IPPool(%s): network within reserved range", s.Value), "no device can have these")
	}
}

func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

// The attributes that mean something to the engine, and the users' roles as capabilities.
const (
	attrFunnel              = "funnel"
	attrRandomizeClientPort = "randomize-client-port"
	capOwner                = "https://tailscale.com/cap/is-owner"
	capAdmin                = "https://tailscale.com/cap/is-admin"
)

// NodeAttrs returns the capability map that a device (named as in Devices) gets, those included that the control plane
// gives of its own accord. A tailnet's settings are in neither policy nor inventory, so automatic updates count as off,
// as they are in a new one. Members of a group that the policy does not list get nothing for it.
func (c *Compiled) NodeAttrs(device string) (map[string][]json.RawMessage, error) {
	d := c.x.byKey[device]
	if d == nil {
		return nil, fmt.Errorf("no device %q in the inventory", device)
	}
	if d.IsExternal {
		return nil, nil
	}
	out := c.baseline(d)
	set := func(name string) {
		if _, ok := out[name]; !ok {
			out[name] = nil
		}
	}
	if c.p.RandomizeClientPort.Value {
		set(attrRandomizeClientPort)
	}
	for i := range c.p.NodeAttrs {
		n := &c.p.NodeAttrs[i]
		if !slices.ContainsFunc(n.Target.Items, func(t String) bool {
			return c.resolveLocked(t.Value).match(c, endpoint{dev: d}) == Pass
		}) {
			continue
		}
		for _, a := range n.Attr.Items {
			set(a.Value)
			if a.Value == attrFunnel {
				set("https://tailscale.com/cap/funnel-ports?ports=443,8443,10000")
				set("https://tailscale.com/cap/warn-funnel-no-https")
			}
		}
		for _, app := range n.App {
			out[app.Name.Value] = append(out[app.Name.Value], app.Values...)
		}
	}
	return out, nil
}

// baseline is what every device gets without a policy, as recorded of the control plane in 2026. A tagged device counts
// as its tailnet's owner, but not as an admin.
func (c *Compiled) baseline(d *device) map[string][]json.RawMessage {
	out := map[string][]json.RawMessage{
		"default-auto-update":                    {json.RawMessage("false")},
		"https://tailscale.com/cap/file-sharing": nil,
		"https://tailscale.com/cap/ssh":          nil,
		"https://tailscale.com/cap/tailnet-lock": nil,
		"probe-udp-lifetime":                     nil,
		"ssh-behavior-v1":                        nil,
		"ssh-env-vars":                           nil,
		"store-appc-routes":                      nil,
	}
	for _, u := range c.x.users {
		if u.isOwner() {
			out["tailnet-display-name"] = []json.RawMessage{json.RawMessage(quote(u.LoginName))}
		}
	}
	u := c.x.login[d.owner]
	if d.tagged() || u != nil && u.isOwner() {
		out[capOwner] = nil
	}
	if u != nil && (u.isOwner() || strings.EqualFold(u.Role, "admin")) {
		out[capAdmin] = nil
	}
	return out
}
