package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/renameio/v2/maybe"
	"github.com/spf13/cobra"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/doctor/page"
)

func (c *command) doctor() *cobra.Command {
	var options doctor.Options
	var report reportFlags
	var verbose bool
	var state string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why packets between pods and peers do not go as they should",
		Long: "Find out why packets between pods and peers do not go as they should, and say by what each finding was seen and\n" +
			"what that cannot show. Nothing on the node is changed. Without root there is less to see.\n\n" +
			"--probe also sends a few echo requests to each peer, as a pod would: from a temporary namespace at the pods'\n" +
			"bridge, which is gone afterwards. A ping from the host proves nothing for them: it is not forwarded.\n\n" +
			"--pod ADDRESS looks at the packets of one pod, of which the firewall may know more than of others: NetworkPolicies.\n" +
			"What it does not look at: names (DNS), and services and their endpoints. Where a peer's address answers and a name\n" +
			"or a ClusterIP does not, look there.\n\n" +
			"--report also writes an HTML page with all of it and what was gathered, for a ticket or a colleague; a FILE that\n" +
			"ends in .txt gets the text alone. --redact replaces addresses, and the names that the document and tailscaled tell,\n" +
			"each by the same one everywhere; other words, such as comments of firewall rules, stay: read it before you hand it on.\n\n" +
			"Exit codes: 0 nothing found (warnings do not count); 1 a cause was found; 2 it could not be told.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Watch < 0 {
				return fmt.Errorf("--watch %v: want a time to watch for, as in 10s", options.Watch)
			}
			doc, err := c.document(cmd.Context())
			if err == nil {
				options.Document = &doc
			} else {
				options.DocumentErr = err.Error()
			}
			options.Kernel, options.Files, options.Socket = c.env.Kernel, c.env.Files, c.socket
			options.Admissions = readAdmissions(state)
			evidence, err := doctor.Gather(cmd.Context(), options)
			if err != nil {
				return err
			}
			found, gathered := doctor.Judge(evidence), doctor.Gathered(evidence)
			if report.redact {
				redactor := doctor.NewRedactor(evidence)
				found, gathered = redactor.Report(found), redactor.Sections(gathered)
			}
			switch found.Verdict {
			case doctor.VerdictOK:
				c.code = exitYes
			case doctor.VerdictWrong:
				c.code = exitNo
			default:
				c.code = exitUnknown
			}
			if c.json {
				c.printJSON(doctorJSON{newHeader(cmd.Name()), found})
			} else {
				printDoctor(c.env.Stdout, found, verbose)
			}
			return report.write(found, gathered)
		},
	}
	cmd.Flags().BoolVar(&options.Probe, "probe", false, "send echo requests to the peers as a pod would")
	cmd.Flags().TextVar(&options.Pod, "pod", netip.Addr{}, "judge the packets of the pod with this address, its NetworkPolicies included")
	cmd.MarkFlagsMutuallyExclusive("pod", "probe") // a probe has an address of its own
	cmd.Flags().DurationVar(&options.Watch, "watch", 0, "how long to watch for policy rules that come and go, as in 10s")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show what was found right, too")
	cmd.Flags().StringVar(&report.file, "report", "", "write a page, or with a name that ends in .txt the text, to this file")
	cmd.Flags().BoolVar(&report.redact, "redact", false, "replace addresses and known names in what is printed and written")
	stateFlag(cmd, &state)
	cmd.AddCommand(c.merge())
	return cmd
}

// reportFlags say where a report goes that others read.
type reportFlags struct {
	file   string
	redact bool
}

