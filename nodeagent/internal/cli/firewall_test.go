//go:build linux

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/kernel/nstest"
)

// backend is a firewall that a test runs over.
type backend struct {
	name   desired.Backend
	noSets bool
}

// overBackends runs a test over every firewall. Each has a namespace of its own.
func overBackends(t *testing.T, f func(t *testing.T, b backend)) {
	for _, b := range []backend{
		{name: desired.NFTables},
		{name: desired.IPTablesNFT},
		{name: desired.IPTablesLegacy},
		{name: desired.IPTablesNFT, noSets: true},
		{name: desired.IPTablesLegacy, noSets: true},
	} {
		name := string(b.name)
		if b.noSets {
			name += " without sets"
		}
		t.Run(name, func(t *testing.T) {
			for _, tool := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy", "ipset"} {
				if _, err := exec.LookPath(tool); err != nil && b.name != desired.NFTables {
					t.Skipf("needs %s", tool)
				}
			}
			f(t, b)
		})
	}
}

// document returns the node's document with the firewall and more keys in it.
func (b backend) document(more string) string {
	return b.in(strings.Replace(nodeDocument, `"peers"`, more+`"peers"`, 1))
}

// in returns a document with the firewall in it.
func (b backend) in(document string) string {
	setting := `"backend": "iptables"`
	if b.name == desired.NFTables {
		setting = `"backend": "nftables"`
	}
	if strings.Contains(document, `"firewall": {`) {
		return strings.Replace(document, `"firewall": {`, `"firewall": {`+setting+`, `, 1)
	}
	return strings.Replace(document, `"peers"`, `"firewall": {`+setting+`}, "peers"`, 1)
}

// tools puts the programs of the backend, and the names of its sets, into commands.
func (b backend) tools(commands string) string {
	return strings.NewReplacer(
		"IP6T ", strings.Replace(string(b.name), "ip", "ip6", 1)+" ", "IPT ", string(b.name)+" ", "SET-", b.name.SetName(""),
	).Replace(commands)
}

func (b backend) agent(t *testing.T, document string) *agent {
	a := newAgent(t, document)
	if b.noSets {
		a.kernel = withoutSets{a.kernel}
	}
	return a
}

// withoutSets is a kernel without ipset.
type withoutSets struct{ kernel.Interface }

func (k withoutSets) Facts(ctx context.Context) (desired.Facts, error) {
	facts, err := k.Interface.Facts(ctx)
	facts.NoSets = true
	return facts, err
}

// node makes a node whose kubelet uses the firewall.
func (b backend) node(t *testing.T) *nstest.Node {
	node := nstest.NewNode(t)
	b.kubelet(node)
	return node
}

// kubelet does what kubelet does to be found out by others, and makes the tables and chains that iptables makes by itself
// as soon as it is used.
func (b backend) kubelet(node *nstest.Node) {
	if b.name == desired.NFTables {
		return
	}
	for _, tool := range []string{"IPT", "IP6T"} {
		for _, chain := range []string{"mangle PREROUTING", "filter FORWARD", "nat POSTROUTING"} {
			table, hook, _ := strings.Cut(chain, " ")
			rule := tool + " -w -t " + table + " %s " + hook + " -j ACCEPT\n"
			node.Run(b.tools(fmt.Sprintf(rule, "-A") + fmt.Sprintf(rule, "-D")))
		}
	}
	b.hint(node)
}

// hint writes the chain that shows which variant kubelet uses, where it is not there.
func (b backend) hint(node *nstest.Node) {
	if b.name != desired.NFTables {
		_, _ = node.Try(b.tools("IPT -w -t mangle -N KUBE-IPTABLES-HINT"))
		_, _ = node.Try(b.tools("IP6T -w -t mangle -N KUBE-IPTABLES-HINT"))
	}
}

// overFirewalls runs a test over nftables and both variants of iptables, with sets.
func overFirewalls(t *testing.T, f func(t *testing.T, b backend)) {
	overBackends(t, func(t *testing.T, b backend) {
		if !b.noSets {
			f(t, b)
		}
	})
}

// iptablesOnly runs a test over both variants of iptables, with sets.
func iptablesOnly(t *testing.T, f func(t *testing.T, b backend)) {
	overBackends(t, func(t *testing.T, b backend) {
		if b.name != desired.NFTables && !b.noSets {
			f(t, b)
		}
	})
}

