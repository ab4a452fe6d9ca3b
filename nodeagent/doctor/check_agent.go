package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func agentChecks() []Check {
	return []Check{
		{ID: "agent", Title: "the agent's own rules, and leftovers", Needs: NeedDocument, Optional: true, run: checkAgent},
		{ID: "fights", Title: "rules that come and go", Optional: true, run: checkFights},
	}
}

func checkAgent(j *judgement, r *Result) {
	if len(j.e.Agents) > 1 {
		j.add(Finding{
			Code: "agent.two", Level: Warn, Summary: fmt.Sprintf("%d agents run on this node", len(j.e.Agents)),
			Evidence: []Seeing{{What: fmt.Sprintf("processes %v run `tailmesh-agent run` in this network namespace", j.e.Agents), How: "/proc"}},
			Cause:    "two installations, which undo each other's work if their documents differ", Fix: "stop one of them",
		})
	}
	changes := desired.Diff(j.e.Facts, j.state)
	leftovers(j, &changes)
	if j.e.Rules == nil {
		r.Detail = "the firewall's part is not readable: " + j.e.RulesErr
		return
	}
	pending := changes.Lines()
	if len(pending) == 0 || explained(j) {
		return
	}
	j.add(Finding{
		Code: "agent.pending", Level: Warn, Summary: fmt.Sprintf("the node is not what the document asks for, in %d points", len(pending)),
		Evidence: []Seeing{{What: strings.Join(pending[:min(len(pending), 5)], "; "), How: "the document, against the policy rules and the agent's firewall table"}},
		Cause:    "the agent does not run, or has not run since the document or the node changed",
		Blind:    "no check found packets that go wrong for it now",
		Fix:      "tailmesh-agent apply; tailmesh-agent plan shows what it would do",
	})
}

// explained says whether a finding of a check accounts for what the agent would change. What another finding names, such as
// a peer that is offline, is mended by no change of the agent's, and must not hide that there are some.
func explained(j *judgement) bool {
	return slices.ContainsFunc([]string{
		"route.not-applied", "route.rule-missing", "route.shadowed", "route.unmarked", "route.peer-unlisted",
		"source.untranslated", "source.wrong-address", "source.elsewhere",
		"peers.moved", "document.vip-in-peers", "document.peer-captured",
	}, func(code string) bool { return j.found[code] })
}

