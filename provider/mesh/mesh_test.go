package mesh

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/policy"
	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// device is the n-th machine of a tailnet.
func device(n int, name string, tags ...string) policy.Device {
	return policy.Device{
		NodeID: fmt.Sprintf("n%dCNTRL", n), Name: name + ".tail1234.ts.net", Hostname: name, Authorized: true, Tags: tags,
		Addresses: []string{fmt.Sprintf("100.64.0.%d", n), fmt.Sprintf("fd7a:115c:a1e0::%x", n)},
	}
}

// fleet is four nodes in two places and a laptop.
func fleet() []policy.Device {
	return []policy.Device{
		device(11, "ams1", "tag:node"), device(12, "ams2", "tag:node"),
		device(21, "fra1", "tag:node", "tag:other"), device(22, "fra2", "tag:node"),
		device(99, "laptop"),
	}
}

func prefixList(text ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(text))
	for i, t := range text {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// spec is the mesh of the fleet, changed by the caller.
func spec(change func(*Spec)) Spec {
	s := New("futhark")
	s.Selector.Tags = []string{"tag:node"}
	s.Locations = map[string]string{"ams1": "ams", "ams2": "ams", "fra1": "fra", "fra2": "fra"}
	s.PodCIDRs = map[string][]netip.Prefix{"ams1": prefixList("10.244.1.0/24"), "fra2": prefixList("10.244.4.0/24", "fd00:4::/64")}
	s.LocalCIDRs = map[string][]netip.Prefix{"ams": prefixList("192.168.10.0/24", "10.7.0.0/16")}
	if change != nil {
		change(&s)
	}
	return s
}

func peerNames(d config.Document) (names []string) {
	for _, p := range d.Peers {
		names = append(names, p.Name)
	}
	return names
}

func TestBuildDocument(t *testing.T) {
	plan := Build(fleet(), spec(nil))
	if len(plan.Problems) > 0 {
		t.Fatalf("problems: %+v", plan.Problems)
	}
	got, err := plan.Documents["ams1"].Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": 1,
  "mesh": "futhark",
  "node": {"name": "ams1", "id": "n11CNTRL", "addresses": ["100.64.0.11", "fd7a:115c:a1e0::b"], "location": "ams"},
  "pod_cidrs": ["10.244.1.0/24"],
  "peers": [
    {"name": "ams2", "id": "n12CNTRL", "addresses": ["100.64.0.12", "fd7a:115c:a1e0::c"], "location": "ams"},
    {"name": "fra1", "id": "n21CNTRL", "addresses": ["100.64.0.21", "fd7a:115c:a1e0::15"], "location": "fra"},
    {"name": "fra2", "id": "n22CNTRL", "addresses": ["100.64.0.22", "fd7a:115c:a1e0::16"], "location": "fra"}
  ],
  "discover": {"tags": ["tag:node"]},
  "local_cidrs": ["192.168.10.0/24", "10.7.0.0/16"],
  "routing": {"mode": "mark", "mark": "0x2000", "priority": "auto", "table": 52, "fail_closed": false},
  "firewall": {"backend": "auto", "snat": true},
  "overlay": {"protocol": "ip-in-ip"}
}`
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w, g); d != "" {
		t.Errorf("document (-want +got):\n%s", d)
	}
}

func TestGranularity(t *testing.T) {
	for _, tt := range []struct {
		granularity  Granularity
		peersOfAms1  []string
		discover     bool
		requirements int // for IPv4 and IPv6 pods
	}{
		{Full, []string{"ams2", "fra1", "fra2"}, true, 2},
		{Location, []string{"fra1", "fra2"}, false, 4},
		{Cross, []string{"fra1", "fra2"}, false, 4},
	} {
		t.Run(string(tt.granularity), func(t *testing.T) {
			plan := Build(fleet(), spec(func(s *Spec) { s.Granularity = tt.granularity }))
			doc := plan.Documents["ams1"]
			if d := cmp.Diff(tt.peersOfAms1, peerNames(doc)); d != "" {
				t.Errorf("peers (-want +got):\n%s", d)
			}
			if got := len(doc.Discover.Tags) > 0; got != tt.discover {
				t.Errorf("discover = %v, want %v", got, tt.discover)
			}
			if len(plan.Requirements) != tt.requirements {
				t.Errorf("%d requirements, want %d: %+v", len(plan.Requirements), tt.requirements, plan.Requirements)
			}
		})
	}
}

func TestPeerSource(t *testing.T) {
	many := make([]policy.Device, 400)
	for i := range many {
		many[i] = policy.Device{
			NodeID: fmt.Sprintf("n%dCNTRL", i), Name: fmt.Sprintf("node%03d.example.ts.net", i), Authorized: true, Tags: []string{"tag:node"},
			Addresses: []string{fmt.Sprintf("100.64.%d.%d", i/250, i%250+1)},
		}
	}
	for _, tt := range []struct {
		name    string
		devices []policy.Device
		spec    func(*Spec)
		peers   int    // of the first node's document
		problem string // a part of it; none where empty
	}{
		{"listed", fleet(), func(*Spec) {}, 3, ""},
		{"discovered", fleet(), func(s *Spec) { s.Peers = Discovered }, 0, ""},
		{"many are worth a word", many, func(s *Spec) { s.LocalCIDRs, s.Locations, s.PodCIDRs = nil, nil, nil }, 399, `peers = "discovered"`},
		{"many, discovered", many, func(s *Spec) { s.LocalCIDRs, s.Locations, s.PodCIDRs, s.Peers = nil, nil, nil, Discovered }, 0, ""},
		{"not with locations", fleet(), func(s *Spec) { s.Granularity, s.Peers = Location, Discovered }, -1, "agents can discover all peers only"},
		{"not without discovery", fleet(), func(s *Spec) { s.Discover, s.Peers = false, Discovered }, -1, "agents can discover all peers only"},
		{"not by name", fleet(), func(s *Spec) { s.Selector.Names, s.Peers = []string{"ams1"}, Discovered }, -1, "agents can discover all peers only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := Build(tt.devices, spec(tt.spec))
			var said []string
			for _, p := range plan.Problems {
				if p.Attribute == "peers" {
					said = append(said, p.Message)
				}
			}
			if all := strings.Join(said, "; "); (all == "") != (tt.problem == "") || !strings.Contains(all, tt.problem) {
				t.Errorf("said %q, want %q", all, tt.problem)
			}
			if tt.peers < 0 {
				if !plan.Failed() || len(plan.Documents) > 0 {
					t.Errorf("%d documents", len(plan.Documents))
				}
				return
			}
			doc := plan.Documents[plan.Nodes[0].Name]
			if len(doc.Peers) != tt.peers || len(doc.Discover.Tags) == 0 {
				t.Errorf("%d peers, discover %v; want %d", len(doc.Peers), doc.Discover, tt.peers)
			}
			text, err := doc.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := config.Parse(text); err != nil {
				t.Errorf("the agent refuses it: %v", err)
			}
		})
	}
}

// Whatever is asked for, the documents satisfy their contract, and a policy made of the fragment alone meets the
// requirements and passes the fragment's tests, in the judgement of the engine; the default rule for TCP, UDP and ICMP
// does not, unless the overlay travels in UDP.
func TestFragmentMeetsRequirements(t *testing.T) {
	inventory := &policy.Inventory{Devices: fleet()}
	for _, overlay := range []Overlay{{Protocol: "ip-in-ip"}, {Protocol: "gre"}, {Protocol: "esp"}, {Protocol: "vxlan"}, {Protocol: "udp", Port: 51820}} {
		for _, granularity := range []Granularity{Full, Location} {
			for _, syntax := range Syntaxes() {
				for name, selector := range map[string]Selector{
					"tags":  {Tags: []string{"tag:node"}},
					"two":   {Tags: []string{"tag:node", "tag:other"}},
					"names": {Names: []string{"ams1", "fra1"}},
				} {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", overlay.Protocol, granularity, syntax, name), func(t *testing.T) {
						plan := Build(fleet(), spec(func(s *Spec) {
							s.Overlay, s.Granularity, s.Syntax, s.Selector = overlay, granularity, syntax, selector
						}))
						if plan.Failed() || len(plan.Requirements) == 0 {
							t.Fatalf("plan: %+v", plan)
						}
						for node, doc := range plan.Documents {
							if err := doc.Validate(); err != nil {
								t.Errorf("document of %s: %v", node, err)
							}
						}
						owners := `{"tagOwners": {"tag:node": [], "tag:other": []},`
						report := policy.Check("", []byte(strings.Replace(plan.Fragment, "{", owners, 1)), inventory, plan.Requirements)
						if !report.Accepted || report.Diagnostics.HasErrors() {
							t.Errorf("accepted %v %q, %v, want no errors of\n%s", report.Accepted, report.Message, report.Diagnostics, plan.Fragment)
						}
						if granularity == Full && name != "names" && len(report.Tests) == 0 {
							t.Error("no tests were run, want those of the fragment")
						}
						usual := owners + `"grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]}]}`
						report = policy.Check("", []byte(usual), inventory, plan.Requirements)
						if inUDP := overlay.documentProtocol() == "udp"; report.Diagnostics.HasErrors() == inUDP {
							t.Errorf("the usual rule: errors %v, want %v", report.Diagnostics, !inUDP)
						}
					})
				}
			}
		}
	}
}

