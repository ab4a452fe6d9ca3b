// Package attr goes through the attributes of netlink messages. It is for messages of which the libraries know only parts:
// what they do not know they leave out, or fail at.
package attr

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Each goes through attributes, by kind, and ends where they do not add up. A library's parser would end the program there.
func Each(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
			if !yield(binary.NativeEndian.Uint16(b[2:])&^flags, b[unix.SizeofNlAttr:size]) {
				return
			}
			aligned := (size + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
			b = b[min(aligned, len(b)):]
		}
	}
}

// Number returns a number as netfilter writes it, in network byte order, of four or eight bytes; 0 for anything else.
func Number(b []byte) uint64 {
	switch len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}
