package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// assertion is one line of a posture: an attribute, an operator and what it is compared with.
type assertion struct {
	attr   string
	op     string
	values []string
}

// postureOperators are the operators in the order in which they are looked for: the longer ones first.
func postureOperators() []string {
	return []string{" IS SET", " NOT SET", " NOT IN ", " IN ", "==", "!=", "<=", ">=", "<", ">"}
}

// parseAssertion reads "node:tsVersion >= '1.40'", "node:os IN ['macos', 'linux']" or "custom:tier IS SET".
func parseAssertion(text string) (assertion, error) {
	for _, op := range postureOperators() {
		attr, rest, ok := strings.Cut(text, op)
		if !ok {
			continue
		}
		a := assertion{attr: strings.TrimSpace(attr), op: strings.TrimSpace(op)}
		rest = strings.TrimSpace(rest)
		switch {
		case a.attr == "" || strings.ContainsAny(a.attr, "'\"[] "):
			return a, fmt.Errorf("%q: no attribute before %q", text, a.op)
		case a.op == "IS SET" || a.op == "NOT SET":
			if rest != "" {
				return a, fmt.Errorf("%q: nothing may follow %q", text, a.op)
			}
			return a, nil
		case a.op == "IN" || a.op == "NOT IN":
			inner, ok := strings.CutPrefix(rest, "[")
			inner, ok2 := strings.CutSuffix(inner, "]")
			if !ok || !ok2 {
				return a, fmt.Errorf("%q: want a list in brackets after %q", text, a.op)
			}
			for item := range strings.SplitSeq(inner, ",") {
				a.values = append(a.values, unquotePosture(item))
			}
			return a, nil
		case rest == "":
			return a, fmt.Errorf("%q: no value after %q", text, a.op)
		}
		a.values = []string{unquotePosture(rest)}
		return a, nil
	}
	return assertion{}, fmt.Errorf("%q: no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET", text)
}

func unquotePosture(s string) string { return strings.Trim(strings.TrimSpace(s), `'"`) }

// holds judges an assertion. Attributes that are not in attrs make it Undecided, since an inventory holds only some;
// where closed, they are not set.
func (a assertion) holds(attrs map[string]string, closed bool) Verdict {
	got, set := attrs[a.attr]
	if !set {
		switch {
		case !closed:
			return Undecided
		case a.op == "NOT SET":
			return Pass
		}
		return Fail
	}
	yes := false
	switch a.op {
	case "IS SET":
		yes = true
	case "NOT SET":
	case "IN", "==":
		yes = slices.Contains(a.values, got)
	case "NOT IN", "!=":
		yes = !slices.Contains(a.values, got)
	case "<":
		yes = compareVersions(got, a.values[0]) < 0
	case "<=":
		yes = compareVersions(got, a.values[0]) <= 0
	case ">":
		yes = compareVersions(got, a.values[0]) > 0
	case ">=":
		yes = compareVersions(got, a.values[0]) >= 0
	}
	if yes {
		return Pass
	}
	return Fail
}

// compareVersions compares dotted numbers part by part; what follows a "-" does not count.
func compareVersions(a, b string) int {
	a, _, _ = strings.Cut(a, "-")
	b, _, _ = strings.Cut(b, "-")
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		x, y := "0", "0"
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		m, err1 := strconv.Atoi(x)
		n, err2 := strconv.Atoi(y)
		switch {
		case err1 == nil && err2 == nil && m != n:
			if m < n {
				return -1
			}
			return 1
		case err1 != nil || err2 != nil:
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
		}
	}
	return 0
}

// postureAttrs are the posture attributes that an inventory tells of a device.
func postureAttrs(d *device) map[string]string {
	out := map[string]string{}
	if d.OS != "" {
		out["node:os"] = strings.ToLower(d.OS)
	}
	if d.ClientVersion != "" {
		out["node:tsVersion"] = d.ClientVersion
	}
	return out
}

// textAttrs turns the attributes that a test gives into text.
func textAttrs(attrs map[string]json.RawMessage) map[string]string {
	out := make(map[string]string, len(attrs))
	for k, raw := range attrs {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		out[k] = s
	}
	return out
}

// posture is what a rule asks of its sources: any one of several postures.
type posture struct {
	names []string
	any   [][]assertion
}

// posture returns what list (or else the default) asks for, nil for nothing.
func (v *validator) posture(list Strings) *posture {
	if !list.Present || len(list.Items) == 0 {
		list = v.p.DefaultSrcPosture
	}
	if len(list.Items) == 0 {
		return nil
	}
	out := &posture{}
	for _, s := range list.Items {
		out.names = append(out.names, s.Value)
		texts := []string{s.Value}
		if p := v.postures[s.Value]; p != nil {
			texts = p.Assertions.Values()
		}
		var all []assertion
		for _, t := range texts {
			if a, err := parseAssertion(t); err == nil {
				all = append(all, a)
			}
		}
		out.any = append(out.any, all)
	}
	return out
}

// holds judges the posture for a device with these attributes, and names those that were missing.
func (p *posture) holds(attrs map[string]string, closed bool) (Verdict, []string) {
	best := Fail
	var missing []string
	for _, all := range p.any {
		one := Pass
		for _, a := range all {
			switch a.holds(attrs, closed) {
			case Fail:
				one = Fail
			case Undecided:
				if one == Pass {
					one = Undecided
				}
				missing = append(missing, "posture attribute "+a.attr)
			}
		}
		if one == Pass {
			return Pass, nil
		}
		if one == Undecided {
			best = Undecided
		}
	}
	if best == Fail {
		return Fail, nil
	}
	slices.Sort(missing)
	return Undecided, slices.Compact(missing)
}

// PostureAttrs are attributes of a device that meets what a rule's srcPosture asks for, or the policy's default where list is
// empty: what a test gives as srcPostureAttrs. Nothing is asked for where both results are empty and true. It returns false
// where no attributes were found that meet one of the postures.
func (p *Policy) PostureAttrs(list Strings) (map[string]string, bool) {
	v := &validator{p: p, postures: map[string]*Posture{}}
	for i := range p.Postures {
		v.postures[p.Postures[i].Name.Value] = &p.Postures[i]
	}
	asked := v.posture(list)
	if asked == nil {
		return nil, true
	}
	for _, all := range asked.any {
		attrs := map[string]string{}
		for _, a := range all {
			if value, ok := a.example(); ok {
				attrs[a.attr] = value
			}
		}
		one := posture{any: [][]assertion{all}}
		if verdict, _ := one.holds(attrs, true); verdict == Pass {
			return attrs, true
		}
	}
	return nil, false
}

// example is a value that meets the assertion where there is one; false where the attribute is not to be set.
func (a assertion) example() (string, bool) {
	switch a.op {
	case "NOT SET":
		return "", false
	case "IS SET":
		return "true", true
	case "==", "IN", "<=", ">=":
		return a.values[0], true
	case ">":
		return a.values[0] + ".1", true
	case "<":
		return "0", true
	}
	return "another", true
}
