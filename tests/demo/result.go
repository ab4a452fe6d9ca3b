//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// result is what was seen, step by step. Whether it is what should have been seen is judged from it alone.
type result struct {
	SchemaVersion int       `json:"schemaVersion"`
	Command       string    `json:"command"`
	Held          bool      `json:"held"`
	Error         string    `json:"error,omitempty"` // of a step that could not be carried out
	Broken        []string  `json:"broken,omitempty"`
	Program       string    `json:"program,omitempty"`
	Started       *started  `json:"started,omitempty"`
	Applied       *applied  `json:"applied,omitempty"`
	Refused       *refused  `json:"refused,omitempty"`
	Mended        *mended   `json:"mended,omitempty"`
	Restored      *restored `json:"restored,omitempty"`
}

// judge returns what did not hold, of the steps that there are.
func (r *result) judge() (broken []string) {
	if r.Started != nil {
		broken = append(broken, r.Started.broken()...)
	}
	if r.Applied != nil {
		broken = append(broken, r.Applied.broken()...)
	}
	if r.Refused != nil {
		broken = append(broken, r.Refused.broken()...)
	}
	if r.Mended != nil {
		broken = append(broken, r.Mended.broken()...)
	}
	if r.Restored != nil {
		broken = append(broken, r.Restored.broken()...)
	}
	return broken
}

// finding collects what did not hold.
type finding []string

