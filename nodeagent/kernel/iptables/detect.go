package iptables

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// hints are the chains that kubelet keeps in the mangle table for others to find its variant by, the newer one first.
func hints() []string { return []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"} }

// detect says which variant the node's other users use, as kube-proxy's image finds out (kubernetes-sigs/
// iptables-wrappers): by kubelet's chains, first in nf_tables and then in ip_tables, each in both families. Without them
// it is nf_tables, unless only the other one can be had; they are looked for again each time, since kubelet may come
// later.
func detect(seen *scanner) desired.Backend {
	variants := []desired.Backend{desired.IPTablesNFT, desired.IPTablesLegacy}
	for _, b := range variants {
		for _, f := range desired.Families() {
			for _, name := range hints() {
				if seen.exists(b, f, "mangle", name) {
					return b
				}
			}
		}
	}
	for _, b := range variants {
		if (b == desired.IPTablesLegacy || seen.nfTables()) && missing(b) == "" {
			return b
		}
	}
	return variants[0]
}

// Concerns says whether a change to a chain of iptables can change what [Firewall.Read] finds: the chain is the agent's,
// or one that jumps to it, or a hint.
func Concerns(table, chain string) bool {
	if table == "mangle" && slices.Contains(hints(), chain) {
		return true
	}
	return slices.ContainsFunc(desired.IPTablesChains(desired.IPv4), func(c desired.Chain) bool {
		return c.Type == table && (c.Name == chain || c.Hook == chain)
	})
}

// missing says which program a variant lacks and what to do, or "".
func missing(b desired.Backend) string {
	for _, f := range desired.Families() {
		for _, which := range []string{"", restoring} {
			if _, err := find(b, f, which); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// restoring ends the names of the programs that change a whole table.
const restoring = "-restore"

// find looks for a program of a variant and a family, by the end of its name: with the variant in the name, which it has
// since iptables 1.8, or by the plain name where that leads to a program of the variant.
func find(b desired.Backend, f desired.Family, which string) (string, error) {
	if path, err := exec.LookPath(b.Tool(f) + which); err == nil {
		return path, nil
	}
	kind := strings.TrimPrefix(string(b), "iptables-")
	if path, err := exec.LookPath(strings.TrimSuffix(b.Tool(f), "-"+kind) + which); err == nil {
		real, err := filepath.EvalSymlinks(path)
		if nft := strings.Contains(filepath.Base(real), "nft"); err == nil && nft == (b == desired.IPTablesNFT) {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on the PATH: install the iptables package with its %s variant", b.Tool(f)+which, kind)
}
