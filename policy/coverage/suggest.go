package coverage

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// Suggestion is a test for a rule that no test proves, or why there is none.
type Suggestion struct {
	Rule string `json:"rule"`
	// Section is tests or sshTests, and Entry an entry of it as HuJSON; empty where none was found.
	Section string `json:"section,omitempty"`
	Entry   string `json:"entry,omitempty"`
	// Reason says why there is no test.
	Reason string `json:"reason,omitempty"`
}

// Suggest writes a test for each rule of the result that no test proves. Each passes, is such as the control plane takes,
// and would not pass without its rule. inv is the inventory that the report was made with.
func Suggest(report *policy.Report, res *Result, inv *policy.Inventory) []Suggestion {
	s := &suggester{report: report, inv: inv, rules: map[string]place{}}
	if s.inv == nil {
		s.inv = &policy.Inventory{}
	}
	for i := range res.Rules {
		s.rules[res.Rules[i].Path] = res.Rules[i].at
	}
	out := []Suggestion{}
	for i := range res.Rules {
		if u := &res.Rules[i]; !u.Proved() {
			out = append(out, s.suggest(u.at))
		}
	}
	return out
}

type suggester struct {
	report *policy.Report
	inv    *policy.Inventory
	rules  map[string]place
}

func (s *suggester) suggest(at place) Suggestion {
	if at.section == "ssh" {
		return s.suggestSSH(at)
	}
	out := Suggestion{Rule: at.rule(), Section: "tests"}
	flows, only := s.flows(at)
	if len(flows) == 0 {
		return Suggestion{Rule: at.rule(), Reason: only}
	}
	reason := nobodySure
	for _, f := range flows {
		x, err := s.report.Compiled.Explain(f.src, f.dst, f.proto, f.port)
		if err != nil || x.Verdict != policy.Pass && len(f.attrs) == 0 {
			continue
		}
		// Only the rules that meet the flow can make a difference to it.
		var all, others []place
		for _, t := range x.Rules {
			rule, ok := s.rules[t.Rule]
			if !ok {
				continue
			}
			all = append(all, rule)
			if t.Rule != at.rule() {
				others = append(others, rule)
			}
		}
		if len(all) == len(others) {
			continue
		}
		with, left := s.ask(f, all), s.ask(f, others)
		if with.Verdict != policy.Pass {
			continue
		}
		if left.Verdict == policy.Fail && left.Got == "drop" {
			out.Entry = f.entry()
			return out
		}
		reason = alsoOthers
	}
	return Suggestion{Rule: at.rule(), Reason: reason}
}

// ask judges the test of a flow by some of the rules.
func (s *suggester) ask(f candidateFlow, rules []place) policy.TestResult {
	var acls []policy.ACL
	var grants []policy.Grant
	for _, r := range rules {
		if r.section == "acls" {
			acls = append(acls, s.report.Policy.ACLs[r.index])
		} else {
			grants = append(grants, s.report.Policy.Grants[r.index])
		}
	}
	return withTests(s.report, []policy.Test{f.test()}).WithRules(acls, grants).Tests[0]
}

// candidateFlow is a flow that a test could ask about. Port is 0 for protocols without ports.
type candidateFlow struct {
	src, dst, proto string
	port            int
	attrs           map[string]string // of a source that meets the rule's posture
}

func (f candidateFlow) test() policy.Test {
	value := func(text string) policy.String { return policy.String{Value: text} }
	return policy.Test{
		Src: value(f.src), Proto: value(f.proto), SrcPostureAttrs: rawAttrs(f.attrs),
		Accept: policy.Strings{Present: true, Items: []policy.String{value(f.line())}},
	}
}

// line is what the test accepts: an IPv6 address stands in brackets.
func (f candidateFlow) line() string {
	dst := f.dst
	if a, err := netip.ParseAddr(dst); err == nil && a.Is6() {
		dst = "[" + dst + "]"
	}
	return dst + ":" + strconv.Itoa(f.port)
}

// entry is the test as text, with the protocol where it is not the one that is meant without.
func (f candidateFlow) entry() string {
	proto := ""
	if f.proto != "" {
		proto = `"proto": ` + quote(f.proto) + ", "
	}
	return fmt.Sprintf(`{"src": %s, %s%s"accept": [%s]}`, quote(f.src), attrsText(f.attrs), proto, quote(f.line()))
}

// Why there is no test.
const (
	nobodySure = "it is sure to admit nobody of the inventory: devices, or attributes that a posture asks for, are missing"
	alsoOthers = "others admit what it admits, for everybody who was tried"
)

const noPosture = "no attributes were found that meet its srcPosture"

// rawAttrs are attributes as a test holds them, nil for none: a test without any is judged by those of the inventory.
func rawAttrs(attrs map[string]string) map[string]json.RawMessage {
	if len(attrs) == 0 {
		return nil
	}
	out := make(map[string]json.RawMessage, len(attrs))
	for name, value := range attrs {
		out[name] = json.RawMessage(quote(value))
	}
	return out
}

