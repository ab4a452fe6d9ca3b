package accessdiff

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
)

// item is a part of a policy that is compared as a whole: a rule, or a definition with a name.
type item struct {
	section string
	path    string
	key     string // name of a definition, "" for a rule
	fields  []field
	text    string // all of it
}

// field is one key of an item and its values as text.
type field struct {
	name   string
	values []string
}

// edit is how an item of one policy became one of the other.
type edit struct {
	old, new *item // nil for one that was added or removed
	used     bool  // it is the cause of a change
}

// edits relates the items of two policies.
type edits struct {
	list  []*edit
	byOld map[string]*edit // by path
	byNew map[string]*edit
	order []string // sections whose rules are in another order
}

func compareItems(old, new *policy.Policy) *edits {
	e := &edits{byOld: map[string]*edit{}, byNew: map[string]*edit{}}
	a, b := itemsOf(old), itemsOf(new)
	for _, section := range slices.Concat(ruleSections(), slices.Sorted(maps.Keys(definitions(a, b)))) {
		in := func(all []*item) []*item {
			var out []*item
			for _, it := range all {
				if it.section == section {
					out = append(out, it)
				}
			}
			return out
		}
		e.pair(section, in(a), in(b))
	}
	return e
}

func ruleSections() []string {
	return []string{"grants", "acls", "ssh", "nodeAttrs", "tests", "sshTests"}
}

func definitions(lists ...[]*item) map[string]bool {
	out := map[string]bool{}
	for _, l := range lists {
		for _, it := range l {
			if !slices.Contains(ruleSections(), it.section) {
				out[it.section] = true
			}
		}
	}
	return out
}

// pair finds which item became which: one with the same name or text, else one that kept most of what it says.
func (e *edits) pair(section string, old, new []*item) {
	from := map[*item]*item{} // of the new
	to := map[*item]*item{}   // of the old
	take := func(o, n *item) { from[n], to[o] = o, n }
	name := func(it *item) string {
		if it.key != "" {
			return it.key
		}
		return it.text
	}
	waiting := map[string][]*item{}
	for _, o := range old {
		waiting[name(o)] = append(waiting[name(o)], o)
	}
	for _, n := range new {
		if l := waiting[name(n)]; len(l) > 0 {
			take(l[0], n)
			waiting[name(n)] = l[1:]
		}
	}
	// Two things in common make a rule the same one wherever it is, one thing only between the same neighbours.
	e.near(old, new, from, to, 2, func(*item) *item { return nil })
	before := neighbours(old, new, from, to)
	e.near(old, new, from, to, 1, func(it *item) *item { return before[it] })
	last, moved := -1, false
	place := make(map[*item]int, len(old))
	for i, o := range old {
		place[o] = i
	}
	for _, n := range new {
		o := from[n]
		e.put(&edit{old: o, new: n})
		if o != nil && n.key == "" {
			moved = moved || place[o] < last
			last = max(last, place[o])
		}
	}
	for _, o := range old {
		if to[o] == nil {
			e.put(&edit{old: o})
		}
	}
	if moved {
		e.order = append(e.order, section)
	}
}

// near pairs rules that have as many fields in common, and the same value of where.
func (e *edits) near(old, new []*item, from, to map[*item]*item, fields int, where func(*item) *item) {
	type likeness struct {
		text  string
		where *item
	}
	waiting := map[likeness][]*item{}
	for _, o := range old {
		if to[o] == nil && o.key == "" {
			for _, t := range o.likeness(fields) {
				k := likeness{t, where(o)}
				waiting[k] = append(waiting[k], o)
			}
		}
	}
	for _, n := range new {
		if from[n] != nil || n.key != "" {
			continue
		}
		for _, t := range n.likeness(fields) {
			k := likeness{t, where(n)}
			l := waiting[k]
			for len(l) > 0 && to[l[0]] != nil {
				l = l[1:]
			}
			waiting[k] = l
			if len(l) > 0 {
				from[n], to[l[0]] = l[0], n
				break
			}
		}
	}
}

// neighbours gives each rule the old one of the nearest pair in front of it.
func neighbours(old, new []*item, from, to map[*item]*item) map[*item]*item {
	out := map[*item]*item{}
	var last *item
	for _, o := range old {
		out[o] = last
		if to[o] != nil {
			last = o
		}
	}
	last = nil
	for _, n := range new {
		out[n] = last
		if from[n] != nil {
			last = from[n]
		}
	}
	return out
}

