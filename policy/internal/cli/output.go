package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agext/levenshtein"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag/sarif"
)

// version opens every JSON document that the program writes. Keys may be added under one number; none is renamed or
// removed.
type version struct {
	SchemaVersion int `json:"schemaVersion"`
}

// v1 is the only version there has been.
var v1 = version{SchemaVersion: 1}

func writeJSON(w io.Writer, v any) error {
	enc := jsonEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonEncoder writes values a reader of which may be a terminal: what the package json leaves as it is, though it acts there,
// is escaped too.
func jsonEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(quietWriter{w})
	enc.SetEscapeHTML(false)
	return enc
}

// quietWriter escapes in JSON text, whole values at a time, what does not print: DEL, the controls above it, and what turns
// the direction of writing.
type quietWriter struct{ w io.Writer }

func (q quietWriter) Write(text []byte) (int, error) {
	acts := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(text, acts) < 0 {
		return q.w.Write(text)
	}
	var out []byte
	for _, r := range string(text) {
		switch {
		case !acts(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	_, err := q.w.Write(out)
	return len(text), err
}

func colors() []string  { return []string{"auto", "always", "never"} }
func formats() []string { return []string{"text", "short", "json", "github", "sarif"} }

// output says how a command prints.
type output struct {
	env    env
	format string
	all    bool
	// color and width are those of standard error, where findings go.
	color bool
	width int
}

// shownFindings is how many findings are printed for a person who did not ask for all.
const shownFindings = 10

// flags adds the flags of how to print; only those commands that report findings know more than text and JSON.
func (o *output) flags(cmd *cobra.Command, findings bool) {
	asJSON := false
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON, with a schemaVersion")
	if findings {
		cmd.Flags().StringVar(&o.format, "format", "text",
			"form of the findings: "+strings.Join(formats(), ", "))
		cmd.Flags().BoolVar(&o.all, "all", false, fmt.Sprintf("print all findings, not the first %d", shownFindings))
		must(cmd.RegisterFlagCompletionFunc("format",
			cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp)))
		cmd.MarkFlagsMutuallyExclusive("json", "format")
	}
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := o.resolve(cmd, asJSON); err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

func (o *output) resolve(cmd *cobra.Command, asJSON bool) error {
	o.format = cmp.Or(o.format, "text")
	if asJSON {
		o.format = "json"
	}
	if !slices.Contains(formats(), o.format) {
		return fmt.Errorf("--format %q is none of %s", o.format, strings.Join(formats(), ", "))
	}
	choice, err := cmd.Flags().GetString("color")
	if err != nil {
		return err
	}
	if !slices.Contains(colors(), choice) {
		return fmt.Errorf("--color %q is none of %s", choice, strings.Join(colors(), ", "))
	}
	isTerminal := false
	if f, ok := o.env.Stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		isTerminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.width = width
		}
	}
	o.color = choice == "always" || choice == "auto" && isTerminal && o.env.Getenv("NO_COLOR") == ""
	return nil
}

// findings prints findings in the form asked for, except for JSON, whose envelope is the command's. What is for people
// goes to standard error; what is for programs is the answer and goes to standard output.
func (o *output) findings(l diag.List, file string, src []byte) error {
	switch o.format {
	case "short":
		return diag.WriteShort(o.env.Stdout, l)
	case "github":
		return diag.WriteGitHub(o.env.Stdout, l, diag.Sources{file: src})
	case "sarif":
		return sarif.Write(o.env.Stdout, l, sarif.Tool{
			Name:    "tailmesh-policy",
			Version: programVersion(),
			URI:     "https://github.com/tailmesh/terraform-provider-tailmesh",
			About: func(code string) (sarif.Rule, bool) {
				p, ok := pageOf(code)
				return sarif.Rule{Title: p.title, Help: p.text()}, ok
			},
		})
	}
	opt := diag.TextOptions{Width: o.width, Color: o.color}
	if !o.all {
		opt.Max = shownFindings
	}
	return diag.WriteText(o.env.Stderr, l, diag.Sources{file: src}, opt)
}

// didYouMean is a question about the candidate next to a name, "" where none is near.
func didYouMean(name string, candidates []string) string {
	best, distance := "", max(2, len(name)/3)+1
	for _, c := range candidates {
		if d := levenshtein.Distance(name, c, nil); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}
