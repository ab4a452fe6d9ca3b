package cli

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// checkEvery is how often the service runs the doctor's checks, which see more than a pass does and take longer.
const checkEvery = 5 * time.Minute

// offerCheck lets the checks know of a pass: one that had nothing to do is a moment for them, and one that made changes is
// none, also for those that are at work.
func (r *runner) offerCheck(p reconcile.Pass) {
	switch {
	case p.Document == nil || p.Err != nil:
		return
	case len(p.Report.Changes) > 0:
		r.disturbed.Add(1)
		return
	}
	select {
	case <-r.idle: // an older one, not taken yet
	default:
	}
	r.idle <- p.Document
}

// runChecks runs those of the doctor's checks that send nothing, from time to time, beside the loop: tailscaled may take
// long to answer, and a repair is not to wait for that.
func (r *runner) runChecks(ctx context.Context) {
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case doc := <-r.idle:
			now := time.Now()
			if now.Before(next) {
				continue
			}
			// What was seen while the node was being changed says nothing: the next quiet moment serves.
			before := r.disturbed.Load()
			if evidence := r.gather(ctx, doc); r.disturbed.Load() == before && ctx.Err() == nil {
				next = now.Add(checkEvery)
				r.conclude(evidence)
			}
		}
	}
}

func (r *runner) gather(ctx context.Context, doc *config.Document) *doctor.Evidence {
	evidence, err := doctor.Gather(ctx, doctor.Options{
		Kernel: r.env.Kernel, Files: r.env.Files, Socket: r.socket, Document: doc, Admissions: readAdmissions(r.state),
	})
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("the doctor's checks could not be run", "error", err)
		}
		return nil
	}
	return evidence
}

func (r *runner) conclude(evidence *doctor.Evidence) {
	if evidence == nil {
		return
	}
	r.note(evidence.Admissions, evidence)
	failed := map[string]bool{}
	for _, c := range doctor.Judge(evidence).Results {
		switch c.Status {
		case doctor.StatusFail:
			failed[c.Check] = true
		case doctor.StatusOK, doctor.StatusWarn:
			failed[c.Check] = false
		}
	}
	r.metrics.Checked(failed, evidence.Now)
}

// alongside makes of f what can run on another goroutine: on a thread in the network namespace that the calling one is in.
func alongside(f func()) (func(), error) {
	here, err := netns.Get()
	if err != nil {
		return nil, err
	}
	return func() {
		defer here.Close()
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		// A process has one namespace as a rule, and to enter another takes more than the agent is permitted.
		if isIn(here) || netns.Set(here) == nil {
			f()
		}
	}, nil
}

func isIn(namespace netns.NsHandle) bool {
	now, err := netns.Get()
	if err != nil {
		return false
	}
	defer now.Close()
	return now.Equal(namespace)
}

// shared is a kernel that the loop and the checks take turns with, call by call.
type shared struct {
	kernel kernel.Interface
	turn   sync.Mutex
}

func (s *shared) Facts(ctx context.Context) (desired.Facts, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.kernel.Facts(ctx)
}

func (s *shared) Apply(ctx context.Context, c desired.Changes) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.kernel.Apply(ctx, c)
}

func (s *shared) Ways(ctx context.Context, packets []desired.Packet) ([]desired.Answer, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.kernel.Ways(ctx, packets)
}

func (s *shared) DropFlows(ctx context.Context, stale desired.Flows) (int, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.kernel.DropFlows(ctx, stale)
}
