// Package attr takes netlink messages apart into their attributes, without trust in what the lengths in them say. The
// libraries' own parsers end the program where those do not add up, or know only some of what they find.
package attr

import (
	"encoding/binary"
	"iter"
	"maps"
	"strings"
)

// Of struct nlattr: the size of the header, what sizes are rounded up to, and the bits of the kind that are flags.
const (
	headerSize = 4
	alignment  = 4
	flags      = 0xc000
)

// Set are the attributes of a message, or of an attribute, by kind.
type Set map[uint16][]byte

// Parse returns the attributes. Of several of one kind it has the last.
func Parse(b []byte) Set {
	out := Set{}
	maps.Insert(out, Each(b))
	return out
}

// Each goes through attributes in order, and ends where they do not add up.
func Each(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= headerSize {
			size := int(binary.NativeEndian.Uint16(b))
			if size < headerSize || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^flags, b[headerSize:size]) {
				return
			}
			aligned := (size + alignment - 1) &^ (alignment - 1)
			b = b[min(aligned, len(b)):]
		}
	}
}

// First returns the first attribute of a kind, or nil.
func First(b []byte, kind uint16) []byte {
	for k, v := range Each(b) {
		if k == kind {
			return v
		}
	}
	return nil
}

// Text returns an attribute that is a string, without the zeros that end it.
func (s Set) Text(kind uint16) string { return strings.TrimRight(string(s[kind]), "\x00") }

// Number returns an attribute that is a number of 4 or 8 bytes in network order, or 0.
func (s Set) Number(kind uint16) uint64 {
	switch v := s[kind]; len(v) {
	case 4:
		return uint64(binary.BigEndian.Uint32(v))
	case 8:
		return binary.BigEndian.Uint64(v)
	}
	return 0
}
