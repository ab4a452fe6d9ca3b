// Package convert rewrites the acls of a policy file as grants, or grants as acls, and proves that every device gets the
// same packet filter as before. The text stays the user's: comments, order and layout are kept, and what cannot be said in
// the other form stays as it is, with the reason.
package convert

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Form is a form of rules: a section of the policy file.
type Form string

// The two forms.
const (
	Grants Form = "grants"
	ACLs   Form = "acls"
)

func (f Form) other() Form {
	if f == Grants {
		return ACLs
	}
	return Grants
}

// Kept is an entry that stays in its old form.
type Kept struct {
	Path   string     `json:"path"` // in the text as it was
	Range  diag.Range `json:"range"`
	Reason string     `json:"reason"`
}

// Result is a converted policy.
type Result struct {
	Text      []byte
	Converted int // entries of the old form that are gone
	Made      int // entries of the new form that stand for them
	Kept      []Kept
	Proof     Proof
}

// ErrRefused says that the control plane would refuse the rules of the policy as it is, so that there is no filter to keep.
var ErrRefused = errors.New("the control plane would refuse the policy")

// Convert rewrites the rules of src to a form. An error leaves nothing to use; a Result whose Proof does not hold must not
// be used either.
func Convert(file string, src []byte, inv *policy.Inventory, to Form) (*Result, error) {
	before := policy.Check(file, src, inv, nil)
	if before.Compiled == nil {
		return nil, ErrRefused
	}
	c := conversion{p: before.Policy, src: src, to: to, kept: map[int]string{}}
	c.divide()
	for {
		text, err := c.text()
		if err != nil {
			return nil, err
		}
		after := policy.Check(file, text, inv, nil)
		if after.Compiled == nil {
			// The two forms do not take the same. What the other one refuses stays as it is.
			if !c.keepRefused(after.Diagnostics) {
				return nil, fmt.Errorf("the converted policy would be refused: %s", after.Message)
			}
			continue
		}
		res := &Result{Text: text}
		for i, pieces := range c.pieces {
			if reason, ok := c.kept[i]; ok {
				n := c.node(i)
				res.Kept = append(res.Kept, Kept{Path: n.Path, Range: n.Range, Reason: reason})
				continue
			}
			res.Converted++
			res.Made += len(pieces)
		}
		res.Proof = Prove(before, after, inv, len(res.Kept) > 0)
		return res, nil
	}
}

// conversion is one run: the entries of the old form, and what becomes of each.
type conversion struct {
	p      *policy.Policy
	src    []byte
	to     Form
	pieces [][]piece
	kept   map[int]string // entries that stay, with the reason
	// made are the entries that the new ones stand for, in their order, and first is the place of the first of them.
	made  []int
	first int
}

func (c *conversion) divide() {
	if c.to == Grants {
		for i := range c.p.ACLs {
			c.take(grantPieces(&c.p.ACLs[i]))
		}
		return
	}
	for i := range c.p.Grants {
		c.take(aclPieces(&c.p.Grants[i]))
	}
}

func (c *conversion) take(pieces []piece, reason string) {
	if reason != "" {
		c.kept[len(c.pieces)] = reason
	}
	c.pieces = append(c.pieces, pieces)
}

func (c *conversion) node(i int) policy.Node {
	if c.to == Grants {
		return c.p.ACLs[i].Node
	}
	return c.p.Grants[i].Node
}

var entryPath = regexp.MustCompile(`^(acls|grants)\[(\d+)\]`)

// keepRefused marks the entries whose new form was refused, and reports whether there are any.
func (c *conversion) keepRefused(found diag.List) bool {
	some := false
	for _, d := range found {
		m := entryPath.FindStringSubmatch(d.Path)
		if d.Severity != diag.Error || m == nil || m[1] != string(c.to) {
			continue
		}
		n, err := strconv.Atoi(m[2])
		if err != nil || n < c.first || n-c.first >= len(c.made) {
			continue
		}
		i := c.made[n-c.first]
		if _, ok := c.kept[i]; ok {
			continue
		}
		c.kept[i] = fmt.Sprintf("as %s it would be refused: %s", article(c.to), d.Message)
		some = true
	}
	return some
}

func article(f Form) string {
	if f == Grants {
		return "a grant"
	}
	return "an acl"
}