// An IP tunnel carries IPv6 in another protocol than IPv4: ip-in-ip alone leaves IPv6 pods dead.
func TestIPv6Pods(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Spec)
		want   []string
	}{
		"IPv4 pods": {func(s *Spec) { s.PodCIDRs = map[string][]netip.Prefix{"ams1": prefixList("10.244.1.0/24")} }, []string{"ip-in-ip"}},
		"a node with IPv6 pods": {func(s *Spec) {
			s.PodCIDRs = map[string][]netip.Prefix{"ams1": prefixList("10.244.1.0/24", "fd00:4::/64")}
		}, []string{"ip-in-ip", "41"}},
		"a cluster of both":      {func(s *Spec) { s.ClusterCIDRs = prefixList("10.244.0.0/16", "fd00:4::/56") }, []string{"ip-in-ip", "41"}},
		"vxlan carries anything": {func(s *Spec) { s.ClusterCIDRs, s.Overlay.Protocol = prefixList("fd00:4::/56"), "vxlan" }, []string{"udp"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Build(fleet(), spec(tt.change))
			var got []string
			for _, r := range plan.Requirements {
				got = append(got, r.Proto)
			}
			if plan.Failed() || !slices.Equal(got, tt.want) {
				t.Fatalf("protocols %v, want %v; problems %+v", got, tt.want, plan.Problems)
			}
			src := strings.Replace(plan.Fragment, "{", `{"tagOwners": {"tag:node": []},`, 1)
			if r := policy.Check("", []byte(src), &policy.Inventory{Devices: fleet()}, plan.Requirements); !r.Accepted || r.Diagnostics.HasErrors() {
				t.Errorf("the fragment does not meet them: %q %v", r.Message, r.Diagnostics)
			}
		})
	}
}

