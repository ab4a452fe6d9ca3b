package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// The actions of an ssh rule.
const (
	sshAccept = "accept"
	sshCheck  = "check"
)

// The names in users that are not those of accounts.
const (
	rootUser        = "root"
	agNonroot       = "autogroup:nonroot"
	localpartPrefix = "localpart:*@"
)

// maxCheckPeriod is the longest that a check may hold. The documented minimum of a minute is not enforced.
const maxCheckPeriod = 168 * time.Hour

// trimmed takes the blanks off a string, as the control plane does in ssh rules.
func trimmed(s String) String {
	s.Value = strings.TrimSpace(s.Value)
	return s
}

// localpartDomain returns the domain of "localpart:*@domain". Anything else, "localpart:*@" too, is the name of an account.
func localpartDomain(user string) (string, bool) {
	domain, ok := strings.CutPrefix(user, localpartPrefix)
	return domain, ok && domain != ""
}

// ssh checks the section of that name.
func (v *validator) ssh() {
	for i := range v.p.SSH {
		s := &v.p.SSH[i]
		v.sshAction(s)
		v.sshUsers(s)
		v.sshAcceptEnv(s)
		v.sshCheckPeriod(s)
		for _, src := range s.Src.Items {
			v.sshSrc(trimmed(src), s)
		}
		self := false
		for _, dst := range s.Dst.Items {
			self = v.sshDst(trimmed(dst), s) || self
		}
		if self {
			v.selfSources(mapStrings(s.Src, trimmed), false)
		}
		v.postureNames(s.SrcPosture)
		for _, r := range s.Recorder.Items {
			if r = trimmed(r); v.tagOwners[r.Value] == nil {
				v.unknownTag(r, fmt.Sprintf("[ssh] tag not found: %q", r.Value), r.Value, same)
			}
		}
	}
}

func mapStrings(list Strings, f func(String) String) Strings {
	out := list
	out.Items = make([]String, len(list.Items))
	for i, s := range list.Items {
		out.Items[i] = f(s)
	}
	return out
}

// or is the place of s, or fallback where s is not in the text.
func (s String) or(fallback Node) Node {
	if s.Range.IsZero() {
		return fallback
	}
	return s.Node
}

func (v *validator) sshAction(s *SSH) {
	switch a := trimmed(s.Action); a.Value {
	case sshAccept, sshCheck:
	case "":
		d := v.refuse("bad-action", a.or(s.Node), "action must be specified", "no action")
		d.Help = []diag.Help{{Message: `say "accept", or "check" to have users confirm who they are from time to time`}}
	default:
		d := v.refuse("bad-action", a.Node, fmt.Sprintf("%q is not a valid action", a.Value), `want "accept" or "check"`)
		v.suggest(d, a.Value, namesOnly([]string{sshAccept, sshCheck}), a, same)
		if a.Value == "deny" {
			d.Notes = []string{"what no rule accepts is denied"}
		}
	}
}

func (v *validator) sshUsers(s *SSH) {
	if len(s.Users.Items) == 0 {
		at := s.Users.Node
		if !s.Users.Present {
			at = s.Node
		}
		d := v.refuse("no-ssh-users", at, "users must be specified", "no users")
		d.Help = []diag.Help{{Message: `name accounts of the host, or "autogroup:nonroot" for all but root`}}
	}
	for _, u := range s.Users.Items {
		u = trimmed(u)
		domain, local := localpartDomain(u.Value)
		switch {
		case u.Value == "*":
			d := v.refuse("bad-ssh-user", u.Node, `user "*" is not valid`, "names nobody")
			d.Help = []diag.Help{{Message: "every account but root", Edits: []diag.Edit{replace(u, agNonroot)}}}
		case u.Value == "":
			v.refuse("bad-ssh-user", u.Node, `user "" is not valid`, "empty")
		case local:
			v.ownDomain(u, domain, "")
		case u.Value == agNonroot:
		case strings.ContainsAny(u.Value, ":@"):
			v.report(diag.Warning, "literal-ssh-user", u.Node, fmt.Sprintf("user %q is taken as the name of an account", u.Value),
				"no account has such a name").Notes = []string{
				`only "autogroup:nonroot" and "localpart:*@DOMAIN" mean something else than an account of that very name`,
			}
		}
	}
}

func (v *validator) sshAcceptEnv(s *SSH) {
	for _, e := range s.AcceptEnv.Items {
		if e.Value == "" {
			v.refuse("bad-accept-env", e.Node, "acceptEnv values cannot be empty", "empty")
		}
	}
}

