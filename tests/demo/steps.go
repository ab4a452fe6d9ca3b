//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// perform carries out the five steps. Each needs what the one before left, so the first that does not hold is the last.
func perform(ctx context.Context, s *story, set settings, res *result) error {
	held := func(ok string, args ...any) error {
		if res.Broken = res.judge(); len(res.Broken) > 0 {
			return errBroken
		}
		s.say("OK: "+ok, args...)
		return nil
	}

	s.step(1, "A tailnet of three nodes in two locations, on a simulated control plane")
	api, err := startTailnet(ctx, s, filepath.Join(set.Bin, "tailmesh-policy"), filepath.Join(set.Example, "inventory.json"))
	if err != nil {
		return err
	}
	if res.Started, err = start(ctx, s, api); err != nil {
		return err
	}
	if err := held("%d nodes, and the policy that every new tailnet has", len(res.Started.nodes())); err != nil {
		return err
	}

	t, err := newTofu(s, set, api)
	if err != nil {
		return err
	}
	res.Program = t.version
	s.step(2, fmt.Sprintf("The policy and the mesh as code: %s init, plan and apply (%s)", t.name, t.version))
	if res.Applied, err = apply(ctx, s, set, t, api, res.Started); err != nil {
		return err
	}
	err = held("the plan found %s admitted between all nodes; the policy is in force, and %d documents are written",
		config.DefaultProtocol, len(res.Applied.Documents))
	if err != nil {
		return err
	}

	s.step(3, "The same without the rule for "+config.DefaultProtocol)
	if res.Refused, err = refuse(ctx, s, t, api, len(res.Applied.Nodes)); err != nil {
		return err
	}
	if err := held("the plan fails, the policy in force is what it was (ETag %.12s...), and the text offered would do", res.Refused.After.ETag); err != nil {
		return err
	}

	node := res.Applied.Nodes[0]
	doc, err := config.Parse([]byte(res.Applied.Documents[node]))
	if err != nil {
		return err
	}
	agent := &agent{s: s, program: filepath.Join(set.Bin, "tailmesh-agent"), node: node, document: t.document(node)}
	s.step(4, fmt.Sprintf("Node %s, whose CNI captures its pods' packets to other nodes", node))
	net, err := newNetwork(ctx, s, doc)
	if err != nil {
		return err
	}
	if err := startLocalAPI(ctx, node, res.Started.Devices); err != nil {
		return err
	}
	pristine, err := net.dump(ctx)
	if err != nil {
		return err
	}
	if res.Mended, err = mend(ctx, s, net, agent); err != nil {
		return err
	}
	err = held("packets of pods leave by tailscale0 with the mesh address %s; what peers send to pods still returns by the overlay", res.Mended.Address)
	if err != nil {
		return err
	}

	s.step(5, "The agent once more, and then its traces removed")
	if res.Restored, err = restore(ctx, net, agent, pristine); err != nil {
		return err
	}
	return held("rules, routes and firewall of the node are byte for byte what they were (%d lines compared)", strings.Count(pristine, "\n"))
}

func start(ctx context.Context, s *story, api *tailnet) (r *started, err error) {
	r = &started{}
	if r.Devices, err = api.devices(ctx); err != nil {
		return nil, err
	}
	if r.Policy, err = api.policy(ctx); err != nil {
		return nil, err
	}
	for _, d := range r.Devices {
		s.say("%-7s %-12s %s", d.Name, d.Addresses[0], strings.Join(d.Tags, " "))
	}
	return r, nil
}

