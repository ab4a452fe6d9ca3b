//go:build linux

package bench_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

const (
	packets   = 500 // in one round, all of one flow: so few that the machine's other work seldom comes in between
	rounds    = 400 // of each variant, one after the other's
	remotePod = "10.244.2.2"
)

// variant is a node with something on it that routes pods' packets.
type variant struct {
	kind    string // noAgent, script, or a mode of the agent
	backend string // of the agent
	peers   int
	others  bool // tailscaled and kube-proxy have their rules there, as on any node of a cluster
	node    *nstest.Node
	sockets map[string]int     // destination -> a pod's socket
	rates   map[string][]int64 // destination -> packets per second
}

const (
	noAgent = "no agent"
	script  = "script"
)

func (v *variant) String() string {
	switch {
	case v.peers == 0:
		return v.kind
	case v.backend == "":
		return fmt.Sprintf("%s, %d", v.kind, v.peers)
	}
	return fmt.Sprintf("%s, %s, %d", v.kind, v.backend, v.peers)
}

// forward sends packets of pods through nodes, interleaved, and compares the medians. The path is synchronous: a packet
// has arrived when the system call that sends it returns, or a moment later, and all of them are counted at the other end.
func forward(t testing.TB, r *report, agent string) {
	var variants []*variant
	add := func(others bool, kind, backend string, peers ...int) {
		for _, n := range peers {
			variants = append(variants, &variant{kind: kind, backend: backend, peers: n, others: others})
		}
	}
	for _, others := range []bool{false, true} {
		add(others, noAgent, "", 0)
		for _, backend := range backends() {
			add(others, config.ModeMark, backend, 1, 100, 1000)
			if !others {
				add(others, config.ModeRules, backend, 1, 100, 1000)
			}
		}
		add(others, script, "", 1)
	}
	add(false, script, "", 100, 1000)
	destinations := []string{answering, remotePod}
	for _, v := range variants {
		v.prepare(t, agent)
	}
	for _, v := range variants {
		v.node.Visit(func() {
			for _, to := range destinations {
				v.sockets[to] = v.establish(t, to)
			}
			v.node.InPeer(func() { v.node.Run("nft add rule ip bench arrivals udp dport 9 counter drop") })
		})
	}
	for round := range rounds + 1 {
		for _, v := range variants {
			for _, to := range destinations {
				rate := send(t, v.sockets[to])
				if round > 0 { // the first warms up
					v.rates[to] = append(v.rates[to], rate)
				}
			}
		}
	}
	for _, v := range variants {
		v.node.Visit(func() {
			if got, want := v.arrived(t), (rounds+1)*packets*len(destinations); got != want {
				t.Fatalf("%s: %d packets of %d arrived", v, got, want)
			}
		})
	}
	find := func(others bool, kind, backend string, peers int) *variant {
		i := slices.IndexFunc(variants, func(v *variant) bool {
			return v.others == others && v.kind == kind && v.backend == backend && v.peers == peers
		})
		return variants[i]
	}
	for _, others := range []bool{false, true} {
		where := "packets per second on a node without other rules"
		if others {
			where = "\npackets per second beside the rules of tailscaled and kube-proxy"
		}
		fmt.Fprintf(r, "%s\tpod to peer\tof no agent\tof its 1 peer\tpod to pod\tof no agent\tof its 1 peer\n", where)
		for _, v := range variants {
			if v.others != others {
				continue
			}
			fmt.Fprint(r, v)
			for _, to := range destinations {
				own := "-"
				if v.peers > 0 {
					own = percent(v.share(find(others, v.kind, v.backend, 1), to))
				}
				fmt.Fprintf(r, "\t%.0f k\t%s\t%s", float64(median(v.rates[to]))/1000, percent(v.share(find(others, noAgent, "", 0), to)), own)
			}
			fmt.Fprintln(r)
		}
	}
	fmt.Fprintln(r)
	for _, others := range []bool{false, true} {
		for _, backend := range backends() {
			v, nobody := find(others, config.ModeMark, backend, 1000), find(others, noAgent, "", 0)
			for i, to := range destinations {
				what := fmt.Sprintf("%s, %s, %s", v, map[bool]string{false: "alone", true: "beside others"}[others], []string{"pod to peer", "pod to pod"}[i])
				target := func(least float64, base *variant) {
					fmt.Fprintln(r, r.target(fmt.Sprintf("%s: within %.0f %% of %s", what, 100*(1-least), base), v.share(base, to) >= least))
				}
				target(0.95, find(others, config.ModeMark, backend, 1))
				switch {
				case backend == config.BackendIPTables && !others:
					// Here the agent is the only one who uses iptables, whose tables cost a packet something even when they are empty.
					fmt.Fprintf(r, "%s: at %s of %s: no target\n", what, percent(v.share(nobody, to)), nobody)
					continue
				case to != answering:
				case backend == config.BackendIPTables:
					// The match of a set takes 5 % of a packet's time, the mark 3.5 % and the direction 1.5 %, beside 5 % for the
					// translation, in whatever order they stand.
					fmt.Fprintf(r, "%s: at %s of %s: out of reach of 90 %%, for what iptables' own matches cost\n", what, percent(v.share(nobody, to)), nobody)
					continue
				case !others:
					// Nothing else translates here, so that nobody's packet reaches the peer without an agent: the translation and one
					// hook, which nobody can do without, are the most of what is measured.
					target(0.9, find(others, script, "", 1))
					fmt.Fprintf(r, "%s: at %s of %s: no target\n", what, percent(v.share(nobody, to)), nobody)
					continue
				default:
					target(0.9, find(others, script, "", 1))
				}
				target(0.9, nobody)
			}
		}
	}
}

