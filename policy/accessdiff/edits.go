package accessdiff

import (
	"bytes"
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
	set    bool // the order of values means nothing
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
	taken := map[*item]*item{} // by new
	gone := map[*item]bool{}
	take := func(o, n *item) { taken[n], gone[o] = o, true }
	waiting := map[string][]*item{}
	for _, o := range old {
		k := o.key + "\x00" + o.text
		if o.key != "" {
			k = o.key
		}
		waiting[k] = append(waiting[k], o)
	}
	last := -1
	moved := false
	for _, n := range new {
		k := n.key + "\x00" + n.text
		if n.key != "" {
			k = n.key
		}
		if l := waiting[k]; len(l) > 0 {
			take(l[0], n)
			waiting[k] = l[1:]
			if n.key == "" {
				at := slices.Index(old, l[0])
				moved = moved || at < last
				last = at
			}
		}
	}
	for _, need := range []int{2, 1} {
		near := map[string][]*item{}
		for _, o := range old {
			if !gone[o] && o.key == "" {
				for _, k := range o.likeness(need) {
					near[k] = append(near[k], o)
				}
			}
		}
		for _, n := range new {
			if taken[n] != nil || n.key != "" {
				continue
			}
			for _, k := range n.likeness(need) {
				l := slices.DeleteFunc(near[k], func(o *item) bool { return gone[o] })
				near[k] = l
				if len(l) > 0 {
					take(l[0], n)
					break
				}
			}
		}
	}
	for _, n := range new {
		e.put(&edit{old: taken[n], new: n})
	}
	for _, o := range old {
		if !gone[o] {
			e.put(&edit{old: o})
		}
	}
	if moved {
		e.order = append(e.order, section)
	}
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
			return !strings.HasPrefix(s, "src\x00") && !strings.HasPrefix(s, "dst\x00") && !strings.HasPrefix(s, "target\x00")
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
	set := func(name string, s policy.Strings) field { return field{name, s.Values(), true} }
	one := func(name string, s policy.String) field {
		if s.Value == "" {
			return field{name: name}
		}
		return field{name, []string{s.Value}, true}
	}
	flag := func(name string, b policy.Bool) field {
		if !b.Present {
			return field{name: name}
		}
		return field{name, []string{strconv.FormatBool(b.Value)}, true}
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
	def := func(section, name string, values policy.Strings, ordered bool) {
		add(section, keyed(section, name), name, field{"", values.Values(), !ordered})
	}
	for _, g := range p.Groups {
		def("groups", g.Name.Value, g.Members, false)
	}
	for _, s := range p.IPSets {
		def("ipsets", s.Name.Value, s.Entries, true)
	}
	for _, t := range p.TagOwners {
		def("tagOwners", t.Name.Value, t.Owners, false)
	}
	for _, d := range p.Postures {
		def("postures", d.Name.Value, d.Assertions, false)
	}
	for _, h := range p.Hosts {
		add("hosts", keyed("hosts", h.Name.Value), h.Name.Value, one("", h.Value))
	}
	for _, a := range p.AutoApprovers.Routes {
		def(routesSection, a.Name.Value, a.Who, false)
	}
	for _, a := range p.AutoApprovers.Services {
		def(servicesSection, a.Name.Value, a.Who, false)
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
			var b bytes.Buffer
			b.Write(r.Value)
			single(name, field{"", []string{b.String()}, true})
		}
	}
	raw("derpMap", p.DERPMap)
	raw("attrConfig", p.AttrConfig)
	raw("externalTailnets", p.ExternalTailnets)
	for _, s := range p.Unknown {
		single(s.Name.Value, field{"", []string{string(s.Raw.Value)}, true})
	}
	return out
}

func apps(caps []policy.Capability) field {
	f := field{name: "app", set: true}
	for _, c := range caps {
		for _, v := range capValues(c.Values) {
			f.values = append(f.values, strings.TrimSpace(c.Name.Value+" "+v))
		}
	}
	return f
}

func attributes[V ~[]byte](m map[string]V) field {
	f := field{name: "srcPostureAttrs", set: true}
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
	switch {
	case d.old == nil:
		return d.new.path + " added"
	case d.new == nil:
		return d.old.path + " removed"
	}
	path := d.path()
	var out []string
	for i, f := range d.new.fields {
		if text := f.since(d.old.fields[i]); text != "" {
			if f.name != "" {
				out = append(out, path+"."+f.name+" "+text)
			} else {
				out = append(out, path+" "+text)
			}
		}
	}
	return strings.Join(out, ", ")
}

// what is the edit without the path of its item.
func (d *edit) what() string {
	return strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(d.String(), ", "+d.path(), ", "), d.path()))
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
