package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// assertion is one line of a posture: an attribute, an operator and what it is compared with. An attribute alone, without an
// operator, is to be true, as "node:tsAutoUpdate" in the policy that new tailnets come with.
type assertion struct {
	attr   string
	op     string
	values []string
	// number says that the value is a number, not a quoted text.
	number bool
}

// An operator in words stands apart from what is around it; one of signs need not. Policies in force have words in small
// letters, too.
var (
	postureLine  = regexp.MustCompile(`^\s*([^\s'"\[\]=!<>]*)(?:\s*(==|!=|<=|>=|<|>)|\s+((?i:IS\s+SET|NOT\s+SET|NOT\s+IN|IN))(?:\s+|(\[)|$))(.*)$`)
	postureAttr  = regexp.MustCompile(`^[A-Za-z]\w*:\w+$`)
	postureValue = regexp.MustCompile(`^\s*(?:'([^']*)'|"([^"]*)"|([^\s,'"\[\]]+))\s*`)
)

// parseAssertion reads "node:tsVersion >= '1.40'", "node:os IN ['macos', 'linux']", "custom:tier IS SET" or "node:tsAutoUpdate".
func parseAssertion(text string) (assertion, error) {
	m := postureLine.FindStringSubmatch(text)
	if alone := strings.TrimSpace(text); m == nil && postureAttr.MatchString(alone) {
		return assertion{attr: alone}, nil
	}
	if m == nil {
		return assertion{}, fmt.Errorf("%q: no operator: want ==, !=, <, <=, >, >=, IN, NOT IN, IS SET or NOT SET", text)
	}
	a := assertion{attr: m[1], op: m[2] + strings.ToUpper(strings.Join(strings.Fields(m[3]), " "))}
	rest := strings.TrimSpace(m[4] + m[5])
	if a.attr == "" {
		return a, fmt.Errorf("%q: no attribute before %q", text, a.op)
	}
	switch a.op {
	case "IS SET", "NOT SET":
		if rest != "" {
			return a, fmt.Errorf("%q: nothing may follow %q", text, a.op)
		}
		return a, nil
	case "IN", "NOT IN":
		inner, ok := strings.CutPrefix(rest, "[")
		if !ok {
			return a, fmt.Errorf("%q: want a list in brackets after %q", text, a.op)
		}
		for {
			v := postureValue.FindStringSubmatch(inner)
			if v == nil {
				return a, fmt.Errorf("%q: want a list in brackets after %q", text, a.op)
			}
			a.values = append(a.values, v[1]+v[2]+v[3])
			inner = inner[len(v[0]):]
			if inner == "]" {
				return a, nil
			}
			if inner, ok = strings.CutPrefix(inner, ","); !ok {
				return a, fmt.Errorf("%q: want a list in brackets after %q", text, a.op)
			}
		}
	}
	v := postureValue.FindStringSubmatch(rest)
	switch {
	case rest == "":
		return a, fmt.Errorf("%q: no value after %q", text, a.op)
	case v == nil || v[0] != rest:
		return a, fmt.Errorf("%q: want one value after %q, a text in quotes", text, a.op)
	}
	_, err := strconv.ParseFloat(v[3], 64)
	a.values, a.number = []string{v[1] + v[2] + v[3]}, err == nil
	return a, nil
}

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
	case "":
		yes = got == "true"
	case "IS SET":
		yes = true
	case "NOT SET":
	case "IN", "==":
		yes = slices.Contains(a.values, got)
	case "NOT IN", "!=":
		yes = !slices.Contains(a.values, got)
	case "<":
		yes = a.compare(got) < 0
	case "<=":
		yes = a.compare(got) <= 0
	case ">":
		yes = a.compare(got) > 0
	case ">=":
		yes = a.compare(got) >= 0
	}
	if yes {
		return Pass
	}
	return Fail
}

// compare orders an attribute and the value of the assertion, as numbers where both are, else as versions.
func (a assertion) compare(got string) int {
	if n, err := strconv.ParseFloat(got, 64); err == nil && a.number {
		want, _ := strconv.ParseFloat(a.values[0], 64)
		return cmp.Compare(n, want)
	}
	return compareVersions(got, a.values[0])
}

// compareVersions orders versions as the documentation says (tailscale.com/util/cmpver): runs of digits by number, what is
// between them as text, and a version that goes on comes after one that ends.
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		var m, n string
		m, a = run(a, false)
		n, b = run(b, false)
		if c := strings.Compare(m, n); c != 0 {
			return c
		}
		m, a = run(a, true)
		n, b = run(b, true)
		m, n = strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); c != 0 {
			return c
		}
	}
	return 0
}

// run cuts off what s begins with: digits, or anything but digits.
func run(s string, digits bool) (head, rest string) {
	i := strings.IndexFunc(s, func(r rune) bool { return ('0' <= r && r <= '9') != digits })
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// postureAttrs are the posture attributes that an inventory tells of a device.
func postureAttrs(d *device) map[string]string {
	out := map[string]string{}
	if d.OS != "" {
		out["node:os"] = strings.ToLower(d.OS)
	}
	// The API adds commits to the version, which the attribute does not have.
	version, _, _ := strings.Cut(d.ClientVersion, "-")
	if version == "" {
		return out
	}
	out["node:tsVersion"] = version
	if parts := strings.Split(version, "."); len(parts) > 1 {
		if minor, err := strconv.Atoi(parts[1]); err == nil {
			out["node:tsReleaseTrack"] = "stable"
			if minor%2 != 0 {
				out["node:tsReleaseTrack"] = "unstable"
			}
		}
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
	case "", "IS SET":
		return "true", true
	case "==", "IN", "<=", ">=":
		return a.values[0], true
	case ">", "<":
		step := 1.0
		if a.op == "<" {
			step = -1
		}
		if n, err := strconv.ParseFloat(a.values[0], 64); err == nil && a.number {
			return strconv.FormatFloat(n+step, 'f', -1, 64), true
		}
		if step < 0 {
			return "0", true
		}
		return a.values[0] + ".1", true
	}
	return "another", true
}
