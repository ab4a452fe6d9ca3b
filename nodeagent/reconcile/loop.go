package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// How long things take.
const (
	quiet      = 100 * time.Millisecond // without a further change before a pass begins
	impatience = time.Second            // after the first change a pass begins anyway
	resync     = 5 * time.Minute        // a pass without any change, as the backstop
	recheck    = 30 * time.Second       // the same while not all is well, or iptables is in use
	retryFirst = time.Second            // after a pass that failed; doubled each time, up to recheck
)

// Loop keeps a node at what its document asks for, driven by changes. It executes nothing while there are none.
type Loop struct {
	Node *Node
	// Load reads the document.
	Load func() (config.Document, error)
	// Good is a document from an earlier life, for when the first one read is bad; nil: there is none.
	Good *config.Document
	// Keep puts a good document away for the next life; nil: it is forgotten.
	Keep func(config.Document) error
	// Changed carries what may have changed.
	Changed <-chan string
	// Observe is told of each pass, and with a zero Pass every AliveEvery in between (not at all if that is zero).
	Observe    func(Pass)
	AliveEvery time.Duration
	Log        *slog.Logger

	verdicts map[string]string // of the peers, as last logged
	lastBad  string            // the document's error, as last logged
	notKept  bool              // the document could not be put away, and that was logged
	failing  bool              // the last pass failed
	repairs  []time.Time       // of the last minute
	kept     *config.Document  // the document that was last put away
	reached  *desired.State    // what the last pass brought the node to
}

// Pass is what came of one turn of the loop.
type Pass struct {
	Begin     time.Time
	Took      time.Duration
	Cause     string
	BadReason string // why the document is not followed; "" if it is
	Err       error  // of the node: nothing is known then
	Report    Report

	// Document is the one that the node is held to, as it was written: the last good one where BadReason says so, and nil
	// if nothing is in force.
	Document *config.Document
}

// Verdict sums the pass up, if it came to an end. Where no document is in force, nobody knows what is right.
func (p Pass) Verdict() Verdict {
	if p.Document == nil {
		return Unknown
	}
	return p.Report.Verdict()
}