// share returns the rate as a part of another variant's: the median of the rounds' shares, in which whatever else the
// machine does for longer than a round cancels out.
func (v *variant) share(base *variant, to string) float64 {
	shares := make([]float64, len(v.rates[to]))
	for i, rate := range v.rates[to] {
		shares[i] = float64(rate) / float64(base.rates[to][i])
	}
	return median(shares)
}

func (v *variant) prepare(t testing.TB, agent string) {
	v.node, v.sockets, v.rates = newNode(t), map[string]int{}, map[string][]int64{}
	v.node.Run("ip route add 10.244.2.0/24 dev tun-fra1")
	v.node.InPeer(func() {
		v.node.Run(`ip addr add ` + answering + `/32 dev lo
			ip addr add ` + remotePod + `/32 dev lo
			nft add table ip bench
			nft add chain ip bench arrivals '{ type filter hook prerouting priority -300; }'
			nft delete table inet wireguard`)
	})
	if v.others {
		took(t, "sh", "testdata/residents.sh", answering)
	}
	switch v.kind {
	case noAgent:
	case script:
		took(t, "sh", "testdata/naive.sh", write(t, "peers", strings.Join(addresses(v.peers), "\n")+"\n"))
	default:
		doc := write(t, "node.json", document(t, v.backend, v.kind, addresses(v.peers)...))
		took(t, agent, "apply", "--config", doc, "--lock", doc+".lock", "--socket", doc+".none")
	}
}

func percent(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

var counted = regexp.MustCompile(`packets (\d+)`)

func (v *variant) arrived(t testing.TB) int {
	var out string
	v.node.InPeer(func() {
		b, err := exec.CommandContext(t.Context(), "nft", "list", "chain", "ip", "bench", "arrivals").Output()
		check(t, err)
		out = string(b)
	})
	n, err := strconv.Atoi(counted.FindStringSubmatch(out)[1])
	check(t, err)
	return n
}

// establish opens the socket of a pod for one flow, to which the other end has answered once: what a new connection costs
// is another question.
func (v *variant) establish(t testing.TB, to string) int {
	open := func() int {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check(t, err)
		check(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3}))
		return socket
	}
	address := &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4(), Port: 9}
	var pod, peer int
	v.node.InPeer(func() {
		peer = open()
		check(t, unix.Bind(peer, address))
	})
	defer unix.Close(peer)
	v.node.InPod(func() {
		pod = open()
		check(t, unix.Connect(pod, address))
	})
	t.Cleanup(func() { unix.Close(pod) })
	word := []byte("hello")
	_, err := unix.Write(pod, word)
	check(t, err)
	_, from, err := unix.Recvfrom(peer, word, 0)
	check(t, err)
	check(t, unix.Sendto(peer, word, 0, from))
	_, err = unix.Read(pod, word)
	check(t, err)
	return pod
}

// send sends one round and returns the rate.
func send(t testing.TB, socket int) int64 {
	payload := make([]byte, 64)
	begin := time.Now()
	for range packets {
		if _, err := unix.Write(socket, payload); err != nil {
			t.Fatal(err)
		}
	}
	return int64(packets / time.Since(begin).Seconds())
}
