package policy

import "slices"

// pairs is how a flow fares between everybody whom two selectors stand for.
type pairs struct {
	pass, fail, undecided int
	rule                  *rule // the first that decided
	missing               []string
}

// verdict is Pass where every pair is admitted, Fail where one is not.
func (p pairs) verdict() Verdict {
	switch {
	case p.fail > 0:
		return Fail
	case p.undecided > 0:
		return Undecided
	case p.pass > 0:
		return Pass
	}
	return Fail
}

// party is a number of devices that no rule tells apart, or one address or name; ends are those of one of them.
type party struct {
	class   int // -1 for what is not a device with all its addresses
	ends    []endpoint
	devices []*device
}

// parties groups endpoints. Judging one device of a party judges all of them.
func (c *Compiled) parties(ends []endpoint) []party {
	var out []party
	at := map[int]int{}
	for _, e := range ends {
		if e.dev == nil || e.exact {
			p := party{class: -1, ends: []endpoint{e}}
			if e.dev != nil {
				p.devices = []*device{e.dev}
			}
			out = append(out, p)
			continue
		}
		class := c.reach.classes[e.dev.n]
		i, ok := at[class]
		if !ok {
			i = len(out)
			at[class] = i
			out = append(out, party{class: class})
		}
		p := &out[i]
		if last := len(p.devices) - 1; last < 0 || p.devices[last] != e.dev {
			p.devices = append(p.devices, e.dev)
		}
		if p.devices[0] == e.dev {
			p.ends = append(p.ends, e)
		}
	}
	return out
}

// candidates are the rules that name a party's address as destination.
func (c *Compiled) candidates(p party, e endpoint) []posting {
	if p.class < 0 {
		return c.reach.destination(e)
	}
	key := p.class * 2
	if e.addr.Is6() {
		key++
	}
	c.reach.mu.Lock()
	defer c.reach.mu.Unlock()
	got, ok := c.reach.cache[key]
	if !ok {
		got = c.reach.destination(e)
		c.reach.cache[key] = got
	}
	return got
}

// between judges a flow from everybody in src to everybody in dst. A pair passes where one of its address families does:
// a client takes the one that works.
func (c *Compiled) between(src, dst []endpoint, f flow) pairs {
	var out pairs
	from := c.parties(src)
	for _, d := range c.parties(dst) {
		offers := c.offersTo(d, f)
		for _, s := range from {
			best := outcome{verdict: Fail}
			for i, de := range d.ends {
				for _, se := range s.ends {
					if !sameFamily(se, de) {
						continue
					}
					if o := c.judge(se, de, offers[i]); o.verdict == Pass || best.verdict == Fail {
						best = o
					}
					if best.verdict == Pass {
						break
					}
				}
			}
			switch best.verdict {
			case Pass:
				out.pass++
			case Undecided:
				out.undecided++
				out.missing = append(out.missing, best.missing...)
			default:
				out.fail++
			}
			if out.rule == nil {
				out.rule = best.rule
			}
		}
	}
	slices.Sort(out.missing)
	out.missing = slices.Compact(out.missing)
	return out
}

func sameFamily(a, b endpoint) bool {
	return !a.addr.IsValid() || !b.addr.IsValid() || a.addr.BitLen() == b.addr.BitLen()
}

// offersTo are the offers at each end of a party.
func (c *Compiled) offersTo(p party, f flow) [][]offer {
	out := make([][]offer, len(p.ends))
	for i, e := range p.ends {
		out[i] = c.offers(e, f, c.candidates(p, e))
	}
	return out
}
