package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Requirement says that a flow must be admitted, between every ordered pair of devices that Src and Dst expand to.
type Requirement struct {
	Name  string   `json:"name"`
	Src   []string `json:"src"`             // selectors as in a grant, or names of devices
	Dst   []string `json:"dst"`             // the same, without ports
	Proto string   `json:"proto"`           // name or number, as in an acl; empty: tcp
	Ports string   `json:"ports,omitempty"` // "443", "80-443"; empty or "*" is all
	Why   string   `json:"why,omitempty"`
}

// RequirementResult is the judgement of one Requirement.
type RequirementResult struct {
	Requirement Requirement `json:"requirement"`
	Verdict     Verdict     `json:"verdict"`
	Missing     []string    `json:"missing,omitempty"` // what was missing, where Undecided
	Pairs       int         `json:"pairs"`             // ordered pairs judged
	FailedPairs int         `json:"failedPairs"`       // those not admitted
	// Rules are the paths of the rules that admit the flow, each for one pair or more, in the order of the policy's rules.
	Rules []string `json:"rules,omitempty"`
	// Failed lists the pairs that are not admitted, the first maxFailed of them.
	Failed      []FailedPair `json:"failed,omitempty"`
	Diagnostics diag.List    `json:"diagnostics,omitempty"` // what to show: nearest rule, pairs, the text to add
}

// FailedPair is an ordered pair of devices between which a required flow is not admitted. Where no device bears a name
// yet, Src and Dst are the names and the addresses are empty.
type FailedPair struct {
	Src     string `json:"src"` // host name
	Dst     string `json:"dst"`
	SrcAddr string `json:"srcAddr,omitempty"`
	DstAddr string `json:"dstAddr,omitempty"`
}

// maxFailed bounds a list that grows with the square of a mesh.
const maxFailed = 1000

// failedParty is a pair of parties that a requirement fails for, with the ends that were judged.
type failedParty struct {
	src, dst endpoint
}

// Validate says what is wrong with a requirement that no policy could meet: an end, the protocol or the ports are missing
// or cannot be read.
func (req *Requirement) Validate() error {
	switch {
	case len(req.Src) == 0:
		return errors.New(`no "src"`)
	case len(req.Dst) == 0:
		return errors.New(`no "dst"`)
	case req.Proto == "":
		return errors.New(`no "proto"`)
	}
	_, err := req.flow()
	return err
}

// require judges a requirement. Both address families that a pair has in common must be admitted: nobody knows which
// one an overlay will take.
func (c *Compiled) require(req Requirement) RequirementResult {
	res := RequirementResult{Requirement: req, Verdict: Fail}
	invalid := func(err error) RequirementResult {
		res.Diagnostics = diag.List{{
			Severity: diag.Error, Code: "invalid-requirement", File: c.v.file,
			Message: fmt.Sprintf("requirement %q: %v", req.Name, err),
		}}
		return res
	}
	f, err := req.flow()
	if err != nil {
		return invalid(err)
	}
	src, missing, err := c.requirementEnds(req.Src)
	if err != nil {
		return invalid(fmt.Errorf("src: %w", err))
	}
	dst, missing2, err := c.requirementEnds(req.Dst)
	if err != nil {
		return invalid(fmt.Errorf("dst: %w", err))
	}
	notReady := c.notReady(&req, dst)
	lacks := slices.Concat(missing, missing2)
	var failed []failedParty
	undecided, apart := false, false
	admitting := map[*rule]bool{}
	from := c.parties(src)
	for _, d := range c.parties(dst) {
		offers := c.offersTo(d, f)
		for _, s := range from {
			n := pairsOf(s, d)
			if n == 0 {
				continue
			}
			if !shareFamily(s, d) { // an IPv4 and an IPv6 address, of devices that are named by both
				apart = true
				continue
			}
			res.Pairs += n
			o, at := c.requireParty(s, d, offers)
			switch o.verdict {
			case Pass:
				admitting[o.rule] = true
			case Fail:
				res.FailedPairs += n
				failed = append(failed, at)
				res.listFailed(s, d, at)
			case Undecided:
				undecided = true
				lacks = append(lacks, o.missing...)
			}
		}
	}
	if res.Pairs == 0 && apart {
		return invalid(fmt.Errorf("src and dst have no address family in common"))
	}
	if res.Pairs == 0 { // one device, or devices without addresses: that proves nothing for those to come
		undecided = true
		lacks = append(lacks, "two devices with addresses")
	}
	for _, r := range c.rules {
		if admitting[r] {
			res.Rules = append(res.Rules, r.node.Path)
		}
	}
	slices.SortFunc(res.Failed, func(a, b FailedPair) int {
		if c := strings.Compare(a.Src, b.Src); c != 0 {
			return c
		}
		return strings.Compare(a.Dst, b.Dst)
	})
	slices.Sort(lacks)
	lacks = slices.Compact(lacks)
	switch {
	case res.FailedPairs > 0 && (c.x.known || !c.unsure(failed)):
		res.Verdict = Fail
		res.Diagnostics = diag.List{c.unmet(&res, f, failed)}
	case res.FailedPairs > 0 || undecided || len(lacks) > 0:
		res.Verdict = Undecided
		res.Missing = lacks
		if len(lacks) == 0 {
			res.Missing = []string{"an inventory of devices"}
		}
		res.Diagnostics = diag.List{{
			Severity: diag.Note, Code: "requirement-undecided", File: c.v.file,
			Message: fmt.Sprintf("%s; this cannot be decided", req.sentence(f)),
		}}
		res.Diagnostics[0].Lacks(res.Missing)
	default:
		res.Verdict = Pass
	}
	res.Diagnostics = append(res.Diagnostics, notReady...)
	return res
}

