package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// TestResult is the judgement of one entry line of tests or sshTests.
type TestResult struct {
	Path    string   `json:"path"` // tests[4].accept[0]
	Src     string   `json:"src"`
	Dst     string   `json:"dst"`
	User    string   `json:"user,omitempty"` // the account that an ssh test logs in to
	Proto   string   `json:"proto,omitempty"`
	Want    string   `json:"want"` // accept, drop, check
	Got     string   `json:"got"`  // accept, drop, check, partial (not every pair alike), undecided, invalid
	Verdict Verdict  `json:"verdict"`
	Rule    string   `json:"rule,omitempty"` // path of the rule that decided
	Missing []string `json:"missing,omitempty"`
	// Reason says why an entry is invalid.
	Reason string     `json:"reason,omitempty"`
	Range  diag.Range `json:"range"`
}

// testsFailed is what the control plane says to a policy whose tests or sshTests fail, without detail.
const testsFailed = "test(s) failed"

// testAutogroups warns of autogroups in tests, as src or as host of a destination: the documentation lists none, and users
// were refused theirs as an unknown user or host (https://github.com/tailscale/tailscale/issues/12370).
func (v *validator) testAutogroups() {
	warn := func(s String, host, what string) {
		if sel := parseSelector(host); sel.kind != selAutogroup || !knownAutogroup(sel.name) || sel.onlyDst() || sel.name == agDangerAll {
			return
		}
		d := v.report(diag.Warning, "invalid-test", s.Node, fmt.Sprintf("a test whose %s is %q may fail", what, host), "not documented in tests")
		d.Help = []diag.Help{{Message: "name a user or a tag"}}
	}
	for _, t := range v.p.Tests {
		warn(t.Src, t.Src.Value, "src")
		for _, s := range slices.Concat(t.Accept.Items, t.Deny.Items) {
			if host, _, err := splitHostPort(s.Value); err == nil {
				warn(s, host, "dst")
			}
		}
	}
}

// evalTests judges the tests section, one result for each line of accept and deny. A source that stands for several
// devices must be admitted from all of them, to all of dst; a deny passes where none is admitted.
func (c *Compiled) evalTests() []TestResult {
	var out []TestResult
	for i := range c.p.Tests {
		out = append(out, c.evalTest(&c.p.Tests[i])...)
	}
	return out
}

func (c *Compiled) evalTest(t *Test) []TestResult {
	if len(t.Accept.Items)+len(t.Deny.Items) == 0 {
		return []TestResult{{
			Path: t.Path, Src: t.Src.Value, Proto: t.Proto.Value, Got: "invalid", Verdict: Fail,
			Reason: "neither accept nor deny", Range: t.Range,
		}}
	}
	proto, protoErr := parseProto(t.Proto.Value)
	src, missing, srcErr := c.testEnd(t.Src.Value)
	if t.SrcPostureAttrs != nil {
		for i := range src {
			src[i].attrs = textAttrs(t.SrcPostureAttrs)
		}
	}
	var out []TestResult
	line := func(s String, want string) {
		r := TestResult{Path: s.Path, Src: t.Src.Value, Dst: s.Value, Proto: t.Proto.Value, Want: want, Range: s.Range}
		dst, f, dstMissing, err := c.testLine(s.Value, proto)
		switch {
		case protoErr != nil:
			err = protoErr
		case t.Src.Value == "":
			err = fmt.Errorf("src must be specified")
		case srcErr != nil:
			err = fmt.Errorf("src: %w", srcErr)
		case err == nil && apart(src, dst):
			err = fmt.Errorf("%q and %q have no address family in common", t.Src.Value, s.Value)
		}
		if err != nil {
			r.Got, r.Verdict, r.Reason = "invalid", Fail, err.Error()
			out = append(out, r)
			return
		}
		p := c.between(src, dst, f)
		for _, m := range []string{missing, dstMissing} {
			if m != "" && p.pass == 0 {
				p.fail, p.undecided, p.missing = 0, 1, append(p.missing, m)
			}
		}
		if !c.x.known && p.pass == 0 {
			// Nothing is sure to be dropped while it is not known who is there.
			p.fail, p.undecided, p.missing = 0, 1, []string{"an inventory of devices"}
		}
		r.judge(p)
		out = append(out, r)
	}
	for _, s := range t.Accept.Items {
		line(s, "accept")
	}
	for _, s := range t.Deny.Items {
		line(s, "drop")
	}
	return out
}

