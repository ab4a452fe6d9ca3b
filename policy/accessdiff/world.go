package accessdiff

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/internal/nodefilter"
)

// world is every address that may be told apart as a source: each address of a device is a point, and so is the rest of
// each piece of the address space between two bounds that a policy spells, whose addresses all fare alike.
type world struct {
	devices []policy.AccessDevice
	own     [][]int      // by device: its points, in the order of its addresses
	deviceN []int        // by point of a device: the device
	addrs   []netip.Addr // by point of a device
	byText  map[string]int
	sorted  []int // points of devices, by address

	rests []netipx.IPRange // the pieces, sorted; the points are those after the devices'
	size  int              // points, nobody included
	// nobody stands in as the source of what has none, such as an attribute.
	nobody int
	v4, v6 bitset // points of a family, nobody in both

	ranges map[string][]netipx.IPRange // parsed texts
}

func newWorld(devices []policy.AccessDevice) *world {
	w := &world{devices: devices, byText: map[string]int{}, ranges: map[string][]netipx.IPRange{}}
	for n, d := range devices {
		var own []int
		for _, a := range d.Addrs {
			text := a.String()
			p, ok := w.byText[text]
			if !ok {
				p = len(w.addrs)
				w.byText[text] = p
				w.addrs = append(w.addrs, a)
				w.deviceN = append(w.deviceN, n)
			}
			own = append(own, p)
		}
		w.own = append(w.own, own)
	}
	for p := range w.addrs {
		w.sorted = append(w.sorted, p)
	}
	slices.SortFunc(w.sorted, func(a, b int) int { return w.addrs[a].Compare(w.addrs[b]) })
	return w
}

// parse reads an address, CIDR, range or "*" as filters spell them.
func (w *world) parse(text string) []netipx.IPRange {
	got, ok := w.ranges[text]
	if !ok {
		got = nodefilter.Ranges(text)
		w.ranges[text] = got
	}
	return got
}

// cut divides the address space at the bounds of texts. It is called once, with every text there will be.
func (w *world) cut(texts map[string]bool) {
	var ranges []netipx.IPRange
	for t := range texts {
		if _, own := w.byText[t]; !own {
			ranges = append(ranges, w.parse(t)...)
		}
	}
	for _, r := range pieces(ranges) {
		if !w.full(r) {
			w.rests = append(w.rests, r)
		}
	}
	w.nobody = len(w.addrs) + len(w.rests)
	w.size = w.nobody + 1
	w.v4, w.v6 = newBitset(w.size), newBitset(w.size)
	family := func(a netip.Addr, p int) {
		if a.Is4() {
			w.v4.add(p)
		} else {
			w.v6.add(p)
		}
	}
	for p, a := range w.addrs {
		family(a, p)
	}
	for i, r := range w.rests {
		family(r.From(), len(w.addrs)+i)
	}
	w.v4.add(w.nobody)
	w.v6.add(w.nobody)
}

// full reports whether devices have all addresses of a range.
func (w *world) full(r netipx.IPRange) bool {
	for a := r.From(); ; a = a.Next() {
		if _, own := w.byText[a.String()]; !own {
			return false
		}
		if a == r.To() {
			return true
		}
	}
}

// pieces cuts the union of ranges at each range's bounds; sorted.
func pieces(ranges []netipx.IPRange) []netipx.IPRange {
	if len(ranges) == 0 {
		return nil
	}
	var b netipx.IPSetBuilder
	var starts []netip.Addr
	for _, r := range ranges {
		b.AddRange(r)
		starts = append(starts, r.From())
		if next := r.To().Next(); next.IsValid() {
			starts = append(starts, next)
		}
	}
	slices.SortFunc(starts, netip.Addr.Compare)
	starts = slices.Compact(starts)
	union, err := b.IPSet()
	if err != nil {
		return nil
	}
	var out []netipx.IPRange
	for _, r := range union.Ranges() {
		from := r.From()
		i, found := slices.BinarySearchFunc(starts, from, netip.Addr.Compare)
		if found {
			i++
		}
		for ; i < len(starts) && starts[i].Compare(r.To()) <= 0; i++ {
			out = append(out, netipx.IPRangeFrom(from, starts[i].Prev()))
			from = starts[i]
		}
		out = append(out, netipx.IPRangeFrom(from, r.To()))
	}
	return out
}

// points adds to b what texts stand for.
func (w *world) points(b bitset, texts []string) {
	for _, t := range texts {
		if p, own := w.byText[t]; own {
			b.add(p)
			continue
		}
		for _, r := range w.parse(t) {
			w.rangePoints(b, r)
		}
	}
}

func (w *world) rangePoints(b bitset, r netipx.IPRange) {
	i, _ := slices.BinarySearchFunc(w.sorted, r.From(), func(p int, a netip.Addr) int { return w.addrs[p].Compare(a) })
	for ; i < len(w.sorted) && w.addrs[w.sorted[i]].Compare(r.To()) <= 0; i++ {
		b.add(w.sorted[i])
	}
	j, _ := slices.BinarySearchFunc(w.rests, r.From(), func(p netipx.IPRange, a netip.Addr) int { return p.From().Compare(a) })
	for ; j < len(w.rests) && w.rests[j].To().Compare(r.To()) <= 0; j++ {
		b.add(len(w.addrs) + j)
	}
}

// devicesIn lists the devices that have a point in b.
func (w *world) devicesIn(b bitset) []int {
	var out []int
	seen := make([]bool, len(w.devices))
	b.all(func(p int) {
		if p < len(w.deviceN) && !seen[w.deviceN[p]] {
			seen[w.deviceN[p]] = true
			out = append(out, w.deviceN[p])
		}
	})
	return out
}

// rangeText prints a range as a policy would.
func rangeText(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.String()
}

func domainOf(login string) string {
	_, domain, _ := strings.Cut(login, "@")
	return domain
}
