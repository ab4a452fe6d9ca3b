package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// The tables of iptables-legacy are had by two socket options of linux/netfilter_ipv4/ip_tables.h (and the same of IPv6):
// one says how large a table is, the other returns it whole, as one entry behind the other. Only tables that exist are
// asked for, because asking for one makes it.
const (
	getInfo    = 64
	getEntries = 65
	nameSize   = 32
	infoSize   = nameSize + 4 + 5*4 + 5*4 + 4 + 4
)

// layout is where things are in an entry: struct ipt_entry and struct ip6t_entry.
type layout struct {
	domain, level int
	conditions    int // the addresses, interfaces and protocol in front, all zero where there are none
	targetOffset  int // where the target begins, 2 bytes, and behind it where the next entry does
	comefrom      int // the kernel's own note, 4 bytes
	counters      int // two of 8 bytes
	matches       int // where the first match or the target begins at the earliest
}

func layoutOf(f desired.Family) layout {
	if f == desired.IPv6 {
		return layout{unix.AF_INET6, unix.SOL_IPV6, 136, 140, 144, 152, 168}
	}
	return layout{unix.AF_INET, unix.SOL_IP, 84, 88, 92, 96, 112}
}

// drop is the verdict of a target that drops: -NF_DROP - 1.
const drop = -1

// entry is one rule of a table, or the head of a chain.
type entry struct {
	offset  int
	head    string // the name of the chain of a user that begins here
	hook    string // the chain of the kernel's that begins here
	counter desired.Counter
	print   []byte // what it says, without what changes by itself
	jump    int    // the offset that it jumps to, if it does nothing else
	comment string
	plain   bool // it has no condition
}

// legacyTables says which tables exist, in the namespace that the calling thread is in.
func legacyTables(f desired.Family) ([]string, error) {
	path := "/proc/thread-self/net/ip_tables_names"
	if f == desired.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil // only root may read it, and only root can use iptables-legacy
	}
	return strings.Fields(string(text)), err
}

func legacyTable(f desired.Family, table string) ([]entry, error) {
	tables, err := legacyTables(f)
	if err != nil || !slices.Contains(tables, table) {
		return nil, err
	}
	l := layoutOf(f)
	// Any socket of the family will do; this one needs no capability of its own.
	socket, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	for attempt := 1; ; attempt++ {
		info := make([]byte, infoSize)
		copy(info, table)
		if err := getsockopt(socket, l.level, getInfo, info); err != nil {
			return nil, fmt.Errorf("ask for table %s: %w", table, err)
		}
		size := binary.NativeEndian.Uint32(info[infoSize-4:])
		const header = nameSize + 8 // the size, and 4 bytes so that entries begin at a multiple of 8
		blob := make([]byte, header+int(size))
		copy(blob, table)
		binary.NativeEndian.PutUint32(blob[nameSize:], size)
		err := getsockopt(socket, l.level, getEntries, blob)
		if errors.Is(err, unix.EAGAIN) && attempt < 10 { // it grew or shrank in between
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", table, err)
		}
		return readEntries(l, blob[header:], info), nil
	}
}

// LegacyRules counts the rules of a table of iptables-legacy that exists, and the chains whose policy is not to accept. The
// agent's own chains and jumps are not among them.
func LegacyRules(f desired.Family, table string) (int, error) {
	entries, err := legacyTable(f, table)
	count := 0
	for i, e := range entries {
		switch {
		case e.hook != "":
			rules := chainRules(entries[i:])
			for _, r := range rules {
				if r.comment != desired.JumpComment {
					count++
				}
			}
			if policy := entries[i+len(rules)]; policy.jump == drop {
				count++
			}
		case e.head != "" && !strings.HasPrefix(e.head, desired.ChainPrefix) && i+1 < len(entries):
			count += len(chainRules(entries[i+1:]))
		}
	}
	return count, err
}

