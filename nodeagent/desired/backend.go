package desired

import (
	"fmt"
	"slices"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/config"
)

// Backend is a place in the kernel where the agent's firewall table may lie. One node may have all three, and each is
// blind to the others' rules.
type Backend string

// The backends. The two variants of iptables are what its two programs write: nf_tables by way of its compatibility
// layer, and the older ip_tables.
const (
	NFTables       Backend = "nftables"
	IPTablesNFT    Backend = "iptables-nft"
	IPTablesLegacy Backend = "iptables-legacy"
)

// Backends returns all of them, the preferred one first.
func Backends() []Backend { return []Backend{NFTables, IPTablesNFT, IPTablesLegacy} }

// BackendError says that the firewall backend that a document asks for cannot be had on the node.
type BackendError struct {
	Backend string // as in the document
	Reason  string // with what to do about it
}

func (e *BackendError) Error() string {
	return fmt.Sprintf("firewall.backend: %q cannot be had: %s", e.Backend, e.Reason)
}

// backend chooses where the firewall table goes.
func backend(asked string, facts Facts) (Backend, error) {
	nftables := asked == config.BackendNFTables || asked == config.BackendAuto && facts.NoNFTables == ""
	switch {
	case nftables && facts.NoNFTables != "":
		return "", &BackendError{Backend: asked, Reason: facts.NoNFTables + `: use "iptables"`}
	case nftables:
		return NFTables, nil
	case facts.NoIPTables != "" && facts.NoNFTables != "":
		return "", &BackendError{Backend: asked, Reason: facts.NoIPTables + "; nftables is no way out, because " + facts.NoNFTables}
	case facts.NoIPTables != "":
		return "", &BackendError{Backend: asked, Reason: facts.NoIPTables + `, or use "nftables"`}
	}
	return facts.IPTables, nil
}

// Backend returns where the state's firewall table goes, or "" where there is none or several.
func (s State) Backend() Backend {
	var found Backend
	for b := range s.Tables {
		if found != "" {
			return ""
		}
		found = b
	}
	return found
}

// MarkOf returns the bits that the agent's firewall tables set on a packet of a connection's direction: what is in
// force, which is not always what is wanted.
func (f Facts) MarkOf(p Packet, direction string) uint32 {
	var mark uint32
	for _, t := range f.Tables {
		mark |= t.MarkOf(p, direction)
	}
	return mark
}

// diffTables changes the wanted tables first and takes the others away last: while the backend changes, both are in
// force, which is the same as one.
func diffTables(have, want map[Backend]*Table) []FirewallChange {
	var in, out []FirewallChange
	for _, b := range Backends() {
		diff := diffIPTables
		if b == NFTables {
			diff = diffTable
		}
		changes := diff(have[b], want[b])
		for i := range changes {
			changes[i].Backend = b
			changes[i].Leftover = changes[i].Leftover || want[b] == nil
		}
		if want[b] == nil {
			out = append(out, changes...)
		} else {
			in = append(in, changes...)
		}
	}
	return slices.Concat(in, out)
}
