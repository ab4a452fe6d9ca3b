package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/iptables"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

func (c *command) apply() *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Bring the node to what its document asks for, once",
		Long: "Bring the node to what its document asks for, once, and ask the kernel how packets of pods go then.\n\n" +
			"Exit codes: 0 every peer is reached through the mesh; 1 one is not, or the document's priority would be without\n" +
			"effect; 2 that could not be told (tailscale0 does not exist yet, the pods' interface is not known), or an error.\n" +
			"What can be installed is installed even where its effect cannot be verified yet. A document that is refused\n" +
			"changes nothing; after an error amid the changes, those that were made stay, and another apply goes on from there.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unlock, err := c.acquire()
			if err != nil {
				return err
			}
			defer unlock()
			node := c.node()
			node.Compare = true
			return c.judge(cmd, node, node.Apply, c.printApplied)
		},
	}
}

func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how packets of pods go to each peer",
		Long: "Say how packets of pods go to each peer, whether anything is missing, what the firewall rules have taken, and what\n" +
			"the doctor finds in everybody's firewall rules.\n\n" +
			"Exit codes: 0 everything is in place and every peer is reached through the mesh; 1 not; 2 that could not be told.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node := c.node()
			look := func(ctx context.Context, p reconcile.Plan) (reconcile.Report, error) {
				report, err := node.Look(ctx, p)
				if err == nil {
					c.askDoctor(ctx, p.Document, &report)
				}
				return report, err
			}
			return c.judge(cmd, node, look, c.printStatus)
		},
	}
}

// askDoctor adds to a report what the doctor finds beyond the kernel's answer for a packet of a pod: what everybody's firewall
// rules drop, who takes its mark away, who else translates sources, and how pods answer to connections that peers begin.
func (c *command) askDoctor(ctx context.Context, doc config.Document, r *reconcile.Report) {
	options := doctor.Options{Kernel: c.env.Kernel, Files: c.env.Files, Socket: c.socket, Document: &doc}
	if slices.ContainsFunc(r.Notes, func(n desired.Note) bool { return n.Code == desired.NoteTailscaleAnswer }) {
		options.Socket = "" // it has been waited for
	}
	evidence, err := doctor.Gather(ctx, options)
	if err != nil {
		return // the report stands without it
	}
	for _, f := range doctor.Judge(evidence).Findings() {
		area, _, _ := strings.Cut(f.Code, ".")
		beyond := slices.Contains([]string{"firewall", "source", "connections", "peer-connections", "route"}, area) || f.Code == "return.firewall"
		if !beyond || f.Level == doctor.Unknown || f.Behind != "" {
			continue
		}
		news := area != "route" // which the kernel has told already, unless others' rules took the packet's mark
		names, addresses := setOf(f.Peers), setOf(f.Addresses)
		for i, p := range r.Peers {
			concerned := len(names) == 0 || names[p.Name]
			if len(addresses) > 0 {
				concerned = addresses[p.Address]
			}
			if f.Level == doctor.Fail && p.Verdict == reconcile.OK && concerned {
				r.Peers[i].Verdict, r.Peers[i].Why = reconcile.Wrong, f.Summary
				news = true
			}
		}
		if !news {
			continue
		}
		message := f.Summary
		if f.Fix != "" {
			message += ": " + f.Fix
		}
		r.Notes = append(r.Notes, desired.Note{Code: f.Code, Message: message})
	}
	dropped := legacyDrops(r)
	for _, t := range evidence.Legacy {
		if strings.HasSuffix(t.Name, "filter") && !dropped {
			r.Notes = append(r.Notes, desired.Note{Code: "firewall.legacy", Message: fmt.Sprintf("legacy iptables has %s, which is not followed: "+
				"whether packets of pods pass there, `tailmesh-agent doctor --probe` tells", t)})
		}
	}
}

// setOf makes a set of a list, of which there may be thousands.
func setOf[T comparable](list []T) map[T]bool {
	out := make(map[T]bool, len(list))
	for _, x := range list {
		out[x] = true
	}
	return out
}