// notReady warns of devices for which a requirement is not met whatever the policy says: those that nobody has
// authorized yet, which are no part of the tailnet and of no pair, and destinations that refuse all that comes in.
func (c *Compiled) notReady(req *Requirement, dst []endpoint) diag.List {
	var notes []string
	for _, d := range c.x.pending {
		if slices.ContainsFunc(slices.Concat(req.Src, req.Dst), func(text string) bool {
			return d.called(text) || slices.Contains(d.tags(), text) || d.owner != "" && d.owner == text
		}) {
			notes = append(notes, d.Hostname+" is not authorized: it was left out")
		}
	}
	for i, e := range dst {
		if e.dev != nil && e.dev.BlocksIncomingConnections && (i == 0 || dst[i-1].dev != e.dev) {
			notes = append(notes, e.dev.Hostname+" blocks incoming connections: nothing reaches it, whatever the policy admits")
		}
	}
	if len(notes) == 0 {
		return nil
	}
	message := fmt.Sprintf("requirement %q is about devices that are not ready", req.Name)
	return diag.List{{Severity: diag.Warning, Code: "device-not-ready", File: c.v.file, Message: message, Notes: notes}}
}

// unsure reports whether some of the failed are names without a device, of which an inventory might tell more.
func (c *Compiled) unsure(failed []failedParty) bool {
	return slices.ContainsFunc(failed, func(f failedParty) bool { return f.src.dev == nil || f.dst.dev == nil })
}

func (req *Requirement) flow() (flow, error) {
	proto := req.Proto
	if proto == "" {
		proto = "tcp"
	}
	n, err := parseProto(proto)
	f := flow{proto: n, ports: allPorts(), routed: true}
	if err != nil || req.Ports == "" || req.Ports == "*" {
		return f, err
	}
	if !hasPorts(n) {
		return f, fmt.Errorf("ports %q: %s has no ports", req.Ports, protoName(n))
	}
	f.ports, err = parsePortRange(req.Ports)
	return f, err
}

func (req *Requirement) sentence(f flow) string {
	what := protoName(f.proto)
	if !f.ports.isAll() {
		what += " " + f.ports.text()
	}
	subject := "requirement"
	if req.Name != "" {
		subject += " " + strconv.Quote(req.Name)
	}
	return fmt.Sprintf("%s needs %s from %s to %s", subject, what, strings.Join(req.Src, ", "), strings.Join(req.Dst, ", "))
}

// requirementEnds expands selectors to endpoints, each once.
func (c *Compiled) requirementEnds(selectors []string) (ends []endpoint, missing []string, err error) {
	if len(selectors) == 0 {
		return nil, nil, fmt.Errorf("names nobody")
	}
	type key struct {
		dev  *device
		addr netip.Addr
		name string
	}
	seen := map[key]bool{}
	for _, text := range selectors {
		list, lacks, err := c.endpoints(text)
		if err != nil {
			return nil, nil, err
		}
		if lacks != "" {
			missing = append(missing, lacks)
		}
		for _, e := range list {
			k := key{e.dev, e.addr, e.name.name}
			if !seen[k] {
				seen[k] = true
				ends = append(ends, e)
			}
		}
	}
	return ends, missing, nil
}