// Run works until the context ends.
func (l *Loop) Run(ctx context.Context) error {
	cause, retry := "start", retryFirst
	for {
		pass := l.pass(ctx, cause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.Observe(pass)
		wait := resync
		switch {
		case pass.Err != nil:
			wait, retry = retry, min(2*retry, recheck)
		case pass.Verdict() != OK || pass.BadReason != "", silent(pass.Report.Firewall):
			wait = recheck
			retry = retryFirst
		default:
			retry = retryFirst
		}
		var err error
		if cause, err = l.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// silent says whether the kernel gives no notice of changes to a firewall, or of a kubelet that shows which one it should
// be: a look every so often then starts no process either, unless something has changed.
func silent(b desired.Backend) bool { return b == desired.IPTablesNFT || b == desired.IPTablesLegacy }

// wait returns when something has changed and then was quiet for a moment, or after the time, and says what it was.
func (l *Loop) wait(ctx context.Context, limit time.Duration) (string, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	var alive <-chan time.Time
	if l.AliveEvery > 0 {
		ticker := time.NewTicker(l.AliveEvery)
		defer ticker.Stop()
		alive = ticker.C
	}
	var causes []string
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-alive:
			l.Observe(Pass{})
		case cause := <-l.Changed:
			if len(causes) == 0 {
				deadline.Reset(impatience)
			}
			if !slices.Contains(causes, cause) {
				causes = append(causes, cause)
			}
			settled = time.After(quiet)
		case <-settled:
			return strings.Join(causes, ","), nil
		case <-deadline.C:
			if len(causes) == 0 {
				return "resync", nil
			}
			return strings.Join(causes, ","), nil
		}
	}
}

// pass brings the node to the document once: to the last good one, if the one that is there is bad.
func (l *Loop) pass(ctx context.Context, cause string) (p Pass) {
	p = Pass{Begin: time.Now(), Cause: cause}
	defer func() { p.Took = time.Since(p.Begin) }()

	doc, err := l.Load()
	var plan Plan
	if err == nil {
		plan, err = l.Node.Prepare(ctx, doc)
	}
	switch {
	case ctx.Err() != nil: // whatever came of it, it is over
		p.Err = ctx.Err()
		return p
	case err == nil:
		l.lastBad, p.Document = "", &doc
		defer l.keep(doc) // the node need not wait for the disk
	case !refused(err):
		p.Err = err
	default:
		plan, p.Document, p.BadReason, p.Err = l.fallBack(ctx, err)
		if p.Err == nil && p.Document == nil {
			l.failing = false
			return p
		}
	}
	if p.Err == nil {
		p.Report, p.Err = l.Node.Apply(ctx, plan)
	}
	if p.Err != nil {
		if ctx.Err() == nil {
			// One failure is often no more than that somebody else was at work on the same things.
			level := slog.LevelWarn
			if l.failing {
				level = slog.LevelError
			}
			l.failing = true
			l.Log.Log(ctx, level, "could not bring the node to its document: trying again", "error", p.Err, "cause", cause)
		}
		return p
	}
	l.failing = false
	l.logReport(p, len(p.Report.Changes) > 0 && l.reached != nil && l.reached.Same(plan.State))
	l.reached = &plan.State
	return p
}

// fallBack plans for the last good document after another was refused. It is nil if there is none, or if the node has become
// one that it does not fit any more either.
func (l *Loop) fallBack(ctx context.Context, refusal error) (plan Plan, doc *config.Document, reason string, err error) {
	reason = refusal.Error()
	message := "the document cannot be used, and there is no earlier one: nothing is changed on the node"
	if l.Good != nil {
		doc, message = l.Good, "the document cannot be used: the last good one stays in force"
		plan, err = l.Node.Prepare(ctx, *doc)
		_, shadowed := errors.AsType[*ShadowedError](err)
		switch {
		case shadowed: // its rule is overtaken since: the rest of it still holds, and the report says what does not
			err = nil
		case refused(err):
			if why := err.Error(); why != reason {
				reason += "; the last good one: " + why
			}
			doc, err, message = nil, nil, "neither the document nor the last good one can be used: nothing is changed on the node"
		}
	}
	if reason != l.lastBad {
		l.lastBad = reason
		l.Log.Error(message, "reason", reason)
	}
	return plan, doc, reason, err
}

// refused says whether an error is the document's, which another attempt will not mend.
func refused(err error) bool {
	_, foreign := errors.AsType[*desired.ForeignDocumentError](err)
	_, backend := errors.AsType[*desired.BackendError](err)
	_, shadowed := errors.AsType[*ShadowedError](err)
	_, overtaken := errors.AsType[*OvertakenError](err)
	_, bad := errors.AsType[*BadDocumentError](err)
	return foreign || backend || shadowed || overtaken || bad
}

// BadDocumentError says that there is no document, or none that can be used.
type BadDocumentError struct{ Err error }

func (e *BadDocumentError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *BadDocumentError) Unwrap() error { return e.Err }

func (l *Loop) keep(doc config.Document) {
	l.Good = &doc
	if l.Keep == nil || l.kept != nil && reflect.DeepEqual(doc, *l.kept) {
		return
	}
	if err := l.Keep(doc); err != nil {
		// The next pass tries again.
		if !l.notKept {
			l.Log.Warn("could not put the document away for the next start", "error", err)
		}
		l.notKept = true
		return
	}
	l.kept, l.notKept = &doc, false
}

// repairLimit is how many passes within a minute may find something to mend before somebody else is suspected.
const repairLimit = 5

// logReport logs what is new. A change is a repair where the node was as it must be before.
func (l *Loop) logReport(p Pass, repair bool) {
	word := "changed"
	if repair {
		word = "repaired"
	}
	for _, line := range p.Report.Changes {
		l.Log.Info(word, "command", shorten(line), "cause", p.Cause)
	}
	if p.Report.Dropped > 0 {
		l.Log.Info("made stale connections begin anew", "count", p.Report.Dropped)
	}
	if repair {
		l.repairs = slices.DeleteFunc(append(l.repairs, p.Begin), func(t time.Time) bool { return p.Begin.Sub(t) > time.Minute })
		if len(l.repairs) == repairLimit {
			suspect := "a firewall that is written anew again and again"
			if strings.HasPrefix(p.Report.Changes[0], "ip ") { // rules come first
				suspect = "systemd-networkd without ManageForeignRoutingPolicyRules=no"
			}
			l.Log.Warn("somebody keeps undoing the agent's changes: is it "+suspect+"?", "repairs", len(l.repairs), "within", time.Minute)
		}
	}
	now := map[string]string{}
	for _, note := range p.Report.Notes {
		key := "note " + note.Message
		now[key] = ""
		if _, known := l.verdicts[key]; !known {
			l.Log.Info(note.Message, "code", note.Code)
		}
	}
	var news []Peer
	for _, peer := range p.Report.Peers {
		key := peer.Name + " " + peer.Address.String()
		now[key] = string(peer.Verdict) + peer.Why
		if now[key] != l.verdicts[key] {
			news = append(news, peer)
		}
	}
	l.logPeers(news)
	l.verdicts = now
}

// logPeers logs peers, one by one unless many fare alike, as when tailscaled ends.
func (l *Loop) logPeers(peers []Peer) {
	const few = 10
	type fate struct {
		verdict  Verdict
		way, why string
	}
	alike := map[fate][]Peer{}
	var fates []fate
	for _, peer := range peers {
		f := fate{peer.Verdict, peer.After.String(), peer.Why}
		if alike[f] == nil {
			fates = append(fates, f)
		}
		alike[f] = append(alike[f], peer)
	}
	for _, f := range fates {
		level := slog.LevelInfo
		if f.verdict != OK {
			level = slog.LevelWarn
		}
		list := alike[f]
		if len(list) > few {
			l.Log.Log(context.Background(), level, "peers", "addresses", len(list), "first", list[0].Name, "last", list[len(list)-1].Name,
				"verdict", f.verdict, "way", f.way, "why", f.why)
			continue
		}
		for _, peer := range list {
			l.Log.Log(context.Background(), level, "peer", "name", peer.Name, "address", peer.Address, "verdict", f.verdict,
				"way", f.way, "why", f.why)
		}
	}
}

// shorten cuts a command that lists a thousand peers to what a line of a log can hold.
func shorten(command string) string {
	const limit = 500
	if len(command) <= limit {
		return command
	}
	return fmt.Sprintf("%s ... (%d bytes)", strings.ToValidUTF8(command[:limit], ""), len(command))
}
