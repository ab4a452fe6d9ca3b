package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/reconcile"
)

// schemaVersion is the version of the JSON output. Additions do not change it.
const schemaVersion = 1

type header struct {
	SchemaVersion int    `json:"schemaVersion"`
	Command       string `json:"command"`
}

func newHeader(command string) header { return header{SchemaVersion: schemaVersion, Command: command} }

type failure struct {
	header
	Error    string           `json:"error"`
	Changes  []string         `json:"changes,omitempty"` // that cleanup made all the same
	Problems []config.Problem `json:"problems,omitempty"`
}

type validity struct {
	header
	Valid    bool               `json:"valid"`
	Problems []config.Problem   `json:"problems,omitempty"`
	Stranded []desired.Stranded `json:"stranded,omitempty"`
}

type reportJSON struct {
	header
	Mesh    string            `json:"mesh"`
	Node    string            `json:"node"`
	Verdict reconcile.Verdict `json:"verdict"`
	reconcile.Report
}

type planJSON struct {
	header
	Mesh     string             `json:"mesh"`
	Node     string             `json:"node"`
	Changes  []string           `json:"changes"`
	Notes    []desired.Note     `json:"notes,omitempty"`
	Stranded []desired.Stranded `json:"stranded,omitempty"`
}

type cleanupJSON struct {
	header
	Changes []string `json:"changes"`
}

func (c *command) printJSON(v any) {
	enc := json.NewEncoder(c.env.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error of writing stays in the answerWriter
}

// answerWriter remembers the first error of writing.
type answerWriter struct {
	w   io.Writer
	err error
}

func (a *answerWriter) Write(p []byte) (int, error) {
	if a.err == nil {
		_, a.err = a.w.Write(p)
	}
	return len(p), nil
}

func (c *command) printApplied(_ config.Document, r reconcile.Report) {
	printLines(c.env.Stdout, r.Changes)
	for _, line := range r.Pending {
		fmt.Fprintf(c.env.Stdout, "did not hold: %s\n", line)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(c.env.Stdout, "connections of pods to peers that had kept their own source, made to begin anew: %d\n", r.Dropped)
	}
	if len(r.Changes) == 0 {
		if r.Dropped == 0 {
			fmt.Fprintln(c.env.Stdout, "nothing to do")
		}
		if r.Verdict() == reconcile.OK {
			return
		}
	}
	w := tabwriter.NewWriter(c.env.Stdout, 0, 0, 2, ' ', 0)
	for _, p := range r.Peers {
		fmt.Fprintf(w, "peer %s %s\tbefore %s\tafter %s\t%s\n", p.Name, p.Address, p.Before, p.After, verdict(p))
	}
	w.Flush()
}

func (c *command) printStatus(doc config.Document, r reconcile.Report) {
	firewall := ""
	if r.Firewall != "" {
		firewall = "  firewall " + string(r.Firewall)
	}
	fmt.Fprintf(c.env.Stdout, "mesh %s  node %s%s  %s\n", doc.Mesh, doc.Node.Name, firewall, r.Verdict())
	printSection(c.env.Stdout, "PENDING", r.Pending)
	if len(r.Peers) > 0 {
		w := tabwriter.NewWriter(c.env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nPEER\tADDRESS\tPACKETS OF PODS GO\tVERDICT")
		for _, p := range r.Peers {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.Address, p.After, verdict(p))
		}
		w.Flush()
	}
	if len(r.Counters) > 0 {
		w := tabwriter.NewWriter(c.env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\nFIREWALL RULE\tPACKETS\tBYTES")
		for _, comment := range slices.Sorted(maps.Keys(r.Counters)) {
			fmt.Fprintf(w, "%s\t%d\t%d\n", comment, r.Counters[comment].Packets, r.Counters[comment].Bytes)
		}
		w.Flush()
	}
}

func (c *command) printChanges(lines []string) {
	if len(lines) == 0 {
		fmt.Fprintln(c.env.Stdout, "nothing to do")
		return
	}
	printLines(c.env.Stdout, lines)
}

func (c *command) printNotes(notes []desired.Note) {
	for _, n := range notes {
		fmt.Fprintf(c.env.Stderr, "note: %s\n", n.Message)
	}
}

func (c *command) printStranded(peers []desired.Stranded) {
	for _, p := range peers {
		fmt.Fprintf(c.env.Stderr, "note: %s\n", p)
	}
}

func printLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

func printSection(w io.Writer, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", title)
		printLines(w, lines)
	}
}

func verdict(p reconcile.Peer) string {
	if p.Why == "" {
		return string(p.Verdict)
	}
	return string(p.Verdict) + ": " + p.Why
}

// listed makes an empty list out of none, for JSON.
func listed(lines []string) []string {
	if lines == nil {
		return []string{}
	}
	return lines
}

// counted is a number of things, in English.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
