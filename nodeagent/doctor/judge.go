package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// unasked begins the reason of an answer that the kernel did not give.
const unasked = "not asked: "

// How things are seen, in the words of the report.
const (
	howRoute   = "RTM_GETROUTE with the pod as source, the pods' interface and the mark"
	howReply   = "RTM_GETROUTE for the reply, as it comes in by " + desired.Interface
	howRules   = "the policy rules and routes, by netlink"
	howNFT     = "nftables' rules, by netlink; the packet was followed through them on paper"
	howSysctl  = "/proc/sys/net"
	howStatus  = "LocalAPI status"
	howLinks   = "the interfaces, by netlink"
	howFlows   = "tracked connections, by netlink"
	howProbe   = "packets sent from a namespace at the pods' bridge and watched at every interface"
	howLegacy  = "the tables in /proc/net/ip_tables_names, by their socket options"
	howMetrics = "LocalAPI usermetrics"
)

// flow is what pods and one address of a peer say to each other.
type flow struct {
	peer   string
	family desired.Family
	packet desired.Packet // of a connection that a pod begins, with the mark that the firewall gives it

	before Outcome // of prerouting, for that packet
	marked match   // whether the packet carries the agent's bit
	way    desired.Answer
	known  bool // the kernel answered

	reply  desired.Packet // the peer's answer, as it comes in by tailscale0
	back   desired.Answer
	backOK bool

	peers  desired.Packet // the pod's answer in a connection that the peer began
	other  desired.Answer
	otherK bool

	further bool   // its pod is of another network than the first, and no probe is sent from there
	blocked string // the code of the finding that stops it
	culprit string // what drops it on the way there
}

func (f *flow) right() bool { return f.known && f.way.Dev == desired.Interface }

// judgement is the evidence, and what follows from it.
type judgement struct {
	e       *Evidence
	doc     config.Document
	state   desired.State
	err     error // why there is no state
	notes   []desired.Note
	flows   []*flow
	to      map[netip.Addr][]*flow // the same by destination
	iif     string                 // the pods' interface, "" when it is not known
	wanted  []desired.Packet
	blocked string // the code of a finding that stops every flow
	result  *Result
	found   map[string]bool
	doubted map[doubt]bool
}

// doubt is something that a check could not tell.
type doubt struct {
	check *Result
	text  string
}

func newJudgement(e *Evidence) *judgement {
	j := &judgement{e: e, to: map[netip.Addr][]*flow{}, found: map[string]bool{}, doubted: map[doubt]bool{}}
	if e.Document == nil {
		return j
	}
	j.doc = *e.Document
	j.doc, j.notes, j.err = desired.Resolve(j.doc, e.Tailscaled.tailnet())
	if j.err != nil {
		return j
	}
	if len(j.doc.PodCIDRs) == 0 {
		for _, found := range e.Pods {
			j.doc.PodCIDRs = append(j.doc.PodCIDRs, found.Networks...)
		}
	}
	if j.state, j.err = desired.Build(j.doc, e.Facts); j.err != nil {
		return j
	}
	j.notes = append(j.notes, j.state.Notes...)
	if e.Rules != nil {
		e.Rules.Back = j.wayBack
	}
	for _, p := range j.state.Probes {
		if e.Pod.IsValid() && desired.FamilyOf(e.Pod) == desired.FamilyOf(p.Packet.Dst) {
			p.Packet.Src = e.Pod
			if _, dev := e.Facts.OwnRoute(func(a netip.Addr) bool { return a == e.Pod }); dev != "" {
				p.Packet.Iif = dev
			}
		}
		j.flows = append(j.flows, j.flow(p))
	}
	j.furtherNetworks()
	for _, fl := range j.flows {
		j.to[fl.packet.Dst] = append(j.to[fl.packet.Dst], fl)
	}
	return j
}

// tailnet returns the tailnet for the document's sake, or nil.
func (t Tailscaled) tailnet() *desired.Tailnet {
	if t.Err != "" || t.State != "Running" {
		return nil
	}
	node := func(n TailscaleNode) desired.TailnetNode {
		return desired.TailnetNode{ID: n.ID, Name: n.Name, Addresses: n.Addresses, Tags: n.Tags}
	}
	out := &desired.Tailnet{Self: node(t.Self)}
	for _, p := range t.Peers {
		out.Peers = append(out.Peers, node(p))
	}
	return out
}

