package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Section is a part of what was gathered, for people who were not there.
type Section struct {
	Title string
	Lines []string
}

// mostLines is how much of one part is shown: a node with thousands of services has a firewall of that length.
const mostLines = 400

// Gathered tells the evidence, the parts first that most questions are about.
func Gathered(e *Evidence) []Section {
	var out []Section
	add := func(title string, lines []string) {
		if len(lines) > mostLines {
			lines = append(lines[:mostLines:mostLines], fmt.Sprintf("… and %d lines more", len(lines)-mostLines))
		}
		if len(lines) > 0 {
			out = append(out, Section{title, lines})
		}
	}
	add("Document", documentLines(e))
	add("tailscaled", tailscaledLines(e))
	add("Policy rules", texts(e.Facts.Rules))
	add("Routes beside those to the node itself", texts(e.Routes))
	add("Interfaces", deviceLines(e))
	add("Kernel settings", sysctlLines(e))
	add("What the kernel answers", answerLines(e))
	add("Firewall", firewallLines(e))
	return out
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

func documentLines(e *Evidence) []string {
	if e.Document == nil {
		return []string{"none that can be used: " + e.DocumentErr}
	}
	d := e.Document
	out := []string{
		fmt.Sprintf("mesh %s, node %s (%s) %v", d.Mesh, d.Node.Name, d.Node.ID, d.Node.Addresses),
		fmt.Sprintf("routing %s mark %s priority %s table %d, firewall %s, overlay %s", d.Routing.Mode, d.Routing.Mark, d.Routing.Priority,
			d.Routing.Table, d.Firewall.Backend, d.Overlay.Protocol),
		fmt.Sprintf("pod networks %v, found on the node %v", d.PodCIDRs, e.Pods),
		fmt.Sprintf("local networks %v", d.LocalCIDRs),
	}
	for _, p := range d.Peers {
		out = append(out, fmt.Sprintf("peer %s (%s) %v", p.Name, p.ID, p.Addresses))
	}
	return out
}

func tailscaledLines(e *Evidence) []string {
	t := &e.Tailscaled
	if t.Err != "" {
		return []string{"no answer: " + t.Err}
	}
	node := func(n TailscaleNode) string {
		state := "offline"
		if n.Online {
			state = "online"
		}
		return fmt.Sprintf("%s (%s) %v %s, %v, by %q", n.Name, n.ID, n.Addresses, state, n.Tags, n.Endpoint)
	}
	out := []string{"state " + t.State, "this node: " + node(t.Self)}
	for _, h := range t.Health {
		out = append(out, "health: "+h)
	}
	for _, p := range t.Peers {
		out = append(out, "peer: "+node(p))
	}
	out = append(out, fmt.Sprintf("packet filter: %d entries (%s)", len(t.Filter), t.FilterHow))
	for _, f := range t.Filter {
		out = append(out, fmt.Sprintf("  protocols %v from %v to %v", f.Protocols, f.Sources, f.Destinations))
	}
	return out
}

func deviceLines(e *Evidence) []string {
	var out []string
	for _, d := range e.Devices {
		line := fmt.Sprintf("%s %s mtu %d", d.Name, d.Kind, d.MTU)
		if !d.Up {
			line += " down"
		}
		if d.Master != "" {
			line += " at " + d.Master
		}
		if d.Remote.IsValid() {
			line += fmt.Sprintf(" from %s to %s", d.Local, d.Remote)
		}
		if l, ok := e.Facts.Link(d.Name); ok && len(l.Addresses) > 0 {
			line += fmt.Sprintf(" %v", l.Addresses)
		}
		out = append(out, strings.ReplaceAll(line, "  ", " "))
	}
	return out
}

func sysctlLines(e *Evidence) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(e.Sysctls)) {
		out = append(out, "net."+name+" = "+e.Sysctls[name])
	}
	return out
}

func answerLines(e *Evidence) []string {
	var out []string
	for packet, answer := range e.Answers {
		line := fmt.Sprintf("to %s from %s", packet.Dst, packet.Src)
		if packet.Iif != "" {
			line += " iif " + packet.Iif
		}
		if packet.Mark != 0 {
			line += fmt.Sprintf(" mark %#x", packet.Mark)
		}
		out = append(out, line+": "+answer.String())
	}
	slices.Sort(out)
	return out
}

func firewallLines(e *Evidence) []string {
	if e.Rules == nil {
		return []string{"not read: " + e.RulesErr}
	}
	var out []string
	for _, c := range e.Rules.Chains {
		if c.Hook != "" {
			verdict := "accept"
			if c.Drop {
				verdict = "drop"
			}
			out = append(out, fmt.Sprintf("%s %s %s: %s at %s, priority %d, policy %s", c.Family, c.Table, c.Name, c.Type, c.Hook, c.Priority, verdict))
		}
		out = append(out, texts(c.Rules)...)
	}
	for _, t := range e.Legacy {
		out = append(out, fmt.Sprintf("legacy iptables, not followed: %s", t))
	}
	return out
}
