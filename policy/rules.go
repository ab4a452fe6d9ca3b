package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// acl checks an entry of acls.
func (v *validator) acl(a *ACL) {
	if a.Action.Value != "accept" {
		at := a.Action.Node
		if at.Range.IsZero() {
			at = a.Node
		}
		d := v.refuse("bad-action", at, fmt.Sprintf("action=%q is not supported", a.Action.Value), "an acl can only accept")
		d.Notes = []string{"what no rule accepts is denied"}
	}
	proto, err := parseProto(a.Proto.Value)
	if err != nil {
		d := v.refuse("bad-proto", a.Proto.Node, err.Error(), "no protocol of this name")
		v.suggest(d, a.Proto.Value, namesOnly(slices.Collect(maps.Keys(protocolNames()))), a.Proto, same)
	}
	for _, s := range a.Src.Items {
		v.src(s)
	}
	self := false
	for _, s := range a.Dst.Items {
		self = v.aclDst(s, proto, a.Proto.Value) || self
	}
	if self {
		v.selfSources(a.Src, true)
	}
	v.postureNames(a.SrcPosture)
}

// aclDst checks a "selector:ports" and reports whether it is autogroup:self.
func (v *validator) aclDst(s String, proto int, protoText string) (self bool) {
	host, portText, err := splitHostPort(s.Value)
	var ports []PortRange
	if err == nil {
		ports, err = parsePorts(portText)
	}
	if err != nil {
		d := v.refuse("bad-ports", s.Node, fmt.Sprintf("dst=%q: %v", s.Value, err), "want \"selector:ports\"")
		if v.known(s.Value) {
			d.Help = []diag.Help{{Message: `an acl names the ports, "*" for all`, Edits: []diag.Edit{replace(s, s.Value+":*")}}}
		}
		return false
	}
	sel := parseSelector(host)
	v.dst(s, sel, fmt.Sprintf("dst=%q: ", host), func(name string) string { return name + ":" + portText })
	if !hasPorts(proto) && (len(ports) != 1 || !ports[0].isAll()) {
		v.portless(s, protoText, host+":*")
	}
	return sel.name == agSelf
}

func (v *validator) portless(s String, proto, mended string) {
	d := v.refuse("port-on-portless", s.Node, fmt.Sprintf("%q: protocol %q has no ports, use '*'", s.Value, proto), "has a port")
	d.Help = []diag.Help{{Message: `name all ports: "*"`, Edits: []diag.Edit{replace(s, mended)}}}
}

// grant checks an entry of grants.
func (v *validator) grant(g *Grant) {
	for _, s := range g.Src.Items {
		v.src(s)
	}
	self, beyond := false, ""
	for _, s := range g.Dst.Items {
		sel := parseSelector(s.Value)
		if sel.kind == selCIDR && isEverything(sel.addrs) {
			v.refuse("whole-internet", s.Node, fmt.Sprintf("dst %q: to allow all IP addresses, use \"*\" or \"autogroup:internet\"", s.Value), "every address")
			continue
		}
		if !v.colonInDst(s, sel) {
			v.dst(s, sel, fmt.Sprintf("dst %q: ", s.Value), same)
		}
		self = self || sel.name == agSelf
		if _, role := roleAutogroups(sel.name); beyond == "" && (role || sel.name == agInternet) {
			beyond = sel.name
		}
	}
	if self {
		v.selfSources(g.Src, false)
	}
	if len(g.IP.Items) == 0 && len(g.App) == 0 {
		d := v.refuse("empty-grant", g.Node, "ip and app can not both be empty", "grants nothing")
		d.Help = []diag.Help{{Message: `say what it grants, for example "ip": ["tcp:443"]`}}
	}
	for _, s := range g.IP.Items {
		v.grantIP(s)
	}
	for _, c := range g.App {
		v.capability(c.Name)
	}
	if beyond != "" && len(g.App) > 0 {
		label := "nobody on the internet reads it"
		if beyond != agInternet {
			label = "not granted on the devices of a role" // as documented; the words are those known of autogroup:internet
		}
		v.refuse("app-internet", g.AppNode, "cannot use app grants with "+beyond, label)
	}
	for _, s := range g.Via.Items {
		switch {
		case !strings.HasPrefix(s.Value, "tag:"):
			v.refuse("bad-via", s.Node, "via can only be a tag", "no tag")
		case v.tagOwners[s.Value] == nil:
			v.unknownTag(s, fmt.Sprintf("tag %q not found", s.Value), s.Value, same)
		}
	}
	v.postureNames(g.SrcPosture)
}