// attrsText is the member of a test that gives attributes, with the comma behind it.
func attrsText(attrs map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		list = append(list, quote(name)+": "+quote(attrs[name]))
	}
	if len(list) == 0 {
		return ""
	}
	return `"srcPostureAttrs": {` + strings.Join(list, ", ") + "}, "
}

// most bounds how much is tried of each list of a rule.
const most = 6

// flows lists what a rule admits, by what it names; without any, the reason.
func (s *suggester) flows(at place) (out []candidateFlow, reason string) {
	var src, dst []string
	var asked policy.Strings
	var offers []protoPort
	byDst := map[string][]protoPort{}
	switch at.section {
	case "acls":
		a := s.report.Policy.ACLs[at.index]
		src, asked = values(a.Src), a.SrcPosture
		for _, d := range values(a.Dst) {
			selector, ports, err := policy.SplitACLDst(d)
			if err != nil {
				continue
			}
			dst = append(dst, selector)
			byDst[selector] = append(byDst[selector], portsOf(a.Proto.Value, ports)...)
		}
	case "grants":
		g := s.report.Policy.Grants[at.index]
		if len(g.IP.Items) == 0 {
			return nil, "it grants capabilities alone, which tests do not ask about"
		}
		src, dst, asked = values(g.Src), values(g.Dst), g.SrcPosture
		for _, ip := range values(g.IP) {
			if proto, ports, err := policy.SplitGrantIP(ip); err == nil {
				offers = append(offers, portsOf(proto, []string{ports})...)
			}
		}
	}
	sources, nobody := s.sources(src)
	if len(sources) == 0 {
		return nil, nobody
	}
	attrs, ok := s.report.Policy.PostureAttrs(asked)
	if !ok {
		return nil, noPosture
	}
	for _, from := range sources {
		for _, to := range slices.Compact(dst) {
			for _, name := range s.destinations(to, from) {
				for _, o := range append(byDst[to], offers...) {
					out = append(out, candidateFlow{from, name, o.proto, o.port, attrs})
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, "no test can name both of its ends"
	}
	return out, ""
}

type protoPort struct {
	proto string
	port  int
}

// portsOf lists some ports of elements such as "22" and "80-90": those at ends of ranges first, which others are less likely
// to hold.
func portsOf(proto string, ports []string) []protoPort {
	var out []protoPort
	add := func(n int) {
		if p := (protoPort{proto, n}); len(out) < most && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if !policy.TakesPorts(proto) {
		return []protoPort{{proto, 0}}
	}
	for _, r := range ports {
		first, last, isRange := strings.Cut(r, "-")
		if r == "*" {
			for _, n := range []int{443, 22, 8443, 40000} {
				add(n)
			}
			continue
		}
		n, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		add(max(n, 1))
		if m, err := strconv.Atoi(last); isRange && err == nil {
			add(m)
			add((n + m) / 2)
		}
	}
	return out
}

func values(l policy.Strings) []string {
	var out []string
	for _, v := range l.Items {
		out = append(out, v.Value)
	}
	return out
}

// sources are what tests can name for the sources of a rule: the same, or for those that stand for many, somebody of them.
// Where none has anybody behind it, a test would say something about nobody: reason names them.
func (s *suggester) sources(list []string) (out []string, reason string) {
	for _, src := range list {
		for _, name := range s.somebody(src) {
			if s.peopled(name) {
				out = append(out, name)
			}
		}
	}
	if len(out) == 0 {
		return nil, "nobody of the inventory is behind " + strings.Join(list, ", ")
	}
	return firstOf(out), ""
}

// peopled reports whether somebody is behind a name: a device that bears a tag, a user of a group. Of names that the
// inventory does not list, such as a group synced from elsewhere, nothing else is known.
func (s *suggester) peopled(name string) bool {
	switch {
	case strings.HasPrefix(name, "tag:"):
		return slices.ContainsFunc(s.inv.Devices, func(d policy.Device) bool {
			return d.Authorized && !d.IsExternal && slices.Contains(d.Tags, name)
		})
	case strings.HasPrefix(name, "group:"):
		members, known := s.members(name)
		return !known || slices.ContainsFunc(members, s.peopled)
	case strings.Contains(name, "@") && len(s.inv.Users) > 0:
		return slices.ContainsFunc(s.inv.Users, func(u policy.User) bool { return u.LoginName == name }) || len(s.devicesOf(name)) > 0
	}
	return true
}

// members are those of a group that the policy lists.
func (s *suggester) members(group string) (members []string, known bool) {
	for _, g := range s.report.Policy.Groups {
		if g.Name.Value == group {
			return g.Members.Values(), true
		}
	}
	return nil, false
}

// persons are sources with members in the place of groups: a session starts at one person, and only of one is it sure that
// the control plane takes it as the source of an ssh test.
func (s *suggester) persons(sources []string) (out []string) {
	for _, src := range sources {
		members, known := s.members(src)
		if !known {
			members = []string{src}
		}
		for _, m := range members {
			if s.peopled(m) {
				out = append(out, m)
			}
		}
	}
	return firstOf(out)
}

// destinations are what tests can name for a destination of a rule.
func (s *suggester) destinations(dst, src string) []string {
	if dst == "autogroup:self" {
		return firstOf(s.devicesOf(src))
	}
	if dst == "autogroup:internet" {
		return nil
	}
	return firstOf(s.somebody(dst))
}

func firstOf(list []string) []string {
	var out []string
	for _, v := range list {
		if len(out) < most && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// somebody lists names that a test may give for a selector. Which of them fit is for the engine to say.
func (s *suggester) somebody(sel string) (out []string) {
	p, err := netip.ParsePrefix(sel)
	switch {
	case err == nil && p.IsSingleIP():
		return []string{p.Addr().String()}
	case err == nil:
		return []string{p.Masked().Addr().Next().String()}
	case strings.HasPrefix(sel, "tag:") || strings.HasPrefix(sel, "group:"):
		return []string{sel}
	case strings.Contains(sel, "@") && !strings.HasPrefix(sel, "user:*@"):
		return []string{sel}
	}
	for _, h := range s.report.Policy.Hosts {
		if h.Name.Value != policy.HostName(sel) {
			continue
		}
		if strings.Contains(h.Value.Value, "/") {
			return s.somebody(h.Value.Value) // a test names no network, not one of a single address either
		}
		return []string{h.Name.Value}
	}
	if _, err := netip.ParseAddr(sel); err == nil {
		return []string{sel}
	}
	// A name for many: whoever the policy or the inventory knows.
	for _, u := range s.inv.Users {
		out = append(out, u.LoginName)
	}
	for _, t := range s.report.Policy.TagOwners {
		out = append(out, t.Name.Value)
	}
	return firstOf(slices.DeleteFunc(out, func(name string) bool { return !s.peopled(name) }))
}

// devicesOf are addresses of a user's own devices, as tests cannot name them otherwise.
func (s *suggester) devicesOf(user string) (out []string) {
	for i := range s.inv.Devices {
		if d := &s.inv.Devices[i]; d.User == user && len(d.Tags) == 0 && len(d.Addresses) > 0 {
			out = append(out, d.Addresses[0])
		}
	}
	return out
}

func (s *suggester) suggestSSH(at place) Suggestion {
	rule := s.report.Policy.SSH[at.index]
	action := rule.Action.Value
	without := at.withoutSSH(s.report.Policy)
	sources, nobody := s.sources(values(rule.Src))
	if len(sources) == 0 {
		return Suggestion{Rule: at.rule(), Reason: nobody}
	}
	attrs, ok := s.report.Policy.PostureAttrs(rule.SrcPosture)
	if !ok {
		return Suggestion{Rule: at.rule(), Reason: noPosture}
	}
	reason := nobodySure
	for _, src := range s.persons(sources) {
		for _, to := range values(rule.Dst) {
			for _, dst := range s.sshDestinations(to, src) {
				for _, user := range accounts(values(rule.Users), src) {
					t := sshTest(src, dst, action, user)
					t.SrcPostureAttrs = rawAttrs(attrs)
					asked := withSSHTests(s.report, []policy.SSHTest{t})
					with, left := asked.WithSSH(s.report.Policy.SSH).SSHTests, asked.WithSSH(without).SSHTests
					if len(with) != 1 || with[0].Verdict != policy.Pass {
						continue
					}
					reason = alsoOthers
					if left[0].Verdict == policy.Fail {
						entry := fmt.Sprintf(`{"src": %s, %s"dst": [%s], %s: [%s]}`, quote(src), attrsText(attrs), quote(dst), quote(action), quote(user))
						return Suggestion{Rule: at.rule(), Section: "sshTests", Entry: entry}
					}
				}
			}
		}
	}
	return Suggestion{Rule: at.rule(), Reason: reason}
}

// sshDestinations are what ssh tests can name for a destination of a rule. One's own devices are those of the source: the
// documentation of sshTests lists users, and no autogroup.
func (s *suggester) sshDestinations(dst, src string) []string {
	if dst == "autogroup:self" {
		return []string{src}
	}
	return firstOf(s.somebody(dst))
}

// accounts are some that an ssh rule's users stand for.
func accounts(users []string, src string) (out []string) {
	local, _, _ := strings.Cut(src, "@")
	for _, u := range users {
		switch {
		case u == "autogroup:nonroot":
			out = append(out, "ubuntu", "admin")
		case strings.HasPrefix(u, "localpart:"):
			out = append(out, local)
		default:
			out = append(out, u)
		}
	}
	return firstOf(out)
}

func sshTest(src, dst, action, user string) policy.SSHTest {
	one := func(text string) policy.Strings {
		return policy.Strings{Present: true, Items: []policy.String{{Value: text}}}
	}
	t := policy.SSHTest{Src: policy.String{Value: src}, Dst: one(dst)}
	if action == "check" {
		t.Check = one(user)
	} else {
		t.Accept = one(user)
	}
	return t
}

func withSSHTests(report *policy.Report, tests []policy.SSHTest) *policy.Report {
	p := *report.Policy
	p.SSHTests = tests
	return &policy.Report{Policy: &p, Compiled: report.Compiled}
}

// quote writes a string of JSON.
func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return `""` // a string always has a JSON form
	}
	return string(out)
}
