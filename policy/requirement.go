package policy

import "github.com/tailmesh/terraform-provider-tailmesh/policy/diag"

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
	Requirement Requirement  `json:"requirement"`
	Verdict     Verdict      `json:"verdict"`
	Missing     []string     `json:"missing,omitempty"` // what was missing, where Undecided
	Pairs       int          `json:"pairs"`             // ordered pairs judged
	Failed      []FailedPair `json:"failed,omitempty"`
	Diagnostics diag.List    `json:"diagnostics,omitempty"` // what to show: nearest rule, pairs, the text to add
}

// FailedPair is an ordered pair of devices between which a required flow is not admitted.
type FailedPair struct {
	Src     string `json:"src"` // host name
	Dst     string `json:"dst"`
	SrcAddr string `json:"srcAddr"`
	DstAddr string `json:"dstAddr"`
}
