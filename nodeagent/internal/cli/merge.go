package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
)

func (c *command) merge() *cobra.Command {
	return &cobra.Command{
		Use:   "merge FILE...",
		Short: "Put what `doctor --json` said on several nodes together",
		Long: "Put what `doctor --json` said on several nodes together, one file per node: each direction between two nodes is\n" +
			"judged by its sender for the way out and by its receiver for the packet filter, which the sender cannot see.\n\n" +
			"Exit codes: 0 every direction is right; 1 one is not; 2 one could not be told, or a file is not such a report.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports []doctor.Report
			for _, path := range args {
				r, err := readReport(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			directions, err := doctor.Merge(reports)
			if err != nil {
				return err
			}
			c.code = exitYes
			for _, d := range directions {
				switch {
				case d.Verdict == doctor.VerdictWrong:
					c.code = exitNo
				case d.Verdict == doctor.VerdictUnknown && c.code == exitYes:
					c.code = exitUnknown
				}
			}
			if c.json {
				c.printJSON(mergeJSON{newHeader("doctor merge"), directions})
				return nil
			}
			w := tabwriter.NewWriter(c.env.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FROM\tTO\tVERDICT\tWHY")
			for _, d := range directions {
				why := strings.Join(d.Causes, "; ")
				if len(d.Missing) > 0 {
					why = strings.TrimPrefix(why+"; no report of "+strings.Join(d.Missing, ", "), "; ")
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.From, d.To, d.Verdict, why)
			}
			return w.Flush()
		},
	}
}

type mergeJSON struct {
	header
	Directions []doctor.Direction `json:"directions"`
}

func readReport(path string) (doctor.Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return doctor.Report{}, err
	}
	var r doctorJSON
	if err := json.Unmarshal(data, &r); err != nil {
		return doctor.Report{}, fmt.Errorf("%q: not what `tailmesh-agent doctor --json` prints: %w", path, err)
	}
	if r.Command != "doctor" || r.SchemaVersion != schemaVersion {
		return doctor.Report{}, fmt.Errorf("%q: not what `tailmesh-agent doctor --json` of this version prints: command %q, schemaVersion %d",
			path, r.Command, r.SchemaVersion)
	}
	return r.Report, nil
}
