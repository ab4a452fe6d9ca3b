package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

func (c *command) apply() *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Bring the node to what its document asks for, once",
		Long: "Bring the node to what its document asks for, once, and ask the kernel how packets of pods go then.\n\n" +
			"Exit codes: 0 every peer is reached through the mesh; 1 one is not; 2 that could not be told (tailscale0 does\n" +
			"not exist yet, the pods' interface is not known), or nothing was changed because of an error. What can be\n" +
			"installed is installed even where its effect cannot be verified yet.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unlock, err := c.acquire()
			if err != nil {
				return err
			}
			defer unlock()
			node := c.node()
			node.Compare = true
			plan, err := c.prepare(cmd.Context(), node)
			if err != nil {
				return err
			}
			report, err := node.Apply(cmd.Context(), plan)
			if err != nil {
				return err
			}
			c.answer(report.Verdict())
			c.printReport(cmd.Name(), plan.Document, report)
			return nil
		},
	}
}

func (c *command) plan() *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Print what apply would do, and change nothing",
		Long: "Print what apply would do, and change nothing.\n\n" +
			"Exit codes, as of diff: 0 there is nothing to do; 1 there is; 2 trouble.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node := c.node()
			plan, err := c.prepare(cmd.Context(), node)
			if err != nil {
				return err
			}
			if !plan.Changes.Empty() {
				c.code = exitNo
			}
			c.printPlan(cmd.Name(), plan)
			return nil
		},
	}
}

func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how packets of pods go to each peer",
		Long: "Say how packets of pods go to each peer, whether anything is missing, and what the firewall rules have taken.\n\n" +
			"Exit codes: 0 everything is in place and every peer is reached through the mesh; 1 not; 2 that could not be told.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node := c.node()
			plan, err := c.prepare(cmd.Context(), node)
			if err != nil {
				return err
			}
			report, err := node.Look(cmd.Context(), plan)
			if err != nil {
				return err
			}
			c.answer(report.Verdict())
			c.printStatus(cmd.Name(), plan.Document, report)
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
		Args: cobra.NoArgs,
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
			c.printCleanup(cmd.Name(), lines)
			return nil
		},
	}
}

func (c *command) validate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Judge a document, without looking at the node",
		Long:  "Judge a document, without looking at the node.\n\nExit codes: 0 it is valid; 1 it is not; 2 it could not be read.",
		Args:  cobra.NoArgs,
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
				out := validity{header: newHeader(cmd.Name()), Valid: !ok}
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
			fmt.Fprintf(c.env.Stdout, "%s: valid: node %s of mesh %s, %d peers\n", c.config, doc.Node.Name, doc.Mesh, len(doc.Peers))
			return nil
		},
	}
}
