package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawRules draws acls and grants over the names of smallTailnet.
func drawRules(t *rapid.T) (acls, grants []string) {
	src := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "tag:router", "group:dev", "ada@example.com", "autogroup:member", "autogroup:tagged", "webhost", "10.1.0.0/16", "ipset:nets"})
	dst := rapid.SampledFrom([]string{"*", "tag:web", "tag:db", "tag:router", "group:ada", "bob@example.com", "webhost", "office", "printer", "10.0.0.0/8", "autogroup:internet", "ipset:nets"})
	ports := rapid.SampledFrom([]string{"*", "22", "80-90", "443", "1-65535"})
	proto := rapid.SampledFrom([]string{"", "tcp", "udp", "icmp", "ip-in-ip", "47"})
	srcs := rapid.SliceOfN(src, 1, 3)
	dsts := rapid.SliceOfN(dst, 1, 3)
	for range rapid.IntRange(0, 4).Draw(t, "acls") {
		p := proto.Draw(t, "proto")
		var to []string
		for _, d := range dsts.Draw(t, "dst") {
			port := "*"
			if p == "" || p == "tcp" || p == "udp" {
				port = ports.Draw(t, "ports")
			}
			to = append(to, d+":"+port)
		}
		acls = append(acls, fmt.Sprintf(`{"action": "accept", "proto": %q, "src": %s, "dst": %s}`, p, quoteList(srcs.Draw(t, "src")), quoteList(to)))
	}
	for range rapid.IntRange(0, 4).Draw(t, "grants") {
		ip := rapid.SliceOfN(rapid.SampledFrom([]string{"*", "22", "tcp:80-90", "udp:53", "icmp:*", "ip-in-ip:*"}), 1, 3).Draw(t, "ip")
		via := ""
		if rapid.IntRange(0, 3).Draw(t, "via") == 0 {
			via = `, "via": ["tag:left"]`
		}
		grants = append(grants, fmt.Sprintf(`{"src": %s, "dst": %s, "ip": %s%s}`, quoteList(srcs.Draw(t, "src")), quoteList(dsts.Draw(t, "dst")), quoteList(ip), via))
	}
	return acls, grants
}

func policyText(acls, grants []string) string {
	return "{" + smallNames + `"acls": [` + strings.Join(acls, ",\n\t") + `], "grants": [` + strings.Join(grants, ", ") + "]}"
}

func compiled(t interface{ Fatalf(string, ...any) }, text string, inv *Inventory) *Compiled {
	r := Check("p", []byte(text), inv, nil)
	if !r.Accepted {
		t.Fatalf("refused: %s\n%s", r.Message, text)
	}
	return r.Compiled
}

// access is everything that the filters admit, apart from how it is arranged into rules.
func access(t interface{ Fatalf(string, ...any) }, c *Compiled) map[string]bool {
	out := map[string]bool{}
	for _, device := range c.Devices() {
		rules, err := c.Filter(device)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, r := range rules {
			for _, s := range r.SrcIPs {
				for _, d := range r.DstPorts {
					out[fmt.Sprint(device, " ", s, " ", d, " ", r.IPProto)] = true
				}
			}
		}
	}
	return out
}

func filters(t interface{ Fatalf(string, ...any) }, c *Compiled) string {
	all := map[string][]FilterRule{}
	for _, device := range c.Devices() {
		rules, err := c.Filter(device)
		if err != nil {
			t.Fatalf("%v", err)
		}
		all[device] = rules
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

func TestAddingAGrantTakesNothingAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls, grants := drawRules(t)
		_, more := drawRules(t)
		before, after := compiled(t, policyText(acls, grants), smallTailnet()), compiled(t, policyText(acls, append(slices.Clone(grants), more...)), smallTailnet())
		have := access(t, after)
		for a := range access(t, before) {
			if !have[a] {
				t.Fatalf("lost %s", a)
			}
		}
		src, dst := rapid.SampledFrom(before.Devices()).Draw(t, "from"), rapid.SampledFrom(before.Devices()).Draw(t, "to")
		was, err := before.Can(src, dst, "tcp", 22)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := after.Can(src, dst, "tcp", 22); err != nil || was.Verdict == Pass && is.Verdict != Pass {
			t.Fatalf("%s to %s: was %v, is %v (%v)", src, dst, was, is, err)
		}
	})
}

