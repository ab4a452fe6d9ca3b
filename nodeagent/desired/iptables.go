package desired

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// How the agent's objects are called in iptables.
const (
	// ChainPrefix begins the names of the agent's chains.
	ChainPrefix = "TAILMESH-"
	// JumpComment is the comment of the agent's jumps to its chains.
	JumpComment = "tailmesh"
)

// IPTablesChains returns the agent's chains of a family, without rules, whether they exist or not.
func IPTablesChains(f Family) []Chain {
	chain := func(table, hook string) Chain {
		return Chain{Name: ChainPrefix + hook, Type: table, Hook: hook, Family: f}
	}
	return []Chain{chain("mangle", "PREROUTING"), chain("filter", "FORWARD"), chain("nat", "POSTROUTING")}
}

// SetName returns the name of a set in the kernel, where sets are of no table: each variant of iptables has its own.
func (b Backend) SetName(name string) string {
	return "tailmesh-" + strings.TrimPrefix(string(b), "iptables-") + "-" + name
}

// Tool returns the name of the program for a family, of a variant of iptables: ip6tables-nft.
func (b Backend) Tool(f Family) string {
	if f == IPv6 {
		return strings.Replace(string(b), "iptables", "ip6tables", 1)
	}
	return string(b)
}

// iptables returns the table as iptables can have it: a chain per family, and each rule either with sets or once per
// network.
func (t *Table) iptables(sets bool) *Table {
	out := &Table{}
	if sets {
		out.Sets = t.Sets
	}
	for _, f := range Families() {
		for _, c := range IPTablesChains(f) {
			c.Jumps = []int{1}
			for _, own := range t.Chains {
				if own.Hook != strings.ToLower(c.Hook) {
					continue
				}
				for _, r := range own.Rules {
					if r.Family == f {
						c.Rules = append(c.Rules, t.spell(r, sets)...)
					}
				}
			}
			if len(c.Rules) > 0 {
				out.Chains = append(out.Chains, c)
			}
		}
	}
	return out
}

// spell writes out the sets that a rule cannot use. One of them is where replies go: in front of destination NAT, where
// the chain is, a reply still has the node's own address as its destination, and only connection tracking knows the
// pod's. It is asked by network.
func (t *Table) spell(r FirewallRule, sets bool) []FirewallRule {
	networks := func(set string, literal bool) []string {
		if set == "" || !literal {
			return []string{set}
		}
		var out []string
		for _, p := range t.Set(set).Elements {
			for _, half := range Halves(p) {
				out = append(out, half.String())
			}
		}
		return out
	}
	sources, destinations := networks(r.Src, !sets), networks(r.Dst, !sets || r.Direction == Reply)
	var out []FirewallRule
	for _, src := range sources {
		for _, dst := range destinations {
			r.Src, r.Dst = src, dst
			out = append(out, r)
		}
	}
	return out
}

// Halves returns the network, or the two halves of the whole address space, which neither iptables nor a set of networks
// takes for a network.
func Halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() != 0 {
		return []netip.Prefix{p}
	}
	high := p.Addr().AsSlice()
	high[0] = 0x80
	upper, _ := netip.AddrFromSlice(high)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(upper, 1)}
}