// pairsOf counts the ordered pairs of different devices between two parties.
func pairsOf(s, d party) int {
	if len(s.devices) == 0 || len(d.devices) == 0 {
		return max(1, len(s.devices)) * max(1, len(d.devices))
	}
	both := 0
	in := make(map[*device]bool, len(s.devices))
	for _, dev := range s.devices {
		in[dev] = true
	}
	for _, dev := range d.devices {
		if in[dev] {
			both++
		}
	}
	return len(s.devices)*len(d.devices) - both
}

// shareFamily reports whether some packet could pass from the one party to the other.
func shareFamily(s, d party) bool {
	return slices.ContainsFunc(s.ends, func(se endpoint) bool {
		return slices.ContainsFunc(d.ends, func(de endpoint) bool { return sameFamily(se, de) })
	})
}

// requireParty judges one pair of parties in every family they share, by what is offered at the ends of d; at says which
// ends decided.
func (c *Compiled) requireParty(s, d party, offers [][]offer) (outcome, failedParty) {
	worst := outcome{verdict: Fail}
	at := failedParty{s.ends[0], d.ends[0]}
	judged := false
	for i, de := range d.ends {
		for _, se := range s.ends {
			if !sameFamily(se, de) {
				continue
			}
			o := c.judge(se, de, offers[i])
			if !judged || o.verdict == Fail && worst.verdict != Fail || o.verdict == Undecided && worst.verdict == Pass {
				worst, at = o, failedParty{se, de}
			}
			judged = true
		}
	}
	return worst, at
}

func (r *RequirementResult) listFailed(s, d party, at failedParty) {
	each := func(p party) []*device {
		if len(p.devices) == 0 {
			return []*device{nil}
		}
		return p.devices
	}
	for _, sd := range each(s) {
		for _, dd := range each(d) {
			if sd == dd && sd != nil {
				continue
			}
			if len(r.Failed) == maxFailed {
				return
			}
			p := FailedPair{}
			p.Src, p.SrcAddr = describe(sd, at.src)
			p.Dst, p.DstAddr = describe(dd, at.dst)
			r.Failed = append(r.Failed, p)
		}
	}
}

// describe names a device by its host name and its address of the family that was judged.
func describe(d *device, e endpoint) (name, addr string) {
	if d == nil {
		if e.addr.IsValid() {
			return e.addr.String(), e.addr.String()
		}
		return e.name.text, ""
	}
	for _, a := range d.addrs {
		if !e.addr.IsValid() || a.BitLen() == e.addr.BitLen() {
			return d.key, a.String()
		}
	}
	return d.key, ""
}

// unmet words the finding about a requirement that fails: where the nearest rule is, whom it concerns, what to add.
func (c *Compiled) unmet(res *RequirementResult, f flow, failed []failedParty) diag.Diagnostic {
	req := &res.Requirement
	d := diag.Diagnostic{
		Severity: diag.Error, Code: "requirement-unmet", File: c.v.file, Message: req.sentence(f) + "; no rule allows it",
	}
	if res.FailedPairs < res.Pairs {
		d.Message = fmt.Sprintf("%s; no rule allows it for %d of %d pairs", req.sentence(f), res.FailedPairs, res.Pairs)
	}
	near := c.nearestRule(f, failed)
	c.pointAt(&d, near, f)
	d.Notes = append(d.Notes, protocolNote(f)...)
	if len(res.Failed) > 0 {
		p := res.Failed[0]
		d.Notes = append(d.Notes, fmt.Sprintf("%d of %d pairs affected, first %s -> %s", res.FailedPairs, res.Pairs, withAddr(p.Src, p.SrcAddr), withAddr(p.Dst, p.DstAddr)))
	}
	if req.Why != "" {
		d.Notes = append(d.Notes, "why: "+req.Why)
	}
	d.Help = append(d.Help, c.remedy(req, f, near))
	return d
}

// protocolNote says why a rule of all ports is not enough, for a protocol that has none.
func protocolNote(f flow) []string {
	if hasPorts(f.proto) || f.proto == protoICMP || f.proto == protoICMPv6 {
		return nil
	}
	return []string{fmt.Sprintf("%s is IP protocol %d; a rule that names no protocol never matches it", protoName(f.proto), f.proto)}
}

func withAddr(name, addr string) string {
	if addr == "" || addr == name {
		return name
	}
	return name + " (" + addr + ")"
}

// requireWithout is the answer where the policy has no rules to judge by, because the control plane refuses it.
func requireWithout(req Requirement) RequirementResult {
	return RequirementResult{Requirement: req, Verdict: Undecided, Missing: []string{"a policy that the control plane accepts"}}
}
