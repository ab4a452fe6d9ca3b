package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// SSHRule is an SSH rule of a device, JSON-identical to what the control plane sends.
type SSHRule struct {
	Principals []SSHPrincipal `json:"principals"`
	// SSHUsers maps the account that is asked for to the one that is used; "" refuses it, "*" is any other and "=" the same.
	SSHUsers  map[string]string `json:"sshUsers"`
	Action    SSHAction         `json:"action"`
	AcceptEnv []string          `json:"acceptEnv,omitempty"`
}

// SSHPrincipal is one address that a session may come from.
type SSHPrincipal struct {
	NodeIP string `json:"nodeIP"`
}

// SSHAction says what becomes of a session: accepted, or held until the control plane has checked the user. The period
// of a check is the control plane's own business and not part of it. What enforceRecorder adds is not known and left out.
type SSHAction struct {
	Accept                    bool     `json:"accept,omitempty"`
	AllowAgentForwarding      bool     `json:"allowAgentForwarding,omitempty"`
	HoldAndDelegate           string   `json:"holdAndDelegate,omitempty"`
	AllowLocalPortForwarding  bool     `json:"allowLocalPortForwarding,omitempty"`
	AllowRemotePortForwarding bool     `json:"allowRemotePortForwarding,omitempty"`
	Recorders                 []string `json:"recorders,omitempty"`
}

// holdAndDelegate is where a device asks about a check. The host that the control plane names is left out.
const holdAndDelegate = "https://unused/machine/ssh/action/$SRC_NODE_ID/to/$DST_NODE_ID?local_user=$LOCAL_USER"

// recorderPort is where a session recorder listens.
const recorderPort = 80

// SSH returns the SSH rules that a device (named as in Devices) gets, nil where it gets none. Members of a group that
// the policy does not list are not in them. The caller must not change the maps and lists.
func (c *Compiled) SSH(device string) ([]SSHRule, error) {
	d := c.x.byKey[device]
	if d == nil {
		return nil, fmt.Errorf("no device %q in the inventory", device)
	}
	if d.IsExternal {
		return nil, nil
	}
	var out []SSHRule
	for _, r := range c.ssh {
		out = append(out, c.sshFor(r, d)...)
	}
	return out, nil
}

// sshRule is an ssh rule before it is reduced to a device.
type sshRule struct {
	node    Node
	action  SSHAction
	src     *srcSet
	dsts    []*resolved // without autogroup:self
	self    bool
	users   map[string]string // those that are the same for everybody
	domains []string          // of localpart:*@domain
	env     []string

	everybody func() []SSHPrincipal
	parties   func() []sshParty
}

func (r *sshRule) checks() bool { return r.action.HoldAndDelegate != "" }

// splits reports whether users come under their own names to others' devices, which makes a rule reach its sources too.
func (r *sshRule) splits() bool { return len(r.domains) > 0 && len(r.dsts) > 0 }

// sshParty is a user among a rule's sources, or, with an empty login, all sources that have no user.
type sshParty struct {
	login      string
	principals []SSHPrincipal
}

// compileSSH resolves the ssh section. Rules that check come before those that accept.
func (c *Compiled) compileSSH() []*sshRule {
	var out []*sshRule
	for i := range c.p.SSH {
		s := &c.p.SSH[i]
		r := &sshRule{
			node: s.Node, env: s.AcceptEnv.Values(), users: map[string]string{rootUser: ""},
			src: c.sources(mapStrings(s.Src, trimmed).Values(), c.v.posture(s.SrcPosture)),
		}
		if trimmed(s.Action).Value == sshCheck {
			r.action.HoldAndDelegate = holdAndDelegate
		} else {
			r.action = SSHAction{Accept: true, AllowAgentForwarding: true, AllowLocalPortForwarding: true, AllowRemotePortForwarding: true}
		}
		for _, t := range s.Recorder.Items {
			for _, d := range c.r.resolve(trimmed(t).Value).devices {
				for _, a := range d.addrs {
					r.action.Recorders = append(r.action.Recorders, netip.AddrPortFrom(a, recorderPort).String())
				}
			}
		}
		for _, dst := range s.Dst.Items {
			to := c.r.resolve(trimmed(dst).Value)
			r.self = r.self || to.self
			if !to.self {
				r.dsts = append(r.dsts, to)
			}
		}
		for _, u := range s.Users.Items {
			u = trimmed(u)
			switch domain, local := localpartDomain(u.Value); {
			case local && !slices.Contains(r.domains, domain):
				r.domains = append(r.domains, domain)
			case local:
			case u.Value == agNonroot:
				r.users["*"] = "="
			default:
				r.users[u.Value] = u.Value
			}
		}
		r.everybody = sync.OnceValue(func() []SSHPrincipal { return c.sshEverybody(r.src) })
		r.parties = sync.OnceValue(func() []sshParty { return c.sshParties(r.src) })
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *sshRule) int {
		switch {
		case a.checks() == b.checks():
			return 0
		case a.checks():
			return -1
		}
		return 1
	})
	return out
}

