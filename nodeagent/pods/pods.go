// Package pods finds the networks of a node's own pods where its document does not name them: in the CNI's
// configuration, in the policy rule that the CNI made, and at the bridge that the pods are on. It only reads.
package pods

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

// Found is what was found for one family.
type Found struct {
	Family   desired.Family
	Networks []netip.Prefix
	Where    string
}

// Find looks in each place in turn, and takes for each family the first that has networks of it. A place that cannot be
// read, or holds nonsense, is passed over: the next may do. The files are those of the
// node, from its root; nil is none.
func Find(files fs.FS, facts desired.Facts) []Found {
	var out []Found
	for _, place := range []func() []Found{
		func() []Found { return configured(files) },
		func() []Found { return routed(facts) },
		func() []Found { return bridged(facts) },
	} {
		for _, found := range place() {
			if !slices.ContainsFunc(out, func(f Found) bool { return f.Family == found.Family }) {
				out = append(out, found)
			}
		}
	}
	slices.SortFunc(out, func(a, b Found) int { return int(a.Family) - int(b.Family) })
	return out
}

// group sorts networks by family and leaves out what cannot be a network of pods.
func group(where string, list []netip.Prefix) []Found {
	var out []Found
	for _, f := range desired.Families() {
		found := Found{Family: f, Where: where}
		for _, p := range list {
			p = p.Masked()
			if desired.FamilyOf(p.Addr()) == f && plausible(p) && !slices.Contains(found.Networks, p) {
				found.Networks = append(found.Networks, p)
			}
		}
		if len(found.Networks) > 0 {
			out = append(out, found)
		}
	}
	return out
}

func plausible(p netip.Prefix) bool {
	a := p.Addr()
	return p.Bits() > 0 && !p.IsSingleIP() && !p.Overlaps(desired.FamilyOf(a).MeshRange()) &&
		!a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// folders are where the CNI's configuration is: everybody's, and that of k3s.
func folders() []string {
	return []string{"etc/cni/net.d", "var/lib/rancher/k3s/agent/etc/cni/net.d"}
}

// configured reads the CNI's configuration as the container runtime does: the first file by name is the one in use.
func configured(files fs.FS) []Found {
	if files == nil {
		return nil
	}
	for _, folder := range folders() {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			continue
		}
		for _, e := range entries { // sorted by name
			switch path.Ext(e.Name()) {
			case ".conf", ".conflist", ".json":
			default:
				continue
			}
			name := path.Join(folder, e.Name())
			networks, err := readConfiguration(files, name)
			if err != nil {
				continue
			}
			return group("/"+name, networks)
		}
	}
	return nil
}

// plugin is what is read of a CNI configuration: of a list, or of one plugin alone.
type plugin struct {
	Type    string   `json:"type"`
	Plugins []plugin `json:"plugins"`
	IPAM    struct {
		Type   string    `json:"type"`
		Subnet string    `json:"subnet"`
		Ranges [][]scope `json:"ranges"`
	} `json:"ipam"`
}

type scope struct {
	Subnet string `json:"subnet"`
}

func readConfiguration(files fs.FS, name string) ([]netip.Prefix, error) {
	text, err := readFile(files, name)
	if err != nil {
		return nil, err
	}
	var top plugin
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if top.Type == "" && len(top.Plugins) == 0 {
		return nil, errors.New("no CNI configuration")
	}
	var out []netip.Prefix
	for _, p := range append([]plugin{top}, top.Plugins...) {
		subnets := []string{p.IPAM.Subnet}
		for _, set := range p.IPAM.Ranges {
			for _, r := range set {
				subnets = append(subnets, r.Subnet)
			}
		}
		for _, s := range subnets {
			// "usePodCidr" and the like stand for networks that are elsewhere.
			if prefix, err := netip.ParsePrefix(s); err == nil {
				out = append(out, prefix)
			}
		}
		if p.Type == "flannel" {
			out = append(out, flannel(files)...)
		}
	}
	return out, nil
}

// readFile reads a file of somebody else's. Nobody waits for a pipe, or reads a device to its end.
func readFile(files fs.FS, name string) ([]byte, error) {
	const limit = 1 << 20 // bytes
	info, err := fs.Stat(files, name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > limit) {
		err = fmt.Errorf("%s is no configuration", name)
	}
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(files, name)
}

// flannel reads the node's lease, which flanneld writes for its plugin: FLANNEL_SUBNET=10.42.0.1/24.
func flannel(files fs.FS) []netip.Prefix {
	text, err := readFile(files, "run/flannel/subnet.env")
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if key != "FLANNEL_SUBNET" && key != "FLANNEL_IPV6_SUBNET" {
			continue
		}
		if prefix, err := netip.ParsePrefix(value); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}

// kubeRouterTable is the table that kube-router's rule for the node's own pods looks into (`from <pods> lookup 77`).
const kubeRouterTable = 77

func routed(facts desired.Facts) []Found {
	var out []Found
	for _, r := range facts.Rules {
		if !r.Own() && !r.Invert && r.Action == desired.Lookup && r.Table == kubeRouterTable && r.Src.IsValid() && !r.Dst.IsValid() {
			out = append(out, group(fmt.Sprintf("the policy rule `%s`", r), []netip.Prefix{r.Src})...)
		}
	}
	return out
}

// bridges are the names of the bridges of kube-router, of the bridge plugin and Flannel, and of kubenet.
func bridges() []string { return []string{"kube-bridge", "cni0", "cbr0"} }

func bridged(facts desired.Facts) []Found {
	var out []Found
	for _, name := range bridges() {
		if link, ok := facts.Link(name); ok {
			out = append(out, group("the addresses of "+name, link.Addresses)...)
		}
	}
	return out
}