func TestOrderOfACLsChangesNoAccess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls, grants := drawRules(t)
		other := rapid.Permutation(acls).Draw(t, "order")
		a, b := access(t, compiled(t, policyText(acls, grants), smallTailnet())), access(t, compiled(t, policyText(other, grants), smallTailnet()))
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestOrderOfInventoryChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls, grants := drawRules(t)
		inv := smallTailnet()
		inv.Devices = rapid.Permutation(inv.Devices).Draw(t, "devices")
		inv.Users = rapid.Permutation(inv.Users).Draw(t, "users")
		text := policyText(acls, grants)
		if diff := cmp.Diff(filters(t, compiled(t, text, smallTailnet())), filters(t, compiled(t, text, inv))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestFormattingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls, grants := drawRules(t)
		text := policyText(acls, grants)
		once, err := Format([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Format(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("formatting again changes %q to %q (%v)", once, twice, err)
		}
		if diff := cmp.Diff(filters(t, compiled(t, text, smallTailnet())), filters(t, compiled(t, string(once), smallTailnet()))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestCanAgreesWithTheFilter holds the judging of flows against what the device's own filter says.
func TestCanAgreesWithTheFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls, grants := drawRules(t)
		c := compiled(t, policyText(acls, grants), smallTailnet())
		src, dst := rapid.SampledFrom(c.Devices()).Draw(t, "from"), rapid.SampledFrom(c.Devices()).Draw(t, "to")
		f := rapid.SampledFrom([]struct {
			proto string
			port  int
		}{{"tcp", 22}, {"tcp", 85}, {"udp", 53}, {"ip-in-ip", 0}, {"gre", 0}}).Draw(t, "flow")
		want := Fail
		for _, family := range []int{0, 1} {
			if filterAdmits(t, c, c.x.find(src).addrs[family].String(), dst, c.x.find(dst).addrs[family].String(), f.proto, f.port) {
				want = Pass
			}
		}
		got, err := c.Can(src, dst, f.proto, f.port)
		if err != nil || got.Verdict != want {
			t.Fatalf("%s to %s, %v: got %+v (%v), the filter says %v", src, dst, f, got, err, want)
		}
	})
}

// filterAdmits reads a device's filter as a node does.
func filterAdmits(t *rapid.T, c *Compiled, src, device, dst, proto string, port int) bool {
	rules, err := c.Filter(device)
	if err != nil {
		t.Fatal(err)
	}
	n, err := parseProto(proto)
	if err != nil {
		t.Fatal(err)
	}
	covers := func(set, addr string) bool {
		if set == "*" {
			return true
		}
		rg, _, ok := parseAddrs(set)
		a, _, _ := parseAddrs(addr)
		return ok && rg.Contains(a.From())
	}
	for _, r := range rules {
		protos := r.IPProto
		if protos == nil {
			protos = []int{6, 17, 1, 58}
		}
		if !slices.Contains(protos, n) || !slices.ContainsFunc(r.SrcIPs, func(s string) bool { return covers(s, src) }) {
			continue
		}
		for _, d := range r.DstPorts {
			if covers(d.IP, dst) && (d.Ports.isAll() || port > 0 && d.Ports.contains(port)) {
				return true
			}
		}
	}
	return false
}

// TestCompiledIsSafeForConcurrentUse is for the race detector.
func TestCompiledIsSafeForConcurrentUse(t *testing.T) {
	c := compiled(t, "{"+smallNames+`"acls": [{"action": "accept", "src": ["*"], "dst": ["autogroup:self:*", "*:80"]}]}`, smallTailnet())
	want := filters(t, c)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := filters(t, c); got != want {
				t.Error("another answer")
			}
			if d, err := c.Can("tag:web", "tag:db", "tcp", 80); err != nil || d.Verdict != Pass {
				t.Error(d, err)
			}
			c.require(meshRequirementOf("tag:router"))
		})
	}
	wg.Wait()
}

func meshRequirementOf(tag string) Requirement {
	return Requirement{Src: []string{tag}, Dst: []string{tag}, Proto: "4"}
}
