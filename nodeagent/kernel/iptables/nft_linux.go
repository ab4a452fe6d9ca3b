package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/attr"
)

// Rules of iptables-nft are read as messages: what stands in foreign rules need not be understood, and a library that
// decodes every expression fails at the first one that it does not know.

// attributes are those of one message, by kind.
type attributes map[uint16][]byte

func parse(b []byte) attributes {
	out := attributes{}
	maps.Insert(out, attr.Each(b))
	return out
}

func (a attributes) text(kind uint16) string { return strings.TrimRight(string(a[kind]), "\x00") }

func (a attributes) number(kind uint16) uint64 { return attr.Number(a[kind]) }

// ask sends a question about nf_tables and returns the messages of the answer; none if there is no such thing.
func ask(message, flags int, f desired.Family, names map[int]string) ([]attributes, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	header := &nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_IPV4, Version: nl.NFNETLINK_V0}
	if f == desired.IPv6 {
		header.NfgenFamily = unix.NFPROTO_IPV6
	}
	req.AddData(header)
	for _, kind := range []int{1, 2, 3} {
		if name, ok := names[kind]; ok {
			req.AddData(nl.NewRtAttr(kind, nl.ZeroTerminated(name)))
		}
	}
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	out := make([]attributes, len(answers))
	for i, m := range answers {
		out[i] = parse(m[nl.SizeofNfgenmsg:])
	}
	return out, nil
}

func nftGeneration() ([]attributes, error) { return ask(unix.NFT_MSG_GETGEN, 0, desired.IPv4, nil) }

// nftExists says whether a table has a chain.
func nftExists(f desired.Family, table, name string) (bool, error) {
	_, err := ask(unix.NFT_MSG_GETCHAIN, 0, f, map[int]string{unix.NFTA_CHAIN_TABLE: table, unix.NFTA_CHAIN_NAME: name})
	if err == nil {
		return true, nil
	}
	if absent(err) {
		return false, nil
	}
	return false, err
}

// nftChain looks at a chain.
func nftChain(c desired.Chain) (*chain, error) {
	there, err := nftExists(c.Family, c.Type, c.Name)
	if err != nil || !there {
		return nil, err
	}
	own, err := nftRules(c.Family, c.Type, c.Name)
	if err != nil {
		return nil, err
	}
	out := &chain{}
	sum := fnv.New128a()
	for _, r := range own {
		out.counters = append(out.counters, r.counter)
		sum.Write(r.print)
	}
	out.print = fmt.Sprintf("%x of %d", sum.Sum(nil), len(own))
	hook, err := nftRules(c.Family, c.Type, c.Hook)
	if err != nil {
		return nil, err
	}
	for i, r := range hook {
		if r.jump == c.Name && r.comment == desired.JumpComment {
			out.leads(i+1, r.plain && !r.forGood)
		}
	}
	return out, nil
}

// nftRule is what matters of a rule.
type nftRule struct {
	counter desired.Counter
	print   []byte // what it says, without what it has counted
	jump    string // the chain that it jumps to
	forGood bool   // it does not come back from there (iptables -g)
	comment string
	plain   bool // it has no condition
}

func nftRules(f desired.Family, table, chain string) ([]nftRule, error) {
	for attempt := 1; ; attempt++ {
		list, err := ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, f,
			map[int]string{unix.NFTA_RULE_TABLE: table, unix.NFTA_RULE_CHAIN: chain})
		if err == nil || absent(err) {
			var out []nftRule
			for _, a := range list {
				if a.text(unix.NFTA_RULE_CHAIN) == chain { // old kernels list the whole table
					out = append(out, readRule(a))
				}
			}
			return out, nil
		}
		if attempt == 10 || !errors.Is(err, nl.ErrDumpInterrupted) {
			return nil, err
		}
	}
}

func readRule(a attributes) nftRule {
	// A rule that takes another's place takes its number too, so that numbers do not tell.
	r := nftRule{print: slices.Clone(a[unix.NFTA_RULE_USERDATA]), plain: true}
	for _, e := range attr.Each(a[unix.NFTA_RULE_EXPRESSIONS]) {
		expression := parse(e)
		if expression.text(unix.NFTA_EXPR_NAME) != "counter" {
			r.print = append(r.print, e...)
		}
		data := parse(expression[unix.NFTA_EXPR_DATA])
		switch expression.text(unix.NFTA_EXPR_NAME) {
		case "counter":
			r.counter = desired.Counter{
				Packets: data.number(unix.NFTA_COUNTER_PACKETS), Bytes: data.number(unix.NFTA_COUNTER_BYTES),
			}
		case "immediate":
			verdict := parse(parse(data[unix.NFTA_IMMEDIATE_DATA])[unix.NFTA_DATA_VERDICT])
			r.jump = verdict.text(unix.NFTA_VERDICT_CHAIN)
			r.forGood = int32(verdict.number(unix.NFTA_VERDICT_CODE)) == unix.NFT_GOTO
		case "match":
			if data.text(unix.NFTA_MATCH_NAME) != "comment" {
				r.plain = false
				continue
			}
			text, _, _ := bytes.Cut(data[unix.NFTA_MATCH_INFO], []byte{0})
			r.comment = string(text)
		default:
			r.plain = false
		}
	}
	if text := udataComment(a[unix.NFTA_RULE_USERDATA]); text != "" {
		r.comment = text
	}
	return r
}

// udataComment finds a comment where nft and newer versions of iptables-nft put it: kind, length, text.
func udataComment(b []byte) string {
	const comment = 0
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == comment {
			return strings.TrimRight(string(b[2:2+int(b[1])]), "\x00")
		}
		b = slices.Clone(b[2+int(b[1]):])
	}
	return ""
}