func (j *judgement) flow(p desired.Probe) *flow {
	f := &flow{peer: p.Peer, family: desired.FamilyOf(p.Packet.Dst), packet: p.Packet}
	f.packet.Mark = 0
	if j.iif == "" {
		j.iif = p.Packet.Iif
	}
	bit := uint32(j.doc.Routing.Mark)
	f.before, f.packet.Mark = j.prerouting(f.packet, desired.Original)
	f.marked = j.carries(f.before, f.packet, desired.Original, bit)
	if f.packet.Iif == "" {
		return f
	}
	f.way, f.known = j.ask(f.packet)

	f.reply = desired.Packet{Src: f.packet.Dst, Dst: f.packet.Src, Iif: desired.Interface}
	_, f.reply.Mark = j.prerouting(f.reply, desired.Reply)
	if _, ok := j.e.Facts.Link(desired.Interface); ok {
		f.back, f.backOK = j.ask(f.reply)
	}

	f.peers = desired.Packet{Src: f.packet.Src, Dst: f.packet.Dst, Iif: f.packet.Iif}
	_, f.peers.Mark = j.prerouting(f.peers, desired.Reply)
	f.other, f.otherK = j.ask(f.peers)
	return f
}

// traced is a TCP segment of the packet's kind: what most people want to arrive, and what a firewall asks most about.
func traced(p desired.Packet, direction, oif string) Traced {
	return Traced{
		Src: p.Src, Dst: p.Dst, Iif: p.Iif, Oif: oif, Mark: p.Mark,
		Protocol: unix.IPPROTO_TCP, ICMPType: -1, Reply: direction == desired.Reply,
	}
}

// prerouting follows a packet that comes in without a mark, and returns the mark that routing sees.
func (j *judgement) prerouting(p desired.Packet, direction string) (Outcome, uint32) {
	if j.e.Rules == nil {
		return Outcome{}, 0
	}
	p.Mark = 0
	t := traced(p, direction, "")
	if direction == desired.Reply && p.Iif == desired.Interface && j.doc.Firewall.SNAT {
		t.Sent = j.own(desired.FamilyOf(p.Dst))
	}
	out := j.e.Rules.Filter(Prerouting, t)
	mark := out.Packet.Mark
	if out.Packet.Untracked {
		return out, mark // the agent's rules ask for a direction, which it has not
	}
	if bit := uint32(j.doc.Routing.Mark); (out.Packet.Unknown&bit != 0 || j.ownLegacy()) && j.e.Facts.MarkOf(p, direction)&bit != 0 {
		mark |= bit // the agent's own rules are read in another way, too
	}
	return out, mark
}

// carries says whether the packet carries the bit after prerouting.
func (j *judgement) carries(o Outcome, p desired.Packet, direction string, bit uint32) match {
	switch {
	case j.e.Rules == nil:
		return perhaps
	case o.Packet.Mark&bit == bit:
		return yes
	case o.Packet.Untracked:
		return no
	case o.Packet.Unknown&bit == 0:
		m := matches(j.ownLegacy() && j.e.Facts.MarkOf(p, direction)&bit == bit)
		if m == yes && j.legacyOf("mangle") != "" {
			return perhaps // others' rules there are not followed
		}
		return m
	}
	p.Mark = 0
	if j.e.Facts.MarkOf(p, direction)&bit == bit {
		return yes
	}
	return perhaps
}

// ask returns the kernel's answer, or notes that it is wanted.
func (j *judgement) ask(p desired.Packet) (desired.Answer, bool) {
	if !p.Dst.IsValid() || !p.Src.IsValid() || p.Iif == "" {
		return desired.Answer{}, false
	}
	return j.askKernel(p)
}

// askKernel is ask for any packet, those of the node itself included, which come in by no interface.
func (j *judgement) askKernel(p desired.Packet) (desired.Answer, bool) {
	a, ok := j.e.Answers[p]
	if !ok {
		j.wanted = append(j.wanted, p)
		return desired.Answer{}, false
	}
	return a, !strings.HasPrefix(a.Reason, unasked)
}

// Wanted returns the packets whose way the judgement would like to know and does not yet.
func (e *Evidence) Wanted() []desired.Packet {
	j := newJudgement(e)
	for _, check := range Checks() {
		if j.lacks(check.Needs) == "" {
			j.result = &Result{}
			check.run(j, j.result)
		}
	}
	var out []desired.Packet
	seen := map[desired.Packet]bool{}
	for _, p := range j.wanted {
		if !seen[p] {
			out = append(out, p)
		}
		seen[p] = true
	}
	return out
}