// write writes the report whole or not at all.
func (r *reportFlags) write(found doctor.Report, gathered []doctor.Section) error {
	if r.file == "" {
		return nil
	}
	var text, out bytes.Buffer
	printDoctor(printable{&text}, found, true)
	if strings.HasSuffix(r.file, ".txt") {
		out = text
	} else {
		err := page.Write(printable{&out}, page.Page{
			Report: found, Gathered: gathered, Text: text.String(), Version: version(), Made: time.Now().UTC(), Redacted: r.redact,
		})
		if err != nil {
			return err
		}
	}
	if err := maybe.WriteFile(r.file, out.Bytes(), 0o600); err != nil {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err // without the name of the file that was to take its place
		} else if link, ok := errors.AsType[*os.LinkError](err); ok {
			err = link.Err
		}
		return fmt.Errorf("cannot write %q: %w", r.file, err)
	}
	return nil
}

type doctorJSON struct {
	header
	doctor.Report
}

// printDoctor prints a report: a line for each check that has something to say, and under it what, why and what to do.
func printDoctor(w io.Writer, r doctor.Report, verbose bool) {
	if r.Node != "" {
		fmt.Fprintf(w, "node %s   mesh %s\n\n", r.Node, r.Mesh)
	}
	counts := map[doctor.Status]int{}
	for _, result := range r.Results {
		counts[result.Status]++
		if len(result.Findings) == 0 {
			quiet := result.Status == doctor.StatusOK || result.Status == doctor.StatusSkipped
			if verbose || !quiet {
				fmt.Fprintf(w, "%-8s  %-16s  %s\n", word(result.Status), result.Check, result.Detail)
			}
			continue
		}
		for _, f := range result.Findings {
			printFinding(w, result.Check, f)
		}
		if result.Detail != "" && verbose {
			fmt.Fprintf(w, "%-8s  %-16s  %s\n", "", "", result.Detail)
		}
	}
	if r.Verdict == doctor.VerdictOK && len(r.Findings()) == 0 {
		fmt.Fprintln(w, "nothing was found that keeps packets from going as they should")
	}
	if r.First != "" {
		fmt.Fprintf(w, "\nfirst to fix: %s\n", r.First)
	}
	for _, q := range r.Limits {
		fmt.Fprintf(w, "\nnot visible from here: %s\n  on %s: %s\n", q.Why, q.On, q.Command)
	}
	fmt.Fprintf(w, "\n%s: %s\n", r.Verdict, checksText(counts))
}

func word(s doctor.Status) string {
	switch s {
	case doctor.StatusFail:
		return "FAIL"
	case doctor.StatusSkipped:
		return "skip"
	}
	return string(s)
}

func printFinding(w io.Writer, check string, f doctor.Finding) {
	about := check
	if len(f.Peers) > 0 {
		about += " " + strings.Join(f.Peers, ",")
	}
	fmt.Fprintf(w, "%-8s  %-16s  %s\n", word(doctor.Status(f.Level)), about, f.Summary)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(key, text string) {
		if text != "" {
			fmt.Fprintf(t, "          %s\t%s\n", key, text)
		}
	}
	line("code", f.Code)
	if len(f.Addresses) > 0 {
		line("to", strings.Trim(fmt.Sprint(f.Addresses[:min(len(f.Addresses), 8)]), "[]"))
	}
	for _, e := range f.Evidence {
		line("seen", e.What+" ["+e.How+"]")
	}
	if f.Cause != f.Summary {
		line("cause", f.Cause)
	}
	line("unseen", f.Blind)
	line("fix", f.Fix)
	for _, q := range f.Remote {
		line("ask", fmt.Sprintf("on %s: %s (%s)", q.On, q.Command, q.Why))
	}
	if f.Behind != "" {
		line("behind", f.Behind+": whether this has its effect cannot be tested until that is fixed")
	}
	t.Flush()
}

func checksText(counts map[doctor.Status]int) string {
	var words []string
	for _, s := range []struct {
		status doctor.Status
		name   string
	}{
		{doctor.StatusOK, "ok"},
		{doctor.StatusWarn, "with warnings"},
		{doctor.StatusFail, "failed"},
		{doctor.StatusUnknown, "unknown"},
		{doctor.StatusUntested, "not testable yet"},
		{doctor.StatusSkipped, "skipped"},
	} {
		if n := counts[s.status]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s.name))
		}
	}
	return strings.Join(words, ", ")
}