func (e *edits) put(d *edit) {
	if d.old != nil {
		e.byOld[d.old.path] = d
	}
	if d.new != nil {
		e.byNew[d.new.path] = d
	}
	e.list = append(e.list, d)
}

// likeness are texts of n fields that say something; two rules that share one are the same rule, edited.
func (it *item) likeness(n int) []string {
	var said []string
	for _, f := range it.fields {
		if len(f.values) > 0 && f.name != "action" {
			said = append(said, f.name+"\x00"+strings.Join(f.values, "\x00"))
		}
	}
	if n == 1 {
		// One field alone must be about who or what, not about how.
		return slices.DeleteFunc(said, func(s string) bool {
			name, _, _ := strings.Cut(s, "\x00")
			return !slices.Contains([]string{"src", "dst", "target", "attr"}, name)
		})
	}
	var out []string
	for i := range said {
		for j := i + 1; j < len(said); j++ {
			out = append(out, said[i]+"\x01"+said[j])
		}
	}
	return out
}

func itemsOf(p *policy.Policy) []*item {
	var out []*item
	add := func(section, path, key string, fields ...field) {
		it := &item{section: section, path: path, key: key, fields: fields}
		var b strings.Builder
		for _, f := range fields {
			if len(f.values) > 0 {
				b.WriteString(f.name + "\x00" + strings.Join(f.values, "\x00") + "\x01")
			}
		}
		it.text = b.String()
		out = append(out, it)
	}
	set := func(name string, s policy.Strings) field { return field{name, s.Values()} }
	one := func(name string, s policy.String) field {
		if s.Value == "" {
			return field{name: name}
		}
		return field{name, []string{s.Value}}
	}
	flag := func(name string, b policy.Bool) field {
		if !b.Present {
			return field{name: name}
		}
		return field{name, []string{strconv.FormatBool(b.Value)}}
	}
	for i := range p.Grants {
		g := &p.Grants[i]
		add("grants", g.Path, "", set("src", g.Src), set("dst", g.Dst), set("ip", g.IP), set("via", g.Via), set("srcPosture", g.SrcPosture), apps(g.App))
	}
	for i := range p.ACLs {
		a := &p.ACLs[i]
		add("acls", a.Path, "", one("action", a.Action), one("proto", a.Proto), set("src", a.Src), set("dst", a.Dst), set("srcPosture", a.SrcPosture))
	}
	for i := range p.SSH {
		s := &p.SSH[i]
		add("ssh", s.Path, "", one("action", s.Action), set("src", s.Src), set("dst", s.Dst), set("users", s.Users), one("checkPeriod", s.CheckPeriod),
			set("acceptEnv", s.AcceptEnv), set("srcPosture", s.SrcPosture), set("recorder", s.Recorder), flag("enforceRecorder", s.EnforceRecorder))
	}
	for i := range p.NodeAttrs {
		n := &p.NodeAttrs[i]
		add("nodeAttrs", n.Path, "", set("target", n.Target), set("attr", n.Attr), set("ipPool", n.IPPool), apps(n.App))
	}
	for i := range p.Tests {
		t := &p.Tests[i]
		add("tests", t.Path, "", one("src", t.Src), one("proto", t.Proto), set("accept", t.Accept), set("deny", t.Deny), attributes(t.SrcPostureAttrs))
	}
	for i := range p.SSHTests {
		t := &p.SSHTests[i]
		add("sshTests", t.Path, "", one("src", t.Src), set("dst", t.Dst), set("accept", t.Accept), set("deny", t.Deny), set("check", t.Check), attributes(t.SrcPostureAttrs))
	}
	def := func(section, name string, values policy.Strings) {
		add(section, keyed(section, name), name, set("", values))
	}
	for _, g := range p.Groups {
		def("groups", g.Name.Value, g.Members)
	}
	for _, s := range p.IPSets {
		def("ipsets", s.Name.Value, s.Entries)
	}
	for _, t := range p.TagOwners {
		def("tagOwners", t.Name.Value, t.Owners)
	}
	for _, d := range p.Postures {
		def("postures", d.Name.Value, d.Assertions)
	}
	for _, h := range p.Hosts {
		add("hosts", keyed("hosts", h.Name.Value), h.Name.Value, one("", h.Value))
	}
	for _, a := range p.AutoApprovers.Routes {
		def(routesSection, a.Name.Value, a.Who)
	}
	for _, a := range p.AutoApprovers.Services {
		def(servicesSection, a.Name.Value, a.Who)
	}
	single := func(name string, f field) {
		if len(f.values) > 0 {
			add(name, name, name, f)
		}
	}
	single(exitSection, set("", p.AutoApprovers.ExitNode))
	single("defaultSrcPosture", set("", p.DefaultSrcPosture))
	single("randomizeClientPort", flag("", p.RandomizeClientPort))
	single("disableIPv4", flag("", p.DisableIPv4))
	single("OneCGNATRoute", one("", p.OneCGNATRoute))
	raw := func(name string, r policy.Raw) {
		if r.Present {
			single(name, field{"", []string{string(r.Value)}})
		}
	}
	raw("derpMap", p.DERPMap)
	raw("attrConfig", p.AttrConfig)
	raw("externalTailnets", p.ExternalTailnets)
	for _, s := range p.Unknown {
		single(s.Name.Value, field{"", []string{string(s.Raw.Value)}})
	}
	return out
}

