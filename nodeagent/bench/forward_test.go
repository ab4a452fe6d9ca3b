//go:build linux

package bench_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
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
	name    string
	node    *nstest.Node
	sockets map[string]int     // destination -> a pod's socket
	rates   map[string][]int64 // destination -> packets per second
}

// forward sends packets of pods through nodes, interleaved, and compares the medians. The path is synchronous: a packet
// has arrived when the system call that sends it returns, or a moment later, and all of them are counted at the other end.
func forward(t testing.TB, r *report, agent string) {
	variants := []*variant{{name: "no agent"}}
	for _, kind := range []string{config.ModeMark, config.ModeRules, "script"} {
		for _, n := range []int{1, 100, 1000} {
			variants = append(variants, &variant{name: fmt.Sprintf("%s, %d", kind, n)})
		}
	}
	for _, v := range variants {
		v.node, v.sockets, v.rates = newNode(t), map[string]int{}, map[string][]int64{}
		v.node.Run("ip route add 10.244.2.0/24 dev tun-fra1")
		v.node.InPeer(func() {
			v.node.Run(`ip addr add ` + answering + `/32 dev lo
				ip addr add ` + remotePod + `/32 dev lo
				nft add table ip bench
				nft add chain ip bench arrivals '{ type filter hook prerouting priority -300; }'
				nft add rule ip bench arrivals udp dport 9 counter drop`)
		})
		kind, number, _ := strings.Cut(v.name, ", ")
		n, _ := strconv.Atoi(number)
		switch kind {
		case "no agent":
		case "script":
			took(t, "sh", "testdata/naive.sh", write(t, "peers", strings.Join(addresses(n), "\n")+"\n"))
		default:
			doc := write(t, "node.json", document(t, kind, addresses(n)...))
			took(t, agent, "apply", "--config", doc, "--lock", doc+".lock", "--socket", doc+".none")
		}
	}
	destinations := []string{answering, remotePod}
	for _, v := range variants {
		v.node.Visit(func() {
			v.node.InPod(func() {
				for _, to := range destinations {
					v.sockets[to] = dial(t, to)
				}
			})
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
				t.Fatalf("%s: %d packets of %d arrived", v.name, got, want)
			}
		})
	}
	base := func(name, to string) float64 {
		for _, v := range variants {
			if v.name == name {
				return float64(median(v.rates[to]))
			}
		}
		return 0
	}
	fmt.Fprintf(r, "packets per second\tpod to peer\tof no agent\tof its 1 peer\tpod to pod\tof no agent\tof its 1 peer\n")
	for _, v := range variants {
		fmt.Fprint(r, v.name)
		kind, _, peers := strings.Cut(v.name, ", ")
		for _, to := range destinations {
			rate, own := float64(median(v.rates[to])), "-"
			if peers {
				own = percent(rate / base(kind+", 1", to))
			}
			fmt.Fprintf(r, "\t%.0f k\t%s\t%s", rate/1000, percent(rate/base("no agent", to)), own)
		}
		fmt.Fprintln(r)
	}
	fmt.Fprintln(r)
	// A packet to a peer has its source translated, whoever does it: the script with one peer is the same work.
	for i, to := range destinations {
		way, other := []string{"pod to peer", "pod to pod"}[i], []string{"script, 1", "no agent"}[i]
		rate := base("mark, 1000", to)
		fmt.Fprintln(r, r.target("mark, "+way+": 1000 peers within 5 % of 1", rate >= 0.95*base("mark, 1", to)))
		fmt.Fprintln(r, r.target("mark, "+way+": 1000 peers within 10 % of "+other, rate >= 0.9*base(other, to)))
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

// dial opens the socket of a pod for one flow: what a new connection costs is another question.
func dial(t testing.TB, to string) int {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(socket) })
	check(t, unix.Connect(socket, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4(), Port: 9}))
	return socket
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