func TestOverlayNone(t *testing.T) {
	plan := Build(fleet(), spec(func(s *Spec) { s.Overlay.Protocol = "none" }))
	if plan.Failed() || len(plan.Requirements) != 0 || plan.Fragment != "{}\n" {
		t.Errorf("requirements %+v, fragment %q, problems %+v, want none", plan.Requirements, plan.Fragment, plan.Problems)
	}
}

func TestOrderOfDevicesDoesNotMatter(t *testing.T) {
	want := Build(fleet(), spec(nil))
	for range 20 {
		devices := fleet()
		rand.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		for i := range devices {
			slices.Reverse(devices[i].Addresses)
		}
		if d := cmp.Diff(want, Build(devices, spec(nil)), cmp.AllowUnexported(Node{}, config.Priority{}), cmp.Comparer(samePrefix), cmp.Comparer(sameAddr)); d != "" {
			t.Fatalf("plan changed with the order of devices (-want +got):\n%s", d)
		}
	}
}

func samePrefix(x, y netip.Prefix) bool { return x == y }
func sameAddr(x, y netip.Addr) bool     { return x == y }

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name      string
		devices   func([]policy.Device) []policy.Device
		change    func(*Spec)
		severity  diag.Severity
		attribute string
		key       string
		message   string
	}{
		{
			name: "nothing selected", change: func(s *Spec) { s.Selector = Selector{} },
			severity: diag.Error, attribute: "selector", message: "the selector chooses nothing",
		},
		{
			name: "not a tag", change: func(s *Spec) { s.Selector.Tags = []string{"node"} },
			severity: diag.Error, attribute: "selector.tags", message: `"node" is not a tag`,
		},
		{
			name: "no device", change: func(s *Spec) { s.Selector.Tags = []string{"tag:nobody"} },
			severity: diag.Warning, attribute: "selector", message: "its devices carry tag:node, tag:other",
		},
		{
			name: "too few", change: func(s *Spec) { s.MinNodes = 5 },
			severity: diag.Error, attribute: "min_nodes", message: "the mesh has 4 nodes, and at least 5 are wanted; the nodes are ams1",
		},
		{
			name: "unknown name", change: func(s *Spec) { s.Selector.Names = []string{"lon1"} },
			severity: diag.Warning, attribute: "selector.names", message: `no device is called "lon1"`,
		},
		{
			name: "same machine name", devices: func(d []policy.Device) []policy.Device { return append(d, device(13, "ams1", "tag:node")) },
			severity: diag.Error, message: `two nodes are called "ams1" (n11CNTRL and n13CNTRL)`,
		},
		{
			name: "same host name",
			devices: func(d []policy.Device) []policy.Device {
				again := device(13, "ams1-1", "tag:node")
				again.Hostname = "ams1"
				return append(d, again)
			},
			severity: diag.Warning, message: `nodes ["ams1" "ams1-1"] report the same host name "ams1"`,
		},
		{
			name:     "no address",
			devices:  func(d []policy.Device) []policy.Device { d[0].Addresses = []string{"192.0.2.1"}; return d },
			severity: diag.Error, message: `device "ams1" (n11CNTRL) has no mesh address`,
		},
		{
			name:     "not authorized",
			devices:  func(d []policy.Device) []policy.Device { d[0].Authorized = false; return d },
			severity: diag.Warning, message: `device "ams1" (n11CNTRL) is left out: it is not authorized`,
		},
		{
			name:     "of another tailnet",
			devices:  func(d []policy.Device) []policy.Device { d[0].IsExternal = true; return d },
			severity: diag.Warning, message: `device "ams1" (n11CNTRL) is left out: it belongs to another tailnet`,
		},
		{
			name: "overlapping pod networks", change: func(s *Spec) { s.PodCIDRs["ams2"] = prefixList("10.244.0.0/16") },
			severity: diag.Error, attribute: "pod_cidrs", key: "ams2", message: `10.244.0.0/16 of node "ams2" overlaps 10.244.1.0/24 of node "ams1"`,
		},
		{
			name: "pod network in the tailnet", change: func(s *Spec) { s.PodCIDRs["ams2"] = prefixList("100.64.0.0/24") },
			severity: diag.Error, attribute: "pod_cidrs", key: "ams2", message: "contains addresses of the tailnet",
		},
		{
			name: "pod network around the tailnet", change: func(s *Spec) { s.PodCIDRs["ams2"] = prefixList("fd00::/8") },
			severity: diag.Error, attribute: "pod_cidrs", key: "ams2", message: "contains addresses of the tailnet",
		},
		{
			name: "pod network with host bits", change: func(s *Spec) { s.PodCIDRs["ams2"] = prefixList("10.244.2.1/24") },
			severity: diag.Error, attribute: "pod_cidrs", key: "ams2", message: "write 10.244.2.0/24",
		},
		{
			name: "pod network on the wire", change: func(s *Spec) { s.PodCIDRs["ams2"] = prefixList("192.168.10.128/25") },
			severity: diag.Warning, attribute: "pod_cidrs", key: "ams2", message: "overlaps 192.168.10.0/24",
		},
		{
			name: "pod network outside of the cluster's", change: func(s *Spec) {
				s.ClusterCIDRs = prefixList("10.244.0.0/16", "fd00:4::/56", "10.99.0.0/16")
				s.PodCIDRs["ams2"] = prefixList("10.98.0.0/24")
			},
			severity: diag.Warning, attribute: "pod_cidrs", key: "ams2", message: "lies outside",
		},
		{
			name: "one node by two names", change: func(s *Spec) { s.PodCIDRs["n11CNTRL"] = prefixList("10.244.2.0/24") },
			severity: diag.Error, attribute: "pod_cidrs", key: "n11CNTRL", message: `both mean node "ams1"`,
		},
		{
			name: "pod network of no node", change: func(s *Spec) { s.PodCIDRs["lon1"] = prefixList("10.244.9.0/24") },
			severity: diag.Warning, attribute: "pod_cidrs", key: "lon1", message: "the nodes are ams1, ams2, fra1, fra2",
		},
		{
			name: "location of no node", change: func(s *Spec) { s.Locations["lon1"] = "lon" },
			severity: diag.Warning, attribute: "locations", key: "lon1", message: "no node of the mesh",
		},
		{
			name: "node without location", change: func(s *Spec) { s.Granularity = Location; delete(s.Locations, "fra2") },
			severity: diag.Warning, attribute: "locations", message: "no location is known for fra2, so that",
		},
		{
			name: "location of one node", change: func(s *Spec) { s.Granularity = Location; s.Locations["fra2"] = "lon" },
			severity: diag.Note, attribute: "locations", message: `location "fra" has one node`,
		},
		{
			name: "networks of no location", change: func(s *Spec) { s.LocalCIDRs["lon"] = prefixList("10.8.0.0/16") },
			severity: diag.Warning, attribute: "local_cidrs", key: "lon", message: "there are ams, fra",
		},
		{
			name: "local network around the tailnet", change: func(s *Spec) { s.LocalCIDRs["ams"] = prefixList("100.0.0.0/8") },
			severity: diag.Error, attribute: "local_cidrs", key: "ams", message: "contains addresses of the tailnet",
		},
		{
			name: "two bits", change: func(s *Spec) { s.Routing.Mark = 0x3000 },
			severity: diag.Error, attribute: "routing.mark", message: "has 2 bits set",
		},
		{
			name: "mark of another", change: func(s *Spec) { s.Routing.Mark = 0x4000 },
			severity: diag.Error, attribute: "routing.mark", message: "kube-proxy",
		},
		{
			name: "port for none", change: func(s *Spec) { s.Overlay.Port = 4789 },
			severity: diag.Error, attribute: "overlay.port", message: "ip-in-ip has no ports",
		},
		{
			name: "udp without port", change: func(s *Spec) { s.Overlay.Protocol = "udp" },
			severity: diag.Error, attribute: "overlay.port", message: "missing",
		},
		{
			name: "unknown overlay", change: func(s *Spec) { s.Overlay.Protocol = "ipip" },
			severity: diag.Error, attribute: "overlay.protocol", message: `"ipip" is not known`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices := fleet()
			if tt.devices != nil {
				devices = tt.devices(devices)
			}
			plan := Build(devices, spec(tt.change))
			if !slices.ContainsFunc(plan.Problems, func(p Problem) bool {
				return p.Severity == tt.severity && p.Attribute == tt.attribute && p.Key == tt.key && strings.Contains(p.Message, tt.message)
			}) {
				t.Errorf("problems %+v, want among them: %v %q %q %q", plan.Problems, tt.severity, tt.attribute, tt.key, tt.message)
			}
			for _, p := range plan.Problems {
				if p.Severity != tt.severity && p.Severity == diag.Error {
					t.Errorf("unexpected error %+v", p)
				}
			}
			if (tt.severity == diag.Error) != (len(plan.Documents) == 0) && tt.name != "no device" {
				t.Errorf("%d documents", len(plan.Documents))
			}
		})
	}
}