// grantIP checks an entry of a grant's ip.
func (v *validator) grantIP(s String) {
	pp, err := parseProtoPorts(s.Value)
	_, named := protocolNames()[strings.ToLower(s.Value)]
	switch {
	case err != nil && named:
		d := v.refuse("port-not-protocol", s.Node, err.Error(), "without a colon this is a port")
		d.Help = []diag.Help{{Message: "name the protocol and all its ports", Edits: []diag.Edit{replace(s, s.Value+":*")}}}
	case err != nil:
		d := v.refuse("bad-ports", s.Node, err.Error(), `want "ports" or "protocol:ports"`)
		if strings.Contains(s.Value, ",") {
			d.Help = []diag.Help{{Message: "give each port an entry of its own"}}
		}
	case !hasPorts(pp.proto) && !pp.ports.isAll():
		proto, _, _ := strings.Cut(s.Value, ":")
		v.portless(s, proto, proto+":*")
	case pp.proto == 0 && pp.ports.First == pp.ports.Last && looksLikeProtocol(int(pp.ports.First)):
		name := protoName(int(pp.ports.First))
		d := v.report(diag.Warning, "port-not-protocol", s.Node, fmt.Sprintf("%q is port %d of tcp and udp, not protocol %d (%s)",
			s.Value, pp.ports.First, pp.ports.First, name), "without a colon this is a port")
		d.Help = []diag.Help{{Message: "if the protocol is meant", Edits: []diag.Edit{replace(s, name+":*")}}}
	}
}

// looksLikeProtocol reports whether a bare number in a grant's ip is more likely meant as a protocol: those that
// policies name and that have no ports.
func looksLikeProtocol(n int) bool {
	switch n {
	case protoICMP, 2, protoIPIP, 47, 50, 51, protoICMPv6:
		return true
	}
	return false
}

// capability checks the name of an application capability.
func (v *validator) capability(s String) {
	domain, path, ok := strings.Cut(s.Value, "/")
	switch {
	case !ok || domain == "" || path == "" || strings.Contains(domain, ":"):
		v.refuse("bad-capability", s.Node, "capability name must have the form {domain}/{path}", "no domain and path").Notes = []string{
			`such as "example.com/cap/metrics", without a scheme`,
		}
	case (domain == "tailscale.com" || strings.HasSuffix(domain, ".tailscale.com")) && !grantableCapability(s.Value):
		v.refuse("bad-capability", s.Node, "capability name must not be in the tailscale.com domain", "reserved")
	}
}

// grantableCapability lists the capabilities of the tailscale.com domain that a policy may grant: those that Tailscale
// documents, or that its own applications or public policies in force name.
func grantableCapability(name string) bool {
	switch strings.TrimPrefix(name, "tailscale.com/cap/") {
	case "aperture", "databases", "drive", "golink", "kubernetes", "pam", "proxy-to-grafana", "relay", "secrets", "tailsql", "tsidp", "webui":
		return true
	}
	return false
}

// known reports whether text, without ports, is a selector that names something.
func (v *validator) known(text string) bool {
	switch sel := parseSelector(text); sel.kind {
	case selTag:
		return v.tagOwners[sel.name] != nil
	case selGroup:
		return v.groups[sel.name] != nil || strings.Contains(sel.name, "@")
	case selHost:
		return v.hosts[sel.name] != nil
	case selIPSet:
		return v.ipsets[sel.name] != nil
	case selAutogroup:
		return knownAutogroup(sel.name)
	}
	return true
}

func knownAutogroup(name string) bool {
	switch name {
	case agMember, agTagged, agSelf, agInternet, agShared, agDangerAll:
		return true
	}
	_, ok := roleAutogroups(name)
	return ok
}

// src checks a source of an acl or a grant.
func (v *validator) src(s String) {
	sel := parseSelector(s.Value)
	if sel.onlyDst() {
		v.wrongSide(s, sel, "src", "only as dst")
		return
	}
	v.selector(s, sel, "src=", same)
}

// dst checks a destination without its ports; put adds them again to a mended name. prefix begins the message: the
// control plane has one for acls and one for grants.
func (v *validator) dst(s String, sel selector, prefix string, put func(string) string) {
	if sel.name == agDangerAll {
		v.refuse("bad-selector", s.Node, "cannot use autogroup:danger-all as a dst", "only as src")
		return
	}
	if sel.onlySrc() {
		v.wrongSide(String{Node: s.Node, Value: sel.text}, sel, "dst", "only as src")
		return
	}
	v.selector(s, sel, prefix, put)
}

// wrongSide refuses a selector that cannot stand on that side of a rule. The words are known of src.
func (v *validator) wrongSide(s String, sel selector, side, label string) {
	if sel.kind == selRange {
		label = "a range of addresses"
	}
	d := v.refuse("bad-selector", s.Node, fmt.Sprintf("%q not valid on the %s side of a rule", s.Value, side), label)
	if sel.kind == selRange {
		d.Help = []diag.Help{{Message: "put the range into an ipset and name that"}}
	}
}

