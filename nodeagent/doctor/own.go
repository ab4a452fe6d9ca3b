package doctor

import (
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// ownTables returns the agent's own firewall tables that the node has, in whatever backend.
func ownTables(f desired.Facts) []*desired.Table {
	var out []*desired.Table
	for _, b := range desired.Backends() {
		if t := f.Tables[b]; t != nil {
			out = append(out, t)
		}
	}
	return out
}

// ownLegacy says whether the agent's own rules are in legacy iptables, whose rules are not followed but for those.
func (j *judgement) ownLegacy() bool { return j.e.Facts.Tables[desired.IPTablesLegacy] != nil }

// Own says whether the rule is in a table or a chain of the agent's own.
func (r *Rule) Own() bool {
	return r.Chain.Family == "inet" && r.Chain.Table == desired.TableName || strings.HasPrefix(r.Chain.Name, desired.ChainPrefix)
}