// apart reports whether all of src have addresses of one family and all of dst of the other. The control plane fails such
// a test, of a deny too (https://github.com/tailscale/tailscale/issues/9649).
func apart(src, dst []endpoint) bool {
	return len(src) > 0 && len(dst) > 0 && !slices.ContainsFunc(src, func(s endpoint) bool {
		return slices.ContainsFunc(dst, func(d endpoint) bool { return sameFamily(s, d) })
	})
}

// judge turns what was found into the result.
func (r *TestResult) judge(p pairs) {
	switch {
	case p.undecided > 0:
		r.Got = "undecided"
	case p.pass > 0 && p.fail > 0:
		r.Got = "partial"
	case p.pass > 0:
		r.Got = "accept"
	default:
		r.Got = "drop"
	}
	if p.rule != nil {
		r.Rule = p.rule.node.Path
	}
	wrong := p.fail
	if r.Want == "drop" {
		wrong = p.pass
	}
	switch {
	case wrong > 0:
		r.Verdict = Fail
	case p.undecided > 0:
		r.Verdict, r.Missing = Undecided, p.missing
	default:
		r.Verdict = Pass
	}
}

// testEnd expands the src or dst of a test, which stands for somebody in particular: neither everybody nor a network.
func (c *Compiled) testEnd(text string) ([]endpoint, string, error) {
	switch sel := parseSelector(text); {
	case sel.kind == selAny, sel.name == agDangerAll, sel.name == agInternet, sel.name == agSelf:
		return nil, "", fmt.Errorf("%q stands for nobody in particular", text)
	case sel.kind == selCIDR, sel.kind == selRange, sel.kind == selIPSet:
		return nil, "", fmt.Errorf("%q is not one address", text)
	case sel.kind == selHost:
		h := c.v.hosts[sel.name]
		if h == nil {
			return nil, "", fmt.Errorf("unknown user or host: %q", text)
		}
		if _, kind, _ := parseAddrs(h.Value.Value); kind != selAddr {
			return nil, "", fmt.Errorf("%q is %s, not one address", text, h.Value.Value)
		}
	case sel.kind == selTag && c.v.tagOwners[sel.name] == nil:
		return nil, "", fmt.Errorf("tag not found: %q", text)
	}
	return c.endpoints(text)
}

// testLine reads a line of accept or deny: one destination and one port, 0 for a protocol that has none.
func (c *Compiled) testLine(text string, proto int) ([]endpoint, flow, string, error) {
	host, portText, err := splitHostPort(text)
	if err != nil {
		return nil, flow{}, "", err
	}
	if bareIPv6(text, host) {
		return nil, flow{}, "", fmt.Errorf("%q: an IPv6 address in a test stands in brackets", text)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, flow{}, "", fmt.Errorf("invalid port %q", portText)
	}
	f := flow{proto: proto, ports: allPorts()}
	switch {
	case hasPorts(proto) && port == 0:
		return nil, f, "", fmt.Errorf("invalid port %q", portText)
	case hasPorts(proto):
		f.ports = PortRange{First: uint16(port), Last: uint16(port)}
	case port != 0:
		return nil, f, "", fmt.Errorf("invalid port %q: %s has no ports", portText, protoName(proto))
	}
	ends, missing, err := c.testEnd(host)
	return ends, f, missing, err
}

// bareIPv6 reports whether host, cut off from text, is an IPv6 address without brackets, which an acl may have and a test not.
func bareIPv6(text, host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is6() && !strings.HasPrefix(text, "[")
}