func (f *finding) want(holds bool, format string, args ...any) {
	if !holds {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

// started is the tailnet before anything was done to it.
type started struct {
	Devices []device   `json:"devices"`
	Policy  policyFile `json:"policy"`
}

// nodes are the devices that the example takes for nodes.
func (r *started) nodes() (out []device) {
	for _, d := range r.Devices {
		for _, t := range d.Tags {
			if t == "tag:node" {
				out = append(out, d)
			}
		}
	}
	return out
}

func (r *started) broken() []string {
	var f finding
	f.want(len(r.nodes()) == 3, "the tailnet has %d nodes, not 3", len(r.nodes()))
	f.want(r.Policy.Text != "", "the tailnet has no policy")
	return f
}

// applied is the example, initialised, planned and applied.
type applied struct {
	Init         ran               `json:"init"`
	Plan         ran               `json:"plan"`
	Requirements []requirement     `json:"requirements"` // of the plan
	Can          ran               `json:"can"`          // which rule meets the first of them
	Apply        ran               `json:"apply"`
	Content      string            `json:"content"` // the example's policy
	Policy       policyFile        `json:"policy"`
	Writes       int               `json:"writes"`
	Nodes        []string          `json:"nodes"`
	Documents    map[string]string `json:"documents"`
}

func (r *applied) broken() []string {
	var f finding
	f.want(r.Init.Exit == 0, "init failed")
	f.want(r.Plan.Exit == 0, "the plan failed")
	foreseen := strings.NewReplacer("Warning: the policy that is in force will be replaced", "") // the tailnet's first one, which is meant
	f.want(!strings.Contains(foreseen.Replace(r.Plan.Stdout+r.Plan.Stderr), "Warning:"), "the plan could not decide everything")
	f.want(len(r.Requirements) == 1 && r.Requirements[0].Proto == config.DefaultProtocol,
		"the plan has not the one requirement for %s but %v", config.DefaultProtocol, r.Requirements)
	f.want(r.Can.Exit == 0, "the policy tool does not say that the requirement is met")
	f.want(r.Apply.Exit == 0, "apply failed")
	f.want(r.Policy.Text == r.Content, "the policy in force is not the example's")
	f.want(r.Writes == 1, "the policy was written %d times, not once", r.Writes)
	f.want(len(r.Documents) == len(r.Nodes), "there are %d documents for %d nodes", len(r.Documents), len(r.Nodes))
	for _, node := range r.Nodes {
		doc, err := config.Parse([]byte(r.Documents[node]))
		f.want(err == nil, "the document of node %q is not valid: %v", node, err)
		f.want(err != nil || doc.Node.Name == node, "the document of node %q is for %q", node, doc.Node.Name)
		f.want(err != nil || len(doc.Peers) == len(r.Nodes)-1, "the document of node %q names %d peers", node, len(doc.Peers))
	}
	return f
}

// refused is a plan without the rule.
type refused struct {
	Removed []string   `json:"removed"`
	Pairs   int        `json:"pairs"` // ordered pairs of nodes that there are
	Plan    ran        `json:"plan"`
	Said    refusal    `json:"said"`
	Before  policyFile `json:"before"`
	After   policyFile `json:"after"`
	Writes  int        `json:"writes"` // since the start
	Taken   ran        `json:"taken"`  // the plan once more, with the text that was offered
}

func (r *refused) broken() []string {
	var f finding
	f.want(len(r.Removed) == 1, "%d rules were taken out of the policy, not one", len(r.Removed))
	f.want(r.Plan.Exit == 1, "the plan without the rule ended with exit code %d, not 1", r.Plan.Exit)
	f.want(r.Said.Position != "", "the plan names no position in the policy")
	f.want(r.Said.Pairs == fmt.Sprintf("%d of %d pairs", r.Pairs, r.Pairs), "the plan names %q, not all %d pairs", r.Said.Pairs, r.Pairs)
	f.want(strings.Contains(r.Said.Offered, config.DefaultProtocol+":*"), "the plan offers no text that names %s", config.DefaultProtocol)
	f.want(r.After == r.Before, "the policy in force changed")
	f.want(r.Writes == 1, "the policy was written %d times by then, not once", r.Writes)
	f.want(r.Taken.Exit == 0, "the policy with the text that was offered is not accepted either")
	return f
}

// way is how a pod reaches a peer's mesh address.
type way struct {
	Peer   string     `json:"peer"`
	To     netip.Addr `json:"to"`
	Tunnel string     `json:"tunnel"` // the overlay's device to it
	Before route      `json:"before"`
	After  route      `json:"after"`

	PacketBefore packet `json:"packetBefore"`
	PacketAfter  packet `json:"packetAfter"`
	// FromPeer is a packet of the peer's own to the pod, which comes by the overlay and is answered by it.
	FromPeer packet `json:"fromPeer"`
}

// mended is a node before and after the agent.
type mended struct {
	Node          string     `json:"node"`
	Address       netip.Addr `json:"address"` // the node's mesh address
	Pod           netip.Addr `json:"pod"`
	RouterRule    string     `json:"routerRule"` // the CNI's, as it came to stand
	Apply         ran        `json:"apply"`
	Ways          []way      `json:"ways"`
	CounterBefore uint64     `json:"counterBefore"` // of the agent's source translation, in connections
	CounterAfter  uint64     `json:"counterAfter"`
	Foreign       uint64     `json:"foreign"` // packets thrown away between nodes for their source
}

func (r *mended) broken() []string {
	var f finding
	f.want(r.Apply.Exit == 0, "apply on the node ended with exit code %d", r.Apply.Exit)
	f.want(r.RouterRule != "", "the node has no rule to table 77, so there is nothing to mend")
	f.want(len(r.Ways) > 0, "the node has no peers")
	for _, w := range r.Ways {
		f.want(w.Before.Dev == w.Tunnel, "before, a packet to %s would go to %s, not %s", w.Peer, w.Before.Dev, w.Tunnel)
		f.want(w.After.Dev == "tailscale0", "after, a packet to %s goes to %s, not tailscale0", w.Peer, w.After.Dev)
		f.want(w.PacketBefore.Via == tunnelPrefix+r.Node && w.PacketBefore.Source == r.Pod,
			"before, %s saw a packet from %s by %q", w.Peer, w.PacketBefore.Source, w.PacketBefore.Via)
		f.want(w.PacketAfter.Via == "tailscale0" && w.PacketAfter.Source == r.Address,
			"after, %s saw a packet from %s by %q", w.Peer, w.PacketAfter.Source, w.PacketAfter.Via)
		f.want(w.PacketAfter.Answered, "after, the answer of %s did not arrive", w.Peer)
		f.want(w.FromPeer.Source == w.To && w.FromPeer.Answered && w.FromPeer.Back == tunnelPrefix+r.Node,
			"the connection of %s itself to a pod did not come back by the overlay but by %q", w.Peer, w.FromPeer.Back)
	}
	moved := r.CounterAfter - r.CounterBefore
	f.want(moved == uint64(len(r.Ways)), "the counter of the source translation moved by %d for %d connections", moved, len(r.Ways))
	f.want(r.Foreign == 0, "%d packets were thrown away between the nodes for their source", r.Foreign)
	return f
}

// restored is the node after a second run and a clean-up.
type restored struct {
	Again    ran     `json:"again"`
	Cleanup  ran     `json:"cleanup"`
	Pristine string  `json:"pristine"` // everything that the agent could change, before it came
	Mended   string  `json:"mended"`   // after its first run
	Same     string  `json:"same"`     // after its second
	Clean    string  `json:"clean"`
	Ways     []route `json:"ways"` // to each peer, at last
	Tunnels  []string
}

func (r *restored) broken() []string {
	var f finding
	f.want(r.Again.Exit == 0 && strings.TrimSpace(r.Again.Stdout) == "nothing to do", "the second run did something")
	f.want(r.Mended != r.Pristine, "the first run changed nothing")
	f.want(r.Same == r.Mended, "the second run changed the node")
	f.want(r.Cleanup.Exit == 0, "cleanup ended with exit code %d", r.Cleanup.Exit)
	f.want(r.Clean == r.Pristine, "cleanup left the node different from what it was")
	f.want(len(r.Ways) == len(r.Tunnels), "there are %d routes to %d peers", len(r.Ways), len(r.Tunnels))
	for i, w := range r.Ways {
		f.want(i < len(r.Tunnels) && w.Dev == r.Tunnels[i], "after cleanup a packet goes to %s", w.Dev)
	}
	return f
}
