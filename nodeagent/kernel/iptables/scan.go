package iptables

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// scanner looks at iptables in the kernel, in both variants, without a process. It keeps what it reads of ip_tables,
// where a table can only be had whole, and is for one look.
type scanner struct {
	legacy map[tableKey][]entry
	err    error // what kept an existence from being seen
}

type tableKey struct {
	family desired.Family
	table  string
}

func newScanner() *scanner { return &scanner{legacy: map[tableKey][]entry{}} }

// chain looks at one of the agent's chains; nil: it is not there.
func (s *scanner) chain(b desired.Backend, c desired.Chain) (*chain, error) {
	if b == desired.IPTablesNFT {
		return nftChain(c)
	}
	entries, err := s.table(c.Family, c.Type)
	if err != nil {
		return nil, err
	}
	return legacyChain(entries, c), nil
}

// exists says whether there is a chain of a name.
func (s *scanner) exists(b desired.Backend, f desired.Family, table, name string) bool {
	if b == desired.IPTablesNFT {
		found, err := nftExists(f, table, name)
		s.note(err)
		return found
	}
	entries, err := s.table(f, table)
	s.note(err)
	for _, e := range entries {
		if e.head == name {
			return true
		}
	}
	return false
}

func (s *scanner) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

// nfTables says whether the kernel has nf_tables.
func (s *scanner) nfTables() bool {
	_, err := nftGeneration()
	return err == nil || errors.Is(err, os.ErrPermission)
}

func (s *scanner) table(f desired.Family, table string) ([]entry, error) {
	key := tableKey{f, table}
	if entries, read := s.legacy[key]; read {
		return entries, nil
	}
	entries, err := legacyTable(f, table)
	if err == nil {
		s.legacy[key] = entries
	}
	return entries, err
}

// absent says whether an error of netfilter means that there is no such thing, or no part of the kernel for it.
func absent(err error) bool {
	for _, known := range []error{
		unix.ENOENT, unix.EINVAL, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.ENOPROTOOPT,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
