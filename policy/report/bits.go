package report

import "math/bits"

// bitset is a set of small numbers. All sets that meet have one length.
type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }

func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) or(o bitset) {
	for i := range o {
		b[i] |= o[i]
	}
}

func (b bitset) and(o bitset) {
	for i := range o {
		b[i] &= o[i]
	}
}

// without is a set of its own.
func (b bitset) without(o bitset) bitset {
	out := b.clone()
	for i := range o {
		out[i] &^= o[i]
	}
	return out
}

func (b bitset) clone() bitset { return append(bitset(nil), b...) }

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// both counts what two sets have in common.
func (b bitset) both(o bitset) int {
	n := 0
	for i := range b {
		n += bits.OnesCount64(b[i] & o[i])
	}
	return n
}

// three counts what three sets have in common.
func (b bitset) three(o, p bitset) int {
	n := 0
	for i := range b {
		n += bits.OnesCount64(b[i] & o[i] & p[i])
	}
	return n
}
