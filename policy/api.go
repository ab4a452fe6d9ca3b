package policy

import "github.com/tailmesh/terraform-provider-tailmesh/policy/diag"

// (skeleton: the engine's public face, agreed on before its insides were written)

// Verdict is one of three answers. The zero value is invalid on purpose.
type Verdict int

// The three answers. Undecided is not a failure: it says that the inventory lacks what would be needed to tell.
const (
	Pass Verdict = iota + 1
	Fail
	Undecided
)

// Policy is a parsed policy file. Every part knows its range in the text.
type Policy struct{}

// Inventory is the tailnet as the API's device and user lists give it.
type Inventory struct {
	Devices []Device `json:"devices"`
	Users   []User   `json:"users"`
}

// Device is one device, as in the API's device list (?fields=all).
type Device struct {
	ID               string   `json:"id,omitempty"`
	NodeID           string   `json:"nodeId"`
	Name             string   `json:"name"`
	Hostname         string   `json:"hostname"`
	Addresses        []string `json:"addresses"`
	User             string   `json:"user"`
	Tags             []string `json:"tags,omitempty"`
	Authorized       bool     `json:"authorized"`
	IsExternal       bool     `json:"isExternal,omitempty"`
	AdvertisedRoutes []string `json:"advertisedRoutes"`
	EnabledRoutes    []string `json:"enabledRoutes"`
	OS               string   `json:"os,omitempty"`
	ClientVersion    string   `json:"clientVersion,omitempty"`
	// ClientConnectivity.Endpoints are the node's own view of its UDP addresses, "ip:port".
	ClientConnectivity *ClientConnectivity `json:"clientConnectivity,omitempty"`
}

// ClientConnectivity is the part of the API's object of that name that the engine and the planner read.
type ClientConnectivity struct {
	Endpoints []string `json:"endpoints"`
}

// User is one user, as in the API's user list.
type User struct {
	ID        string `json:"id"`
	LoginName string `json:"loginName"`
	Role      string `json:"role"`
	Status    string `json:"status"`
	Type      string `json:"type"`
}

// Requirement says that a flow must be admitted, between every ordered pair of devices that Src and Dst expand to.
type Requirement struct {
	Name  string   `json:"name"`
	Src   []string `json:"src"`             // selectors as in a grant
	Dst   []string `json:"dst"`             // selectors as in a grant, without ports
	Proto string   `json:"proto"`           // name or number, as in an acl
	Ports string   `json:"ports,omitempty"` // "443", "80-443"; empty or "*" is all
	Why   string   `json:"why,omitempty"`
}

// RequirementResult is the judgement of one Requirement.
type RequirementResult struct {
	Requirement Requirement   `json:"requirement"`
	Verdict     Verdict       `json:"verdict"`
	Missing     []string      `json:"missing,omitempty"` // what was missing, where Undecided
	Pairs       int           `json:"pairs"`             // ordered pairs judged
	Failed      []FailedPair  `json:"failed,omitempty"`
	Diagnostics diag.List     `json:"diagnostics,omitempty"` // what to show: nearest rule, pairs, the text to add
}

// FailedPair is an ordered pair of devices between which a required flow is not admitted.
type FailedPair struct {
	Src, Dst         string // host names
	SrcAddr, DstAddr string
}

// TestResult is the judgement of one entry line of tests or sshTests.
type TestResult struct {
	Path    string   `json:"path"` // tests[4].accept[0]
	Src     string   `json:"src"`
	Dst     string   `json:"dst"`
	Proto   string   `json:"proto,omitempty"`
	Want    string   `json:"want"` // accept, drop, check
	Got     string   `json:"got"`
	Verdict Verdict  `json:"verdict"`
	Rule    string   `json:"rule,omitempty"` // path of the rule that decided
	Missing []string `json:"missing,omitempty"`
}

// Report is all that can be said of a policy file.
type Report struct {
	// Accepted, Status and Message are what the control plane would answer to a write: 200, 400 or 500.
	Accepted bool
	Status   int
	Message  string
	// Diagnostics are the findings, sorted by position, the unmet requirements and failed tests among them.
	Diagnostics  diag.List
	Tests        []TestResult
	SSHTests     []TestResult
	Requirements []RequirementResult
	// Policy is nil where the text is not HuJSON; Compiled is nil where the control plane would refuse the rules.
	Policy   *Policy
	Compiled *Compiled
}

// Compiled is a policy resolved against an inventory; safe for concurrent use.
type Compiled struct{}

// Check says what the control plane would say to a write of src, and then judges reqs. inv may be nil: what needs
// devices is then Undecided.
func Check(file string, src []byte, inv *Inventory, reqs []Requirement) *Report { panic("not yet") }

// ParseInventory reads {"devices":[…],"users":[…]} as the API writes it; keys that the engine does not use are ignored.
func ParseInventory(src []byte) (*Inventory, error) { panic("not yet") }

// Format formats HuJSON as the control plane does when it stores a file; comments are kept.
func Format(src []byte) ([]byte, error) { panic("not yet") }

// Decision is the answer to "may this flow pass".
type Decision struct {
	Verdict Verdict
	Rule    string     // path of the rule that decided
	Range   diag.Range // its place in the text
	Missing []string
}

// Can judges one flow. src and dst are selectors or host names, proto as in an acl (empty: tcp), port 0 for protocols without.
func (c *Compiled) Can(src, dst, proto string, port int) (Decision, error) { panic("not yet") }
