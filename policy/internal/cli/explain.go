package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newExplainCmd(e env) *cobra.Command {
	out := output{env: e}
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain a finding's code",
		Long: `explain tells about the code of a finding, such as unknown-tag: when it appears, why it matters and what to do.
Without a code it lists all.`,
		Example: `  tailmesh-policy explain
  tailmesh-policy explain requirement-unmet`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return codes(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return out.codes()
			}
			return out.page(args[0])
		},
	}
	out.flags(cmd, false)
	return cmd
}

// codes lists all codes, sorted.
func codes() []string {
	var out []string
	for _, p := range pages() {
		out = append(out, p.code)
	}
	slices.Sort(out)
	return out
}

func pageOf(code string) (page, bool) {
	for _, p := range pages() {
		if p.code == code {
			return p, true
		}
	}
	return page{}, false
}

// pageJSON is a page as a document.
type pageJSON struct {
	Code    string `json:"code"`
	Title   string `json:"title"`
	Trigger string `json:"trigger"`
	Why     string `json:"why"`
	Fix     string `json:"fix"`
}

func (p page) json() pageJSON {
	return pageJSON{Code: p.code, Title: p.title, Trigger: p.trigger, Why: p.why, Fix: p.fix}
}

// text is the page as a person reads it.
func (p page) text() string {
	return fmt.Sprintf("%s: %s\n\nWhen\n%s\n\nWhy\n%s\n\nFix\n%s\n", p.code, p.title,
		indent(p.trigger), indent(p.why), indent(p.fix))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

func (o *output) codes() error {
	if o.format == "json" {
		doc := struct {
			version
			Codes []pageJSON `json:"codes"`
		}{version: v1}
		for _, code := range codes() {
			p, _ := pageOf(code)
			doc.Codes = append(doc.Codes, p.json())
		}
		return writeJSON(o.env.Stdout, doc)
	}
	width := 0
	for _, code := range codes() {
		width = max(width, len(code))
	}
	for _, code := range codes() {
		p, _ := pageOf(code)
		fmt.Fprintf(o.env.Stdout, "%-*s  %s\n", width, code, p.title)
	}
	return nil
}

func (o *output) page(code string) error {
	p, ok := pageOf(code)
	switch {
	case !ok:
		return fmt.Errorf("no code %q%s (without a code, explain lists all)", code, didYouMean(code, codes()))
	case o.format == "json":
		return writeJSON(o.env.Stdout, struct {
			version
			pageJSON
		}{v1, p.json()})
	}
	fmt.Fprint(o.env.Stdout, p.text())
	return nil
}