// withoutOwn takes the agent's lines out of a dump. The rest must be as it was, in the same order.
func withoutOwn(dump string) string {
	var out strings.Builder
	for line := range strings.Lines(dump) {
		own := strings.Contains(line, "TAILMESH-") || strings.Contains(line, "tailmesh-nft-") || strings.Contains(line, "tailmesh-legacy-") ||
			strings.HasSuffix(strings.TrimSpace(line), "lookup 52 proto 116")
		if !own {
			out.WriteString(line)
		}
	}
	return out.String()
}

// saved leaves the tables of nft out of a dump, which shows those of iptables-nft once more, with less in them.
func saved(dump string) string { return dump[strings.Index(dump, "# iptables-nft\n"):] }

// On a node that others use as well, everything of theirs stays, in its order, and cleanup leaves exactly that.
func TestOthersAreLeftAlone(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Crowd()
		before := node.Dump()
		a := b.agent(t, b.document(`"local_cidrs": ["10.7.0.0/16"], "routing": {"fail_closed": true}, `))
		a.want(exitYes, "apply")
		if diff := cmp.Diff(saved(before), withoutOwn(saved(node.Dump()))); diff != "" {
			t.Errorf("apply touched what is not the agent's (-before +after):\n%s", diff)
		}
		a.want(exitYes, "cleanup")
		if diff := cmp.Diff(before, node.Dump()); diff != "" {
			t.Errorf("cleanup did not leave what was there (-before +after):\n%s", diff)
		}
	})
}

// Whatever somebody does to the agent's objects is seen and mended, and costs nothing else.
func TestRepairIPTables(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		tests := []struct{ name, damage string }{
			{"table flushed", "IPT -t nat -F"},
			{"chain flushed", "IPT -t nat -F TAILMESH-POSTROUTING"},
			{"IPv6 chain flushed", "IP6T -t mangle -F TAILMESH-PREROUTING"},
			{"all flushed and deleted", "IPT -t mangle -F\nIPT -t mangle -X TAILMESH-PREROUTING"},
			{"jump deleted", "IPT -t mangle -D PREROUTING 1"},
			{"jump twice", "IPT -t mangle -A PREROUTING -m comment --comment tailmesh -j TAILMESH-PREROUTING"},
			{"rule in front of the jump", "IPT -t mangle -I PREROUTING 1 -p sctp -j ACCEPT"},
			{"a jump with a condition for the jump", "IPT -t mangle -R PREROUTING 1 -p tcp -m comment --comment tailmesh -j TAILMESH-PREROUTING"},
			{"a jump with a condition beside it", "IPT -t mangle -A PREROUTING ! -i lo -m comment --comment tailmesh -j TAILMESH-PREROUTING"},
			{"a way without return for the jump", "IPT -t nat -R POSTROUTING 1 -m comment --comment tailmesh -g TAILMESH-POSTROUTING"},
			{"ways without return beside it", "IP6T -t nat -A POSTROUTING -m comment --comment tailmesh -g TAILMESH-POSTROUTING\n" +
				"IP6T -t nat -A POSTROUTING -p udp -m comment --comment tailmesh -g TAILMESH-POSTROUTING"},
			{"in place of the jump, one of somebody else", "IPT -t mangle -R PREROUTING 1 -m comment --comment mine -j TAILMESH-PREROUTING"},
			{"in place of the jump, one to elsewhere", "IPT -t mangle -R PREROUTING 1 -m comment --comment tailmesh -j KUBE-HINT"},
			{"rule deleted", "IPT -t mangle -D TAILMESH-PREROUTING 1"},
			{"rule in front", "IPT -t mangle -I TAILMESH-PREROUTING 1 -j RETURN"},
			{"rule behind", "IPT -t nat -A TAILMESH-POSTROUTING -s 10.0.0.1 -j ACCEPT"},
			{"rules in another order", "IPT -t nat -D TAILMESH-POSTROUTING 1\nIPT -t nat -A TAILMESH-POSTROUTING -o tailscale0 " +
				"-m set --match-set SET-local4 src -m set --match-set SET-local4 dst -m comment --comment 'traffic within this location, IPv4' -j RETURN"},
			{"rule replaced", "IPT -t nat -R TAILMESH-POSTROUTING 2 -d 100.64.0.0/10 -o tailscale0 -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m comment --comment 'sources of pods to peers, IPv4' -j SNAT --to-source 100.64.0.99"},
			{"rule with one more condition", "IPT -t nat -R TAILMESH-POSTROUTING 2 -d 100.64.0.0/10 -o tailscale0 -p tcp -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m comment --comment 'sources of pods to peers, IPv4' -j SNAT --to-source 100.64.0.11"},
			{"whole mark set", "IPT -t mangle -R TAILMESH-PREROUTING 1 -d 100.64.0.0/10 ! -i tailscale0 -m set --match-set SET-pods4 src " +
				"-m set --match-set SET-peers4 dst -m conntrack --ctdir ORIGINAL -m comment --comment 'connections of pods to peers, IPv4' -j MARK --set-mark 0x2000"},
			{"peer deleted", "ipset del SET-peers4 100.64.0.12"},
			{"peer added", "ipset add SET-peers4 100.64.0.99"},
			{"pods flushed", "ipset flush SET-pods4"},
			{"pods widened", "ipset add SET-pods4 10.0.0.0/9"},
			{"sets destroyed", "IPT -t mangle -F TAILMESH-PREROUTING\nIPT -t nat -F TAILMESH-POSTROUTING\nipset destroy SET-peers4\nipset destroy SET-pods4"},
		}
		for _, kind := range []string{"hash:net", "hash:ip,port", "hash:ip family inet6", "bitmap:ip range 100.64.0.0/16", "list:set"} {
			tests = append(tests, struct{ name, damage string }{"set of type " + kind, "IPT -t mangle -F TAILMESH-PREROUTING\n" +
				"IPT -t nat -F TAILMESH-POSTROUTING\nipset destroy SET-peers4\nipset create SET-peers4 " + kind})
		}
		node := b.node(t)
		node.Run(b.tools("IPT -w -t mangle -N KUBE-HINT"))
		a := b.agent(t, b.document(`"local_cidrs": ["10.7.0.0/16", "192.168.10.0/24"], `))
		a.want(exitYes, "apply")
		whole := saved(node.Dump())
		for _, tt := range tests {
			node.Run(b.tools(tt.damage))
			if stdout, _, code := a.run("status"); code != exitNo {
				t.Errorf("%s: status says %d\n%s", tt.name, code, stdout)
			}
			stdout, stderr, code := a.run("apply")
			if strings.Contains(tt.name, "of the jump") { // it is not the agent's, and stays
				node.Run(b.tools("IPT -t mangle -D PREROUTING 2"))
			}
			if diff := cmp.Diff(whole, saved(node.Dump())); diff != "" || code != exitYes {
				t.Errorf("%s: apply: exit code %d\n%s%s(-want +got):\n%s", tt.name, code, stdout, stderr, diff)
			}
		}
	})
}

