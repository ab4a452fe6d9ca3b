package accessdiff

import (
	"encoding/binary"
	"slices"
	"strings"

	"go4.org/netipx"
)

// class is a number of devices that both policies treat alike, but for their addresses.
type class struct {
	devices []int
	// behind are the pieces of what the devices forward, cut where a rule that lands on them ends.
	behind []netipx.IPRange
	groups []*group
	// selector is the destination that the class stands for where that is not known; it has no devices then.
	selector string
	needs    int
}

// group is those parts of a class's devices at which the same rules land: own addresses, by their place in the list, and
// pieces of what is behind.
type group struct {
	own    []int
	behind []int
	mask   bitset   // sources of a family that the group has
	lands  [2][]int // pieces, by side
}

// classify sorts the devices into classes.
func (g *gatherer) classify(sides [2]*side) []*class {
	var out []*class
	at := map[string]*class{}
	for n := range g.devices {
		if g.devices[n].External {
			continue
		}
		key := g.signature(sides, n)
		c := at[key]
		if c == nil {
			c = &class{}
			at[key] = c
			out = append(out, c)
		}
		c.devices = append(c.devices, n)
	}
	for _, c := range out {
		g.group(c, [2][]landing{sides[0].landings[c.devices[0]], sides[1].landings[c.devices[0]]})
	}
	return append(out, g.unplaced(sides)...)
}

// signature is equal for devices of one class.
func (g *gatherer) signature(sides [2]*side, n int) string {
	d := &g.devices[n]
	var b []byte
	for _, a := range d.Addrs {
		b = append(b, byte(a.BitLen()))
	}
	for _, r := range d.Forwards {
		b = append(b, rangeText(r)...)
		b = append(b, ' ')
	}
	if len(d.Forwards) > 0 {
		for _, a := range d.Addrs {
			if slices.ContainsFunc(d.Forwards, func(r netipx.IPRange) bool { return r.Contains(a) }) {
				b = append(b, a.String()...) // one of its kind: it forwards its own address
			}
		}
	}
	for _, s := range sides {
		b = append(b, '|')
		for _, l := range s.landings[n] {
			b = binary.AppendUvarint(b, uint64(l.piece))
			switch {
			case l.all:
				b = append(b, 'a')
			case l.own:
				b = append(b, 'o')
			default:
				b = append(b, 'i')
				for _, a := range d.Addrs {
					if g.covers(l.ips, netipx.IPRangeFrom(a, a)) {
						b = append(b, '1')
					} else {
						b = append(b, '0')
					}
				}
				if len(d.Forwards) > 0 {
					b = append(b, strings.Join(l.ips, " ")...)
					b = append(b, 0)
				}
			}
		}
	}
	return string(b)
}

func (g *gatherer) covers(texts []string, r netipx.IPRange) bool {
	for _, t := range texts {
		for _, p := range g.parse(t) {
			if p.Contains(r.From()) && p.Contains(r.To()) {
				return true
			}
		}
	}
	return false
}

// group cuts a class at the bounds of what lands there and joins the parts at which the same lands.
func (g *gatherer) group(c *class, lands [2][]landing) {
	d := &g.devices[c.devices[0]]
	c.behind = g.behind(c, lands)
	type part struct {
		own, behind int
		r           netipx.IPRange
	}
	var parts []part
	for i, a := range d.Addrs {
		parts = append(parts, part{i, -1, netipx.IPRangeFrom(a, a)})
	}
	for i, r := range c.behind {
		parts = append(parts, part{-1, i, r})
	}
	at := map[string]*group{}
	for _, p := range parts {
		var b []byte
		var hits [2][]int
		for s := range lands {
			b = append(b, '|')
			for _, l := range lands[s] {
				if l.all || l.own && p.own >= 0 || g.covers(l.ips, p.r) {
					hits[s] = append(hits[s], l.piece)
					b = binary.AppendUvarint(b, uint64(l.piece))
				}
			}
		}
		gr := at[string(b)]
		if gr == nil {
			gr = &group{mask: newBitset(g.size), lands: hits}
			at[string(b)] = gr
			c.groups = append(c.groups, gr)
		}
		if p.own >= 0 {
			gr.own = append(gr.own, p.own)
		} else {
			gr.behind = append(gr.behind, p.behind)
		}
		if p.r.From().Is4() {
			gr.mask.or(g.v4)
		} else {
			gr.mask.or(g.v6)
		}
	}
}

// behind are the pieces of what a class forwards, its own addresses left out.
func (g *gatherer) behind(c *class, lands [2][]landing) []netipx.IPRange {
	d := &g.devices[c.devices[0]]
	if len(d.Forwards) == 0 {
		return nil
	}
	var world netipx.IPSetBuilder
	for _, r := range d.Forwards {
		world.AddRange(r)
	}
	for _, a := range d.Addrs {
		world.Remove(a)
	}
	set, err := world.IPSet()
	if err != nil {
		return nil
	}
	cuts := set.Ranges()
	whole := len(cuts)
	seen := map[string]bool{}
	for s := range lands {
		for _, l := range lands[s] {
			for _, t := range l.ips {
				if !seen[t] {
					seen[t] = true
					cuts = append(cuts, g.parse(t)...)
				}
			}
		}
	}
	if len(cuts) == whole {
		return cuts
	}
	var out []netipx.IPRange
	for _, r := range pieces(cuts) {
		if set.ContainsRange(r) {
			out = append(out, r)
		}
	}
	return out
}

// unplaced makes a class of each destination of which the inventory does not tell what it is.
func (g *gatherer) unplaced(sides [2]*side) []*class {
	var selectors []string
	for _, s := range sides {
		for sel := range s.unplaced {
			if !slices.Contains(selectors, sel) {
				selectors = append(selectors, sel)
			}
		}
	}
	slices.Sort(selectors)
	var out []*class
	for _, sel := range selectors {
		c := &class{selector: sel}
		gr := &group{mask: newBitset(g.size)}
		gr.mask.or(g.v4)
		gr.mask.or(g.v6)
		for i, s := range sides {
			if needs := s.needs[sel]; needs != "" {
				c.needs = g.need(needs)
			}
			for _, l := range s.unplaced[sel] {
				gr.lands[i] = append(gr.lands[i], l.piece)
			}
			if strings.HasPrefix(sel, "group:") {
				// Whoever is in the group, what lands on every device lands on theirs.
				gr.lands[i] = append(gr.lands[i], s.everywhere(g)...)
			}
			slices.Sort(gr.lands[i])
		}
		c.groups = []*group{gr}
		out = append(out, c)
	}
	return out
}

// everywhere lists the pieces that land on all of every device.
func (s *side) everywhere(g *gatherer) []int {
	count := make([]int, len(s.pieces))
	devices := 0
	for n := range g.devices {
		if g.devices[n].External {
			continue
		}
		devices++
		for _, l := range s.landings[n] {
			if l.all {
				count[l.piece]++
			}
		}
	}
	var out []int
	for p, n := range count {
		if n == devices && n > 0 {
			out = append(out, p)
		}
	}
	return out
}
