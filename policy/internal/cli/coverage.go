package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/coverage"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// coverageOptions are the flags of the command test that ask what the tests prove.
type coverageOptions struct {
	measured bool
	suggest  bool
	write    bool
}

// covered is what the tests prove.
type covered struct {
	*coverage.Result
	Percent     int                   `json:"percent"` // of the rules
	Suggestions []coverage.Suggestion `json:"suggestions,omitempty"`
}

func (c *coverageOptions) validate(out *output, file string) error {
	switch {
	case c.write && !c.suggest:
		return errors.New("-w goes with --suggest")
	case c.write && file == stdinName:
		return errors.New("-w cannot rewrite standard input")
	case (c.measured || c.suggest) && out.format != "text" && out.format != "json":
		return fmt.Errorf("--coverage and --suggest print text or, with --json, JSON, not --format %s", out.format)
	}
	return nil
}

// measure finds what was asked for; nil where nothing was.
func (c *coverageOptions) measure(report *policy.Report, l *loaded) (*covered, error) {
	if !c.measured && !c.suggest {
		return nil, nil
	}
	res, err := coverage.Measure(report)
	if err != nil {
		return nil, err
	}
	out := &covered{Result: res, Percent: coverage.Percent(res.Rules)}
	if c.suggest {
		out.Suggestions = coverage.Suggest(report, res, l.inventory)
	}
	return out, nil
}

// save writes what was suggested into the file, where that was asked for, and counts it. It comes before anything is
// printed, which is true only of a file that has been written.
func (c *coverageOptions) save(l *loaded, report *policy.Report, found *covered) (added int, err error) {
	if !c.write {
		return 0, nil
	}
	text, added, err := withSuggestions(l, report, found.Suggestions)
	if err != nil || added == 0 {
		return 0, err
	}
	if err := rewrite(l.file, text); err != nil {
		return 0, fmt.Errorf("cannot write %q: %w", l.file, withoutPath(err))
	}
	return added, nil
}

// report prints it, and how many tests were added.
func (c *coverageOptions) report(out *output, l *loaded, found *covered, added int) {
	if found == nil {
		return
	}
	if out.format == "text" {
		if c.measured {
			out.coverage(l, found)
		}
		if c.suggest {
			out.suggestions(found.Suggestions)
		}
	}
	if c.write {
		printLine(out.env.Stderr, "%s: added %d tests", l.file, added)
	}
}

// coverage prints a table: what proves each rule, and what is not proved of those that are.
func (o *output) coverage(l *loaded, found *covered) {
	w := o.env.Stdout
	width := 0
	for _, u := range found.Rules {
		width = max(width, len(u.Path))
	}
	fmt.Fprintln(w, "\ncoverage")
	for _, u := range found.Rules {
		word, by := "no", ""
		switch {
		case u.Proved():
			word, by = "yes", "by "+few(u.ProvedBy)
		case len(u.SharedBy) > 0:
			by = "others admit it too: " + few(u.SharedBy)
		}
		line := fmt.Sprintf("%-3s  %-*s  %s  %s", word, width, u.Path, position(l.file, u.Range), by)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		if !u.Proved() {
			continue // its parts are not either
		}
		for _, p := range found.Parts {
			if strings.HasPrefix(p.Path, u.Path+".") && !p.Proved() {
				fmt.Fprintf(w, "     %-*s  %s  %s\n", width, "", position(l.file, p.Range), "without "+diag.Printable(fmt.Sprintf("%q", p.Text))+" every test would pass")
			}
		}
	}
	fmt.Fprintf(w, "\n%s\n", join(", ", share("rules proved", found.Rules), share("parts", found.Parts)))
}

// share says how many units are proved, and nothing where there are none: no rules are not all of them.
func share(what string, units []coverage.Unit) string {
	switch {
	case len(units) > 0:
		return fmt.Sprintf("%d of %d %s (%d %%)", coverage.Proved(units), len(units), what, coverage.Percent(units))
	case what == "rules proved":
		return "no rules"
	}
	return ""
}

// few names some paths.
func few(paths []string) string {
	const shown = 3
	if len(paths) <= shown {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:shown], ", "), len(paths)-shown)
}

// suggestions prints entries for each section, and then those rules for which there are none.
func (o *output) suggestions(list []coverage.Suggestion) {
	w := o.env.Stdout
	for _, section := range []string{"tests", "sshTests"} {
		printed := false
		for _, s := range list {
			if s.Section != section || s.Entry == "" {
				continue
			}
			if !printed {
				fmt.Fprintf(w, "\nto add to %q:\n", section)
				printed = true
			}
			fmt.Fprintf(w, "\t%s, // %s\n", diag.Printable(s.Entry), s.Rule)
		}
	}
	for _, s := range list {
		if s.Entry == "" {
			fmt.Fprintf(w, "\nno test for %s: %s", s.Rule, s.Reason)
		}
	}
	if len(list) == 0 {
		fmt.Fprint(w, "\nevery rule is proved: nothing to suggest")
	}
	fmt.Fprintln(w)
}

// withSuggestions is the policy with the tests in it, once it is seen that the control plane would take them.
func withSuggestions(l *loaded, report *policy.Report, list []coverage.Suggestion) (text []byte, added int, err error) {
	var edits []diag.Edit
	for _, section := range []string{"tests", "sshTests"} {
		var entries []string
		for _, s := range list {
			if s.Section == section && s.Entry != "" {
				entries = append(entries, s.Entry)
			}
		}
		made := report.Policy.AddTests(section, entries)
		if len(entries) > 0 && len(made) == 0 {
			return nil, 0, fmt.Errorf("%s: %s is no list that tests could be added to", l.file, section)
		}
		edits, added = append(edits, made...), added+len(entries)
	}
	if text, err = diag.Apply(l.src, edits); err != nil {
		return nil, 0, err
	}
	before := newTally(report)
	after := policy.Check(l.file, text, l.inventory, nil)
	if t := newTally(after); after.Compiled == nil || t.Failed > before.Failed {
		return nil, 0, fmt.Errorf("%s: nothing was written: with these tests it would be %s", l.file, verdictLine(after))
	}
	return text, added, nil
}