// text writes the policy with those entries converted that are not kept.
func (c *conversion) text() ([]byte, error) {
	root, err := hujson.Parse(c.src)
	if err != nil {
		return nil, err
	}
	c.made, c.first = nil, 0
	if len(c.pieces) == len(c.kept) && len(c.pieces) > 0 {
		return c.src, nil
	}
	sections := openObject(root.Value.(*hujson.Object))
	if at := sections.find(string(c.to.other())); at >= 0 {
		if entries, ok := sections.items[at].value.Value.(*hujson.Array); ok {
			c.sections(&sections, at, openList(entries))
			root.Value = sections.object()
		}
	}
	return root.Pack(), nil
}

// sections moves the converted entries of one section, whose place is at, into the other.
func (c *conversion) sections(sections *list, at int, entries list) {
	edit := toGrant
	if c.to == ACLs {
		edit = toACL
	}
	var moved, rest []item
	for i, it := range entries.items {
		if _, ok := c.kept[i]; ok {
			rest = append(rest, it)
			continue
		}
		made := rewrite(it, c.pieces[i], edit)
		moved = append(moved, made...)
		for range made {
			c.made = append(c.made, i)
		}
	}
	target := sections.find(string(c.to))
	if target >= 0 {
		if _, ok := sections.items[target].value.Value.(*hujson.Array); !ok { // null, which is as good as missing
			sections.drop(target)
			target = -1
			at = sections.find(string(c.to.other()))
		}
	}
	switch {
	case target >= 0:
		c.join(sections, at, target, entries, moved, rest)
	case len(rest) == 0:
		// The section becomes the other one where it stands.
		entries.items = moved
		sections.items[at].value.Value = entries.array()
		rename(sections, string(c.to.other()), string(c.to))
	default:
		c.split(sections, at, entries, moved, rest)
	}
}

// join adds the converted entries to a section that exists: grants at its end and acls at its beginning, because the
// control plane takes grants first.
func (c *conversion) join(sections *list, at, target int, entries list, moved, rest []item) {
	into := openList(sections.items[target].value.Value.(*hujson.Array))
	layout := blank(nil)
	for _, it := range slices.Concat(into.items, entries.items) {
		if l := blank(it.lead); len(l) > len(layout) {
			layout = l
			break
		}
	}
	for i := range moved {
		if len(moved[i].lead) == 0 {
			moved[i].lead = layout
		}
	}
	if len(rest) == 0 {
		// Whatever is said about the section that goes stays with its entries.
		old := sections.items[at]
		about := slices.Concat(comments(old.lead), comments(old.name.AfterExtra), comments(old.value.BeforeExtra), comments(entries.head))
		after := slices.Concat(comments(entries.end), comments(old.value.AfterExtra), comments(old.tail))
		if len(moved) > 0 {
			moved[0].lead = glue(lines(about, layout), moved[0].lead)
			last := &moved[len(moved)-1]
			last.tail = glue(last.tail, lines(after, layout))
		} else {
			into.end = glue(lines(slices.Concat(about, after), layout), into.end)
		}
	}
	if len(into.items) == 0 {
		into.comma = entries.comma
		if len(comments(into.end)) == 0 {
			into.end = withoutComments(entries.end)
		}
	}
	if c.to == Grants {
		c.first = len(into.items)
		into.items = append(into.items, moved...)
	} else {
		into.items = append(moved, into.items...)
	}
	sections.items[target].value.Value = into.array()
	if len(rest) == 0 {
		sections.remove(at)
		return
	}
	entries.items = rest
	sections.items[at].value.Value = entries.array()
}

// split makes a section for the converted entries beside the one that others stay in, grants before acls.
func (c *conversion) split(sections *list, at int, entries list, moved, rest []item) {
	made := list{items: moved, end: withoutComments(entries.end), comma: entries.comma}
	old := &sections.items[at]
	added := member(string(c.to), hujson.Value{Value: made.array()}, *old)
	entries.items = rest
	old.value.Value = entries.array()
	if c.to == ACLs {
		sections.items = slices.Insert(sections.items, at+1, added)
		return
	}
	added.lead, old.lead = old.lead, added.lead
	sections.items = slices.Insert(sections.items, at, added)
}