// reportTest makes a finding of a result that is not a pass.
func (c *Compiled) reportTest(r TestResult) {
	v := c.v
	n := Node{Range: r.Range, Path: r.Path}
	switch {
	case r.Verdict == Pass:
	case r.Verdict == Undecided:
		d := v.report(diag.Note, "test-undecided", n, fmt.Sprintf("test from %q to %q cannot be decided", r.Src, r.Dst), "not known")
		d.Lacks(r.Missing)
	case r.Got == "invalid":
		d := v.refuseTest("invalid-test", n, r.Reason, "the control plane fails such a test")
		v.helpInvalidTest(d, r)
	default:
		want, got := "Accept", "Drop"
		if r.Want == "drop" {
			want, got = "Drop", "Accept"
		}
		proto := r.Proto
		if proto == "" {
			proto = "tcp"
		}
		d := v.refuseTest("test-failed", n, fmt.Sprintf("address %q (protocol %q): want: %s, got: %s", r.Dst, proto, want, got), "")
		d.Label = fmt.Sprintf("from %s: want %s, got %s", r.Src, r.Want, r.Got)
		if r.Rule != "" && r.Want == "drop" {
			d.Notes = append(d.Notes, "admitted by "+r.Rule)
		}
		if r.Got == "partial" {
			d.Notes = append(d.Notes, "some devices of src or dst are admitted and some are not")
		}
		c.explainDrop(d, r)
	}
}

// explainDrop adds to the finding of a test that wants accept and got drop which rule is nearest, and the text that
// would admit the flow.
func (c *Compiled) explainDrop(d *diag.Diagnostic, r TestResult) {
	if r.Want != "accept" || r.Got != "drop" {
		return
	}
	proto, err := parseProto(r.Proto)
	if err != nil {
		return
	}
	dst, f, _, err := c.testLine(r.Dst, proto)
	if err != nil {
		return
	}
	src, _, err := c.testEnd(r.Src)
	if err != nil {
		return
	}
	var at []failedParty
	for _, s := range src {
		for _, e := range dst {
			if sameFamily(s, e) && at == nil {
				at = []failedParty{{s, e}}
			}
		}
	}
	near := c.nearestRule(f, at)
	if near != nil {
		var place diag.Diagnostic
		c.pointAt(&place, near, f)
		d.Related = append(d.Related, diag.Related{Message: "the nearest rule: " + place.Label, Range: place.Range})
	}
	d.Notes = append(d.Notes, protocolNote(f)...)
	host, _, _ := splitHostPort(r.Dst)
	req := Requirement{Src: []string{r.Src}, Dst: []string{host}}
	if f.proto == 0 {
		f.proto = protoTCP
	}
	d.Help = append(d.Help, c.remedy(&req, f, near))
}

// refuseTest reports an error that makes the control plane answer that tests failed.
func (v *validator) refuseTest(code string, n Node, message, label string) *diag.Diagnostic {
	if v.message == "" {
		v.message, v.status = testsFailed, 400
	}
	return v.report(diag.Error, code, n, message, label)
}

// helpInvalidTest says how a test names a destination and the port of a protocol.
func (v *validator) helpInvalidTest(d *diag.Diagnostic, r TestResult) {
	host, port, err := splitHostPort(r.Dst)
	proto, protoErr := parseProto(r.Proto)
	if err != nil || protoErr != nil {
		return
	}
	s := String{Node: Node{Range: r.Range}}
	// What is before the last colon may be no more than the kind of a name without a port: "tag" of "tag:web".
	portless := parseSelector(r.Dst).kind != selHost && parseSelector(host).kind == selHost && v.hosts[host] == nil
	if portless {
		host = r.Dst
	}
	switch {
	case bareIPv6(r.Dst, host):
		d.Help = []diag.Help{{Message: "put it in brackets", Edits: []diag.Edit{replace(s, "["+host+"]:"+port)}}}
	case !strings.HasPrefix(r.Reason, "invalid port"):
	case !hasPorts(proto):
		d.Help = []diag.Help{{
			Message: fmt.Sprintf("a test of %s, which has no ports, names port 0", protoName(proto)),
			Edits:   []diag.Edit{replace(s, host+":0")},
		}}
	case portless, port == "*":
		d.Help = []diag.Help{{Message: "a test names one port, such as " + host + ":443"}}
	default:
		d.Help = []diag.Help{{Message: "a test names one port by number, from 1 to 65535"}}
	}
}
