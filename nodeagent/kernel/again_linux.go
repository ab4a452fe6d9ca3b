package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attempts is how often something is read that changes meanwhile.
const attempts = 10

// Again reads a list again as long as the kernel says that it changed while it was read.
func Again[T any](read func() (T, error)) (T, error) {
	for i := 1; ; i++ {
		list, err := read()
		if i == attempts || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
}

// AgainNFT reads something of nftables again until no transaction was committed while it was read, or until two reads, one
// after the other, gave the same: beside a program that never stops changing rules of its own, nothing else ever would. An
// error of a read counts only where nothing was committed, as what is read may have been deleted. A read is given the number
// of transactions before it, which never comes again once there was another one; 0 where that is not known.
func AgainNFT[T any](read func(generation uint32) (T, error)) (T, error) {
	var before T
	var beforeErr error
	for i := range attempts {
		began, err := generation()
		if err != nil { // without permission, or without nf_tables: the read says so itself
			return read(0)
		}
		got, err := read(began)
		ended, endErr := generation()
		switch {
		case endErr == nil && began == ended:
			return got, err
		case i > 0 && err == nil && beforeErr == nil && reflect.DeepEqual(before, got):
			return got, nil
		}
		before, beforeErr = got, err
	}
	var none T
	return none, fmt.Errorf("nftables changed each of the %d times that it was read: %w", attempts, netlink.ErrDumpInterrupted)
}

// generation returns the number of nftables' transactions in this network namespace.
func generation() (uint32, error) {
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	req := nl.NewNetlinkRequest(subsystem|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, subsystem|unix.NFT_MSG_NEWGEN)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) >= 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, os.ErrNotExist
}
