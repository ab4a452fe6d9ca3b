package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/metrics"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/source"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/tailscale"
)

// runner is the agent as a service.
type runner struct {
	*command
	listen    string
	state     string
	logFormat string

	log     *slog.Logger
	changed chan string
	metrics *metrics.Metrics

	tailnet *desired.Tailnet // the part that was put away
	memory  int64            // bytes, that the program is to make do with

	idle      chan *config.Document // holds the one in force, once there is nothing to do
	disturbed atomic.Int64          // passes that made changes
}

func (c *command) run() *cobra.Command {
	r := &runner{command: c, changed: make(chan string, 16), metrics: metrics.New(version()), idle: make(chan *config.Document, 1)}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Keep the node at what its document asks for",
		Long: "Keep the node at what its document asks for, until SIGTERM or SIGINT. What was installed stays then: `cleanup`\n" +
			"takes it away. Changes of interfaces, addresses, routes, rules, the agent's own firewall table, the document and\n" +
			"the tailnet are noticed as they happen; SIGHUP asks for a look at everything. A document that cannot be used\n" +
			"changes nothing: the last good one stays in force.\n\n" +
			"Exit codes: 0 it was told to end; 2 it could not start or go on.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.serve(cmd.Context(), cmd.Flags().Changed("listen"))
		},
	}
	cmd.Flags().StringVar(&r.listen, "listen", "127.0.0.1:9464", `where to serve /metrics, /livez, /readyz and /healthz; "" is nowhere`)
	stateFlag(cmd, &r.state)
	cmd.Flags().StringVar(&r.logFormat, "log-format", "text", "text or json")
	return cmd
}

