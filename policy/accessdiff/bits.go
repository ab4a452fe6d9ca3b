package accessdiff

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
)

// bitset is a set of small numbers below a size that is the same for all sets that meet.
type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }

func (b bitset) add(i int)      { b[i>>6] |= 1 << (i & 63) }
func (b bitset) has(i int) bool { return b[i>>6]&(1<<(i&63)) != 0 }

func (b bitset) clear() { clear(b) }

// or, and and andNot change b.
func (b bitset) or(c bitset) {
	for i, w := range c {
		b[i] |= w
	}
}

func (b bitset) and(c bitset) {
	for i, w := range c {
		b[i] &= w
	}
}

func (b bitset) andNot(c bitset) {
	for i, w := range c {
		b[i] &^= w
	}
}

func (b bitset) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

func (b bitset) within(c bitset) bool {
	for i, w := range b {
		if w&^c[i] != 0 {
			return false
		}
	}
	return true
}

func (b bitset) meets(c bitset) bool {
	for i, w := range b {
		if w&c[i] != 0 {
			return true
		}
	}
	return false
}

func (b bitset) clone() bitset { return slices.Clone(b) }

// all calls f with each member in order.
func (b bitset) all(f func(int)) {
	for i, w := range b {
		for w != 0 {
			f(i<<6 + bits.TrailingZeros64(w))
			w &= w - 1
		}
	}
}

// setTable numbers sets, equal ones alike, so that they can be compared and be parts of keys.
type setTable struct {
	seed maphash.Seed
	ids  map[uint64][]int
	sets []bitset
	buf  []byte
}

func newSetTable() *setTable { return &setTable{seed: maphash.MakeSeed(), ids: map[uint64][]int{}} }

// id returns the number of a set, which may be changed afterwards.
func (t *setTable) id(b bitset) int {
	t.buf = t.buf[:0]
	for _, w := range b {
		t.buf = binary.LittleEndian.AppendUint64(t.buf, w)
	}
	h := maphash.Bytes(t.seed, t.buf)
	for _, id := range t.ids[h] {
		if slices.Equal(t.sets[id], b) {
			return id
		}
	}
	id := len(t.sets)
	t.sets = append(t.sets, b.clone())
	t.ids[h] = append(t.ids[h], id)
	return id
}