// LegacyForwardDrops says by what iptables-legacy drops every packet that is forwarded, or "" where it does not, or where that
// depends on conditions, which are not followed.
func LegacyForwardDrops(f desired.Family) (by string, err error) {
	entries, err := legacyTable(f, "filter")
	begin := slices.IndexFunc(entries, func(e entry) bool { return e.hook == "FORWARD" })
	if err != nil || begin < 0 {
		return "", err
	}
	rules := chainRules(entries[begin:])
	for i, r := range rules {
		next := entries[begin+i+1].offset
		switch {
		case r.plain && r.jump == drop:
			return fmt.Sprintf("rule %d of FORWARD", i+1), nil
		case r.jump == next, r.comment == desired.JumpComment: // it only counts, or is the agent's, which accepts nothing
		default:
			return "", nil
		}
	}
	if entries[begin+len(rules)].jump == drop {
		return "the policy DROP of FORWARD", nil
	}
	return "", nil
}

func getsockopt(socket, level, option int, data []byte) error {
	size := uint32(len(data))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&data[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// readEntries takes the table apart. What does not add up ends it.
func readEntries(l layout, blob, info []byte) []entry {
	hooks := map[int]string{}
	valid := binary.NativeEndian.Uint32(info[nameSize:])
	for i, name := range []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} {
		if valid&(1<<i) != 0 {
			hooks[int(binary.NativeEndian.Uint32(info[nameSize+4+4*i:]))] = name
		}
	}
	var out []entry
	for at := 0; at+l.matches <= len(blob); {
		target := int(binary.NativeEndian.Uint16(blob[at+l.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(blob[at+l.targetOffset+2:]))
		if target < l.matches || next < target+targetHeader || at+next > len(blob) {
			break
		}
		out = append(out, readEntry(l, blob[at:at+next], target))
		out[len(out)-1].offset, out[len(out)-1].hook = at, hooks[at]
		at += next
	}
	return out
}

// Targets and matches begin with their size (2 bytes), their name and a revision (1 byte).
const (
	targetHeader  = 32
	extensionName = 29
)

func readEntry(l layout, b []byte, target int) entry {
	e := entry{counter: desired.Counter{
		Packets: binary.NativeEndian.Uint64(b[l.counters:]), Bytes: binary.NativeEndian.Uint64(b[l.counters+8:]),
	}}
	e.print = slices.Clone(b)
	clear(e.print[l.comefrom : l.comefrom+4])
	clear(e.print[l.counters : l.counters+16])

	e.plain = !slices.ContainsFunc(b[:l.conditions], func(c byte) bool { return c != 0 })
	for at := l.matches; at+targetHeader <= target; {
		size := int(binary.NativeEndian.Uint16(b[at:]))
		if size < targetHeader || at+size > target {
			break
		}
		if name := until0(b[at+2 : at+2+extensionName]); name == "comment" {
			e.comment = until0(b[at+targetHeader : at+size])
		} else {
			e.plain = false
		}
		at += size
	}
	switch until0(b[target+2 : target+2+extensionName]) {
	case "":
		if len(b) >= target+targetHeader+4 {
			e.jump = int(int32(binary.NativeEndian.Uint32(b[target+targetHeader:])))
		}
	case "ERROR":
		e.head = until0(b[target+targetHeader:])
	}
	return e
}

func until0(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// legacyChain looks at a chain. A chain of a user is a head, its rules, and an end that iptables does not show; a chain of
// the kernel's has its policy at the end.
func legacyChain(entries []entry, c desired.Chain) *chain {
	own := slices.IndexFunc(entries, func(e entry) bool { return e.head == c.Name })
	if own < 0 || own+1 == len(entries) {
		return nil
	}
	out := &chain{}
	sum := fnv.New128a()
	rules := chainRules(entries[own+1:])
	for _, e := range rules {
		out.counters = append(out.counters, e.counter)
		sum.Write(e.print)
	}
	out.print = fmt.Sprintf("%x of %d", sum.Sum(nil), len(rules))
	if hook := slices.IndexFunc(entries, func(e entry) bool { return e.hook == c.Hook }); hook >= 0 {
		for i, e := range chainRules(entries[hook:]) {
			if e.comment == desired.JumpComment && e.jump == entries[own+1].offset {
				out.leads(i+1, e.plain) // one that does not come back (iptables -g) has a flag, and is not plain
			}
		}
	}
	return out
}

// chainRules returns the rules of the chain whose first entry comes first, without the one at its end.
func chainRules(entries []entry) []entry {
	end := 1
	for end < len(entries) && entries[end].head == "" && entries[end].hook == "" {
		end++
	}
	return entries[:end-1]
}
