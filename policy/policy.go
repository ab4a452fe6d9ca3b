package policy

import (
	"encoding/json"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Node is a place in the text of a policy file.
type Node struct {
	Range diag.Range
	// Path names the place by structure, such as "grants[3].src[0]".
	Path string
}

// String is a string as the text spells it.
type String struct {
	Node
	Value string
}

// Strings is a list of strings. A key that is missing or null has Present false and the zero Range.
type Strings struct {
	Node
	Present bool
	Items   []String
}

// Values returns the strings alone.
func (s Strings) Values() []string {
	out := make([]string, len(s.Items))
	for i, it := range s.Items {
		out[i] = it.Value
	}
	return out
}

// Raw is a part of the text that the engine carries without reading: Value is standard JSON, comments removed.
type Raw struct {
	Node
	Present bool
	Value   json.RawMessage
}

// Bool is a boolean. A key that is missing or null has Present false.
type Bool struct {
	Node
	Present bool
	Value   bool
}

// Policy is a parsed policy file. Every part knows its range in the text. Maps of the text are lists here, in the
// order of the text.
type Policy struct {
	Node // the whole object

	// ACLs and Grants are nil only where the key is missing (or null); an empty list is not nil. A policy that has
	// neither key allows everything, one with an empty list nothing.
	ACLs   []ACL
	Grants []Grant
	// ACLList and GrantList are the places of the two lists, zero where the key is missing.
	ACLList, GrantList Node

	Groups    []Group
	Hosts     []Host
	IPSets    []IPSet
	TagOwners []TagOwner
	Postures  []Posture

	DefaultSrcPosture Strings
	AutoApprovers     AutoApprovers
	SSH               []SSH
	Tests             []Test
	SSHTests          []SSHTest
	NodeAttrs         []NodeAttr

	RandomizeClientPort Bool
	DisableIPv4         Bool
	OneCGNATRoute       String
	DERPMap             Raw
	AttrConfig          Raw
	ExternalTailnets    Raw

	// Unknown holds top-level sections that the engine does not know. They are carried through and reported once.
	Unknown []Section

	src    []byte
	lines  *diag.Lines
	shapes map[int]shape // of lists and of the whole object, by the offset of the opening bracket
	empty  []Node        // top-level keys that are null; their ranges are the nulls
}

// Source returns the text that the policy was parsed from. The caller must not change it.
func (p *Policy) Source() []byte { return p.src }

// Section is a top-level section by name.
type Section struct {
	Name String
	Raw  Raw
}

// ACL is an entry of acls. The legacy keys users and ports are read as Src and Dst.
type ACL struct {
	Node
	Action     String
	Proto      String
	Src        Strings
	Dst        Strings // "selector:ports"
	SrcPosture Strings
	// Unknown are the keys that an acl does not have.
	Unknown []String
}

// Grant is an entry of grants.
type Grant struct {
	Node
	Src        Strings
	Dst        Strings
	IP         Strings
	Via        Strings
	SrcPosture Strings
	App        []Capability
	AppNode    Node
	// Unknown are the keys that a grant does not have.
	Unknown []String
}

// Capability is one entry of a grant's app: a capability name and the values that go with it, in the order of the text.
type Capability struct {
	Name   String
	Values []json.RawMessage
}

// Group is an entry of groups.
type Group struct {
	Name    String
	Members Strings
}

// Host is an entry of hosts: a name for an address or a CIDR.
type Host struct {
	Name  String
	Value String
}

// IPSet is an entry of ipsets: "add X", "remove X" or "X" in order.
type IPSet struct {
	Name    String
	Entries Strings
}

// TagOwner is an entry of tagOwners.
type TagOwner struct {
	Name   String
	Owners Strings
}

// Posture is an entry of postures: assertions that must all hold.
type Posture struct {
	Name       String
	Assertions Strings
}

// AutoApprovers is the section of that name.
type AutoApprovers struct {
	Node
	Routes   []Approver
	Services []Approver
	ExitNode Strings
}

// Approver says who is approved without review for a route (a CIDR) or a service.
type Approver struct {
	Name String
	Who  Strings
}

// SSH is an entry of ssh.
type SSH struct {
	Node
	Action          String
	Src             Strings
	Dst             Strings
	Users           Strings
	AcceptEnv       Strings
	SrcPosture      Strings
	Recorder        Strings
	CheckPeriod     String // zero Range where missing or null
	EnforceRecorder Bool
}

// Test is an entry of tests. The legacy keys user and allow are read as Src and Accept.
type Test struct {
	Node
	Src             String
	Proto           String
	Accept          Strings
	Deny            Strings
	SrcPostureAttrs map[string]json.RawMessage
}

// SSHTest is an entry of sshTests.
type SSHTest struct {
	Node
	Src             String
	Dst             Strings
	Accept          Strings
	Deny            Strings
	Check           Strings
	SrcPostureAttrs map[string]json.RawMessage
}

// NodeAttr is an entry of nodeAttrs.
type NodeAttr struct {
	Node
	Target Strings
	Attr   Strings
	IPPool Strings
	App    []Capability
}