// serve is the service's life. That it cannot listen keeps it from starting only where it was told to.
func (r *runner) serve(ctx context.Context, mustListen bool) error {
	if r.logFormat != "text" && r.logFormat != "json" {
		return fmt.Errorf("--log-format %q is not known: want text or json", r.logFormat)
	}
	if r.state == "" {
		return errors.New("--state is empty: want a folder")
	}
	r.log = newLog(r.env, r.logFormat)
	// That nobody reads the log any more is no reason to end, as writing to a closed pipe otherwise is.
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	defer signal.Stop(closed)
	unlock, err := r.acquire()
	if err != nil {
		return err
	}
	defer unlock()

	// Sockets are opened here, so that they belong to this thread's network namespace.
	watcher, err := kernel.NewWatcher()
	if err != nil {
		return err
	}
	from, err := source.New(r.config, r.ca)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	follow := from.Watch(ctx, func() { r.notice("document") }, func(err error) {
		r.log.Warn("the document may be out of date", "error", err)
	})
	if r.listen != "" {
		listener, err := net.Listen("tcp", r.listen)
		switch {
		case err == nil:
			trouble := slog.NewLogLogger(r.log.Handler(), slog.LevelWarn)
			g.Go(func() error { return serveHTTP(ctx, listener, r.metrics.Handler(), trouble) })
		case mustListen:
			return fmt.Errorf("--listen: %w", err)
		default:
			r.log.Warn("no metrics are served", "error", err)
		}
	}
	g.Go(func() error { return watcher.Run(ctx, r.notice) })
	g.Go(follow)
	g.Go(func() error { return r.watchTailscale(ctx) })
	g.Go(func() error { return r.watchSignals(ctx, from) })

	r.env.Kernel = &shared{kernel: r.env.Kernel}
	checks, err := alongside(func() { r.runChecks(ctx) })
	if err != nil {
		return fmt.Errorf("find out the network namespace: %w", err)
	}
	checked := make(chan struct{})
	go func() { defer close(checked); checks() }()

	// The loop stays on this goroutine, for the same reason.
	err = r.loop(ctx, from).Run(ctx)
	notify(daemon.SdNotifyStopping)
	cancel()
	if failed := g.Wait(); failed != nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	select {
	case <-checked:
	case <-time.After(time.Second): // they look at thousands of peers, say, and change nothing
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (r *runner) loop(ctx context.Context, from source.Source) *reconcile.Loop {
	watchdog, _ := daemon.SdWatchdogEnabled(false)
	r.limitMemory(0)
	node := r.node()
	node.LastTailnet = readTailnet(r.state)
	l := &reconcile.Loop{
		Node:    node,
		Load:    r.load(ctx, from),
		Changed: r.changed,
		Observe: func(p reconcile.Pass) {
			r.observe(p)
			if node.LastTailnet != nil {
				r.limitMemory(len(node.LastTailnet.Peers))
			}
			if p.Document != nil && p.Err == nil && p.BadReason == "" {
				r.keepTailnet(node.LastTailnet, *p.Document)
			}
			r.offerCheck(p)
		},
		AliveEvery: watchdog / 3,
		Log:        r.log,
		Keep:       r.keep,
	}
	if text, err := takeOut(goodPath(r.state)); err == nil {
		if doc, err := config.Parse(text); err == nil {
			l.Good = &doc
		}
	}
	return l
}

// load returns what reads the document. What it has parsed once it parses again only when it has become another.
func (r *runner) load(ctx context.Context, from source.Source) func() (config.Document, error) {
	var lastText []byte
	var last config.Document
	return func() (config.Document, error) {
		text, err := from.Read(ctx)
		if err != nil {
			return config.Document{}, &reconcile.BadDocumentError{Err: err}
		}
		if lastText != nil && bytes.Equal(text, lastText) {
			return last, nil
		}
		doc, err := r.parse(text)
		if err != nil {
			return config.Document{}, &reconcile.BadDocumentError{Err: err}
		}
		lastText, last = text, doc
		r.limitMemory(len(doc.Peers))
		return doc, nil
	}
}

// limitMemory has the service make do with what it needs for so many machines, and for fewer, though a pass over all of
// them leaves several times as much garbage: it shares the node with others' work.
func (r *runner) limitMemory(machines int) {
	const (
		least = 12 << 20 // bytes, of which the runtime takes most; enough for a thousand
		each  = 4 << 10
	)
	limit := least + each*int64(max(0, machines-1000))
	if limit <= r.memory || r.env.LimitMemory == nil { // to be told stops the whole program for a moment
		return
	}
	r.memory = limit
	r.env.LimitMemory(limit)
}

// observe tells systemd, Prometheus and health checks. A zero pass only says that the loop is alive.
func (r *runner) observe(p reconcile.Pass) {
	if p.Begin.IsZero() {
		notify(daemon.SdNotifyWatchdog)
		return
	}
	r.metrics.Observe(p)
	// What could be done is done: the service is up, and the status says how well it goes.
	notify(daemon.SdNotifyReady + "\n" + daemon.SdNotifyWatchdog + "\nSTATUS=" + strings.ReplaceAll(summary(p), "\n", "; "))
}

// summary is a pass in one line.
func summary(p reconcile.Pass) string {
	reached := 0
	for _, peer := range p.Report.Peers {
		if peer.Verdict == reconcile.OK {
			reached++
		}
	}
	switch {
	case p.Err != nil:
		return fmt.Sprintf("error: %v", p.Err)
	case p.Document == nil:
		return "no document can be used: nothing is changed on the node"
	case p.BadReason != "":
		return fmt.Sprintf("the document cannot be used; by the last good one, %d of %d addresses of peers are reached through the mesh",
			reached, len(p.Report.Peers))
	}
	return fmt.Sprintf("%s: %d of %d addresses of peers are reached through the mesh", p.Report.Verdict(), reached, len(p.Report.Peers))
}

// notify tells systemd, as its library does, but waits no longer than a moment for whoever does not read.
func notify(state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return // nobody listens outside systemd
	}
	conn, err := net.Dial("unixgram", address)
	if err != nil {
		return
	}
	defer conn.Close()
	if conn.SetWriteDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		_, _ = conn.Write([]byte(state))
	}
}

// notice says that something has changed. A full channel will wake the loop as well.
func (r *runner) notice(what string) {
	select {
	case r.changed <- what:
	default:
	}
}

// watchTailscale hears of changes of the tailnet, and connects again when tailscaled has gone.
func (r *runner) watchTailscale(ctx context.Context) error {
	client := tailscale.New(r.socket)
	const first, last = time.Second, 30 * time.Second
	wait := first
	for {
		_ = client.Watch(ctx, func() {
			wait = first
			r.notice("tailnet")
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, last)
		}
	}
}

func (r *runner) watchSignals(ctx context.Context, from source.Source) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hangups:
			from.Again()
			r.notice("SIGHUP")
		}
	}
}

func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler, trouble *log.Logger) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: trouble}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}

// newLog writes to stderr. Under systemd the journal adds the time.
func newLog(env Env, format string) *slog.Logger {
	options := &slog.HandlerOptions{}
	if os.Getenv("JOURNAL_STREAM") != "" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(env.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(env.Stderr, options))
}
