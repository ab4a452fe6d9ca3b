package accessdiff

import (
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// defaultRule names what a policy without any rules does.
const defaultRule = "default"

// cause finds the edit that is behind what a rule gives or gave.
func (f *folder) cause(b bundle) Cause {
	r := f.causes[b.cause]
	c := Cause{Rule: r.path, File: r.side.name, Range: r.node.Range}
	if r.path == "" {
		c.Rule = defaultRule
		c.Text = "neither acls nor grants are left, which allows everything"
		if r.side == f.sides[0] {
			c.Text = "acls or grants added to a policy that had neither, which allowed everything"
		}
		c.Range = diag.Range{}
		f.useAll("acls", "grants")
		return c
	}
	byPath := f.edits.byNew
	if r.side == f.sides[0] {
		byPath = f.edits.byOld
	}
	var texts []string
	d := byPath[r.path]
	if d != nil && d.changed() {
		d.used = true
		texts = append(texts, d.String())
	}
	// An edited definition is the cause where the rule itself was in both policies.
	for _, def := range f.definitions(r) {
		def.used = true
		if d == nil || d.old != nil && d.new != nil {
			texts = append(texts, def.String())
		}
	}
	c.Text = strings.Join(texts, ", ")
	if c.Text == "" {
		c.Text = r.path
		if b.kind == SSH && b.lost {
			c.Text += ": now behind a rule that checks"
		} else if b.kind == SSH {
			c.Text += ": no longer behind a rule that checks"
		}
	} else if d == nil || !d.changed() {
		c.Text = r.path + ": " + c.Text
	}
	return c
}

// useAll takes all edits of some sections for accounted for.
func (f *folder) useAll(sections ...string) {
	for _, d := range f.edits.list {
		if slices.Contains(sections, sectionOf(d)) {
			d.used = true
		}
	}
}

func sectionOf(d *edit) string {
	if d.new != nil {
		return d.new.section
	}
	return d.old.section
}

// definitions lists the edited definitions that a rule depends on.
func (f *folder) definitions(r cause) []*edit {
	names, other := r.side.names[r.path], f.counterpart(r)
	var out []*edit
	seen := map[string]bool{}
	var follow func(path string)
	take := func(d *edit) {
		if d.changed() && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	follow = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		for _, d := range []*edit{f.edits.byNew[path], f.edits.byOld[path]} {
			if d == nil {
				continue
			}
			take(d)
			for _, it := range []*item{d.old, d.new} {
				if it == nil || it.section != "ipsets" {
					continue
				}
				for _, v := range it.fields[0].values {
					_, name, ok := strings.Cut(v, " ")
					if !ok {
						name = v
					}
					follow(keyed("ipsets", name))
					follow(keyed("hosts", policy.HostName(name)))
				}
			}
		}
	}
	for _, name := range slices.Concat(names.src, names.dst, other.src, other.dst) {
		for _, section := range []string{"groups", "hosts", "ipsets"} {
			follow(keyed(section, policy.HostName(name)))
		}
	}
	postures := slices.Concat(names.postures, other.postures)
	if len(names.postures) == 0 || len(other.postures) == 0 {
		follow("defaultSrcPosture")
		for _, s := range f.sides {
			postures = append(postures, s.report.Policy.DefaultSrcPosture.Values()...)
		}
	}
	for _, name := range postures {
		follow(keyed("postures", name))
	}
	return out
}

// unused lists the edits that are the cause of no change; differs says whether there is any.
func (f *folder) unused(differs bool) []Edit {
	lands := [2]map[string]bool{f.landing(0), f.landing(1)}
	var out []Edit
	for _, d := range f.edits.list {
		if !d.changed() || d.used {
			continue
		}
		what := d.what()
		section := sectionOf(d)
		if section == "grants" || section == "acls" || section == "ssh" {
			switch {
			case d.old == nil && !lands[1][d.new.path]:
				what += ": it reaches no device of the inventory"
			case d.old == nil:
				what += ": it lets nothing through that was not before"
			case d.new == nil && !lands[0][d.old.path]:
				what += ": it reached no device of the inventory"
			case d.new == nil:
				what += ": what it let through others still do"
			}
		}
		out = append(out, Edit{Path: d.path(), What: what})
	}
	for _, section := range f.edits.order {
		out = append(out, Edit{Path: section, What: "in another order"})
	}
	if !differs && len(out) == 0 && !slices.ContainsFunc(f.edits.list, (*edit).changed) {
		if string(f.sides[0].report.Policy.Source()) != string(f.sides[1].report.Policy.Source()) {
			out = append(out, Edit{Path: "text", What: "comments, layout or the order of keys only"})
		}
	}
	return out
}

// landing are the paths of a side's rules that let anything through from anybody.
func (f *folder) landing(i int) map[string]bool {
	s := f.sides[i]
	out := map[string]bool{}
	mark := func(l landing) {
		p := s.pieces[l.piece]
		if !p.src.sure.empty() || len(p.src.unknown) > 0 {
			out[f.causes[p.cause].path] = true
		}
	}
	for _, list := range s.landings {
		for _, l := range list {
			mark(l)
		}
	}
	for _, list := range s.unplaced {
		for _, l := range list {
			mark(l)
		}
	}
	return out
}
