package controlsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// rule is an entry of acls or grants, as far as a preview looks. Keys match in any case, the legacy ones too.
type rule struct {
	Src        []string `json:"src"`
	Users      []string `json:"users"`
	Dst        []string `json:"dst"`
	Ports      []string `json:"ports"`
	IP         []string `json:"ip"`
	Via        []string `json:"via"`
	SrcPosture []string `json:"srcPosture"`

	line int
}

// previewMatch is a rule that a preview found.
type previewMatch struct {
	Users      []string `json:"users"`
	Ports      []string `json:"ports"`
	LineNumber int      `json:"lineNumber"`
	Via        []string `json:"via,omitempty"`
	Postures   []string `json:"postures,omitempty"`
}

// previewPolicyFile answers which rules of a hypothetical file name a user as source, or an address and port as
// destination. It reads selectors in its own simple way; what a policy admits is the engine's business.
func (s *Sim) previewPolicyFile(c *call) *refusal {
	kind, target := c.r.URL.Query().Get("type"), c.r.URL.Query().Get("previewFor")
	var addr netip.AddrPort
	switch kind {
	case "user":
		if c.st.userByLogin(target) == nil {
			return refuse(http.StatusBadRequest, "user %q not found", target)
		}
	case "ipport":
		var err error
		if addr, err = netip.ParseAddrPort(target); err != nil {
			return refuse(http.StatusBadRequest, "invalid previewFor %q: want an address and port such as 10.0.0.1:80", target)
		}
	default:
		return refuse(http.StatusBadRequest, `invalid type %q: want "user" or "ipport"`, kind)
	}
	report, no := s.judge(c.st, c.body)
	if no != nil {
		return no
	}
	// A file whose tests fail has rules all the same.
	if no := refusalOf(report); no != nil && report.Compiled == nil && len(report.Tests) == 0 {
		return no
	}
	rules, err := rulesOf(c.body)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	c.st.Policy.HuJSON = string(c.body) // this call's own copy; groups and hosts are looked up in it
	matches := []previewMatch{}
	for _, r := range rules {
		m := previewMatch{
			Users: append(slices.Clone(r.Src), r.Users...), Ports: r.destinations(), LineNumber: r.line,
			Via: r.Via, Postures: r.SrcPosture,
		}
		hit := false
		if kind == "user" {
			hit = slices.ContainsFunc(m.Users, func(sel string) bool { return c.st.selects(sel, target, nil) })
		} else {
			hit = slices.ContainsFunc(m.Ports, func(dst string) bool { return c.st.covers(dst, addr) })
		}
		if hit {
			matches = append(matches, m)
		}
	}
	return c.answer(map[string]any{"matches": matches, "type": kind, "previewFor": target})
}

// rulesOf reads acls and then grants, each rule with its line in the text.
func rulesOf(text []byte) ([]rule, error) {
	root, err := hujson.Parse(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	file, _ := root.Value.(*hujson.Object)
	if file == nil {
		return nil, fmt.Errorf("not an object")
	}
	var rules []rule
	for _, section := range []string{"acls", "grants"} {
		for _, member := range file.Members {
			name, _ := member.Name.Value.(hujson.Literal)
			list, isList := member.Value.Value.(*hujson.Array)
			if !isList || !strings.EqualFold(name.String(), section) {
				continue
			}
			for _, element := range list.Elements {
				r := rule{line: 1 + bytes.Count(text[:element.StartOffset], []byte("\n"))}
				element = element.Clone()
				element.Standardize()
				if err := json.Unmarshal(element.Pack(), &r); err != nil {
					return nil, err
				}
				rules = append(rules, r)
			}
		}
	}
	return rules, nil
}

// destinations are the rule's destinations in the form "host:ports", which a grant writes in two lists.
func (r *rule) destinations() []string {
	if len(r.IP) == 0 {
		return append(slices.Clone(r.Dst), r.Ports...)
	}
	list := []string{}
	for _, dst := range r.Dst {
		for _, ip := range r.IP {
			list = append(list, dst+":"+ip[strings.LastIndex(ip, ":")+1:])
		}
	}
	return list
}

// covers reports whether "host:ports" takes in an address and port.
func (st *state) covers(dst string, addr netip.AddrPort) bool {
	i := strings.LastIndex(dst, ":")
	if i < 0 {
		return false
	}
	host, ports := strings.Trim(dst[:i], "[]"), dst[i+1:]
	if !slices.ContainsFunc(strings.Split(ports, ","), func(p string) bool { return inPorts(p, int(addr.Port())) }) {
		return false
	}
	if alias, ok := policySections(st.Policy.HuJSON).Hosts[host]; ok {
		host = alias
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip == addr.Addr()
	}
	if prefix, err := netip.ParsePrefix(host); err == nil {
		return prefix.Contains(addr.Addr())
	}
	d := st.deviceByAddress(addr.Addr())
	switch {
	case host == "*":
		return true
	case host == "autogroup:internet":
		return d == nil && !addr.Addr().IsPrivate()
	case d == nil:
		return false
	case host == "autogroup:self":
		return len(d.Tags) == 0
	}
	return st.selects(host, d.User, d.Tags)
}

func inPorts(ports string, port int) bool {
	if ports == "*" {
		return true
	}
	from, to, isRange := strings.Cut(ports, "-")
	low, err := strconv.Atoi(strings.TrimSpace(from))
	if err != nil {
		return false
	}
	if !isRange {
		return port == low
	}
	high, err := strconv.Atoi(strings.TrimSpace(to))
	return err == nil && low <= port && port <= high
}
