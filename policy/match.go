package policy

import (
	"errors"

	"github.com/tailmesh/terraform-provider-tailmesh/policy/diag"
)

// Decision is the answer to "may this flow pass".
type Decision struct {
	Verdict Verdict
	Rule    string     // path of the rule that decided
	Range   diag.Range // its place in the text
	Missing []string
}

// Can judges one flow. src and dst are selectors or host names, proto as in an acl (empty: tcp), port 0 for protocols without.
func (c *Compiled) Can(src, dst, proto string, port int) (Decision, error) {
	return Decision{}, errors.New("not built yet")
}
