//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// What can become of a flow, as the tables below say it: whether it was answered, by which device its sender's node sent
// it on, whose address it carried there, and by which device the other node sent the answer.
const (
	direct      = "ok tailscale0 as node, back tailscale0"
	tunneled    = "ok tunnel as pod, back tunnel"
	viaTunnel   = "ok tunnel as node, back tunnel"
	untouched   = "ok lan as pod"
	forwarded   = "ok lan as machine, back lan"
	refused     = "lost tunnel as pod"                       // the policy does not admit the overlay
	hostRefused = "lost tunnel as node"                      // the same
	foreign     = "lost tailscale0 as pod"                   // the peer drops a source that is not the sender's
	wrongReply  = "lost tunnel as node, back tailscale0"     // the same happens to the reply
	tooLarge    = "lost"                                     // for the tunnel: the node itself refuses it
	unheard     = "lost tunnel as node"                      // the peer's reverse path filter drops it
	dropped     = "lost tailscale0 as node, back tailscale0" // the reply is, by strict reverse path filtering
)

// Flows of the matrix by name, in the order of the table.
const (
	podToHost      = "pod -> peer's host"
	podToHostFull  = "pod -> peer's host, 1280 bytes"
	podToService   = "pod -> service -> peer's host"
	podToPod       = "pod -> remote pod"
	podToPodFull   = "pod -> remote pod, 1260 bytes"
	hostToPod      = "host -> remote pod"
	hostToHost     = "host -> peer's host"
	podToStranger  = "pod -> device that is no peer"
	hostToStranger = "host -> device that is no peer"
	podToVIP       = "pod -> address of its location"
	lanToVIP       = "location's network -> its other one"
)

const serviceAddr = "10.96.0.10"

// row is a flow with one protocol.
type row struct {
	name    string
	flow    Flow
	control Flow // works in every state: a flow counts as lost only where this one is answered just then
}

func (l *Lab) rows() []row {
	var rows []row
	add := func(name string, f Flow, protos ...string) {
		for _, p := range protos {
			f.Proto = p
			if p == TCP && f.Size > 0 {
				f.Size = 64 << 10 // the path's MTU is found on the way
			}
			family := familyOf(f.Dst)
			control := Flow{From: &l.Ams.Machine, Src: l.Ams.Addr(family), To: &f.To.Node.Machine, Dst: f.To.Node.Addr(family), Proto: Ping}
			rows = append(rows, row{name: name, flow: f, control: control})
		}
	}
	for _, v := range []Family{4, 6} {
		ams, fra, laptop := &l.Ams.Machine, &l.Fra.Machine, &l.Laptop.Machine
		add(podToHost, Flow{From: l.Ams.Pod, To: fra, Dst: l.Fra.Addr(v)}, TCP, UDP, Ping)
		add(podToPod, Flow{From: l.Ams.Pod, To: l.Fra.Pod, Dst: l.Fra.Pod.Addr(v)}, TCP, UDP, Ping)
		add(hostToPod, Flow{From: ams, Src: l.Ams.Addr(v), To: l.Fra.Pod, Dst: l.Fra.Pod.Addr(v)}, TCP, UDP, Ping)
		add(hostToHost, Flow{From: ams, Src: l.Ams.Addr(v), To: fra, Dst: l.Fra.Addr(v)}, TCP, UDP, Ping)
		add(podToStranger, Flow{From: l.Ams.Pod, To: laptop, Dst: laptop.Addr(v)}, TCP, UDP, Ping)
		add(hostToStranger, Flow{From: ams, Src: l.Ams.Addr(v), To: laptop, Dst: laptop.Addr(v)}, TCP, UDP, Ping)
	}
	fra, service := &l.Fra.Machine, netip.MustParseAddr(serviceAddr)
	add(podToService, Flow{From: l.Ams.Pod, To: fra, Dst: service, At: l.Fra.Addr(4)}, TCP, UDP, Ping)
	add(podToHost, Flow{From: l.Ams.Pod, To: fra, Dst: l.Fra.Addr(4), Size: 1280}, TCP)
	add(podToHostFull, Flow{From: l.Ams.Pod, To: fra, Dst: l.Fra.Addr(4), Size: 1280}, UDP, Ping)
	add(podToPod, Flow{From: l.Ams.Pod, To: l.Fra.Pod, Dst: l.Fra.Pod.Addr(4), Size: 1260}, TCP)
	add(podToPodFull, Flow{From: l.Ams.Pod, To: l.Fra.Pod, Dst: l.Fra.Pod.Addr(4), Size: 1260}, UDP, Ping)
	for _, m := range l.Location {
		add(podToVIP, Flow{From: l.Ams.Pod, To: m, Dst: m.Addr(4)}, TCP, UDP, Ping)
	}
	one, other := l.Location[0], l.Location[1]
	add(lanToVIP, Flow{From: one, Src: one.Addr(4), To: other, Dst: other.Addr(4)}, TCP, UDP, Ping)
	return rows
}

// kind names what a row is of its flow.
func (r row) kind() string {
	s := fmt.Sprintf("%s/IPv%d", r.flow.Proto, familyOf(r.flow.Dst))
	switch {
	case r.flow.Proto == TCP && r.flow.Size > 0:
		s += fmt.Sprintf("/%d KiB", r.flow.Size>>10)
	case r.name == podToVIP:
		s += "/" + r.flow.Dst.String()
	}
	return s
}

