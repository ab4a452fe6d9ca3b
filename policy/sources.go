package policy

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"go4.org/netipx"
)

// srcSet is the union of some selectors, as sources.
type srcSet struct {
	key     int // equal for equal addresses
	parts   []*resolved
	posture *posture

	addrs addrTexts
	once  sync.Once
	text  []string // of addrs, made when a filter first shows it
}

// addrTexts is a set of texts such as SrcIPs has. Those of devices' addresses, of which a large tailnet has many in
// every rule, are bits; the order of the bits is that of the texts, so that sets are joined, compared and printed in
// order without sorting.
type addrTexts struct {
	bits  []uint64 // by index.texts
	extra []string // the others, sorted, each once
}

func (a *addrTexts) addDevice(d *device) {
	for _, n := range d.ranks {
		a.addRank(n)
	}
}

func (a *addrTexts) addRank(n int) {
	if grow := n/64 + 1 - len(a.bits); grow > 0 {
		a.bits = append(a.bits, make([]uint64, grow)...)
	}
	a.bits[n/64] |= 1 << (n % 64)
}

func (a *addrTexts) addText(x *index, text string) {
	if n, ok := slices.BinarySearch(x.texts, text); ok {
		a.addRank(n)
		return
	}
	if i, ok := slices.BinarySearch(a.extra, text); !ok {
		a.extra = slices.Insert(a.extra, i, text)
	}
}

func (a *addrTexts) empty() bool { return len(a.bits) == 0 && len(a.extra) == 0 }

// id is equal for equal sets.
func (a *addrTexts) id() string {
	var b strings.Builder
	var word [8]byte
	for _, w := range a.bits {
		binary.LittleEndian.PutUint64(word[:], w)
		b.Write(word[:])
	}
	b.WriteString("\x00" + strings.Join(a.extra, "\x00"))
	return b.String()
}

// list prints the set: sorted as text, never nil.
func (a *addrTexts) list(x *index) []string {
	out := make([]string, 0, len(a.extra)+16)
	extra := a.extra
	for i, w := range a.bits {
		for n := i * 64; w != 0; n, w = n+1, w>>1 {
			if w&1 == 0 {
				continue
			}
			for len(extra) > 0 && extra[0] < x.texts[n] {
				out, extra = append(out, extra[0]), extra[1:]
			}
			out = append(out, x.texts[n])
		}
	}
	return append(out, extra...)
}

// rank gives the devices' addresses their places in the order of texts.
func (x *index) rank() {
	for _, d := range x.devices {
		x.texts = append(x.texts, d.ips...)
	}
	slices.Sort(x.texts)
	x.texts = slices.Compact(x.texts)
	for _, d := range x.devices {
		for _, ip := range d.ips {
			n, _ := slices.BinarySearch(x.texts, ip)
			d.ranks = append(d.ranks, n)
		}
	}
}

// sources resolves a list of selectors as sources. Equal lists give the same set.
func (c *Compiled) sources(selectors []string, p *posture) *srcSet {
	sorted := slices.Compact(slices.Sorted(slices.Values(selectors)))
	id := strings.Join(sorted, "\x00")
	if p != nil {
		id += "\x00\x00" + strings.Join(p.names, "\x00")
	}
	if s := c.srcs[id]; s != nil {
		return s
	}
	s := &srcSet{posture: p}
	for _, t := range sorted {
		s.parts = append(s.parts, c.r.resolve(t))
	}
	c.address(s)
	s.key = c.intern(&s.addrs)
	c.srcs[id] = s
	return s
}

func (c *Compiled) intern(a *addrTexts) int {
	id := a.id()
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.keys[id]
	if !ok {
		n = len(c.keys)
		c.keys[id] = n
	}
	return n
}

// address works out what SrcIPs shows for a set. Nothing is merged or absorbed: a text is in it once.
func (c *Compiled) address(s *srcSet) {
	if s.posture != nil {
		c.addressUnder(s)
		return
	}
	for _, r := range s.parts {
		switch {
		case r.sel.name == agDangerAll:
			s.addrs.addText(c.x, "*")
		case r.any:
			for _, t := range c.r.wild {
				s.addrs.addText(c.x, t)
			}
		}
		for _, d := range r.devices {
			s.addrs.addDevice(d)
		}
		for _, rg := range r.literals {
			s.addrs.addText(c.x, rangeText(rg))
		}
	}
}

// addressUnder is address under a posture: the devices that meet it, and what lies outside of the tailnet as it is, since
// nobody there has a posture to ask for.
func (c *Compiled) addressUnder(s *srcSet) {
	for _, d := range c.x.devices {
		if s.has(c, endpoint{dev: d}) != Pass {
			continue
		}
		for i, a := range d.addrs {
			if slices.ContainsFunc(s.parts, func(r *resolved) bool { return r.any || r.hasDevice(d) || r.set != nil && r.set.Contains(a) }) {
				s.addrs.addRank(d.ranks[i])
			}
		}
	}
	for _, r := range s.parts {
		outside := r.literals
		if r.sel.kind == selAny {
			outside = c.r.routes
		}
		for _, rg := range outside {
			var b netipx.IPSetBuilder
			b.AddRange(rg)
			b.RemoveSet(c.r.tailnet)
			if set, err := b.IPSet(); err == nil {
				for _, left := range set.Ranges() {
					s.addrs.addText(c.x, rangeText(left))
				}
			}
		}
	}
}

// sourceText is what SrcIPs shows for a set. The caller must not change it.
func (c *Compiled) sourceText(s *srcSet) []string {
	s.once.Do(func() { s.text = s.addrs.list(c.x) })
	return s.text
}

// selfSources is what autogroup:self leaves of a rule's sources for the devices of one user: that user's own.
func (c *Compiled) selfSources(src *srcSet, owner string) *addrTexts {
	var out addrTexts
	for _, d := range c.x.byUser[owner] {
		if src.has(c, endpoint{dev: d}) == Pass {
			out.addDevice(d)
		}
	}
	return &out
}