// lacks says why the needs are not met, or "".
func (j *judgement) lacks(n Need) string {
	switch {
	case n&NeedDocument != 0 && j.e.Document == nil:
		return "needs the node's document: " + j.e.DocumentErr
	case n&NeedDocument != 0 && j.err != nil:
		return "needs a document that fits this node"
	case n&NeedTailscaled != 0 && j.e.Tailscaled.Err != "":
		return "needs tailscaled's answer: " + j.e.Tailscaled.Err
	case n&NeedRules != 0 && j.e.Rules == nil:
		return "needs nftables' rules: " + j.e.RulesErr
	}
	return ""
}

// add adds a finding to the check that runs. One of the same kind and cause takes in the peer.
func (j *judgement) add(f Finding) {
	j.found[f.Code] = true
	for i := range j.result.Findings {
		have := &j.result.Findings[i]
		if have.Code == f.Code && have.Cause == f.Cause && have.Behind == f.Behind {
			for _, p := range f.Peers {
				if !slices.Contains(have.Peers, p) {
					have.Peers = append(have.Peers, p)
				}
			}
			for _, a := range f.Addresses {
				if !slices.Contains(have.Addresses, a) {
					have.Addresses = append(have.Addresses, a)
				}
			}
			return
		}
	}
	j.result.Findings = append(j.result.Findings, f)
}

// stop is add for a finding that keeps packets of a flow (nil: of every flow) from going on. What is already stopped is
// stopped by what packets meet first.
func (j *judgement) stop(fl *flow, f Finding) {
	f.Level = Fail
	if fl == nil {
		f.Behind = j.blocked
		if j.blocked == "" {
			j.blocked = f.Code
		}
		for _, x := range j.flows {
			if x.blocked == "" {
				x.blocked = f.Code
			}
		}
	} else {
		f.Peers, f.Addresses = []string{fl.peer}, []netip.Addr{fl.packet.Dst}
		f.Behind = fl.blocked
		if fl.blocked == "" {
			fl.blocked = f.Code
		}
	}
	j.add(f)
}

// untested marks the check for the flows that are stopped before it.
func (j *judgement) untested(blocked map[string]bool) {
	if len(blocked) == 0 {
		return
	}
	codes := slices.Sorted(func(yield func(string) bool) {
		for c := range blocked {
			if !yield(c) {
				return
			}
		}
	})
	if j.result.Status == StatusOK {
		j.result.Status = StatusUntested
	}
	j.result.Detail = strings.Join(append(nonEmpty(j.result.Detail), "not testable until "+strings.Join(codes, ", ")+" is fixed"), "; ")
}