// stepwise makes each change of the firewall by itself, and looks in between.
type stepwise struct {
	kernel.Interface
	look  func(after string)
	steps int
}

func (k *stepwise) Apply(ctx context.Context, c desired.Changes) error {
	var steps []desired.Changes
	steps = append(steps, desired.Changes{AddRules: c.AddRules})
	for i, change := range c.Firewall {
		if change.Backend == desired.NFTables && i > 0 && c.Firewall[i-1].Backend == desired.NFTables {
			last := &steps[len(steps)-1] // one transaction
			last.Firewall = append(last.Firewall, change)
			continue
		}
		steps = append(steps, desired.Changes{Firewall: []desired.FirewallChange{change}})
	}
	steps = append(steps, desired.Changes{DelRules: c.DelRules})
	for _, step := range steps {
		if step.Empty() {
			continue
		}
		if err := k.Interface.Apply(ctx, step); err != nil {
			return err
		}
		k.steps++
		k.look(strings.Join(step.Lines(), "; "))
	}
	return nil
}

// From one backend to the next, and from one document to the next within iptables, every connection that a pod begins in
// between reaches the peer, whatever step the change has come to.
func TestNoGapBetweenFirewalls(t *testing.T) {
	node := nstest.NewNode(t)
	closeTunnel(node)
	nftables, nft, legacy := backend{name: desired.NFTables}, backend{name: desired.IPTablesNFT}, backend{name: desired.IPTablesLegacy}
	a := nftables.agent(t, nftables.document(""))
	a.want(exitYes, "apply")
	ways := &stepwise{Interface: a.kernel}
	sets := a.kernel
	ways.look = func(after string) {
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			if !node.PodReaches(address) {
				t.Errorf("the pod does not reach %s after %s", address, after)
			}
		}
	}
	a.kernel = ways
	for _, step := range []struct {
		name     string
		prepare  func()
		document string
		firewall string
	}{
		{"to iptables", func() {}, nft.document(""), "iptables-nft"},
		{"a location", func() {}, nft.document(`"local_cidrs": ["10.7.0.0/16"], `), "iptables-nft"},
		{"another location", func() {}, nft.document(`"local_cidrs": ["10.8.0.0/16"], "routing": {"fail_closed": true}, `), "iptables-nft"},
		{"another mark", func() {}, nft.document(`"routing": {"mark": "0x10"}, `), "iptables-nft"},
		{"more pods", func() {}, strings.Replace(nft.document(""), `"10.244.1.0/24"`, `"10.244.1.0/24", "10.244.0.0/24"`, 1), "iptables-nft"},
		{"no sets", func() { ways.Interface = withoutSets{sets} }, nft.document(""), "iptables-nft"},
		{"another peer", func() {}, strings.Replace(nft.document(""), `"peers": [`, `"peers": [{"name": "a", "addresses": ["100.64.0.5"]}, `, 1), "iptables-nft"},
		{"sets again", func() { ways.Interface = sets }, nft.document(""), "iptables-nft"},
		{"kubelet uses legacy", func() { legacy.kubelet(node) }, legacy.document(""), "iptables-legacy"},
		{"kubelet uses nft", func() {
			node.Run("iptables-legacy -w -t mangle -X KUBE-IPTABLES-HINT\nip6tables-legacy -w -t mangle -X KUBE-IPTABLES-HINT")
			nft.kubelet(node)
		}, nft.document(""), "iptables-nft"},
		{"back to nftables", func() {}, nftables.document(""), "nftables"},
	} {
		step.prepare()
		a.write(step.document)
		before := ways.steps
		if stdout, stderr, code := a.run("apply"); code != exitYes && step.name != "another peer" {
			t.Fatalf("%s: exit code %d\n%s%s", step.name, code, stdout, stderr)
		}
		if ways.steps == before {
			t.Errorf("%s changed nothing", step.name)
		}
		if got, _, _ := a.run("status"); !strings.Contains(got, "firewall "+step.firewall+" ") || strings.Contains(got, "PENDING") {
			t.Errorf("%s: %s", step.name, got)
		}
		dump := node.Dump()
		for name, mark := range map[string]string{
			"nftables": "table inet tailmesh", "iptables-nft": "--match-set tailmesh-nft-peers4", "iptables-legacy": "--match-set tailmesh-legacy-peers4",
		} {
			if there := strings.Contains(dump, mark); there != (name == step.firewall) && ways.Interface == sets {
				t.Errorf("%s: %s is there: %v\n%s", step.name, name, there, dump)
			}
		}
	}
	a.kernel = sets
	a.want(exitYes, "cleanup")
	if dump := node.Dump(); strings.Contains(strings.ToLower(dump), "tailmesh") {
		t.Errorf("cleanup left something:\n%s", dump)
	}
}

