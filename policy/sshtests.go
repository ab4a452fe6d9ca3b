package policy

import (
	"fmt"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// sshTests checks the section of that name, as far as the control plane refuses entries before it judges them. What
// else is wrong with an entry fails as a test.
func (v *validator) sshTests() {
	for i := range v.p.SSHTests {
		t := &v.p.SSHTests[i]
		v.sshTestEnd(trimmed(t.Src), "src")
		for _, dst := range t.Dst.Items {
			v.sshTestEnd(trimmed(dst), "dst")
		}
	}
}

// sshTestEnd refuses ends that are no one identity: a session is between two devices. That autogroups are none is known of
// src; as dst one's own devices are somebody's.
func (v *validator) sshTestEnd(s String, side string) {
	sel := parseSelector(s.Value)
	many := sel.kind == selAny || sel.kind == selIPSet || sel.kind == selCIDR || sel.kind == selRange
	if h := v.hosts[sel.name]; sel.kind == selHost && h != nil {
		_, kind, _ := parseAddrs(h.Value.Value)
		many = kind == selCIDR
	}
	if sel.kind == selAutogroup {
		many = sel.name != agSelf || side == "src"
	}
	switch {
	case sel.kind == selTag && v.tagOwners[sel.name] == nil:
		v.noPort(v.unknownTag(s, fmt.Sprintf("SSH tests %s contains unknown tag %q", side, sel.name), sel.name, same), s)
	case many && side == "dst":
		v.refuse("bad-ssh-test-dst", s.Node, fmt.Sprintf("SSH tests dst contains disallowed element %q", s.Value), "no device in particular")
	case many:
		d := v.refuse("bad-selector", s.Node, fmt.Sprintf("SSH tests src contains disallowed element %q", s.Value), "nobody in particular")
		if sel.kind == selAutogroup {
			d.Help = []diag.Help{{Message: "name one of its users"}}
		}
	}
}

// noPort explains a tag with a port, as an acl has it.
func (v *validator) noPort(d *diag.Diagnostic, s String) {
	host, _, err := splitHostPort(s.Value)
	if err != nil || v.tagOwners[host] == nil {
		return
	}
	d.Label = "ssh has no ports"
	d.Related = nil
	d.Help = []diag.Help{{Message: "take the port off", Edits: []diag.Edit{replace(s, host)}}}
}

// evalSSHTests judges the entries of sshTests, one result for each user of accept, deny and check on each dst. Network
// rules have no part in it: whether port 22 is open is for tests.
func (c *Compiled) evalSSHTests() []TestResult {
	var out []TestResult
	for i := range c.p.SSHTests {
		out = append(out, c.evalSSHTest(&c.p.SSHTests[i])...)
	}
	return out
}

func (c *Compiled) evalSSHTest(t *SSHTest) []TestResult {
	invalid := TestResult{Path: t.Path, Src: t.Src.Value, Got: "invalid", Verdict: Fail, Range: t.Range}
	switch {
	case len(t.Accept.Items)+len(t.Deny.Items)+len(t.Check.Items) == 0:
		invalid.Reason = "neither accept nor deny nor check"
		return []TestResult{invalid}
	case len(t.Dst.Items) == 0:
		invalid.Reason = "dst must be specified"
		return []TestResult{invalid}
	case trimmed(t.Src).Value == "":
		invalid.Reason = "src must be specified"
		return []TestResult{invalid}
	}
	src, srcMissing, err := c.testEnd(trimmed(t.Src).Value)
	if err != nil {
		invalid.Reason = fmt.Sprintf("src: %v", err)
		return []TestResult{invalid}
	}
	if t.SrcPostureAttrs != nil {
		for i := range src {
			src[i].attrs = textAttrs(t.SrcPostureAttrs)
		}
	}
	var out []TestResult
	for _, dst := range t.Dst.Items {
		dst = trimmed(dst)
		ends, missing, err := []endpoint(nil), "", error(nil)
		to := c.ownDevices
		if dst.Value != agSelf {
			ends, missing, err = c.testEnd(dst.Value)
			all := c.parties(ends)
			to = func(endpoint) []party { return all }
		}
		line := func(s String, want string) {
			s = trimmed(s)
			r := TestResult{Path: s.Path, Src: t.Src.Value, Dst: dst.Value, User: s.Value, Want: want, Range: s.Range}
			switch {
			case err != nil:
				r.Reason = fmt.Sprintf("dst: %v", err)
			case s.Value == "" || s.Value == "*":
				r.Reason = fmt.Sprintf("user %q is not valid", s.Value)
			default:
				r.judgeSSH(c.sshBetween(src, to, s.Value, srcMissing, missing))
				out = append(out, r)
				return
			}
			r.Got, r.Verdict = "invalid", Fail
			out = append(out, r)
		}
		for _, s := range t.Accept.Items {
			line(s, sshAccept)
		}
		for _, s := range t.Deny.Items {
			line(s, "drop")
		}
		for _, s := range t.Check.Items {
			line(s, sshCheck)
		}
	}
	return out
}

// ownDevices is autogroup:self for a source.
func (c *Compiled) ownDevices(src endpoint) []party {
	owner := src.owner()
	if owner == "" {
		return nil
	}
	if own := c.x.byUser[owner]; len(own) > 0 {
		return c.parties(deviceEndpoints(own))
	}
	return c.parties([]endpoint{{name: parseSelector(owner)}})
}

// sshOutcome is how a session of one pair fares: what may become of it, one thing where that is sure.
type sshOutcome struct {
	possible []string // accept, check, drop
	rule     *sshRule // that decided
	missing  []string
}

// sshBetween judges a session from everybody in src. missing names what is not known of either end.
func (c *Compiled) sshBetween(src []endpoint, to func(endpoint) []party, user string, missing ...string) []sshOutcome {
	unknown := slices.DeleteFunc(missing, func(m string) bool { return m == "" })
	if !c.x.known {
		unknown = append(unknown, "an inventory of devices")
	}
	var out []sshOutcome
	for _, from := range c.parties(src) {
		for _, dst := range to(from.ends[0]) {
			o := c.sshJudge(from.ends[0], dst.ends[0], user)
			if len(unknown) > 0 && slices.Contains(o.possible, "drop") {
				o.possible, o.missing = []string{sshAccept, sshCheck, "drop"}, append(o.missing, unknown...)
			}
			out = append(out, o)
		}
	}
	return out
}

// sshJudge decides a session between two endpoints: the first rule that surely admits it, those that check before those
// that accept, as the devices themselves do it.
func (c *Compiled) sshJudge(src, dst endpoint, user string) sshOutcome {
	var out sshOutcome
	for _, r := range c.ssh {
		if !r.admitsUser(src, user) {
			continue
		}
		verdict, missing := c.sshAdmits(r, src, dst)
		if verdict == Fail {
			continue
		}
		action := sshAccept
		if r.checks() {
			action = sshCheck
		}
		if !slices.Contains(out.possible, action) {
			out.possible = append(out.possible, action)
		}
		if out.rule == nil {
			out.rule = r
		}
		if verdict == Pass {
			return out
		}
		out.missing = append(out.missing, missing...)
	}
	out.possible = append(out.possible, "drop")
	return out
}

// sshAdmits says whether a rule is about a pair, whoever logs in.
func (c *Compiled) sshAdmits(r *sshRule, src, dst endpoint) (Verdict, []string) {
	to, missing := Fail, []string(nil)
	if r.self && sameOwner(src, dst) {
		to = Pass
	}
	for _, d := range r.dsts {
		if to == Pass {
			break
		}
		if v := d.match(c, dst); v != Fail {
			to = v
		}
	}
	if to == Fail && r.splits() && sameOwner(src, dst) && r.src.has(c, dst) == Pass {
		to = Pass // a source gets what concerns its own user, though it is no destination
	}
	if to == Fail {
		return Fail, nil
	}
	from, lacks := r.src.judge(c, src)
	switch {
	case from == Fail:
		return Fail, nil
	case from == Pass && to == Pass:
		return Pass, nil
	case to == Undecided:
		missing = append(missing, "an inventory of devices")
	}
	return Undecided, append(missing, lacks...)
}

// admitsUser reports whether a rule lets a source log in as user.
func (r *sshRule) admitsUser(src endpoint, user string) bool {
	if login := src.owner(); login != "" && loginLocal(login) == user && slices.Contains(r.domains, loginDomain(login)) {
		return true
	}
	as, named := r.users[user]
	return as != "" || !named && r.users["*"] != ""
}

// judgeSSH turns what was found into the result: every pair has to fare as wanted.
func (r *TestResult) judgeSSH(found []sshOutcome) {
	if len(found) == 0 {
		r.Got, r.Verdict, r.Reason = "invalid", Fail, fmt.Sprintf("dst: %q stands for no device", r.Dst)
		return
	}
	r.Verdict = Pass
	for _, o := range found {
		got := o.possible[0]
		switch {
		case !slices.Contains(o.possible, r.Want):
			r.Verdict = Fail
		case len(o.possible) > 1 && r.Verdict == Pass:
			r.Verdict = Undecided
		}
		if len(o.possible) > 1 {
			got = "undecided"
			r.Missing = append(r.Missing, o.missing...)
		}
		switch {
		case r.Got == "" || r.Got == got:
			r.Got = got
		case r.Got == "undecided" || got == "undecided":
			r.Got = "undecided"
		default:
			r.Got = "partial"
		}
		if r.Rule == "" && o.rule != nil {
			r.Rule = o.rule.node.Path
		}
	}
	slices.Sort(r.Missing)
	r.Missing = slices.Compact(r.Missing)
	if r.Verdict != Undecided {
		r.Missing = nil
	}
}

// reportSSHTest makes a finding of a result that is not a pass.
func (v *validator) reportSSHTest(r TestResult) {
	n := Node{Range: r.Range, Path: r.Path}
	switch {
	case r.Verdict == Pass:
	case r.Verdict == Undecided:
		d := v.report(diag.Note, "test-undecided", n, fmt.Sprintf("ssh as %q from %q to %q cannot be decided", r.User, r.Src, r.Dst), "not known")
		d.Lacks(r.Missing)
	case r.Got == "invalid":
		v.refuseTest("invalid-test", n, r.Reason, "the control plane fails such a test")
	default:
		words := map[string]string{sshAccept: "Accept", sshCheck: "Check", "drop": "Drop", "partial": "Partial", "undecided": "Undecided"}
		d := v.refuseTest("test-failed", n, fmt.Sprintf("ssh as %q to %q: want: %s, got: %s", r.User, r.Dst, words[r.Want], words[r.Got]), "")
		d.Label = fmt.Sprintf("from %s: want %s, got %s", r.Src, r.Want, r.Got)
		switch {
		case r.Got == "partial":
			d.Notes = append(d.Notes, "not all devices of src and dst fare alike")
		case r.Rule != "":
			d.Notes = append(d.Notes, "decided by "+r.Rule)
		}
		switch {
		case r.Want == sshAccept && r.Got == sshCheck:
			d.Help = []diag.Help{{Message: `"check" lists those who get in after a check`}}
		case r.Want == sshCheck && r.Got == sshAccept:
			d.Help = []diag.Help{{Message: `"accept" lists those who get in without a check`}}
		}
	}
}
