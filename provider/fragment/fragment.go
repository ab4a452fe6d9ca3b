// Package fragment joins pieces of a policy file, such as the modules of a configuration own, into one. It keeps
// comments, drops nothing, knows no section by name, and knows nothing of Terraform.
package fragment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Fragment is a piece of a policy file: an object in HuJSON.
type Fragment struct {
	// Name tells the fragment from others in messages.
	Name string
	Text string
	// Generated says that nobody wrote the text as it is, so that its lines mean nothing to anybody.
	Generated bool
}

// Conflict is a value that two fragments give differently.
type Conflict struct {
	Path          string // as in tagOwners["tag:node"]
	First, Second string // names of the fragments
	// Lines count from 1, each in its own fragment; 0 for a generated one.
	FirstLine, SecondLine int
}

// Error says who disagrees, where, and about what.
func (c *Conflict) Error() string {
	at := func(name string, line int) string {
		if line == 0 {
			return name
		}
		return fmt.Sprintf("%s (line %d)", name, line)
	}
	return fmt.Sprintf("%s has two owners: %s and %s give it different values",
		c.Path, at(c.First, c.FirstLine), at(c.Second, c.SecondLine))
}

// Merge joins fragments in their order. Lists of the top level (acls, grants, ssh, tests and so on) are joined end to end;
// objects (groups, hosts, tagOwners and so on) are joined key by key, at any depth; any other value, lists within
// objects included, has one owner: where two fragments give it, they must agree. Names of sections count without case,
// as they do for the control plane.
//
// The result is formatted as the control plane formats what it stores. The error joins a [*Conflict] for each
// disagreement, or says which fragment is no policy.
func Merge(fragments []Fragment) (string, error) {
	root := &hujson.Object{}
	m := &merger{first: map[string]place{}}
	for _, f := range fragments {
		v, err := hujson.Parse([]byte(f.Text))
		if err != nil {
			return "", fmt.Errorf("%s: %s", f.Name, strings.TrimPrefix(err.Error(), "hujson: "))
		}
		obj, ok := v.Value.(*hujson.Object)
		if !ok {
			return "", fmt.Errorf("%s: a policy is an object in braces", f.Name)
		}
		if name, twice := duplicate(obj); twice {
			return "", fmt.Errorf("%s: %s is there twice", f.Name, name)
		}
		m.fragment = f
		lead(obj, v.BeforeExtra)
		obj.AfterExtra = append(obj.AfterExtra, ownLine(v.AfterExtra)...)
		m.object("", root, obj)
	}
	if len(m.conflicts) > 0 {
		return "", errors.Join(m.conflicts...)
	}
	out := hujson.Value{Value: root}
	out.Format()
	return string(out.Pack()), nil
}

type merger struct {
	fragment  Fragment
	first     map[string]place // by path
	conflicts []error
}

// place is where a value was given.
type place struct {
	fragment Fragment
	offset   int
}

func (p place) line() int {
	if p.fragment.Generated {
		return 0
	}
	return 1 + strings.Count(p.fragment.Text[:p.offset], "\n")
}

// object moves the members of src, which is at a path, into dst.
func (m *merger) object(path string, dst, src *hujson.Object) {
	for i := range src.Members {
		member := &src.Members[i]
		name := nameOf(member)
		at := join(path, name)
		old := slices.IndexFunc(dst.Members, func(d hujson.ObjectMember) bool { return sameName(nameOf(&d), name, path == "") })
		if old < 0 {
			// Comments behind the last member so far stay behind it.
			member.Name.BeforeExtra = append(ownLine(dst.AfterExtra), member.Name.BeforeExtra...)
			dst.AfterExtra = nil
			dst.Members = append(dst.Members, *member)
			m.remember(at, &member.Value)
			continue
		}
		m.member(at, path == "", &dst.Members[old].Value, member)
	}
	dst.AfterExtra = append(dst.AfterExtra, ownLine(src.AfterExtra)...)
}

// member joins a member with the value that is there already.
func (m *merger) member(path string, top bool, old *hujson.Value, member *hujson.ObjectMember) {
	comments := slices.Concat(ownLine(member.Name.BeforeExtra), ownLine(member.Name.AfterExtra),
		ownLine(member.Value.BeforeExtra), ownLine(member.Value.AfterExtra))
	switch dst := old.Value.(type) {
	case *hujson.Object:
		if src, ok := member.Value.Value.(*hujson.Object); ok {
			lead(src, comments)
			m.object(path, dst, src)
			return
		}
	case *hujson.Array:
		if src, ok := member.Value.Value.(*hujson.Array); ok && top {
			comments = append(ownLine(dst.AfterExtra), comments...)
			dst.AfterExtra = src.AfterExtra
			if len(src.Elements) > 0 {
				src.Elements[0].BeforeExtra = append(comments, src.Elements[0].BeforeExtra...)
			} else {
				dst.AfterExtra = append(comments, dst.AfterExtra...)
			}
			dst.Elements = append(dst.Elements, src.Elements...)
			return
		}
	}
	if minimal(*old) == minimal(member.Value) {
		return
	}
	first := m.first[strings.ToLower(path)]
	second := place{m.fragment, member.Value.StartOffset}
	m.conflicts = append(m.conflicts, &Conflict{path, first.fragment.Name, second.fragment.Name, first.line(), second.line()})
}

// remember notes who gave a value first, and what is in it.
func (m *merger) remember(path string, v *hujson.Value) {
	m.first[strings.ToLower(path)] = place{m.fragment, v.StartOffset}
	if obj, ok := v.Value.(*hujson.Object); ok {
		for i := range obj.Members {
			m.remember(join(path, nameOf(&obj.Members[i])), &obj.Members[i].Value)
		}
	}
}

// lead puts comments in front of what an object holds.
func lead(obj *hujson.Object, comments hujson.Extra) {
	if len(obj.Members) == 0 {
		obj.AfterExtra = append(ownLine(comments), obj.AfterExtra...)
		return
	}
	name := &obj.Members[0].Name
	name.BeforeExtra = append(ownLine(comments), name.BeforeExtra...)
}

// ownLine returns comments such that they begin and end a line, and nothing where there are none.
func ownLine(e hujson.Extra) hujson.Extra {
	if !bytes.Contains(e, []byte("/")) {
		return nil
	}
	return slices.Concat(hujson.Extra("\n"), bytes.TrimSpace(e), hujson.Extra("\n"))
}

func nameOf(m *hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

func sameName(x, y string, top bool) bool { return x == y || top && strings.EqualFold(x, y) }

// duplicate finds a section that one fragment has twice, of which the control plane would take the last alone.
func duplicate(obj *hujson.Object) (name string, found bool) {
	for i := range obj.Members {
		for j := range i {
			if sameName(nameOf(&obj.Members[i]), nameOf(&obj.Members[j]), true) {
				return nameOf(&obj.Members[i]), true
			}
		}
	}
	return "", false
}

func join(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "":
		return path + "." + name
	}
	return fmt.Sprintf("%s[%q]", path, name)
}

// minimal is a value without comments and white space, for comparing.
func minimal(v hujson.Value) string {
	v = v.Clone()
	v.BeforeExtra, v.AfterExtra = nil, nil
	v.Minimize()
	return string(v.Pack())
}
