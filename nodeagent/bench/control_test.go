//go:build linux

package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// converge takes the time from nothing to everything in place, with the agent's verification of every peer.
func converge(t testing.TB, r *report, agent string) {
	node := newNode(t)
	fmt.Fprint(r, "from nothing to converged\tscript\tprocesses")
	for _, backend := range backends() {
		fmt.Fprintf(r, "\t%s\tprocesses\tratio", backend)
	}
	fmt.Fprintln(r)
	var targets []string
	for _, n := range []int{1, 10, 100, 1000} {
		list := addresses(n)
		script := []string{"sh", "testdata/naive.sh", write(t, "peers", strings.Join(list, "\n")+"\n")}
		var times []time.Duration
		undo := func() {
			if got := strings.Count(node.Run("iptables -t nat -S POSTROUTING"), "SNAT"); got != n {
				t.Fatalf("the script made %d translations of %d", got, n)
			}
			node.Run("iptables -t nat -F\nwhile ip rule del pref 100 2>/dev/null; do :; done")
		}
		for range min(5, max(1, 1000/n)) {
			times = append(times, took(t, script...))
			undo()
		}
		fmt.Fprintf(r, "%d peers\t%s\t%d", n, ms(median(times)), processes(t, script...))
		undo()
		for _, backend := range backends() {
			doc := write(t, "node.json", document(t, backend, config.ModeMark, list...))
			apply := []string{agent, "apply", "--config", doc, "--lock", doc + ".lock", "--socket", doc + ".none"}
			undo := func() { took(t, agent, "cleanup", "--lock", doc+".lock") }
			var own []time.Duration
			for range 5 {
				own = append(own, took(t, apply...))
				undo()
			}
			ratio, started := float64(median(times))/float64(median(own)), processes(t, apply...)
			undo()
			fmt.Fprintf(r, "\t%s\t%d\t%.1fx", ms(median(own)), started, ratio)
			if n == 1000 {
				targets = append(targets,
					r.target(backend+": 20 times faster than the script at 1000 peers", ratio >= 20),
					r.target(backend+": no more than 10 processes at 1000 peers", started <= 10))
			}
		}
		fmt.Fprintln(r)
	}
	fmt.Fprintf(r, "%s\n\n", strings.Join(targets, "\n"))
}

// processes counts the processes that a command takes, itself among them.
func processes(t testing.TB, command ...string) int {
	t.Helper()
	path, started := countingPath(t)
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return 1 + started()
}

// countingPath returns a PATH for the environment, each of whose programs counts and then is the one of its name, and how
// many were started.
func countingPath(t testing.TB) (variable string, started func() int) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	check(t, os.WriteFile(log, nil, 0o600))
	for _, folder := range slices.Backward(filepath.SplitList(os.Getenv("PATH"))) { // the first one's program is the last written
		programs, _ := os.ReadDir(folder) // not every folder of a PATH exists
		for _, p := range programs {
			text := fmt.Sprintf("#!/bin/sh\necho >>%s\nexec %s \"$@\"\n", log, filepath.Join(folder, p.Name()))
			check(t, os.WriteFile(filepath.Join(dir, p.Name()), []byte(text), 0o700))
		}
	}
	return "PATH=" + dir, func() int {
		text, err := os.ReadFile(log)
		check(t, err)
		return bytes.Count(text, []byte("\n"))
	}
}