// sshFor is what a device gets of a rule. Where users of a domain come under their own names, the rule is split by
// user, and each device that is a source and no destination gets, too, what concerns its own user.
func (c *Compiled) sshFor(r *sshRule, d *device) []SSHRule {
	var out []SSHRule
	party := func(p sshParty) {
		out = append(out, r.with(p.principals, r.users))
		_, domain, _ := strings.Cut(p.login, "@")
		if name := loginLocal(p.login); name != "" && slices.Contains(r.domains, domain) {
			out = append(out, r.with(p.principals, map[string]string{name: name}))
		}
	}
	own := func() {
		for _, p := range r.parties() {
			if p.login == d.owner && p.login != "" {
				party(p)
			}
		}
	}
	if r.self {
		own()
	}
	is := func(to *resolved) bool { return to.hasDevice(d) }
	switch {
	case slices.ContainsFunc(r.dsts, is) && len(r.domains) > 0:
		for _, p := range r.parties() {
			party(p)
		}
	case slices.ContainsFunc(r.dsts, is):
		if all := r.everybody(); len(all) > 0 {
			out = append(out, r.with(all, r.users))
		}
	case r.splits() && d.owner != "":
		own()
	case r.splits() && r.src.has(c, endpoint{dev: d}) == Pass:
		party(sshParty{principals: sshPrincipals(d.ips)})
	}
	return out
}

func (r *sshRule) with(principals []SSHPrincipal, users map[string]string) SSHRule {
	return SSHRule{Principals: principals, SSHUsers: users, Action: r.action, AcceptEnv: r.env}
}

func loginLocal(login string) string {
	name, _, _ := strings.Cut(login, "@")
	return name
}

func sshPrincipals(ips []string) []SSHPrincipal {
	ips = slices.Sorted(slices.Values(ips))
	out := make([]SSHPrincipal, len(ips))
	for i, ip := range ips {
		out[i].NodeIP = ip
	}
	return out
}

// sshEverybody lists the addresses of all sources, sorted as text. autogroup:tagged is the sum of its tags: a device
// with two tags is in it twice.
func (c *Compiled) sshEverybody(src *srcSet) []SSHPrincipal {
	var ips []string
	for _, part := range src.parts {
		for _, d := range part.devices {
			if src.posture != nil && src.has(c, endpoint{dev: d}) != Pass {
				continue
			}
			n := 1
			if part.sel.name == agTagged {
				n = len(d.tags())
			}
			for range n {
				ips = append(ips, d.ips...)
			}
		}
	}
	return sshPrincipals(ips)
}

// sshParties splits the sources by user, by the users' ids, and puts those without a user last.
func (c *Compiled) sshParties(src *srcSet) []sshParty {
	byLogin := map[string][]string{}
	for _, d := range c.x.devices {
		if src.has(c, endpoint{dev: d}) == Pass {
			byLogin[d.owner] = append(byLogin[d.owner], d.ips...)
		}
	}
	logins := slices.SortedFunc(maps.Keys(byLogin), func(a, b string) int {
		if a == "" || b == "" {
			return -cmp.Compare(a, b)
		}
		return cmp.Or(c.x.compareUsers(a, b), cmp.Compare(a, b))
	})
	out := make([]sshParty, len(logins))
	for i, l := range logins {
		out[i] = sshParty{login: l, principals: sshPrincipals(byLogin[l])}
	}
	return out
}

// compareUsers orders users by id: by number where both are numbers, else as text; those without a known id last.
func (x *index) compareUsers(a, b string) int {
	u, v := x.login[a], x.login[b]
	switch {
	case u == nil && v == nil:
		return 0
	case u == nil:
		return 1
	case v == nil:
		return -1
	}
	m, errM := strconv.ParseUint(u.ID, 10, 64)
	n, errN := strconv.ParseUint(v.ID, 10, 64)
	if errM == nil && errN == nil {
		return cmp.Compare(m, n)
	}
	return cmp.Compare(u.ID, v.ID)
}