func apply(ctx context.Context, s *story, set settings, t *tofu, api *tailnet, was *started) (r *applied, err error) {
	r = &applied{}
	for _, n := range was.nodes() {
		r.Nodes = append(r.Nodes, n.Name)
	}
	slices.Sort(r.Nodes)
	if r.Content, err = t.readPolicy(); err != nil {
		return nil, err
	}

	if r.Init, err = t.run(ctx, "init"); err != nil {
		return nil, err
	}
	if r.Init.Exit != 0 {
		s.show(r.Init.lines()...)
		return r, nil
	}
	s.show(grep(r.Init.lines(), `^- (Installed|terraform)`)...)

	if r.Plan, err = t.run(ctx, "plan", "-out=plan"); err != nil {
		return nil, err
	}
	if r.Plan.Exit != 0 {
		s.show(r.Plan.lines()...)
		return r, nil
	}
	lines := r.Plan.lines()
	s.show(excerpt(lines, `# tailmesh_policy\.this will be`, `resource "tailmesh_policy"`)...)
	s.show(excerpt(lines, `^      \+ test_results `, `^            },`)...)
	s.show(grep(lines, `^(Plan|Changes to Outputs|Warning):`)...)
	s.show(excerpt(lines, `^  \+ admitted `, `^    \]`)...)
	if r.Requirements, err = t.requirements(ctx, "plan"); err != nil {
		return nil, err
	}
	if len(r.Requirements) > 0 {
		q := r.Requirements[0]
		r.Can, err = s.run(ctx, command{
			Args: []string{
				filepath.Join(set.Bin, "tailmesh-policy"), "can", q.Src[0], q.Dst[0], "--proto", q.Proto,
				"policy.hujson", "--inventory", "inventory.json",
			},
			Dir: t.root, Show: fmt.Sprintf("tailmesh-policy can %s %s --proto %s policy.hujson --inventory inventory.json", q.Src[0], q.Dst[0], q.Proto),
		})
		if err != nil {
			return nil, err
		}
		s.show(r.Can.lines()...)
	}

	if r.Apply, err = t.run(ctx, "apply", "plan"); err != nil {
		return nil, err
	}
	if r.Apply.Exit != 0 {
		s.show(r.Apply.lines()...)
		return r, nil
	}
	s.show(grep(r.Apply.lines(), `Creation complete|^Apply complete`)...)
	if r.Policy, err = api.policy(ctx); err != nil {
		return nil, err
	}
	if r.Writes, err = api.writes(ctx); err != nil {
		return nil, err
	}
	if r.Documents, err = t.documents(); err != nil {
		return nil, err
	}
	s.say("written for the nodes' agents: %s", strings.Join(slices.Sorted(maps.Keys(r.Documents)), ".json, ")+".json")
	return r, nil
}