// describe says what was seen in the words of the tables.
func (r row) describe(s Seen) string {
	words := "lost"
	if s.OK {
		words = "ok"
	}
	if s.Device == "" {
		return words
	}
	node := r.flow.From.Node
	who := s.Source.String()
	switch f := familyOf(s.Source); {
	case s.Source == node.Addr(f):
		who = "node"
	case node.Pod != nil && s.Source == node.Pod.Addr(f):
		who = "pod"
	case s.Source == r.flow.From.Addr(f):
		who = "machine"
	}
	words += fmt.Sprintf(" %s as %s", device(s.Device), who)
	if s.Arrived.IsValid() && s.Arrived != s.Source {
		words += fmt.Sprintf(" (arrived as %v)", s.Arrived)
	}
	if s.Back != "" {
		words += ", back " + device(s.Back)
	}
	return words
}

// device names a device without its number, except for Tailscale's.
func device(name string) string {
	if name == MeshLink {
		return name
	}
	return strings.TrimRight(name, "0123456789")
}

// patience covers some retries of a WireGuard handshake, 5 s each: without latency both sides often begin one at the same
// moment and then refuse each other's answers.
const (
	patience = 25 * time.Second
	attempt  = 1500 * time.Millisecond
)

// try tries a flow until what is seen is sure. A flow that is answered is. One that is lost is where it is expected to be
// and the control flow is answered both right before it and right after it.
func (l *Lab) try(ctx context.Context, r row, want string) (string, Seen) {
	for end := time.Now().Add(patience); ; {
		fair := !strings.HasPrefix(want, "lost") || l.Send(ctx, r.control, attempt).OK
		s := l.Send(ctx, r.flow, attempt)
		got := r.describe(s)
		switch {
		case s.OK, time.Now().After(end):
			return got, s
		case strings.HasPrefix(want, "lost") && fair && l.Send(ctx, r.control, attempt).OK:
			return got, s
		}
	}
}

// result is a line of the table that is printed.
type result struct {
	row       row
	want, got string
	seen      Seen
	at        time.Time // when that was sure
}

// judge tries all rows, many at a time, and compares them with what is expected of each name.
func (l *Lab) judge(t *testing.T, rows []row, want map[string]string) []result {
	t.Helper()
	begin := time.Now()
	results := make([]result, len(rows))
	var group sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i, r := range rows {
		expected, ok := want[r.name]
		if !ok {
			t.Fatalf("the table does not say what to expect of %s", r.name)
		}
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			got, seen := l.try(t.Context(), r, expected)
			results[i] = result{row: r, want: expected, got: got, seen: seen, at: time.Now()}
		})
	}
	group.Wait()

	t.Logf("%d flows in %v\n%s", len(rows), time.Since(begin).Round(10*time.Millisecond), table(results))
	for _, r := range results {
		if r.got != r.want {
			t.Errorf("%s, %s: seen %q, expected %q (%v)", r.row.name, r.row.kind(), r.got, r.want, r.seen.Err)
		}
	}
	return results
}

// table prints results, those of one flow that came out alike on one line.
func table(results []result) string {
	type line struct{ name, want, got string }
	var lines []line
	kinds := map[line][]string{}
	for _, r := range results {
		l := line{r.row.name, r.want, r.got}
		if kinds[l] == nil {
			lines = append(lines, l)
		}
		kinds[l] = append(kinds[l], r.row.kind())
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FLOW\tEXPECTED\tSEEN\tTRIED\tVERDICT")
	for _, l := range lines {
		verdict := "ok"
		if l.want != l.got {
			verdict = "FAIL"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.name, l.want, l.got, strings.Join(kinds[l], " "), verdict)
	}
	w.Flush()
	return b.String()
}

// summary is one table of many states.
type summary struct{ lines []string }

// columns are the flows that states differ in.
func columns() []string { return []string{podToHost, podToHostFull, podToService, podToPod, hostToPod} }

// add adds a state: where each flow went, and whether it was lost there. Several answers mean that kinds of it differed.
func (s *summary) add(policy, rule, repair string, results []result) {
	line := []string{policy, rule, repair}
	for _, name := range columns() {
		var cells []string
		for _, r := range results {
			if cell := brief(r.got); r.row.name == name && !slices.Contains(cells, cell) {
				cells = append(cells, cell)
			}
		}
		line = append(line, strings.Join(cells, ", "))
	}
	s.lines = append(s.lines, strings.Join(line, "\t"))
}

// brief names what was seen of a flow for the summary.
func brief(got string) string {
	switch got {
	case direct:
		return "direct"
	case tunneled, viaTunnel:
		return "by tunnel"
	case refused, hostRefused:
		return "LOST in tunnel"
	case foreign:
		return "LOST, pod's source"
	case wrongReply:
		return "LOST, reply astray"
	case tooLarge:
		return "LOST, too large"
	}
	return got
}

func (s *summary) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(append([]string{"POLICY", "RULE", "REPAIR"}, columns()...), "\t"))
	for _, line := range s.lines {
		fmt.Fprintln(w, line)
	}
	w.Flush()
	return b.String()
}