func apps(caps []policy.Capability) field {
	f := field{name: "app"}
	for _, c := range caps {
		for _, v := range capValues(c.Values) {
			f.values = append(f.values, strings.TrimSpace(c.Name.Value+" "+v))
		}
	}
	return f
}

func attributes[V ~[]byte](m map[string]V) field {
	f := field{name: "srcPostureAttrs"}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		f.values = append(f.values, k+" "+string(m[k]))
	}
	return f
}

// changed reports whether anything was edited.
func (d *edit) changed() bool { return d.old == nil || d.new == nil || d.old.text != d.new.text }

// path is where the item is in the new policy, or was in the old one.
func (d *edit) path() string {
	if d.new != nil {
		return d.new.path
	}
	return d.old.path
}

// String is the edit with its place: `grants[3].ip "443" -> "*"`, "grants[9] added".
func (d *edit) String() string {
	var out []string
	for _, w := range d.fields() {
		switch {
		case w.name != "":
			out = append(out, d.path()+"."+w.name+" "+w.what)
		default:
			out = append(out, d.path()+" "+w.what)
		}
	}
	return strings.Join(out, ", ")
}

// what is the edit without its place.
func (d *edit) what() string {
	var out []string
	for _, w := range d.fields() {
		out = append(out, strings.TrimSpace(w.name+" "+w.what))
	}
	return strings.Join(out, ", ")
}

// fieldEdit is what became of a field, or with an empty name of the item.
type fieldEdit struct{ name, what string }

func (d *edit) fields() []fieldEdit {
	switch {
	case d.old == nil:
		return []fieldEdit{{"", "added"}}
	case d.new == nil:
		return []fieldEdit{{"", "removed"}}
	}
	var out []fieldEdit
	for i, f := range d.new.fields {
		if what := f.since(d.old.fields[i]); what != "" {
			out = append(out, fieldEdit{f.name, what})
		}
	}
	return out
}

// since words what became of a field.
func (f field) since(old field) string {
	if slices.Equal(f.values, old.values) {
		return ""
	}
	less := difference(old.values, f.values)
	more := difference(f.values, old.values)
	switch {
	case len(less) == 0 && len(more) == 0:
		return "in another order or repeated"
	case len(less) == 1 && len(more) == 1:
		return quoted(less) + " -> " + quoted(more)
	case len(less) == 0 && len(old.values) == 0:
		return "set to " + quoted(more)
	case len(more) == 0 && len(f.values) == 0:
		return "no longer " + quoted(less)
	}
	var out []string
	if len(less) > 0 {
		out = append(out, "- "+quoted(less))
	}
	if len(more) > 0 {
		out = append(out, "+ "+quoted(more))
	}
	return strings.Join(out, " ")
}

// difference lists what is in a and not in b, once each.
func difference(a, b []string) []string {
	in := make(map[string]bool, len(b))
	for _, s := range b {
		in[s] = true
	}
	var out []string
	for _, s := range a {
		if !in[s] {
			in[s] = true
			out = append(out, s)
		}
	}
	return out
}

// quoted lists a few values.
func quoted(values []string) string {
	const shown, length = 3, 80
	var out []string
	for _, v := range values[:min(len(values), shown)] {
		if r := []rune(v); len(r) > length {
			v = string(r[:length]) + "..."
		}
		out = append(out, strconv.Quote(v))
	}
	if n := len(values) - shown; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, ", ")
}