// selector reports a name that is not defined. prefix begins the message, as the control plane words it.
func (v *validator) selector(s String, sel selector, prefix string, put func(string) string) {
	if v.known(sel.text) {
		v.domain(s, sel)
		v.user(s, sel, prefix, put)
		return
	}
	switch sel.kind {
	case selTag:
		d := v.unknownTag(s, prefix+fmt.Sprintf("tag not found: %q", sel.name), sel.name, put)
		v.portInGrant(d, s, sel)
	case selGroup:
		v.unknownGroup(s, prefix+fmt.Sprintf("group not found: %q", sel.name), sel.name, put)
	case selIPSet:
		d := v.refuse("unknown-ipset", s.Node, prefix+fmt.Sprintf("ipset not found: %q", sel.name), "not in ipsets")
		v.suggest(d, sel.name, v.ipsetNames, s, put)
	case selAutogroup:
		d := v.refuse("unknown-autogroup", s.Node, prefix+fmt.Sprintf("autogroup not found: %q", sel.name), "no such autogroup")
		v.suggest(d, sel.name, namesOnly(autogroups()), s, put)
	default:
		d := v.refuse("unknown-host", s.Node, prefix+fmt.Sprintf("unknown user or host: %q", sel.name), "neither in hosts nor an address")
		v.suggest(d, sel.name, v.hostNames, s, put)
		v.portInGrant(d, s, sel)
	}
}

// colonInDst refuses a grant's destination that has a colon and is nothing that may have one. The control plane takes it
// for a host's name; as a rule it is a name with the ports of an acl.
func (v *validator) colonInDst(s String, sel selector) bool {
	switch sel.kind {
	case selUser:
	case selHost, selAutogroup:
		if v.known(sel.text) {
			return false
		}
	default:
		return false
	}
	if !strings.Contains(s.Value, ":") {
		return false
	}
	code, label := "unknown-host", "neither in hosts nor an address"
	if sel.kind == selAutogroup {
		code, label = "unknown-autogroup", "no such autogroup"
	}
	d := v.refuse(code, s.Node, fmt.Sprintf("dst %q: host name must not contain colon (\":\") for %q", s.Value, s.Value), label)
	if sel.kind == selAutogroup {
		v.suggest(d, sel.name, namesOnly(autogroups()), s, same)
	}
	v.portInGrant(d, s, sel)
	return true
}

// portInGrant explains a destination that would be right in an acl.
func (v *validator) portInGrant(d *diag.Diagnostic, s String, sel selector) {
	host, ports, err := splitHostPort(sel.text)
	if err != nil || !strings.HasPrefix(s.Path, "grants") {
		return
	}
	if _, err := parsePorts(ports); err != nil {
		return
	}
	if !v.known(host) {
		return
	}
	d.Label = `in a grant the ports go into "ip"`
	d.Help = []diag.Help{{Message: fmt.Sprintf("write %q here and %q into ip", host, ports)}}
}

// user warns of a login that the tailnet does not have: the rule has no effect for it, which is what a misspelling does.
func (v *validator) user(s String, sel selector, prefix string, put func(string) string) {
	if sel.kind != selUser || !v.x.known || len(v.x.users) == 0 || v.x.knowsUser(sel.name) {
		return
	}
	d := v.report(diag.Warning, "unknown-user", s.Node, prefix+fmt.Sprintf("user not found: %q", sel.name), "not in the inventory")
	v.suggest(d, sel.name, namesOnly(slices.Collect(maps.Keys(v.x.login))), s, put)
}

// domain checks user:*@domain, which takes only domains of the tailnet's own users.
func (v *validator) domain(s String, sel selector) {
	if sel.kind == selDomain {
		v.ownDomain(s, sel.name, "")
	}
}

// foreignDomain is the control plane's message for a domain that is not the tailnet's; "<domain>" is part of it.
func foreignDomain(domain string) string {
	return domain + " is not associated with this Tailnet and cannot be used in user:*@<domain> expressions"
}

// selfSources checks the sources of a rule whose dst is autogroup:self: users, and "*" in acls alone.
func (v *validator) selfSources(src Strings, wildcard bool) {
	for _, s := range src.Items {
		if sel := parseSelector(s.Value); !ownsDevices(sel, wildcard) {
			d := v.refuse("bad-self", s.Node, "autogroup:self can only be used with users, groups, or supported autogroups", "has no devices of its own")
			if sel.kind == selAny {
				d.Label = `"*" is not a user`
				d.Help = []diag.Help{{Message: "every user of the tailnet is autogroup:member", Edits: []diag.Edit{replace(s, agMember)}}}
			}
			return
		}
	}
}

// ownsDevices reports whether a selector stands for users, who have devices of their own; "*" does where wildcard.
func ownsDevices(sel selector, wildcard bool) bool {
	switch sel.kind {
	case selUser, selGroup, selDomain:
		return true
	case selAny:
		return wildcard
	case selAutogroup:
		return sel.name != agTagged && sel.name != agDangerAll && sel.name != agShared
	}
	return false
}