func TestClusterCIDRs(t *testing.T) {
	plan := Build(fleet(), spec(func(s *Spec) { s.ClusterCIDRs = prefixList("10.244.0.0/16", "fd00:4::/56") }))
	if len(plan.Problems) > 0 {
		t.Errorf("problems: %+v", plan.Problems)
	}
	for node, want := range map[string][]netip.Prefix{"ams1": prefixList("10.244.1.0/24"), "ams2": prefixList("10.244.0.0/16", "fd00:4::/56")} {
		if got := plan.Documents[node].PodCIDRs; !slices.Equal(got, want) {
			t.Errorf("pod networks of %s: %v, want %v", node, got, want)
		}
	}
}

func TestGraph(t *testing.T) {
	full := Build(fleet(), spec(nil)).Graph
	apart := Build(fleet(), spec(func(s *Spec) { s.Granularity = Location })).Graph
	for _, tt := range []struct {
		name, text, line string
		want             bool
	}{
		{"between locations", full.Mermaid, `s0 -- "ip-in-ip" --- s1`, true},
		{"within a location, full", full.Mermaid, "n0 --- n1", true},
		{"within a location, apart", apart.Mermaid, "n0 --- n1", false},
		{"box", full.Mermaid, `subgraph s0["ams"]`, true},
		{"node", full.Mermaid, `n0["ams1<br>100.64.0.11"]`, true},
		{"dot between locations", full.DOT, `n0 -- n2 [ltail=cluster_0, lhead=cluster_1, label="ip-in-ip"]`, true},
		{"dot within a location, full", full.DOT, "n2 -- n3\n", true},
		{"dot within a location, apart", apart.DOT, "n2 -- n3\n", false},
	} {
		if got := strings.Contains(tt.text, tt.line); got != tt.want {
			t.Errorf("%s: %q in the drawing is %v, want %v:\n%s", tt.name, tt.line, got, tt.want, tt.text)
		}
	}
}

func TestFragmentIsFormatted(t *testing.T) {
	plan := Build(fleet(), spec(nil))
	got, err := hujson.Format([]byte(plan.Fragment))
	if err != nil || string(got) != plan.Fragment {
		t.Errorf("%v, formatted:\n%s\nwant as it is:\n%s", err, got, plan.Fragment)
	}
}
