package convert

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// item is an element of a list or, with a name, a member of an object, together with the comments that belong to it: those
// in front of it, and the one that ends its line behind the comma.
type item struct {
	lead  hujson.Extra
	name  *hujson.Value
	value hujson.Value
	tail  hujson.Extra
}

// list is a list or an object of the text, taken apart so that items can be moved with their comments.
type list struct {
	head  hujson.Extra // comment on the line of the opening bracket
	items []item
	end   hujson.Extra // before the closing bracket
	comma bool         // behind the last item
}

func openList(a *hujson.Array) list {
	var l list
	for _, e := range a.Elements {
		before := e.BeforeExtra
		e.BeforeExtra = nil
		l.add(before, item{value: e})
	}
	l.close(a.AfterExtra)
	return l
}

func openObject(o *hujson.Object) list {
	var l list
	for _, m := range o.Members {
		name := m.Name
		before := name.BeforeExtra
		name.BeforeExtra = nil
		l.add(before, item{name: &name, value: m.Value})
	}
	l.close(o.AfterExtra)
	return l
}

func (l *list) add(before hujson.Extra, it item) {
	tail, lead := splitTail(before)
	l.tail(tail)
	it.lead = lead
	l.items = append(l.items, it)
}

func (l *list) tail(x hujson.Extra) {
	if n := len(l.items); n > 0 {
		l.items[n-1].tail = x
	} else {
		l.head = x
	}
}

func (l *list) close(end hujson.Extra) {
	tail, rest := splitTail(end)
	l.tail(tail)
	l.end = rest
	if n := len(l.items); n > 0 {
		l.comma = l.items[n-1].value.AfterExtra != nil
	}
}

// put calls set with each item, its spaces put right, and returns what stands before the closing bracket.
func (l list) put(set func(before hujson.Extra, it item)) hujson.Extra {
	tail := l.head
	var stray hujson.Extra
	for i, it := range l.items {
		if i == len(l.items)-1 {
			switch {
			case l.comma && it.value.AfterExtra == nil:
				it.value.AfterExtra = hujson.Extra{}
			case !l.comma:
				stray, it.value.AfterExtra = it.value.AfterExtra, nil
			}
		}
		set(closed(glue(tail, it.lead)), it)
		tail = it.tail
	}
	return closed(glue(stray, tail, l.end))
}

func (l list) array() *hujson.Array {
	a := &hujson.Array{}
	a.AfterExtra = l.put(func(before hujson.Extra, it item) {
		it.value.BeforeExtra = before
		a.Elements = append(a.Elements, it.value)
	})
	return a
}

func (l list) object() *hujson.Object {
	o := &hujson.Object{}
	o.AfterExtra = l.put(func(before hujson.Extra, it item) {
		name := *it.name
		name.BeforeExtra = before
		o.Members = append(o.Members, hujson.ObjectMember{Name: name, Value: it.value})
	})
	return o
}

// find returns the index of the member that has one of the names, whatever their case, or -1.
func (l list) find(names ...string) int {
	return slices.IndexFunc(l.items, func(it item) bool {
		key := it.name.Value.(hujson.Literal).String()
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, key) })
	})
}

// remove takes an item away, comments and all; the next one takes its place in the layout.
func (l *list) remove(i int) item {
	it := l.items[i]
	l.items = slices.Delete(l.items, i, i+1)
	if i < len(l.items) {
		next := &l.items[i].lead
		if len(comments(*next)) == 0 && (i == 0 || !bytes.ContainsRune(*next, '\n')) {
			*next = withoutComments(it.lead)
		}
	}
	return it
}

// drop takes an item away and leaves its comments to the next one.
func (l *list) drop(i int) {
	it := l.remove(i)
	stray := it.comments()
	if len(stray) == 0 {
		return
	}
	to := &l.end
	if i < len(l.items) {
		to = &l.items[i].lead
	}
	*to = glue(lines(stray, blank(it.lead)), *to)
}

func (it item) comments() []string {
	out := comments(it.lead)
	if it.name != nil {
		out = append(out, allComments(*it.name)...)
	}
	out = append(out, allComments(it.value)...)
	return append(out, comments(it.tail)...)
}

// bare returns a copy without comments, in the same layout.
func (it item) bare() item {
	it.lead, it.tail = withoutComments(it.lead), nil
	it.value = bareValue(it.value)
	if it.name != nil {
		name := bareValue(*it.name)
		it.name = &name
	}
	return it
}

func withoutComments(x hujson.Extra) hujson.Extra {
	if len(comments(x)) == 0 {
		return x
	}
	return blank(x)
}

func bareValue(v hujson.Value) hujson.Value {
	v.BeforeExtra, v.AfterExtra = withoutComments(v.BeforeExtra), withoutComments(v.AfterExtra)
	switch c := v.Value.(type) {
	case *hujson.Object:
		l := openObject(c)
		l.head, l.end = nil, withoutComments(l.end)
		for i := range l.items {
			l.items[i] = l.items[i].bare()
		}
		v.Value = l.object()
	case *hujson.Array:
		l := openList(c)
		l.head, l.end = nil, withoutComments(l.end)
		for i := range l.items {
			l.items[i] = l.items[i].bare()
		}
		v.Value = l.array()
	}
	return v
}

func literal(text string) hujson.Value { return hujson.Value{Value: hujson.String(text)} }

// texts is a list of strings on one line.
func texts(values []string) hujson.Value {
	a := &hujson.Array{}
	for i, t := range values {
		v := literal(t)
		if i > 0 {
			v.BeforeExtra = hujson.Extra(" ")
		}
		a.Elements = append(a.Elements, v)
	}
	return hujson.Value{Value: a}
}

// member is a new member of an object, laid out as like is.
func member(name string, value hujson.Value, like item) item {
	n := literal(name)
	value.BeforeExtra = withoutComments(like.value.BeforeExtra)
	return item{lead: blank(like.lead), name: &n, value: value}
}