func took(t testing.TB, command ...string) time.Duration {
	t.Helper()
	begin := time.Now()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return time.Since(begin)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// stamped is the node's kernel, and when it was last given a change and had carried it out.
type stamped struct {
	kernel.Interface
	given, inForce time.Time
}

func (s *stamped) Apply(ctx context.Context, c desired.Changes) error {
	s.given = time.Now()
	err := s.Interface.Apply(ctx, c)
	s.inForce = time.Now()
	return err
}

// pass is a turn of the loop, and when the kernel was given its change and had carried it out.
type pass struct {
	reconcile.Pass
	given, inForce time.Time
}

// service is the loop at work in the node's namespace.
type service struct {
	t       testing.TB
	node    *nstest.Node
	path    string
	changed chan string
	passes  chan pass
	stop    func()
}

func startService(t testing.TB, node *nstest.Node, text string) *service {
	s := &service{
		t: t, node: node, path: write(t, "node.json", text),
		changed: make(chan string, 16), passes: make(chan pass, 100),
	}
	ctx, stop := context.WithCancel(t.Context())
	wait := node.Go(func() {
		watcher, err := kernel.NewWatcher()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			_ = watcher.Run(ctx, func(what string) {
				select {
				case s.changed <- what:
				default:
				}
			})
		}()
		var last []byte
		var doc config.Document
		node := &stamped{Interface: kernel.NewLinux()}
		loop := reconcile.Loop{
			Node: &reconcile.Node{Kernel: node},
			Load: func() (config.Document, error) { // as the service does: parsed when it is another
				text, err := os.ReadFile(s.path)
				if err != nil || bytes.Equal(text, last) {
					return doc, err
				}
				last = text
				doc, err = config.Parse(text)
				return doc, err
			},
			Changed: s.changed,
			Observe: func(p reconcile.Pass) { s.passes <- pass{p, node.given, node.inForce} },
			Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		_ = loop.Run(ctx)
	})
	s.stop = func() { stop(); wait() }
	s.next(true)
	return s
}

// next waits for a pass, and for one that changed something if it must.
func (s *service) next(change bool) pass {
	s.t.Helper()
	for {
		select {
		case p := <-s.passes:
			if p.Err != nil || p.Report.Verdict() != reconcile.OK {
				s.t.Fatalf("a pass failed: %v, %s", p.Err, p.Report.Verdict())
			}
			if (len(p.Report.Changes) > 0) == change {
				return p
			}
		case <-time.After(10 * time.Second):
			s.t.Fatal("no pass within ten seconds")
		}
	}
}

// idle waits until nothing more comes of what has happened.
func (s *service) idle() {
	for {
		select {
		case <-s.passes:
		case <-time.After(400 * time.Millisecond):
			return
		}
	}
}

// react takes the time of a pass with nothing to do; from the begin of a pass until a peer more or less is in force, and
// until every peer is verified; and from damage until its repair is in force, the quiet time of the debounce included.
func react(t testing.TB, r *report, backend string) {
	const rounds = 10
	node := newNode(t)
	type row struct {
		name   string
		limit  time.Duration // at 1000 peers; 0: none
		before string        // the document is written or the damage is done by this
		until  func(began time.Time, p pass) time.Duration
	}
	whole := func(_ time.Time, p pass) time.Duration { return p.Took }
	force := func(_ time.Time, p pass) time.Duration { return p.inForce.Sub(p.Begin) }
	given := func(_ time.Time, p pass) time.Duration { return p.given.Sub(p.Begin) }
	flush := "nft flush table inet tailmesh"
	if backend == config.BackendIPTables {
		flush = "iptables -t mangle -F TAILMESH-PREROUTING"
	}
	healed := func(began time.Time, p pass) time.Duration { return p.inForce.Sub(began) }
	const ms10, ms20, ms250 = 10 * time.Millisecond, 20 * time.Millisecond, 250 * time.Millisecond
	rows := []row{
		{"nothing to do", ms20, "", whole},
		{"one peer more, in force", ms10, "more", force},
		// The kernel waits for a grace period before it says that an element is gone: some ten milliseconds, for nft as well.
		{"one peer less, given to the kernel", ms10, "less", given},
		{"one peer more, verified", 0, "more", whole},
		{"one peer less, in force", 0, "less", force},
		{"own rules deleted", ms250, "ip rule del pref 0 fwmark 0x2000/0x2000", healed},
		{"own chains flushed", ms250, flush, healed},
		{"ruleset flushed", ms250, "nft flush ruleset", healed},
	}
	results := make([][]time.Duration, len(rows))
	var least []time.Duration
	for _, n := range []int{1, 10, 100, 1000} {
		list := addresses(n)
		s := startService(t, node, document(t, backend, config.ModeMark, list...))
		documents := map[string]string{
			"more": document(t, backend, config.ModeMark, append([]string{nstest.Peer}, list...)...),
			"less": document(t, backend, config.ModeMark, list...),
		}
		times := make([][]time.Duration, len(rows))
		for range rounds {
			for i, row := range rows {
				s.idle()
				text, isDocument := documents[row.before]
				switch {
				case isDocument:
					check(t, os.WriteFile(s.path, []byte(text), 0o600))
					s.changed <- "document"
				case row.before != "":
					node.Run(row.before)
				default:
					s.changed <- "resync"
				}
				began := time.Now()
				times[i] = append(times[i], row.until(began, s.next(row.before != "")))
			}
		}
		least = nil
		for i := range rows {
			results[i] = append(results[i], median(times[i]))
			least = append(least, slices.Min(times[i]))
		}
		s.stop()
	}
	fmt.Fprintln(r, "what the agent does, "+backend+"\t1 peer\t10 peers\t100 peers\t1000 peers\tat best\ttarget")
	for i, row := range rows {
		at := results[i]
		target := ""
		if row.limit > 0 {
			target = r.target(fmt.Sprintf("%s: %s within %d ms at 1000 peers", backend, row.name, row.limit.Milliseconds()), r.fair(at[3], least[i]) < row.limit)
		}
		fmt.Fprintf(r, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.name, ms(at[0]), ms(at[1]), ms(at[2]), ms(at[3]), ms(least[i]), target)
	}
	fmt.Fprintln(r)
}

// weigh prints what the agent takes of memory, over each firewall, and of the disk.
func weigh(t testing.TB, r *report, agent string) {
	fmt.Fprintln(r, "what the agent weighs\t\t\t\t\t\ttarget")
	for _, backend := range backends() {
		resident := mib(resident(t, agent, backend))
		fmt.Fprintf(r, "resident at most, 1000 peers, %s\t%.1f MiB\t\t\t\t\t%s\n", backend, resident,
			r.target(backend+": resident below 25 MiB", resident < 25))
	}
	info, err := os.Stat(agent)
	check(t, err)
	fmt.Fprintf(r, "binary\t%.1f MiB\t\t\t\t\t%s\n\n", mib(info.Size()), r.target("binary below 20 MiB", mib(info.Size()) < 20))
}

// resident starts the agent as a service with a thousand peers, has it look again and again, and returns how much memory it
// has had at most, in bytes. Nothing changes meanwhile, so that it must start no process.
func resident(t testing.TB, agent, backend string) (most int64) {
	newNode(t)
	doc := write(t, "node.json", document(t, backend, config.ModeMark, addresses(1000)...))
	log, err := os.Create(doc + ".log")
	check(t, err)
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), agent, "run", "--config", doc, "--lock", doc+".lock", "--socket", doc+".none", "--state", filepath.Dir(doc))
	cmd.Stderr = log
	path, started := countingPath(t)
	cmd.Env = append(os.Environ(), path)
	check(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	first := 0
	for i := range 20 { // ten seconds, with a pass every half
		time.Sleep(500 * time.Millisecond)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		check(t, err)
		kib, err := strconv.ParseInt(string(regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status)[1]), 10, 64)
		check(t, err)
		most = max(most, kib<<10)
		if i == 3 { // it has converged
			first = started()
		}
		check(t, cmd.Process.Signal(syscall.SIGHUP))
	}
	if n := started(); n != first {
		t.Errorf("%s: the agent started %d processes while there was nothing to do", backend, n-first)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(text), "msg=peers addresses=1000 ") || strings.Count(string(text), "verdict=ok") != 1 {
		t.Fatalf("not every peer is reached: %v\n%.500s", err, text)
	}
	return most
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
