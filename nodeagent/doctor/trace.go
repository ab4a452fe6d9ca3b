package doctor

import (
	"bytes"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Traced is a packet that is followed through the firewall's rules on paper. What is not known of it stays unknown, and a
// rule that asks for it then may or may not take the packet.
type Traced struct {
	Src, Dst netip.Addr
	Iif, Oif string
	Mark     uint32
	Unknown  uint32 // bits of Mark that are not known
	Protocol uint8  // of the transport layer; 0 is not known
	ICMPType int    // -1 is not known
	Reply    bool   // it is a reply of a connection that exists; else it begins one
	FromHere bool   // its source is one of this node's own addresses
	ToHere   bool   // its destination is
	// Sent is the address that a reply comes in to, where the source of its connection is translated: its destination
	// until prerouting's destination NAT has passed, one of this node's own. Zero: it has always been Dst.
	Sent      netip.Addr
	Untracked bool
}

func (p Traced) family() desired.Family { return desired.FamilyOf(p.Dst) }

// MarkChange is a rule that changed the mark of a packet on its way.
type MarkChange struct {
	Rule     *Rule
	From, To uint32
	Unknown  uint32 // bits of From of which it is not known whether the packet had them
}

// Outcome is what the chains of a hook make of a packet.
type Outcome struct {
	Packet  Traced
	Dropped bool
	By      *Rule  // the rule that drops it; nil: the policy of Chain
	Chain   *Chain // of the rule or of the policy
	Rejects bool   // its sender is told
	// Maybe are the rules of which it cannot be said here whether they take the packet, and that would change whether it
	// is dropped.
	Maybe   []*Rule
	Marks   []MarkChange
	NoTrack *Rule // the rule that keeps the packet from being tracked
	// Redirect is the rule that gives a new connection another destination, whatever its port.
	Redirect *Rule
}

// Certain says whether the outcome does not depend on what is not known.
func (o Outcome) Certain() bool { return len(o.Maybe) == 0 }

// Culprit names what drops the packet.
func (o Outcome) Culprit() string {
	switch {
	case o.By != nil:
		return o.By.String()
	case o.Chain != nil:
		return o.Chain.Family + " " + o.Chain.Table + " " + o.Chain.Name + ": policy drop"
	}
	return ""
}

// Translation is what the firewall makes of the source of a connection's first packet.
type Translation struct {
	By         *Rule      // nil: the source stays
	To         netip.Addr // zero with Masquerade: the address of the interface that the packet leaves by
	Masquerade bool
	Unread     bool // By translates, but it cannot be read to what
	// Maybe are rules in front of By, of which it cannot be said here whether they take the packet.
	Maybe []*Rule
}

// Filter follows the packet through the chains of type filter (and route) at the hook. Those that translate destinations
// are met by packets that begin a connection.
func (s *Ruleset) Filter(hook Hook, p Traced) Outcome {
	if s.outcomes == nil {
		return s.filter(hook, p)
	}
	out, known := s.outcomes[at{hook, p}]
	if !known {
		out = s.filter(hook, p)
		s.outcomes[at{hook, p}] = out
	}
	return out
}

// at is a packet at a hook.
type at struct {
	hook   Hook
	packet Traced
}

func (s *Ruleset) filter(hook Hook, p Traced) Outcome {
	out := Outcome{Packet: p}
	types := []string{"filter", "route"}
	if hook == Prerouting && !p.Reply {
		types = append(types, "nat")
	}
	for _, c := range s.base(p.family(), hook, types...) {
		if c.Type == "nat" && out.Packet.Untracked {
			continue
		}
		w := walk{set: s, out: &out}
		const destinationNAT = -100
		if hook == Prerouting && p.Sent.IsValid() && c.Priority < destinationNAT {
			out.Packet.Dst, out.Packet.ToHere = p.Sent, true
		}
		end := w.chain(c, 0, false)
		out.Packet.Dst, out.Packet.ToHere = p.Dst, p.ToHere
		if end == dropped || end == fell && c.Drop {
			if end == fell {
				out.By = nil
			}
			out.Dropped, out.Chain = true, c
			if out.By != nil {
				out.Chain = out.By.Chain
			}
			out.Maybe = w.mayAccept
			return out
		}
		out.Maybe = append(out.Maybe, w.mayDrop...)
	}
	return out
}

// Source follows the packet through the chains that translate sources.
func (s *Ruleset) Source(p Traced) Translation {
	out := Outcome{Packet: p}
	var t Translation
	for _, c := range s.base(p.family(), Postrouting, "nat") {
		w := walk{set: s, out: &out}
		end := w.chain(c, 0, false)
		t.Maybe = append(t.Maybe, w.mayTranslate...)
		if end == translated {
			t.By, t.To, t.Masquerade, t.Unread = w.nat.By, w.nat.To, w.nat.Masquerade, w.nat.Unread
			return t
		}
	}
	return t
}

// How the walk through a chain ends.
type ending int

const (
	fell ending = iota // nothing decided
	accepted
	dropped
	returned
	mayReturn // it may have returned: what comes behind in the chain may not be met
	translated
)

// maxDepth is how deep chains call each other at most; the kernel allows 16.
const maxDepth = 20

type walk struct {
	set *Ruleset
	out *Outcome
	nat Translation

	mayDrop, mayAccept, mayTranslate []*Rule

	// ports says that a rule on the way here takes packets of particular ports alone. The packet is of none in
	// particular: what drops those is no obstacle to the rest.
	ports bool

	headers map[expr.PayloadBase]header // of the packet, whose addresses do not change in a chain
}

// chain runs a chain. With maybe, the packet may not come here at all: what decides is only remembered.
func (w *walk) chain(c *Chain, depth int, maybe bool) ending {
	if c == nil || depth > maxDepth {
		return fell
	}
	for _, r := range c.Rules {
		switch end := w.rule(r, depth, maybe); end {
		case fell:
		case returned:
			return fell
		case mayReturn:
			maybe = true
		default:
			return end
		}
	}
	return fell
}

// decide is the end of a rule that may or must take the packet.
func (w *walk) decide(r *Rule, end ending, maybe bool) ending {
	if !maybe {
		if end == dropped {
			w.out.By = r
		}
		return end
	}
	switch end {
	case dropped:
		if !w.ports {
			w.mayDrop = append(w.mayDrop, r)
		}
	case accepted:
		w.mayAccept = append(w.mayAccept, r)
	case returned:
		return mayReturn
	case translated:
		w.mayTranslate = append(w.mayTranslate, r)
	}
	return fell
}

// rule runs a rule on the packet.
func (w *walk) rule(r *Rule, depth int, maybe bool) ending {
	var g registers
	maybe = maybe || r.Opaque
	defer func(before bool) { w.ports = before }(w.ports)
	for _, e := range r.Exprs {
		m := yes
		switch e := e.(type) {
		case *expr.Meta:
			if e.SourceRegister {
				w.setMark(r, e, &g, maybe)
			} else {
				w.loadMeta(e, &g)
			}
		case *expr.Payload:
			if e.OperationType == expr.PayloadLoad {
				w.loadPayload(e, &g)
			}
		case *expr.Ct:
			if !e.SourceRegister {
				if w.out.Packet.Untracked && e.Key != expr.CtKeySTATE {
					return fell // there is no connection to ask about
				}
				w.loadCt(e, &g)
			}
		case *expr.Immediate:
			g.load(e.Register, e.Data)
		case *expr.Bitwise:
			bitwise(e, &g)
		case *expr.Byteorder:
			g.obscure(e.DestRegister, int(e.Len))
		case *expr.Cmp:
			m = compare(e, &g)
			w.ports = w.ports || m == perhaps && e.Op == expr.CmpOpEq && g.ofPort(e.Register)
		case *expr.Range:
			m = inRange(e, &g)
			w.ports = w.ports || m == perhaps && e.Op == expr.CmpOpEq && g.ofPort(e.Register) && few(e.FromData, e.ToData)
		case *expr.Lookup:
			var end ending
			var decided bool
			w.ports = w.ports || !e.Invert && !e.IsDestRegSet && g.ofPort(e.SourceRegister)
			if m, end, decided = w.lookup(r, e, &g, depth, maybe); decided {
				return end
			}
		case *expr.Fib:
			w.loadFib(e, &g)
		case *expr.Match:
			m = w.matchXT(e)
			w.ports = w.ports || m == perhaps && portsXT(e)
		case *expr.Limit, *expr.Quota, *expr.Connlimit, *expr.Dynset:
			m = perhaps
		case *expr.Exthdr:
			g.obscure(e.DestRegister, 16)
		case *expr.Hash:
			g.obscure(e.DestRegister, 4)
		case *expr.Numgen:
			g.obscure(e.Register, 4)
		case *expr.Notrack:
			if !maybe {
				w.out.NoTrack, w.out.Packet.Untracked = r, true
			}
		case *expr.Verdict:
			return w.verdict(r, e, depth, maybe)
		case *expr.Reject:
			if !maybe {
				w.out.Rejects = true
			}
			return w.decide(r, dropped, maybe)
		case *expr.Queue:
			return w.decide(r, dropped, true)
		case *expr.NAT:
			if e.Type == expr.NATTypeSourceNAT {
				return w.translate(r, natTo(e, &g), maybe)
			}
			return w.redirect(r, maybe)
		case *expr.Masq:
			return w.translate(r, Translation{Masquerade: true}, maybe)
		case *expr.Redir:
			return w.redirect(r, maybe)
		case *expr.Target:
			if end, decided := w.target(r, e, maybe); decided {
				return end
			}
		}
		switch m {
		case no:
			return fell
		case perhaps:
			maybe = true
		}
	}
	return fell
}

func (w *walk) verdict(r *Rule, e *expr.Verdict, depth int, maybe bool) ending {
	switch e.Kind {
	case expr.VerdictAccept:
		return w.decide(r, accepted, maybe)
	case expr.VerdictDrop:
		return w.decide(r, dropped, maybe)
	case expr.VerdictReturn:
		return w.decide(r, returned, maybe)
	case expr.VerdictJump:
		return w.chain(w.set.chain(r.Chain.Family, r.Chain.Table, e.Chain), depth+1, maybe)
	case expr.VerdictGoto:
		if end := w.chain(w.set.chain(r.Chain.Family, r.Chain.Table, e.Chain), depth+1, maybe); end != fell {
			return end
		}
		return w.decide(r, returned, maybe)
	case expr.VerdictQueue, expr.VerdictStolen:
		return w.decide(r, dropped, true)
	}
	return fell
}

func (w *walk) translate(r *Rule, t Translation, maybe bool) ending {
	if !maybe {
		w.nat = t
		w.nat.By = r
	}
	return w.decide(r, translated, maybe)
}

// redirect is the end of a rule that gives the packet another destination.
func (w *walk) redirect(r *Rule, maybe bool) ending {
	if !maybe {
		w.out.Redirect = r
	}
	return w.decide(r, accepted, maybe)
}

func natTo(e *expr.NAT, g *registers) Translation {
	if e.RegAddrMin == 0 || e.Prefix {
		return Translation{Unread: true}
	}
	length := 4
	if e.Family == unix.NFPROTO_IPV6 {
		length = 16
	}
	data, unknown := g.read(e.RegAddrMin, length)
	addr, ok := netip.AddrFromSlice(data)
	if e.RegAddrMax != 0 && e.RegAddrMax != e.RegAddrMin {
		last, _ := g.read(e.RegAddrMax, length)
		ok = ok && bytes.Equal(data, last)
	}
	return Translation{To: addr, Unread: !ok || !zero(unknown)}
}

// lookup asks a set, or takes the verdict of a map.
func (w *walk) lookup(r *Rule, e *expr.Lookup, g *registers, depth int, maybe bool) (m match, end ending, decided bool) {
	set := w.set.set(r.Chain, e.SetName)
	isVerdictMap := e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	if set == nil || set.Opaque || set.Length == 0 {
		if e.IsDestRegSet && !isVerdictMap {
			g.obscure(e.DestRegister, 16)
		}
		return perhaps, fell, false
	}
	key, unknown := g.read(e.SourceRegister, set.Length)
	if !zero(unknown) {
		if !isVerdictMap {
			if e.IsDestRegSet {
				g.obscure(e.DestRegister, 16)
			}
			if len(set.Elements) == 0 {
				return matches(e.Invert), fell, false
			}
			return perhaps, fell, false
		}
		for _, element := range set.Elements {
			if element.Verdict != nil {
				w.verdict(r, element.Verdict, depth, true)
			}
		}
		return perhaps, fell, false
	}
	element, found := set.find(key)
	if isVerdictMap && found && element.Verdict != nil {
		end := w.verdict(r, element.Verdict, depth, maybe)
		return yes, end, end != fell
	}
	if e.IsDestRegSet && found {
		g.load(e.DestRegister, element.Value)
	}
	return matches(found != e.Invert), fell, false
}