// leftovers finds rules to Tailscale's table that are not the agent's of now: of an older agent, or of a script before it.
// What it names it takes out of the pending changes. As long as something that the document asks for is missing, what is
// there may serve in its stead: an older rule of the agent's is then no leftover but part of the change.
func leftovers(j *judgement, changes *desired.Changes) {
	if len(changes.AddRules) == 0 {
		for _, rule := range changes.DelRules {
			j.add(Finding{
				Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the policy rule `%s` is left over", rule),
				Evidence: []Seeing{{What: "marked as the agent's (proto 116), but not one that this version would add", How: howRules}},
				Cause:    rule.String(), Fix: "tailmesh-agent apply; a running agent does it by itself",
			})
		}
		changes.DelRules = nil
	}
	for _, rule := range j.e.Facts.Rules {
		if j.foreignLeftover(rule) && !j.found["peer-connections.captured"] {
			j.add(j.leftoverOf(rule))
		}
	}
	for _, b := range desired.Backends() {
		of := func(c desired.FirewallChange) bool { return c.Backend == b }
		if j.e.Facts.Tables[b] == nil || j.state.Tables[b] != nil || !all(changes.Firewall, of) {
			continue
		}
		changes.Firewall = nil
		j.add(Finding{
			Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the agent's rules are in %s, too", b),
			Evidence: []Seeing{{What: "the document and the node ask for another firewall backend now", How: "the agent's firewall tables"}},
			Cause:    string(b), Fix: "tailmesh-agent apply; a running agent does it by itself",
		})
	}
	leftoverTables(j)
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// foreignLeftover says whether a rule leads packets to peers into Tailscale's table without being the agent's.
func (j *judgement) foreignLeftover(rule desired.Rule) bool {
	meshDst := rule.Dst.IsValid() && rule.Dst.Bits() > 0 && rule.Dst.Overlaps(rule.Family.MeshRange())
	byMark := rule.Mask != 0 && rule.Mark == uint32(j.doc.Routing.Mark) && rule.Mask == uint32(j.doc.Routing.Mark)
	return !rule.Own() && rule.Action == desired.Lookup && rule.Table == uint32(j.doc.Routing.Table) && (meshDst || byMark)
}

func (j *judgement) leftoverOf(rule desired.Rule) Finding {
	f := Finding{
		Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the policy rule `%s` is left over", rule), Cause: rule.String(),
		Evidence: []Seeing{{What: "without the agent's mark: of a script, or of a version before it was marked", How: howRules}},
	}
	if j.idle(rule) {
		f.Evidence = append(f.Evidence, Seeing{
			What: "without it, packets of pods to peers would go as they go now", How: howRoute + "; the other rules and the routes, on paper",
		})
		f.Fix = rule.Command("del")
		return f
	}
	f.Fix = "tailmesh-agent apply, then " + rule.Command("del")
	f.Blind = "packets may need it now: it may only go once the agent's own rules are in place"
	return f
}

// idle says whether every packet between pods and peers would go where the kernel says that it goes now if the rule were
// not there.
func (j *judgement) idle(rule desired.Rule) bool {
	same := func(p desired.Packet, now desired.Answer, known bool) bool {
		with, without := j.decide(p, anyRule), j.decide(p, func(r desired.Rule) bool { return r != rule })
		return known && with.found && without.found && with.route.Dev == now.Dev && with.route == without.route
	}
	for _, fl := range j.flows {
		if fl.marked == perhaps || !same(fl.packet, fl.way, fl.known) || !same(fl.peers, fl.other, fl.otherK) {
			return false
		}
	}
	return len(j.flows) > 0
}

// leftoverTables finds tables of nftables that only an older agent can have made.
func leftoverTables(j *judgement) {
	if j.e.Rules == nil {
		return
	}
	wanted := func(c *Chain) bool { return c.Family == "inet" && c.Table == desired.TableName }
	seen := map[string]bool{}
	for _, c := range j.e.Rules.Chains {
		name := c.Family + " " + c.Table
		if !strings.HasPrefix(c.Table, desired.TableName) || wanted(c) || seen[name] {
			continue
		}
		seen[name] = true
		j.add(Finding{
			Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the nftables table %s is left over", name),
			Evidence: []Seeing{{What: "its name is the agent's, and this version makes no such table", How: "nftables, by netlink"}}, Cause: name,
			Fix: "nft delete table " + name,
		})
	}
}

// checkFights counts how often rules that matter were deleted while they were watched.
func checkFights(j *judgement, r *Result) {
	if j.e.Watched == 0 {
		r.Status, r.Detail = StatusSkipped, "not watched: --watch 10s does"
		return
	}
	r.Detail = fmt.Sprintf("watched for %s", j.e.Watched)
	type count struct{ gone, back int }
	counts := map[desired.Rule]*count{}
	var order []desired.Rule
	var last time.Time
	for _, event := range j.e.Events {
		if !event.Rule.Own() && event.Rule.Table != uint32(j.doc.Routing.Table) {
			continue
		}
		if counts[event.Rule] == nil {
			counts[event.Rule] = &count{}
			order = append(order, event.Rule)
		}
		if event.Added {
			counts[event.Rule].back++
		} else {
			counts[event.Rule].gone++
		}
		last = event.At
	}
	for _, rule := range order {
		c := counts[rule]
		if c.gone < 2 {
			continue
		}
		j.add(Finding{
			Code: "fights.rule", Level: Fail, Summary: fmt.Sprintf("the policy rule `%s` is deleted again and again", rule),
			Evidence: []Seeing{{
				What: fmt.Sprintf("deleted %d times and added %d times in %s, last at %s", c.gone, c.back, j.e.Watched, last.UTC().Format("15:04:05")),
				How:  "notices of the kernel about policy rules",
			}},
			Cause: "another program deletes rules that it does not know; systemd-networkd and a second agent do",
			Blind: "the kernel does not say who deletes a rule",
			Fix:   "ManageForeignRoutingPolicyRules=no in networkd.conf; look for a second agent",
		})
	}
}