func refuse(ctx context.Context, s *story, t *tofu, api *tailnet, nodes int) (r *refused, err error) {
	r = &refused{Pairs: nodes * (nodes - 1)}
	whole, err := t.readPolicy()
	if err != nil {
		return nil, err
	}
	if r.Before, err = api.policy(ctx); err != nil {
		return nil, err
	}
	text, removed := without(whole, config.DefaultProtocol)
	r.Removed = removed
	s.say("taken out of policy.hujson:")
	s.show(removed...)
	if err := t.writePolicy(text); err != nil {
		return nil, err
	}
	if r.Plan, err = t.run(ctx, "plan"); err != nil {
		return nil, err
	}
	if r.Plan.Exit != 0 {
		lines := r.Plan.lines()
		s.show(lines[max(0, slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Error:") })):]...)
	}
	if r.After, err = api.policy(ctx); err != nil {
		return nil, err
	}
	if r.Writes, err = api.writes(ctx); err != nil {
		return nil, err
	}

	r.Said = parseRefusal(strings.Join(r.Plan.lines(), "\n"))
	if r.Said.Line == 0 {
		return r, nil
	}
	s.say("line %d of policy.hujson is replaced by the text that is offered", r.Said.Line)
	if err := t.writePolicy(r.Said.take(text)); err != nil {
		return nil, err
	}
	if r.Taken, err = t.run(ctx, "plan"); err != nil {
		return nil, err
	}
	s.show(grep(r.Taken.lines(), `^(Plan|Error):`)...)
	return r, t.writePolicy(whole)
}

// agent runs tailmesh-agent on a node.
type agent struct {
	s        *story
	program  string
	node     string
	document string
}

// run runs one command of the agent. Where it is told, so is its output.
func (a *agent) run(ctx context.Context, verb string, flags ...string) (ran, error) {
	c := command{NS: a.node, Args: append([]string{a.program, verb, "--config", a.document, "--socket", socketPath}, flags...)}
	if flags == nil {
		c.Show = fmt.Sprintf("tailmesh-agent %s --config %s", verb, filepath.Base(a.document))
	}
	r, err := a.s.run(ctx, c)
	if flags == nil {
		a.s.show(r.lines()...)
	}
	return r, err
}

// translated reads how many connections the agent's source translation has taken.
func (a *agent) translated(ctx context.Context) (uint64, error) {
	r, err := a.run(ctx, "status", "--json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Counters map[string]struct{ Packets uint64 }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &status); err != nil {
		return 0, fmt.Errorf("%s: %w", r.Command, err)
	}
	var sum uint64
	for comment, c := range status.Counters {
		if strings.HasPrefix(comment, "sources of pods to peers") {
			sum += c.Packets
		}
	}
	return sum, nil
}

func mend(ctx context.Context, s *story, n *network, a *agent) (r *mended, err error) {
	r = &mended{Node: n.node.Name, Address: address(n.node), Pod: n.pod}
	s.say("made for this, in network namespaces: %s", strings.Join(n.names(), ", "))
	s.say("each tun-... stands for an IP-in-IP tunnel of kube-router, tailscale0 for Tailscale's device: veth pairs, here")
	s.say("%s stands for WireGuard: it drops what does not come from its node's mesh address", wireNS)
	rules, err := s.must(ctx, command{NS: n.node.Name, Args: []string{"ip", "rule"}})
	if err != nil {
		return nil, err
	}
	s.say("$ ip rule")
	s.show(rules.lines()...)
	for _, l := range grep(rules.lines(), ` lookup 77\b`) {
		r.RouterRule = l
		s.say("kube-router asked for no priority for its rule to table 77; the kernel put it in front of Tailscale's")
	}

	for i, p := range n.peers {
		w := way{Peer: p.Name, To: address(p), Tunnel: tunnel(p)}
		if w.Before, err = n.ask(ctx, w.To); err != nil {
			return nil, err
		}
		if w.PacketBefore, err = n.fromPod(ctx, p, 40000+i); err != nil {
			return nil, err
		}
		r.Ways = append(r.Ways, w)
	}
	if r.Apply, err = a.run(ctx, "apply"); err != nil {
		return nil, err
	}
	if r.CounterBefore, err = a.translated(ctx); err != nil {
		return nil, err
	}
	for i, p := range n.peers {
		w := &r.Ways[i]
		if w.After, err = n.ask(ctx, w.To); err != nil {
			return nil, err
		}
		if w.PacketAfter, err = n.fromPod(ctx, p, 41000+i); err != nil {
			return nil, err
		}
		if w.FromPeer, err = n.toPod(ctx, p, 42000+i); err != nil {
			return nil, err
		}
	}
	if r.CounterAfter, err = a.translated(ctx); err != nil {
		return nil, err
	}
	if r.Foreign, err = n.foreign(ctx); err != nil {
		return nil, err
	}

	s.say("the kernel's answer for a packet from the pod, with the mark that the agent's rule gives it:")
	for _, w := range r.Ways {
		s.show("before  "+w.Before.Text, "after   "+w.After.Text)
	}
	s.say("real packets, as the other end saw them:")
	for _, w := range r.Ways {
		s.show(fmt.Sprintf("before  pod to %s: from %s by %s", w.Peer, w.PacketBefore.Source, w.PacketBefore.Via))
		s.show(fmt.Sprintf("after   pod to %s: from %s by %s", w.Peer, w.PacketAfter.Source, w.PacketAfter.Via))
		s.show(fmt.Sprintf("after   %s to pod: from %s, and the answer came back by %s", w.Peer, w.FromPeer.Source, w.FromPeer.Back))
	}
	s.say("the source translation's counter: %d, then %d", r.CounterBefore, r.CounterAfter)
	return r, nil
}

func restore(ctx context.Context, n *network, a *agent, pristine string) (r *restored, err error) {
	r = &restored{Pristine: pristine}
	if r.Mended, err = n.dump(ctx); err != nil {
		return nil, err
	}
	if r.Again, err = a.run(ctx, "apply"); err != nil {
		return nil, err
	}
	if r.Same, err = n.dump(ctx); err != nil {
		return nil, err
	}
	if r.Cleanup, err = a.run(ctx, "cleanup"); err != nil {
		return nil, err
	}
	if r.Clean, err = n.dump(ctx); err != nil {
		return nil, err
	}
	for _, p := range n.peers {
		answer, err := n.ask(ctx, address(p))
		if err != nil {
			return nil, err
		}
		r.Ways = append(r.Ways, answer)
		r.Tunnels = append(r.Tunnels, tunnel(p))
	}
	return r, nil
}

// summary says in words what was shown.
func summary(s *story) {
	fmt.Fprintf(s.out, `
Shown:
  - The plan, offline, finds that the policy admits %[1]s between all nodes, and what is applied is that policy.
  - Without the rule the plan fails before anything is written, and says where, for whom, and what to add.
  - On a node whose CNI captures its pods' packets, one run of the agent brings them to tailscale0 with the node's own
    mesh address, which the kernel's routes, real packets and the counter agree on. The other direction is left alone.
  - A second run has nothing to do, and cleanup leaves nothing behind.
Not shown, because devices here stand for the real ones: WireGuard, and packets inside of %[1]s.
`, config.DefaultProtocol)
}