func (v *validator) sshCheckPeriod(s *SSH) {
	p := trimmed(s.CheckPeriod)
	if p.Value == "" || p.Value == "always" {
		return
	}
	period, err := time.ParseDuration(p.Value)
	switch {
	case err != nil:
		v.refuse("bad-check-period", p.Node, err.Error(), `want a time such as "12h" or "30m", or "always"`)
	case period < 0:
		v.refuse("bad-check-period", p.Node, fmt.Sprintf("checkPeriod %v must be a positive duration", period), "less than nothing")
	case period > maxCheckPeriod:
		d := v.refuse("bad-check-period", p.Node, fmt.Sprintf("checkPeriod %v is above the max (168h)", period), "more than a week")
		d.Help = []diag.Help{{Message: "a week is the longest", Edits: []diag.Edit{replace(p, "168h")}}}
	case trimmed(s.Action).Value == sshAccept:
		v.report(diag.Warning, "bad-check-period", p.Node, `checkPeriod means nothing with action "accept"`, "has no effect")
	}
}

// sshSrc checks a source: somebody in particular, never an address.
func (v *validator) sshSrc(s String, rule *SSH) {
	sel := parseSelector(s.Value)
	switch sel.kind {
	case selDomain:
		v.ownDomain(s, sel.name, "[ssh] ")
		return
	case selUser, selGroup, selTag, selAutogroup:
	default:
		v.refuse("bad-ssh-end", s.Node, fmt.Sprintf("invalid src %q", s.Value), "want a user, a group, a tag or an autogroup")
		return
	}
	switch sel.name {
	case agSelf, agInternet:
		v.refuse("bad-selector", s.Node, fmt.Sprintf("%q not valid on the src side of a rule", s.Value), "not a source")
		return
	case agDangerAll, agShared:
		v.refuse("bad-ssh-end", s.Node, fmt.Sprintf("invalid src %q", s.Value), "not only users and devices of the tailnet")
		return
	}
	v.selector(s, sel, "[ssh] ", same)
	if tagged := sel.kind == selTag || sel.name == agTagged; tagged && trimmed(rule.Action).Value == sshCheck {
		d := v.refuse("bad-action", rule.Action.Node, fmt.Sprintf("src %q cannot be checked", s.Value), "nobody is there to confirm")
		d.Related = []diag.Related{{Message: "a tagged device is no user", Range: s.Range}}
	}
}

// sshDst checks a destination and reports whether it is autogroup:self. Devices of a user take sessions from the same
// user alone, and nobody can be sure whose an address is.
func (v *validator) sshDst(s String, rule *SSH) (self bool) {
	sel := parseSelector(s.Value)
	switch {
	case sel.name == agSelf:
		return true
	case sel.name == agTagged:
		return false
	case sel.kind == selTag:
		if v.tagOwners[sel.name] == nil {
			v.noPort(v.unknownTag(s, fmt.Sprintf("[ssh] tag not found: %q", sel.name), sel.name, same), s)
		}
		return false
	case sel.kind == selUser:
		if slices.ContainsFunc(rule.Src.Items, func(src String) bool { return trimmed(src).Value != s.Value }) {
			d := v.refuse("bad-ssh-end", s.Node, "users in dst are only allowed from the same user", "a user's devices take sessions from that user alone")
			if !slices.ContainsFunc(rule.Src.Items, func(src String) bool { return !ownsDevices(parseSelector(trimmed(src).Value), false) }) {
				d.Help = []diag.Help{{Message: "the devices of whoever connects are autogroup:self", Edits: []diag.Edit{replace(s, agSelf)}}}
			}
		}
		return false
	}
	d := v.refuse("bad-ssh-end", s.Node, fmt.Sprintf("invalid dst %q", s.Value), "want a tag, autogroup:tagged or autogroup:self")
	switch sel.kind {
	case selHost, selAddr, selCIDR:
		d.Notes = []string{"an address may become somebody else's; give the device a tag and name that"}
	}
	return false
}

// ownDomain checks that a domain is one of the tailnet's. prefix begins the message.
func (v *validator) ownDomain(s String, domain, prefix string) {
	if !v.x.known || len(v.x.users) == 0 || v.x.hasDomain(domain) {
		return
	}
	d := v.refuse("foreign-domain", s.Node, prefix+foreignDomain(domain), "not the tailnet's domain")
	d.Notes = []string{"the tailnet's domain is taken to be that of its owner's login; the inventory does not tell of others"}
}