// cleanup takes away whatever there is, in every backend, with no document to say which.
func TestCleanupOfEveryFirewall(t *testing.T) {
	node := nstest.NewNode(t)
	nft, legacy := backend{name: desired.IPTablesNFT}, backend{name: desired.IPTablesLegacy}
	nft.kubelet(node)
	legacy.kubelet(node)
	before := node.Dump()
	k := kernel.NewLinux()
	for _, b := range []backend{{name: desired.NFTables}, nft, legacy} {
		facts, err := k.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := config.Parse([]byte(b.document("")))
		if err != nil {
			t.Fatal(err)
		}
		facts.IPTables = b.name
		state, err := desired.Build(doc, facts)
		if err != nil {
			t.Fatal(err)
		}
		changes := desired.Diff(desired.Facts{}, state) // beside what is there
		changes.AddRules = nil
		if err := k.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	newAgent(t, "").want(exitYes, "cleanup")
	if diff := cmp.Diff(before, node.Dump()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// What somebody else's rules use cannot be taken away. cleanup says so, and leaves nothing beside it.
func TestCleanupOfWhatOthersUse(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		before := node.Dump()
		a := b.agent(t, b.document(`"routing": {"fail_closed": true, "mode": "rules"}, `))
		a.want(exitYes, "apply")
		node.Run(b.tools("IPT -w -t mangle -I PREROUTING 1 -i lo -j TAILMESH-PREROUTING\nIPT -w -t nat -A POSTROUTING -m set --match-set SET-peers4 dst -j ACCEPT"))
		stdout, stderr, code := a.run("cleanup")
		const intro = "tailmesh-agent: not everything could be taken away: "
		if code != exitUnknown || !strings.HasPrefix(stderr, intro) || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "-X TAILMESH-PREROUTING") || !strings.Contains(stderr, "ipset destroy "+b.name.SetName("peers4")) {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		if !strings.Contains(stdout, "ip rule del pref 0") || strings.Contains(stdout, b.tools("IPT -t mangle -F TAILMESH-PREROUTING")) {
			t.Errorf("it says that it made these changes:\n%s", stdout)
		}
		own, _ := parts(node.Dump())
		for line := range strings.Lines(own) {
			if !strings.Contains(line, "TAILMESH-PREROUTING") && !strings.Contains(line, b.name.SetName("peers4")) {
				t.Errorf("left: %s", line)
			}
		}
		var failed failure
		stdout, stderr, code = a.run("cleanup", "--json")
		if err := json.Unmarshal([]byte(stdout), &failed); err != nil || failed.Error == "" || stderr != "" || code != exitUnknown {
			t.Errorf("exit code %d, %v, %s%s", code, err, stdout, stderr)
		}
		node.Run(b.tools("IPT -w -t mangle -D PREROUTING 1\nIPT -w -t nat -F POSTROUTING"))
		a.want(exitYes, "cleanup")
		if diff := cmp.Diff(before, node.Dump()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// What somebody else's rules still use of a firewall that the agent has left keeps nothing from being done and judged: the new
// one is in force, the log says once what is left and why, and it goes as soon as it can.
func TestLeftover(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		nftables := backend{name: desired.NFTables}
		node := b.node(t)
		closeTunnel(node)
		clean := node.Dump()
		s := startService(t, node, b.agent(t, b.document("")))
		s.status("ok: 2 of 2")
		node.Run(b.tools("IPT -w -t mangle -A PREROUTING -i lo -j TAILMESH-PREROUTING\nIPT -w -t nat -A POSTROUTING -m set --match-set SET-peers4 dst -j ACCEPT"))
		s.agent.replace(nftables.document(""))
		s.status("wrong: 2 of 2")
		changes := strings.Count(s.log.String(), "command=")
		for range 3 {
			passes := s.passes()
			s.nudge()
			s.expect("another pass", func() bool { return s.passes() > passes })
		}
		if log := s.log.String(); strings.Count(log, "what is not wanted any more could not all be taken away") != 1 || strings.Contains(log, "could not bring") ||
			strings.Count(log, "command=") != changes {
			t.Errorf("the log:\n%s", log)
		}
		for _, address := range []string{nstest.Peer, nstest.Peer6} {
			if !node.PodReaches(address) {
				t.Errorf("the pod does not reach %s", address)
			}
		}
		if stdout, stderr, code := s.agent.run("status"); code != exitNo || !strings.Contains(stderr, "not wanted any more is left") ||
			strings.Count(stdout, " ok\n") < 2 || !strings.Contains(stdout, "-X TAILMESH-PREROUTING") {
			t.Errorf("status: exit code %d\n%s%s", code, stdout, stderr)
		}
		node.Run(b.tools("IPT -w -t mangle -D PREROUTING -i lo -j TAILMESH-PREROUTING\nIPT -w -t nat -F POSTROUTING"))
		s.nudge()
		s.status("ok: 2 of 2")
		s.stop()
		s.agent.want(exitYes, "cleanup")
		if diff := cmp.Diff(clean, node.Dump()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// children is what the processes that this one has started and seen end have cost: none ends without page faults.
func children(t *testing.T) int64 {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return usage.Minflt
}

// With nftables no process is started, whatever is done. With iptables none is where nothing has changed, for as long as
// the agent has read the rules once.
func TestProcesses(t *testing.T) {
	overBackends(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Crowd()
		a := b.agent(t, b.document(""))
		for _, tt := range []struct {
			command string
			code    int
			may     bool // start processes with iptables
		}{
			{"plan", exitNo, false},
			{"apply", exitYes, true},
			{"plan", exitYes, false},
			{"status", exitYes, false},
			{"apply", exitYes, false},
			{"plan", exitYes, false},
			{"cleanup", exitYes, true},
			{"plan", exitNo, false},
		} {
			before := children(t)
			a.want(tt.code, tt.command)
			started := children(t) != before
			if started && (b.name == desired.NFTables || !tt.may) {
				t.Errorf("%s started a process", tt.command)
			}
			if tt.command == "apply" && tt.may && !started && b.name != desired.NFTables {
				t.Error("the first apply started no process: this test proves nothing")
			}
			node.PodReaches(nstest.Peer) // what rules have counted is no change
		}
	})
}

// The agent hears of, or sees, changes to iptables while it runs, and of a kubelet that comes later and uses the other
// variant. Where the kernel gives no notice, any other one makes it look.
func TestRunIPTables(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		closeTunnel(node)
		a := b.agent(t, b.document(""))
		s := startService(t, node, a)
		s.status("ok: 2 of 2")
		nudge := func() {
			if b.name == desired.IPTablesLegacy {
				node.Run("ip link add nudge type bridge\nip link del nudge")
			}
		}
		quiet := children(t)
		passes := s.passes()
		node.InPod(func() {}) // no process of the test's own
		if err := (kernel.Linux{}).Apply(t.Context(), desired.Changes{AddRules: []desired.Rule{strange()}, DelRules: []desired.Rule{strange()}}); err != nil {
			t.Fatal(err)
		}
		s.expect("a look", func() bool { return s.passes() > passes })
		if children(t) != quiet {
			t.Error("a look at a node on which nothing of the agent's had changed started a process")
		}
		whole := saved(node.Dump())
		for _, damage := range []string{"IPT -t nat -F TAILMESH-POSTROUTING", "IPT -t mangle -D PREROUTING 1", "IPT -t nat -F"} {
			node.Run(strings.ReplaceAll(damage, "IPT", string(b.name)+" -w"))
			nudge()
			s.expect("the repair of "+damage, func() bool { return saved(node.Dump()) == whole })
		}
		other := backend{name: desired.IPTablesNFT}
		if b.name == desired.IPTablesNFT {
			other.name = desired.IPTablesLegacy
			node.Run("iptables-nft -t mangle -X KUBE-IPTABLES-HINT\nip6tables-nft -t mangle -X KUBE-IPTABLES-HINT")
		}
		other.kubelet(node)
		nudge()
		node.Run("ip link add nudge type bridge\nip link del nudge")
		s.expect("the way to "+string(other.name), func() bool {
			dump := node.Dump()
			return strings.Contains(dump, other.name.SetName("peers4")) && !strings.Contains(dump, b.name.SetName("peers4"))
		})
		if !node.PodReaches(nstest.Peer) {
			t.Error("the pod does not reach the peer")
		}
	})
}

// strange is a rule that is nobody's business.
func strange() desired.Rule {
	return desired.Rule{Family: desired.IPv4, Priority: 31000, Mark: 0x40, Mask: 0x40, Action: desired.Lookup, Table: 99, Protocol: 99}
}

// While somebody holds the lock of iptables, each attempt says so, no rule is changed without it, and as soon as it is free
// the work is done.
func TestLockedIPTables(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	b := backend{name: desired.IPTablesLegacy}
	node := b.node(t)
	path := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	lock, err := os.Create(path)
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	_, before := parts(node.Dump())
	s := startService(t, node, b.agent(t, b.document("")))
	time.Sleep(30 * time.Second)
	const want = "another program has held the lock of iptables (/run/xtables.lock) for 5 seconds: try again when it is done"
	if log := s.log.String(); strings.Count(log, want) < 3 || strings.Count(log, want) != strings.Count(log, "could not bring") {
		t.Errorf("the log does not say so, once an attempt:\n%s", log)
	}
	if own, foreign := parts(node.Dump()); strings.Contains(own, "TAILMESH-") || foreign != before {
		t.Errorf("rules were changed without the lock: %s\n%s", own, cmp.Diff(before, foreign))
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	soon := func(what string, condition func() bool) {
		t.Helper()
		for range 12 {
			if node.Wait(condition) {
				return
			}
		}
		t.Fatalf("%s did not happen; log:\n%s", what, s.log)
	}
	soon("the work", func() bool { return strings.Contains(lastLine(s.systemd.String()), "STATUS=ok: 2 of 2") })

	// Of a change to iptables-legacy the kernel gives no notice: the agent finds it when it looks, within half a minute.
	whole, _ := parts(node.Dump())
	node.Run("iptables-legacy -t nat -F")
	soon("the repair", func() bool { own, _ := parts(node.Dump()); return own == whole })
}

// Where every other call of iptables fails, the agent gets there all the same, and touches nothing else.
func TestUnreliableIPTables(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		node.Crowd()
		_, before := parts(node.Dump())
		a := b.agent(t, b.document(""))
		a.want(exitYes, "apply")
		whole, _ := parts(node.Dump())
		a.want(exitYes, "cleanup")

		tools := map[string]string{} // by what the agent calls them
		dir := t.TempDir()
		for _, name := range []string{"IPT ", "IP6T "} {
			for _, which := range []string{"", "-restore"} {
				tool, err := exec.LookPath(strings.TrimSpace(b.tools(name)) + which)
				must(t, err)
				tools[name+which] = tool
				script := "#!/bin/sh\n[ $(($(od -An -N1 -tu1 /dev/urandom) % 2)) = 0 ] && exec " + tool + " \"$@\"\n" +
					"echo 'iptables: Resource temporarily unavailable.' >&2\nexit 4\n"
				must(t, os.WriteFile(filepath.Join(dir, filepath.Base(tool)), []byte(script), 0o700))
			}
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		s := startService(t, node, a)
		settle := func(what string) {
			t.Helper()
			begin := time.Now()
			for {
				if own, _ := parts(node.Dump()); own == whole {
					t.Logf("%s: %s", what, time.Since(begin).Round(time.Second/10))
					return
				}
				if time.Since(begin) > time.Minute {
					t.Fatalf("%s: not there after a minute; log:\n%s", what, s.log)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		settle("the start")
		node.Run(tools["IPT "] + " -w -t nat -F TAILMESH-POSTROUTING\n" + tools["IPT "] + " -w -t mangle -D PREROUTING 1")
		s.nudge()
		settle("the repair")
		// A pass that fails of reading is followed by another only after a while, unless something happens.
		for begin := time.Now(); !strings.Contains(lastLine(s.systemd.String()), "STATUS=ok"); time.Sleep(200 * time.Millisecond) {
			if s.nudge(); time.Since(begin) > time.Minute {
				t.Fatalf("the verdict: not there after a minute; log:\n%s", s.log)
			}
		}
		if _, foreign := parts(node.Dump()); foreign != before {
			t.Errorf("what is not the agent's was touched (-before +after):\n%s", cmp.Diff(before, foreign))
		}
	})
}

// iptables needs a right more than the rest, and what is missing is named.
func TestIPTablesWithoutRaw(t *testing.T) {
	iptablesOnly(t, func(t *testing.T, b backend) {
		node := b.node(t)
		a := b.agent(t, b.document(""))
		var stderr string
		var code int
		node.Go(func() { // the thread ends with it
			for _, err := range []error{
				unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_RAW, 0, 0, 0),
				unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			_, stderr, code = a.run("apply")
		})()
		const want = "tailmesh-agent: iptables needs CAP_NET_RAW beside CAP_NET_ADMIN: run as root, or add it to the unit as its comments say"
		if code != exitUnknown || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %s", code, stderr)
		}
		a.want(exitYes, "apply") // and from there it goes on
	})
}

// Without the programs nothing is changed, and one message says what to do. With `auto` they are not missed.
func TestWithoutIPTables(t *testing.T) {
	node := nstest.NewNode(t)
	a := newAgent(t, backend{name: desired.IPTablesNFT}.document(""))
	before := node.Dump()
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	_, stderr, code := a.run("apply")
	want := `firewall.backend: "iptables" cannot be had: there is no iptables-nft on the PATH: install the iptables package with its nft variant, or use "nftables"` + "\n"
	if code != exitUnknown || !strings.HasSuffix(stderr, want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d\n%swant %s", code, stderr, want)
	}
	t.Setenv("PATH", path)
	if diff := cmp.Diff(before, node.Dump()); diff != "" {
		t.Errorf("something was changed (-before +after):\n%s", diff)
	}
	t.Setenv("PATH", t.TempDir())
	a.write(nodeDocument)
	a.want(exitYes, "apply")
}