// legacyDrops calls peers wrong to which iptables-legacy drops every packet, whatever other firewalls accept, as those are called
// to which nf_tables does, and says whether there are any.
func legacyDrops(r *reconcile.Report) (any bool) {
	for _, f := range desired.Families() {
		by, err := iptables.LegacyForwardDrops(f)
		if by == "" || err != nil { // the doctor says what cannot be read
			continue
		}
		tool := desired.IPTablesLegacy.Tool(f)
		for i, p := range r.Peers {
			if p.Verdict == reconcile.OK && desired.FamilyOf(p.Address) == f {
				r.Peers[i].Verdict, r.Peers[i].Why = reconcile.Wrong, fmt.Sprintf("%s drops packets of pods: %s", tool, by)
				any = true
			}
		}
		r.Notes = append(r.Notes, desired.Note{
			Code: "firewall.drops", Message: fmt.Sprintf("%s drops every packet that is forwarded, by %s, whatever other firewalls accept: "+
				"let it accept those between pods and %s (%s -S FORWARD shows it)", tool, by, desired.Interface, tool),
		})
	}
	return any
}

// judge does something with the plan for the node, and answers by the report of it.
func (c *command) judge(cmd *cobra.Command, node *reconcile.Node, do func(context.Context, reconcile.Plan) (reconcile.Report, error),
	print func(config.Document, reconcile.Report),
) error {
	plan, err := c.prepare(cmd.Context(), node)
	if err != nil {
		return err
	}
	report, err := do(cmd.Context(), plan)
	if err != nil {
		return err
	}
	switch report.Verdict() {
	case reconcile.OK:
		c.code = exitYes
	case reconcile.Wrong:
		c.code = exitNo
	default:
		c.code = exitUnknown
	}
	if c.json {
		report.Changes = listed(report.Changes)
		c.printJSON(reportJSON{newHeader(cmd.Name()), plan.Document.Mesh, plan.Document.Node.Name, report.Verdict(), report})
		return nil
	}
	c.printNotes(report.Notes)
	print(plan.Document, report)
	return nil
}

func (c *command) plan() *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Print what apply would do, and change nothing",
		Long: "Print what apply would do, and change nothing.\n\n" +
			"Exit codes, as of diff: 0 there is nothing to do; 1 there is; 2 trouble.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := c.prepare(cmd.Context(), c.node())
			if err != nil {
				return err
			}
			lines := plan.Changes.Lines()
			if len(lines) > 0 {
				c.code = exitNo
			}
			if c.json {
				c.printJSON(planJSON{
					newHeader(cmd.Name()), plan.Document.Mesh, plan.Document.Node.Name, listed(lines), plan.State.Notes, plan.State.Stranded,
				})
				return nil
			}
			c.printNotes(plan.State.Notes)
			c.printStranded(plan.State.Stranded)
			c.printChanges(lines)
			return nil
		},
	}
}

func (c *command) cleanup() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Take everything that the agent installed from the node",
		Long: "Take everything that the agent installed from the node, and nothing else. It needs no document.\n\n" +
			"Exit codes: 0 nothing of the agent's is left; 2 trouble.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unlock, err := c.acquire()
			if err != nil {
				return err
			}
			defer unlock()
			lines, err := c.node().Cleanup(cmd.Context())
			if err != nil {
				return err
			}
			if c.json {
				c.printJSON(cleanupJSON{newHeader(cmd.Name()), listed(lines)})
				return nil
			}
			c.printChanges(lines)
			return nil
		},
	}
}

func (c *command) validate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Judge a document, without looking at the node",
		Long:  "Judge a document, without looking at the node.\n\nExit codes: 0 it is valid; 1 it is not; 2 it could not be read.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := c.document(cmd.Context())
			invalid, ok := errors.AsType[*invalidDocument](err)
			if err != nil && !ok {
				return err
			}
			if ok {
				c.code = exitNo
			}
			if c.json {
				out := validity{header: newHeader(cmd.Name()), Valid: !ok, Stranded: desired.StrandedPeers(doc)}
				if problems, is := errors.AsType[*config.Error](err); is {
					out.Problems = problems.Problems
				}
				c.printJSON(out)
				return nil
			}
			if ok {
				fmt.Fprintf(c.env.Stderr, "tailmesh-agent: %v\n", invalid)
				return nil
			}
			c.printStranded(desired.StrandedPeers(doc))
			fmt.Fprintf(c.env.Stdout, "%s: valid: node %s of mesh %s, %s\n", c.config, doc.Node.Name, doc.Mesh, counted(len(doc.Peers), "peer"))
			return nil
		},
	}
}