func (j *judgement) unknown(format string, args ...any) {
	if j.result.Status == StatusOK {
		j.result.Status = StatusUnknown
	}
	d := doubt{j.result, fmt.Sprintf(format, args...)}
	if j.doubted[d] {
		return
	}
	j.doubted[d] = true
	const most, more = 4000, "; and more" // characters, which nobody reads further
	switch {
	case len(j.result.Detail) < most:
		j.result.Detail = strings.Join(append(nonEmpty(j.result.Detail), d.text), "; ")
	case !strings.HasSuffix(j.result.Detail, more):
		j.result.Detail += more
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func (j *judgement) device(name string) (Device, bool) {
	i := slices.IndexFunc(j.e.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return Device{}, false
	}
	return j.e.Devices[i], true
}

// checkPod returns an error where the pod that is to be judged is not one of this node's. Where it is not known which those
// are, the judgement says why.
func (e *Evidence) checkPod() error {
	j := newJudgement(e)
	if !e.Pod.IsValid() || e.Document == nil || j.err != nil || len(j.doc.PodCIDRs) == 0 || j.isPod(e.Pod) && !j.local(e.Pod) {
		return nil
	}
	return fmt.Errorf("%s is not the address of a pod of this node: its pods' networks are %s", e.Pod, j.doc.PodCIDRs)
}

func (j *judgement) isPod(a netip.Addr) bool {
	return slices.ContainsFunc(j.doc.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// local says whether the address is one of this node's interfaces.
func (j *judgement) local(a netip.Addr) bool {
	return slices.ContainsFunc(j.e.Facts.Links, func(l desired.Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// own returns this node's mesh address of the family, as tailscale0 has it, else as the document says.
func (j *judgement) own(f desired.Family) netip.Addr {
	if link, ok := j.e.Facts.Link(desired.Interface); ok {
		for _, a := range link.Mesh() {
			if desired.FamilyOf(a) == f {
				return a
			}
		}
	}
	for _, a := range j.doc.Node.Addresses {
		if desired.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

func (j *judgement) foreign() *desired.ForeignDocumentError {
	err, _ := errors.AsType[*desired.ForeignDocumentError](j.err)
	return err
}

func (j *judgement) probed(fl *flow) *ProbeFlow {
	if j.e.Probe == nil || fl.further {
		return nil
	}
	i := slices.IndexFunc(j.e.Probe.Flows, func(p ProbeFlow) bool { return p.To == fl.packet.Dst })
	if i < 0 {
		return nil
	}
	return &j.e.Probe.Flows[i]
}

// decision is what policy rules make of a packet, worked out on paper. It is not found where it hangs on selectors that are
// not followed here: then nobody is named.
type decision struct {
	rule  desired.Rule
	route Route
	found bool
}

// String names the rule and the route.
func (d decision) String() string {
	if !d.found {
		return "by a rule that could not be told from the rules and tables"
	}
	if d.rule.Action != desired.Lookup {
		return fmt.Sprintf("the rule `%s`", d.rule)
	}
	return fmt.Sprintf("the rule `%s`, route %s", d.rule, d.route)
}

// decide goes through the rules and tables as the kernel does. from is where to begin: rules for which it says no are
// passed over.
func (j *judgement) decide(p desired.Packet, from func(desired.Rule) bool) decision {
	family, jump := desired.FamilyOf(p.Dst), int64(-1)
	for _, r := range j.e.Facts.Rules {
		if r.Family != family || int64(r.Priority) < jump || r.Action == desired.Nop || !from(r) || !r.Matches(p) {
			continue
		}
		suppressed, sure := suppression(r)
		d := decision{rule: r, route: Route{Type: r.Action}, found: true}
		if r.Action == desired.Lookup {
			route, ok := j.route(family, r.Table, p.Dst)
			if !ok || route.Type == "throw" || route.Dst.Bits() <= suppressed {
				continue
			}
			d.route = route
		}
		switch {
		case !sure:
			return decision{}
		case r.Action == desired.Goto:
			jump = int64(r.Target)
		default:
			return d
		}
	}
	return decision{}
}

// wayBack works out by which interface a packet would leave, as [Ruleset.Back].
func (j *judgement) wayBack(p desired.Packet) (dev string, known bool) {
	d := j.decide(p, anyRule)
	return d.route.Dev, d.found
}

// suppression reads what a rule has besides the selectors that are followed. Routes of networks up to the length are passed
// over (suppress_prefixlength); -1: none. It is not sure where there is anything else.
func suppression(r desired.Rule) (length int, sure bool) {
	words := strings.Fields(r.Other)
	length = -1
	if len(words) >= 2 && words[0] == "suppress_prefixlength" {
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return length, false
		}
		length, words = n, words[2:]
	}
	return length, len(words) == 0
}

// route finds the most particular route of a table to the address.
func (j *judgement) route(f desired.Family, table uint32, to netip.Addr) (Route, bool) {
	var best Route
	for _, r := range j.e.Routes {
		if r.Family == f && r.Table == table && r.Dst.Contains(to) && (!best.Dst.IsValid() || r.Dst.Bits() > best.Dst.Bits()) {
			best = r
		}
	}
	return best, best.Dst.IsValid()
}

// refuses says whether the packet is refused by the rule or the route.
func (d decision) refuses() bool {
	return d.found && slices.Contains([]string{desired.Blackhole, desired.Unreachable, desired.Prohibit}, d.route.Type)
}

func anyRule(desired.Rule) bool { return true }

func (r Route) String() string {
	text := r.Dst.String()
	if r.Type != "" && r.Type != "unicast" {
		text = r.Type + " " + text
	}
	if r.Dev != "" {
		text += " dev " + r.Dev
	}
	return fmt.Sprintf("%s table %d", text, r.Table)
}

// limits is what no evidence of this node shows.
func (j *judgement) limits() []Question {
	if j.e.Document == nil || j.err != nil || len(j.doc.Peers) == 0 {
		return nil
	}
	var names []string
	for _, p := range j.doc.Peers {
		names = append(names, p.Name)
	}
	on := strings.Join(names, ", ")
	if len(names) > 3 {
		on = fmt.Sprintf("each of %d peers", len(names))
	}
	why := "whether the peer admits what this node sends, the overlay's protocol included: only the receiving node's packet filter decides, " +
		"and nothing on the sender shows it"
	return []Question{{On: on, Command: "tailmesh-agent doctor", Why: why}}
}
