package doctor

import (
	"net/netip"
	"time"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/pods"
)

// Evidence is everything that was seen of a node. [Gather] reads it from the node that the program runs on; a judgement
// is a function of it alone.
type Evidence struct {
	Now time.Time

	// Pod is the address of the pod whose packets are judged; zero: one that no pod has.
	Pod netip.Addr

	Document    *config.Document // as it was written; nil: there is none that can be used
	DocumentErr string           // why
	Pods        []pods.Found     // the pods' networks that were found on the node

	Tailscaled Tailscaled
	Admissions Admissions // what the service has seen of this node's packet filter before; zero: nothing

	Facts   desired.Facts
	Devices []Device
	Routes  []Route
	// Rules are the tables of nftables; nil: they could not be read, for the reason in RulesErr.
	Rules    *Ruleset
	RulesErr string
	// CountersAfter are those of the rules by what [Rule.String] says, after the probe.
	CountersAfter map[string]uint64
	// Legacy are the tables of legacy iptables that may decide. LegacyErr says why it is not known which there are.
	Legacy    []LegacyTable
	LegacyErr string
	Sysctls   map[string]string // by name, without net. in front: "ipv4.ip_forward"
	Flows     []Flow            // connections of pods that are tracked
	FlowsErr  string

	// Answers are the kernel's for packets that [Evidence.Wanted] asked for.
	Answers map[desired.Packet]desired.Answer

	Watched time.Duration // for how long policy rules were watched; 0: not
	Events  []RuleEvent   // what happened to them
	Agents  []int         // processes of the agent that run as a service in this network namespace
	// AgentsErr says why they are not known.
	AgentsErr string

	Probe    *Probe // nil: no packet was sent
	ProbeErr string // why none could be sent, though one was asked for
}

// Tailscaled is what tailscaled says of itself and of the tailnet.
type Tailscaled struct {
	Err     string // why it did not answer; "" if it did
	State   string // BackendState
	Self    TailscaleNode
	Peers   []TailscaleNode
	Health  []string
	Filter  []FilterRule // the packet filter that this node applies to what comes in
	Filters bool         // Filter is known, empty or not
	// FilterHow says how the filter was read, or why it could not be.
	FilterHow string
	Prefs     *Prefs // nil: not known
	// Drops counts packets that the filter dropped (tailscaled_inbound_dropped_packets_total{reason="acl"}), at the start
	// and at the end of the look; nil: not known.
	Drops, DropsAfter *float64
}

// TailscaleNode is a machine of the tailnet, as tailscaled's status has it.
type TailscaleNode struct {
	ID        string
	Name      string
	Addresses []netip.Addr
	Tags      []string
	Online    bool
	Expired   bool
	KeyExpiry time.Time // zero: none
	Allowed   []netip.Prefix
	Endpoint  string // where it is reached, or the relay's name
}

// FilterRule is one entry of the packet filter as tailscaled has parsed it, with the default protocols filled in.
type FilterRule struct {
	Protocols    []int
	Sources      []netip.Prefix
	Capabilities []string // of sources; not looked at for protocols without ports
	Destinations []FilterDestination
}

// FilterDestination is where an entry of the packet filter lets packets go.
type FilterDestination struct {
	Net         netip.Prefix
	First, Last uint16
}

// Prefs is what is looked at of tailscaled's settings.
type Prefs struct {
	NetfilterMode int // 2 is on: tailscaled keeps its chains in the firewall
	NoSNAT        bool
	ShieldsUp     bool // nothing that a peer begins is let in, whatever the policy says
}

// Device is what there is to know of an interface beyond [desired.Link].
type Device struct {
	Name          string
	Index         int
	MTU           int
	Kind          string // "bridge", "ipip", "veth" …
	Up            bool
	Master        string // the bridge that it is a port of
	Local, Remote netip.Addr
	Lower         string // the interface that a tunnel is bound to; "": none
	FragmentInner bool   // an ip-in-ip tunnel that sends packets without "do not fragment"
	Received      uint64
	Sent          uint64
}

// Route is a route of any table.
type Route struct {
	Family desired.Family
	Table  uint32
	Dst    netip.Prefix // of length 0 for the default route
	Dev    string
	Type   string // "unicast", "throw", "unreachable", "blackhole", "prohibit", "local" …
}

// Flow is a tracked connection: who began it, whom it called, who answers and where the answers go.
type Flow struct {
	Src, Dst, Answers, To netip.Addr
	Protocol              uint8
}

// RuleEvent is a policy rule that came or went while rules were watched.
type RuleEvent struct {
	At    time.Time
	Added bool
	Rule  desired.Rule
}

// Probe is what became of packets that were sent from a namespace of their own at the pods' bridge.
type Probe struct {
	Device  string // the interface of the pods that they came in by
	Source  netip.Addr
	Source6 netip.Addr
	// Flows are one echo connection each, to a peer's address.
	Flows []ProbeFlow
	// Filtered is how many packets reverse path filtering dropped meanwhile on the whole node, or -1.
	Filtered int
}

// ProbeFlow is what was seen of one connection.
type ProbeFlow struct {
	To      netip.Addr
	Sent    int
	In      int    // requests that came in by the pods' interface
	Out     []Seen // requests that left, translated or not, in a tunnel or not
	Back    []Seen // answers that came in
	Got     int    // answers that reached the sender
	Refused string // the message that the sender got instead of an answer
	// Large is what became of a request that fills the pods' interface and must not be fragmented: "answered", "too big"
	// (somebody told the sender of a smaller limit), "lost", or "" where none was sent.
	Large string
	Limit int // the limit that the sender was told
}

// Seen is a kind of packet that was seen at an interface.
type Seen struct {
	Dev      string
	Src, Dst netip.Addr
	Tunneled bool // inside another packet
	Count    int
}
