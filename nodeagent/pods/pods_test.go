package pods

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tailmesh/terraform-provider-tailmesh/nodeagent/desired"
)

func TestFind(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	link := func(name string, addresses ...string) desired.Link {
		l := desired.Link{Name: name}
		for _, a := range addresses {
			l.Addresses = append(l.Addresses, netip.MustParsePrefix(a))
		}
		return l
	}
	rule := func(src string, table uint32) desired.Rule {
		return desired.Rule{
			Family: desired.FamilyOf(netip.MustParsePrefix(src).Addr()), Priority: 9,
			Src: netip.MustParsePrefix(src), Action: desired.Lookup, Table: table,
		}
	}
	const kubeRouter = `{"cniVersion":"0.3.0","name":"mynet","plugins":[
		{"name":"kubernetes","type":"bridge","bridge":"kube-bridge","isDefaultGateway":true,
		 "ipam":{"type":"host-local","subnet":"10.244.1.0/24"}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
	tests := []struct {
		name  string
		files fstest.MapFS
		facts desired.Facts
		want  []string
	}{
		{name: "nothing"},
		{
			name:  "kube-router",
			files: fstest.MapFS{"etc/cni/net.d/10-kuberouter.conflist": file(kubeRouter)},
			want:  []string{"[10.244.1.0/24] from /etc/cni/net.d/10-kuberouter.conflist"},
		},
		{
			name: "ranges of both families, one plugin alone",
			files: fstest.MapFS{"etc/cni/net.d/10-bridge.conf": file(`{"type":"bridge","ipam":{"type":"host-local",
				"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}]]}}`)},
			want: []string{"[10.1.2.0/24] from /etc/cni/net.d/10-bridge.conf", "[fd00:1::/64] from /etc/cni/net.d/10-bridge.conf"},
		},
		{
			name: "Flannel on k3s",
			files: fstest.MapFS{
				"var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist": file(`{"name":"cbr0","plugins":[{"type":"flannel"}]}`),
				"run/flannel/subnet.env": file("FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_IPV6_SUBNET=fd00:42:3::1/64\nFLANNEL_MTU=1230\n"),
			},
			want: []string{
				"[10.42.3.0/24] from /var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist",
				"[fd00:42:3::/64] from /var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist",
			},
		},
		{
			name: "the first file is the one in use",
			files: fstest.MapFS{
				"etc/cni/net.d/00-notes.txt":           file("10.9.9.0/24"),
				"etc/cni/net.d/05-broken.conflist":     file("{"),
				"etc/cni/net.d/10-kuberouter.conflist": file(kubeRouter),
				"etc/cni/net.d/99-old.conflist":        file(`{"plugins":[{"type":"bridge","ipam":{"subnet":"10.88.0.0/16"}}]}`),
			},
			want: []string{"[10.244.1.0/24] from /etc/cni/net.d/10-kuberouter.conflist"},
		},
		{
			name:  "a configuration that does not name networks leaves it to the rule",
			files: fstest.MapFS{"etc/cni/net.d/10-calico.conflist": file(`{"plugins":[{"type":"calico","ipam":{"type":"calico-ipam","subnet":"usePodCidr"}}]}`)},
			facts: desired.Facts{Rules: []desired.Rule{rule("10.244.1.0/24", 77)}},
			want:  []string{"[10.244.1.0/24] from the policy rule `9: from 10.244.1.0/24 lookup 77`"},
		},
		{
			name: "rules for other purposes, and a bridge",
			facts: desired.Facts{
				Rules: []desired.Rule{rule("192.168.1.0/24", 100), rule("10.244.1.7/32", 77)},
				Links: []desired.Link{link("docker0", "172.17.0.1/16"), link("cni0", "10.42.0.1/24", "fe80::1/64")},
			},
			want: []string{"[10.42.0.0/24] from the addresses of cni0"},
		},
		{
			name:  "each family from the first place that has it",
			files: fstest.MapFS{"etc/cni/net.d/10-kuberouter.conflist": file(kubeRouter)},
			facts: desired.Facts{Links: []desired.Link{link("kube-bridge", "10.244.9.1/24", "fd00:10:244:1::1/64")}},
			want: []string{
				"[10.244.1.0/24] from /etc/cni/net.d/10-kuberouter.conflist",
				"[fd00:10:244:1::/64] from the addresses of kube-bridge",
			},
		},
		{
			name:  "networks that contain mesh addresses, or everything",
			files: fstest.MapFS{"etc/cni/net.d/10-x.conf": file(`{"type":"bridge","ipam":{"ranges":[[{"subnet":"100.64.0.0/16"}],[{"subnet":"::/0"}]]}}`)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range Find(tt.files, tt.facts) {
				got = append(got, fmt.Sprintf("%s from %s", f.Networks, f.Where))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Nobody waits for what nobody writes into a pipe.
func TestPipeForConfiguration(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/cni/net.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/cni/net.d/10-x.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Find(os.DirFS(root), desired.Facts{}); len(got) > 0 {
		t.Errorf("found %v", got)
	}
}
