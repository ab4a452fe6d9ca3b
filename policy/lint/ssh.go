package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// sshRules finds rules of ssh that no session can use, since nobody of their sources may reach port 22 of a destination,
// and those that let everybody in as root without asking.
func sshRules(l *linter) {
	for i := range l.p.SSH {
		r := &l.p.SSH[i]
		if rootForAll(r) {
			d := l.say("ssh-root-for-all", r.Node, fmt.Sprintf("%s lets everybody in as root, without a check", r.Path), "wider than root bears")
			d.Help = []diag.Help{{Message: `name who needs it, or make the action "check", which asks them to log in again`}}
		}
		if len(r.Src.Items) > 0 && len(r.Dst.Items) > 0 && !l.reachable(r) {
			d := l.say("ssh-unreachable", r.Node, fmt.Sprintf("no rule lets a source of %s reach port 22 of a destination", r.Path), "never used")
			d.Notes = []string{"ssh says who may log in where; whether the packets pass is for acls and grants to say"}
		}
	}
	if n := len(l.p.SSH); n > 0 && len(l.p.SSHTests) == 0 {
		l.say("no-ssh-tests", policy.Node{Path: l.p.SSH[0].Path, Range: l.p.SSH[0].Range}, "the policy has rules of ssh and no sshTests",
			"nothing says what it is for")
	}
}

func rootForAll(r *policy.SSH) bool {
	everybody := func(src string) bool { // addresses are no sources of ssh
		return slices.Contains([]string{"*", "autogroup:danger-all", agShared, "autogroup:member", "autogroup:members"}, src)
	}
	own := len(r.Dst.Items) > 0 && !slices.ContainsFunc(r.Dst.Values(), func(d string) bool { return d != "autogroup:self" })
	return r.Action.Value == "accept" && !own && len(r.SrcPosture.Items) == 0 && slices.Contains(r.Users.Values(), "root") &&
		slices.ContainsFunc(r.Src.Values(), everybody)
}

// reachable reports whether some source may open port 22 of some destination, or whether that cannot be told. autogroup:self
// is each source's own devices.
func (l *linter) reachable(r *policy.SSH) bool {
	const self = "autogroup:self"
	for _, src := range r.Src.Values() {
		for _, dst := range r.Dst.Values() {
			if dst == self {
				return true // which of them may reach each other is more than one question
			}
			x, err := l.everybody.Compiled.Explain(src, dst, "tcp", 22)
			if err != nil || x.Verdict != policy.Fail || slices.ContainsFunc(x.Rules, func(t policy.RuleTouch) bool { return t.Admitted+t.Undecided > 0 }) {
				return true
			}
		}
	}
	return false
}

// idleSSHTests finds lines of sshTests that cannot fail: whose result is the same without any rule of ssh and with one that
// lets everybody of the sources in, and lines that say what another says.
func idleSSHTests(l *linter) {
	if len(l.p.SSHTests) == 0 {
		return
	}
	nothing := l.judged.WithSSH(nil)
	open := l.judged.WithSSH(l.openDoors())
	first := map[string]policy.Node{}
	for i, t := range l.judged.SSHTests {
		n := policy.Node{Path: t.Path, Range: t.Range}
		if t.Got == "invalid" {
			continue
		}
		if t.Want == "drop" && t.Verdict == policy.Pass && nothing.SSHTests[i].Verdict == policy.Pass && open.SSHTests[i].Verdict == policy.Pass {
			l.say("test-proves-nothing", n, fmt.Sprintf("no rule could make this test of %q to %q fail", t.Src, t.Dst), "passes whatever the rules say")
			continue
		}
		key := strings.Join([]string{t.Src, t.Dst, t.User, t.Want}, "\x00")
		if at, ok := first[key]; ok {
			d := l.say("test-proves-nothing", n, fmt.Sprintf("the same test of %q to %q stands at %s", t.Src, t.Dst, at.Path), "said already")
			d.Related = []diag.Related{{Message: "first here", Range: at.Range}}
			continue
		}
		first[key] = n
	}
}

// openDoors are rules that let each source of the sshTests in everywhere that these ask about, as whoever they name.
func (l *linter) openDoors() []policy.SSH {
	var out []policy.SSH
	for i := range l.p.SSHTests {
		t := &l.p.SSHTests[i]
		users := policy.Strings{Present: true, Items: slices.Concat(t.Accept.Items, t.Deny.Items, t.Check.Items)}
		out = append(out, policy.SSH{
			Action: policy.String{Value: "accept"}, Src: policy.Strings{Present: true, Items: []policy.String{t.Src}}, Dst: t.Dst, Users: users,
		})
	}
	return out
}