// Args returns the rule as iptables lists it, without the chain. A foreign rule has none.
func (r FirewallRule) Args(b Backend) []string {
	if r.Foreign {
		return nil
	}
	var args []string
	add := func(words ...string) { args = append(args, words...) }
	src, srcLiteral := literal(r.Src)
	dst, dstLiteral := literal(r.Dst)
	// A look at the network costs a packet much less than one into the set, which most packets then need not.
	switch {
	case srcLiteral:
		add("-s", src)
	case ofPeers(r.Src):
		add("-s", r.Family.MeshRange().String())
	}
	switch {
	case dstLiteral && r.Direction != Reply:
		add("-d", dst)
	case ofPeers(r.Dst):
		add("-d", r.Family.MeshRange().String())
	}
	for _, c := range []struct{ flag, name string }{{"-i", r.In}, {"-o", r.Out}} {
		if c.name != "" {
			add(c.flag, c.name)
		}
	}
	if r.NotOut != "" {
		add("!", "-o", r.NotOut)
	}
	if r.Src != "" && !srcLiteral {
		add("-m", "set", "--match-set", b.SetName(r.Src), "src")
	}
	if r.Dst != "" && !dstLiteral {
		add("-m", "set", "--match-set", b.SetName(r.Dst), "dst")
	}
	if r.Direction != "" {
		add("-m", "conntrack")
		if dstLiteral && r.Direction == Reply {
			add("--ctorigsrc", dst)
		}
		add("--ctdir", strings.ToUpper(r.Direction))
	}
	if r.Marked != 0 {
		add("-m", "mark", "--mark", bit(r.Marked))
	}
	add("-m", "comment", "--comment", r.Comment)
	switch r.Verdict {
	case SetMark:
		add("-j", "MARK", "--set-xmark", bit(r.Bit))
	case SNAT:
		add("-j", "SNAT", "--to-source", r.To.String())
	case Return:
		add("-j", "RETURN")
	case Reject:
		add("-j", "REJECT", "--reject-with", rejection(r.Family))
	}
	return args
}

func ofPeers(set string) bool { return strings.HasPrefix(set, peerSetPrefix) }

func literal(name string) (string, bool) {
	p, err := netip.ParsePrefix(name)
	return p.String(), err == nil
}

func bit(n uint32) string { return fmt.Sprintf("%#x/%#x", n, n) }

func rejection(f Family) string {
	if f == IPv6 {
		return "icmp6-adm-prohibited"
	}
	return "icmp-admin-prohibited"
}

// ParseArgs reads a rule that iptables lists, in whatever order. What the agent would not write is Foreign.
func ParseArgs(b Backend, f Family, args []string) FirewallRule {
	r := FirewallRule{Family: f}
	foreign := FirewallRule{Foreign: true}
	not := false
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "!" {
			not = true
			continue
		}
		var value string
		if i++; i < len(args) {
			value = args[i]
		}
		ok := !not
		switch word {
		case "-s":
			r.Src = value
		case "-d":
			r.Dst = value
		case "-i":
			r.In = value
		case "-o":
			ok = true
			*pick(not, &r.NotOut, &r.Out) = value
		case "-m": // what it is for comes next
		case "--match-set":
			name, own := strings.CutPrefix(value, b.SetName(""))
			i++
			switch {
			case !own || i >= len(args):
				ok = false
			case args[i] == "src":
				r.Src = name
			case args[i] == "dst":
				r.Dst = name
			}
		case "--ctdir":
			r.Direction = strings.ToLower(value)
		case "--ctorigsrc":
			r.Dst = value
		case "--mark":
			r.Marked = parseBit(value)
		case "--comment":
			r.Comment = value
		case "-j":
			r.Verdict = map[string]string{"MARK": SetMark, "SNAT": SNAT, "RETURN": Return, "REJECT": Reject}[value]
		case "--set-xmark":
			r.Bit = parseBit(value)
		case "--to-source":
			r.To, _ = netip.ParseAddr(value)
		case "--reject-with":
			ok = ok && value == rejection(f)
		default:
			return foreign
		}
		if !ok {
			return foreign
		}
		not = false
	}
	if !sameWords(r.Args(b), args) {
		return foreign
	}
	return r
}

func pick(which bool, yes, no *string) *string {
	if which {
		return yes
	}
	return no
}

func parseBit(s string) uint32 {
	value, mask, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(value, 0, 32)
	if err != nil || mask != "" && mask != value {
		return 0
	}
	return uint32(n)
}

// sameWords says whether both have the same words, each as often, in any order.
func sameWords(a, b []string) bool {
	count := map[string]int{}
	for _, w := range a {
		count[w]++
	}
	for _, w := range b {
		count[w]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
