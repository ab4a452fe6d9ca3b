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
	leftovers(j)
	if j.e.Rules == nil {
		r.Detail = "the firewall's part is not readable: " + j.e.RulesErr
		return
	}
	pending := desired.Diff(j.e.Facts, j.state).Lines()
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
		"peers.moved", "document.vip-in-peers", "agent.leftover",
	}, func(code string) bool { return j.found[code] })
}

// leftovers finds rules to Tailscale's table that are not the agent's of now: of an older agent, or of a script before it.
func leftovers(j *judgement) {
	table := uint32(j.doc.Routing.Table)
	for _, rule := range j.e.Facts.Rules {
		own := rule.Own() && !slices.Contains(j.state.Rules, rule)
		meshDst := rule.Dst.IsValid() && rule.Dst.Bits() > 0 && rule.Dst.Overlaps(rule.Family.MeshRange())
		byMark := rule.Mask != 0 && rule.Mark == uint32(j.doc.Routing.Mark) && rule.Mask == uint32(j.doc.Routing.Mark)
		foreign := !rule.Own() && rule.Action == desired.Lookup && rule.Table == table && (meshDst || byMark)
		if !own && !foreign || j.found["peer-connections.captured"] {
			continue
		}
		who := "without the agent's mark: of a script, or of a version before it was marked"
		if own {
			who = "marked as the agent's (proto 116), but not one that this version would add"
		}
		j.add(Finding{
			Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the policy rule `%s` is left over", rule),
			Evidence: []Seeing{{What: who, How: howRules}}, Cause: rule.String(),
			Fix: rule.Command("del"), Blind: "it does not change the way of packets now",
		})
	}
	for _, b := range desired.Backends() {
		if j.e.Facts.Tables[b] != nil && j.state.Tables[b] == nil {
			j.add(Finding{
				Code: "agent.leftover", Level: Warn, Summary: fmt.Sprintf("the agent's rules are in %s, too", b),
				Evidence: []Seeing{{What: "the document and the node ask for another firewall backend now", How: "the agent's firewall tables"}},
				Cause:    string(b), Fix: "tailmesh-agent apply", Blind: "both do the same as long as both are kept up",
			})
		}
	}
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
