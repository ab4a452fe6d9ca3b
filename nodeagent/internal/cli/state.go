package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
)

func stateFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "state", "/var/lib/tailmesh", "folder of what the service puts away: the last good document, and what tailscaled said")
}

func goodPath(state string) string { return filepath.Join(state, "good.json") }

func tailnetPath(state string) string { return filepath.Join(state, "tailnet.json") }

func admissionsPath(state string) string { return filepath.Join(state, "admissions.json") }

// takeOut reads a file of the service's. Nobody waits for a pipe in its place, or reads a device to its end.
func takeOut(path string) ([]byte, error) {
	const limit = 64 << 20 // bytes; what tailscaled says of ten thousand peers is a small part of it
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > limit) {
		err = fmt.Errorf("%s is no file of the service's", path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// putAway writes a file of the service's whole, or not at all.
func putAway(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o644)
}

// keep puts a good document away for the next start.
func (r *runner) keep(doc config.Document) error {
	text, err := doc.Marshal()
	if err != nil {
		return err
	}
	return putAway(goodPath(r.state), text)
}

// readTailnet returns what tailscaled said of the peers in an earlier life, or nil.
func readTailnet(state string) *desired.Tailnet {
	var t *desired.Tailnet
	text, err := takeOut(tailnetPath(state))
	if err != nil || json.Unmarshal(text, &t) != nil {
		return nil
	}
	return t
}

// keepTailnet puts away what tailscaled says of the document's peers, so that an agent that starts while tailscaled is away
// takes none of them for gone.
func (r *runner) keepTailnet(t *desired.Tailnet, doc config.Document) {
	if t == nil {
		return
	}
	part := t.Of(doc)
	if len(part.Peers) == 0 || r.tailnet != nil && reflect.DeepEqual(part, r.tailnet) {
		return
	}
	text, err := json.Marshal(part)
	if err == nil {
		err = putAway(tailnetPath(r.state), append(text, '\n'))
	}
	if err != nil {
		r.log.Debug("could not put away what tailscaled says of the peers", "error", err)
		return
	}
	r.tailnet = part
}

// readAdmissions returns what the service has seen of the packet filter. What cannot be read was not seen.
func readAdmissions(state string) (a doctor.Admissions) {
	text, err := takeOut(admissionsPath(state))
	if err != nil || json.Unmarshal(text, &a) != nil {
		return doctor.Admissions{}
	}
	return a
}

// note puts away what the evidence adds to what was seen of the packet filter before, and says aloud when the policy has
// ceased to admit the overlay: nothing else on this node tells it.
func (r *runner) note(before doctor.Admissions, e *doctor.Evidence) {
	now, ended := before.Note(e)
	if len(ended) > 0 {
		r.log.Warn("the tailnet policy no longer admits the overlay to this node: tailmesh-agent doctor says more",
			"protocol", now.Protocol, "from", shortList(ended))
	}
	if now.Same(before) {
		return
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = putAway(admissionsPath(r.state), append(text, '\n'))
	}
	if err != nil {
		r.log.Warn("could not put away what was seen of the packet filter", "error", err)
	}
}

// shortList cuts a list of names to what a line of a log can hold.
func shortList(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ",") + ",…"
	}
	return strings.Join(names, ",")
}
